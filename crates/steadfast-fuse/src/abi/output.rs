//! Answers and notifications, from the daemon to the kernel.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! outputs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

outputs! {
    /// The start of every answer (`error` is 0 or a negated errno) and of every notification
    /// (`error` is the code, `unique` is 0).
    OutHeader { len: u32, error: i32, unique: u64 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_nsec: u32, mtime_nsec: u32,
        ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime,
        mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    /// WRITE and COPY_FILE_RANGE.
    WriteOut { size: u32, padding: u32 }
    CopyFileRangeOut { length: u64 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// GETXATTR and LISTXATTR requests that only want the size.
    GetxattrOut { size: u32, padding: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LkOut { start: u64, end: u64, kind: u32, pid: u32 }
    LseekOut { offset: u64 }
    /// The name follows, padded with zeros to a multiple of eight bytes.
    Dirent { ino: u64, offset: u64, name_len: u32, kind: u32 }
    NotifyInvalInode { nodeid: u64, offset: i64, length: i64 }
}

const _: () = {
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<Statx>() == 256);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<StatfsOut>() == 80);
};
