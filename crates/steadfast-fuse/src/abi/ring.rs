//! FUSE over io_uring: the contents of a queue entry, and the commands on it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Registers an entry with the kernel: `addr` of the command is an array of two buffers, headers
/// and payload.
pub(crate) const REGISTER: u32 = 1;
/// Answers the request in an entry, and returns the entry to the kernel for the next request.
pub(crate) const COMMIT_AND_FETCH: u32 = 2;

/// Largest first argument of a request, in bytes.
pub(crate) const ARGUMENT_MAX: usize = 128;

/// The start of the last 80 bytes of a command.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RingCommand {
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
    /// The first argument of the request. Further arguments are in the payload.
    pub(crate) argument: [u8; ARGUMENT_MAX],
    pub(crate) flags: u64,
    /// The id that the answering command has to name.
    pub(crate) commit_id: u64,
    /// Bytes of the payload, for the request and for the answer.
    pub(crate) payload_len: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

const _: () = {
    assert!(size_of::<RingCommand>() == 24);
    assert!(size_of::<Headers>() == 288);
};
