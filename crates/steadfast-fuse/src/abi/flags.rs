//! Flag bits of the protocol.

/// Bits of INIT, in the request and in the reply. `flags2` holds the upper half.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// `GetattrIn::getattr_flags`: the request has a handle.
pub(crate) const GETATTR_FH: u32 = 1 << 0;

/// `SetattrIn::valid`.
pub(crate) mod setattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `OpenOut::open_flags`.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// `OpenIn::open_flags` and `CreateIn::open_flags`: clear set-user-id and set-group-id while
/// truncating.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;

/// `ReadIn::read_flags`.
pub(crate) mod read {
    /// A program reads; the kernel does not fill pages of its cache.
    pub(crate) const LOCK_OWNER: u32 = 1 << 1;
    /// Not of the kernel: the answer may be a [`ReadPlan`](steadfast::fs::ReadPlan). A peer sets it
    /// in requests to the owner.
    pub(crate) const PLAN: u32 = 1 << 31;
}

/// `WriteIn::write_flags`.
pub(crate) mod write {
    /// The kernel writes back its page cache, and the handle is a guess.
    pub(crate) const CACHE: u32 = 1 << 0;
    /// The caller lacks CAP_FSETID.
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// `LkIn::lk_flags`: the lock is one of flock(2).
pub(crate) const LK_FLOCK: u32 = 1 << 0;

/// `SetxattrIn::setxattr_flags`: clear set-group-id after setting an ACL.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
