//! [`Fleet`]: the servers as the engine sees them.

pub use crate::client::Ask;

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not asked yet.
    Pending,
    /// Done.
    Done,
    /// The server has refused, with this number of the protocol.
    Refused(u32),
    /// No answer in time. The server may have carried it out, or may do so later.
    Late,
    /// The connection broke, or there is none. The server may have carried it out, or may do so
    /// later.
    Lost,
    /// Another server answers at this address: its proof differs.
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
    /// The outcome.
    pub outcome: Outcome,
}

impl<'a> Call<'a> {
    /// A call that was not made yet.
    pub fn new(server: usize, offset: u64, ask: Ask<'a>) -> Call<'a> {
        Call { server, offset, ask, outcome: Outcome::Pending }
    }
}

/// Properties that a server announces on the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// Bytes that it lends.
    pub size: u64,
    /// Smallest request and alignment, bytes.
    pub block_min: u32,
    /// The server can make a single write durable.
    pub fua: bool,
    /// The server has a flush request.
    pub flush: bool,
    /// The server can trim.
    pub trim: bool,
}

/// Servers that answer requests. The engine does all its I/O through this trait, so a simulation
/// can replace it.
pub trait Fleet: Send + Sync {
    /// Number of servers, spares included.
    fn servers(&self) -> usize;

    /// Connects to a server, whichever answers. Older connections to it are closed.
    ///
    /// # Errors
    /// A message for the user: why there is no connection.
    fn contact(&self, server: usize) -> Result<Contact, String>;

    /// Sets the bytes that a server must hold at `offset`. From now on a connection is used only if
    /// it was open before or began by reading these bytes. A server that restarts empty or stale is
    /// an [`Outcome::Stranger`].
    fn set_proof(&self, server: usize, offset: u64, bytes: &[u8]);

    /// Makes all calls, in parallel if they go to different servers, and returns when each has its
    /// outcome. Calls to one server may be carried out in any order. A call without an answer after
    /// `patience_ms` is [`Outcome::Late`].
    fn round(&self, calls: &mut [Call<'_>], patience_ms: u64);

    /// How many connections to the server have broken, as far as is visible without waiting.
    fn breaks(&self, server: usize) -> u64;

    /// Waits this many milliseconds, so that late requests of another client arrive.
    fn pause(&self, ms: u64);

    /// Whether another client is known to have taken the array over: then every request is refused.
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
