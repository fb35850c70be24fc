//! Arguments of requests, from the kernel to the daemon.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

inputs! {
    /// The start of every request.
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, extensions: u32 }
    /// INIT as of minor 31; `InitExtension` follows if the INIT_EXT flag is set.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Follows `InitIn`.
    InitExtension { flags2: u32, unused: [u32; 11] }
    ForgetIn { lookups: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, lookups: u64 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE; the name follows.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// The data follows.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// GETLK, SETLK and SETLKW.
    LkIn { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, lk_flags: u32, padding: u32 }
    InterruptIn { unique: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR without SETXATTR_EXT; name and value follow.
    SetxattrCompatIn { size: u32, flags: u32 }
    /// Follows `SetxattrCompatIn` if both sides agreed on SETXATTR_EXT.
    SetxattrExtension { setxattr_flags: u32, padding: u32 }
    /// GETXATTR (the name follows) and LISTXATTR.
    GetxattrIn { size: u32, padding: u32 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, length: u64, flags: u64,
    }
}
