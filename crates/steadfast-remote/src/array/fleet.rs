//! [`Fleet`]: the servers as the engine sees them.

pub use crate::client::Ask;

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not asked yet.
    Pending,
    /// Done.
    Done,
    /// The server has refused, with this number of the protocol.
    Refused(u32),
    /// No answer in time. It may have been carried out, or may be so later.
    Late,
    /// The connection broke, or there is none. It may have been carried out, or may be so later.
    Lost,
    /// Somebody answers at this place, but not the server that was there: its proof is another one.
    Stranger,
}

/// One request to one server.
#[derive(Debug)]
pub struct Call<'a> {
    /// Index of the server in the fleet.
    pub server: usize,
    /// First byte on the server.
    pub offset: u64,
    /// What is asked.
    pub ask: Ask<'a>,
    /// What came of it.
    pub outcome: Outcome,
}

impl<'a> Call<'a> {
    /// A call that was not made yet.
    pub fn new(server: usize, offset: u64, ask: Ask<'a>) -> Call<'a> {
        Call { server, offset, ask, outcome: Outcome::Pending }
    }
}

/// What a server says about itself on the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// Bytes that it lends.
    pub size: u64,
    /// Smallest request and alignment, bytes.
    pub block_min: u32,
    /// A single write can be made durable.
    pub fua: bool,
    /// There is a flush.
    pub flush: bool,
    /// Bytes that are not needed can be given back.
    pub trim: bool,
}

/// Servers that answer requests. The engine's only way to the world, so that a simulation can take
/// its place.
pub trait Fleet: Send + Sync {
    /// How many servers there are, spares included.
    fn servers(&self) -> usize;

    /// Gets in touch with a server, whoever it is. Older connections to it are closed.
    ///
    /// # Errors
    /// A line for people: why nobody answers.
    fn contact(&self, server: usize) -> Result<Contact, String>;

    /// Sets what a server must hold at `offset`. From now on no connection to it is used that was
    /// not begun with reading these bytes, or was open before: who restarts empty or stale is a
    /// [`Outcome::Stranger`].
    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]);

    /// Makes all calls, side by side where they go to different servers, and returns when each has
    /// its outcome. Calls to one server may be carried out in any order. A call without an answer
    /// after `patience_ms` is [`Outcome::Late`].
    fn round(&self, calls: &mut [Call<'_>], patience_ms: u64);

    /// How often a connection to the server has broken, as far as that can be seen without waiting.
    fn breaks(&self, server: usize) -> u64;

    /// Lets so many milliseconds pass, for what somebody else has sent to arrive meanwhile.
    fn pause(&self, ms: u64);

    /// Whether another client has taken the array over, as far as anybody has said: then nothing
    /// more is done here.
    fn fenced(&self) -> bool {
        false
    }
}

impl<F: Fleet + ?Sized> Fleet for std::sync::Arc<F> {
    fn servers(&self) -> usize {
        (**self).servers()
    }
    fn contact(&self, server: usize) -> Result<Contact, String> {
        (**self).contact(server)
    }
    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]) {
        (**self).set_proof(server, offset, bytes);
    }
    fn round(&self, calls: &mut [Call<'_>], patience_ms: u64) {
        (**self).round(calls, patience_ms);
    }
    fn breaks(&self, server: usize) -> u64 {
        (**self).breaks(server)
    }
    fn pause(&self, ms: u64) {
        (**self).pause(ms);
    }
    fn fenced(&self) -> bool {
        (**self).fenced()
    }
}
