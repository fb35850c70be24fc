//! FUSE over io_uring: what an entry of a queue holds, and the commands on it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Gives an entry to the kernel: `addr` of the command is an array of two buffers, headers and
/// payload.
pub(crate) const REGISTER: u32 = 1;
/// Answers the request in an entry, and gives the entry back for the next one.
pub(crate) const COMMIT_AND_FETCH: u32 = 2;

/// Most bytes of the first argument of a request.
pub(crate) const ARGUMENT_MAX: usize = 128;

/// The last 80 bytes of a command start with this.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Command {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) queue: u16,
    pub(crate) padding: [u8; 6],
}

/// The headers of an entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Headers {
    /// `InHeader` of the request, `OutHeader` of the answer.
    pub(crate) in_out: [u8; 128],
    /// The first argument of the request. Those behind it are the payload.
    pub(crate) argument: [u8; ARGUMENT_MAX],
    pub(crate) flags: u64,
    /// What the command that answers has to name.
    pub(crate) commit_id: u64,
    /// Bytes of the payload, of the request and of the answer.
    pub(crate) payload_len: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

const _: () = {
    assert!(size_of::<Command>() == 24);
    assert!(size_of::<Headers>() == 288);
};
