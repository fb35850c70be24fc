//! Operations as tests state them: by path and slot, not by inode number. So a sequence keeps its
//! meaning when the minimiser removes operations from it.

use steadfast::fs::{AllocateMode, Caller, RenameMode, SetXattrMode};

/// Number of slots of each client that can hold acquired files.
pub const SLOTS: usize = 4;
/// Maximum number of clients.
pub const CLIENTS: usize = 4;
/// Slots of all clients; client *n* uses those from `n * SLOTS` on.
pub const ALL_SLOTS: usize = SLOTS * CLIENTS;

/// A name by number. Small numbers are ordinary names, so that operations meet the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u8);

impl Name {
    /// A name as long as the volume allows.
    pub const LONGEST: Name = Name(100);
    /// One byte longer than that.
    pub const TOO_LONG: Name = Name(101);
    /// A name of bytes that are not UTF-8.
    pub const BINARY: Name = Name(102);
    /// The empty name.
    pub const EMPTY: Name = Name(200);
    /// `.`
    pub const DOT: Name = Name(201);
    /// `..`
    pub const DOT_DOT: Name = Name(202);
    /// A name with a slash.
    pub const SLASH: Name = Name(203);
    /// A name with a NUL byte.
    pub const NUL: Name = Name(204);

    /// The bytes of the name on a volume whose longest name is `name_max` bytes.
    pub fn bytes(self, name_max: usize) -> Vec<u8> {
        match self {
            Name::LONGEST => vec![b'L'; name_max],
            Name::TOO_LONG => vec![b'T'; name_max + 1],
            Name::BINARY => vec![0xff, 0x80, 1, 0xc3, 0x28],
            Name::EMPTY => Vec::new(),
            Name::DOT => b".".to_vec(),
            Name::DOT_DOT => b"..".to_vec(),
            Name::SLASH => b"a/b".to_vec(),
            Name::NUL => b"a\0b".to_vec(),
            Name(number) if number < 26 => vec![b'a' + number],
            Name(number) => format!("name-{number}").into_bytes(),
        }
    }

    /// The name with these bytes.
    pub fn of(bytes: &[u8]) -> Option<Name> {
        match bytes {
            [letter @ b'a'..=b'z'] => Some(Name(letter - b'a')),
            [0xff, ..] => Some(Name::BINARY),
            [b'L', b'L', ..] => Some(Name::LONGEST),
            _ => std::str::from_utf8(bytes).ok()?.strip_prefix("name-")?.parse().ok().map(Name),
        }
    }
}

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// By path from the root; the empty path is the root.
    Path(Vec<Name>),
    /// The file held in a slot.
    Slot(u8),
}

/// The type of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link with a target of this many bytes.
    Symlink(u16),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(u32),
    /// A block device.
    BlockDevice(u32),
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The clock's present time.
    Now,
    /// Seconds (negative before 1970) and nanoseconds.
    At(i64, u32),
}

/// Attributes to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the fields are those of the facade")]
pub struct Change {
    pub permissions: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<Time>,
    pub modified: Option<Time>,
    pub changed: Option<(i64, u32)>,
    pub drop_privileges: bool,
}

/// One step of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names and fields are those of the facade")]
pub enum Operation {
    Create {
        directory: Place,
        name: Name,
        make: Make,
        permissions: u32,
        caller: u8,
    },
    CreateUnnamed {
        directory: Place,
        slot: u8,
        caller: u8,
    },
    Link {
        from: Place,
        directory: Place,
        name: Name,
    },
    Unlink {
        directory: Place,
        name: Name,
    },
    RemoveDirectory {
        directory: Place,
        name: Name,
    },
    Rename {
        from: Place,
        from_name: Name,
        to: Place,
        to_name: Name,
        mode: RenameMode,
    },
    Set {
        place: Place,
        change: Change,
    },
    SetXattr {
        place: Place,
        name: u8,
        length: u32,
        fill: u32,
        mode: SetXattrMode,
    },
    RemoveXattr {
        place: Place,
        name: u8,
    },
    Acquire {
        place: Place,
        slot: u8,
    },
    Release {
        slot: u8,
    },
    Closed {
        place: Place,
    },
    Write {
        place: Place,
        offset: u64,
        length: u32,
        fill: u32,
        sync: bool,
    },
    Append {
        place: Place,
        length: u32,
        fill: u32,
        sync: bool,
    },
    /// Writes to every other block from the start, `count` times, which makes as many extents.
    Scatter {
        place: Place,
        count: u16,
        fill: u32,
    },
    Allocate {
        place: Place,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    },
    CopyRange {
        from: Place,
        from_offset: u64,
        to: Place,
        to_offset: u64,
        length: u64,
    },
    /// Shares blocks; offsets and length are in bytes, and length 0 means the rest of the file.
    CloneRange {
        from: Place,
        from_offset: u64,
        to: Place,
        to_offset: u64,
        length: u64,
    },
    Fsync {
        place: Place,
        data_only: bool,
    },
    Sync,
    Transact,
    Checkpoint,
    Rollback,
    /// Advances the monotonic clock, and runs background work until there is none.
    Background {
        advance_ms: u64,
    },
    /// The same with one step of background work; the rest of the work runs during later
    /// operations.
    Turn {
        advance_ms: u64,
    },
    SetMask {
        mask: u32,
    },
    SetTimer {
        ms: u32,
    },
    /// Takes a snapshot with a name by number.
    SnapshotCreate {
        name: u8,
    },
    /// Deletes the snapshot.
    SnapshotDelete {
        name: u8,
    },
    /// Returns the volume to the snapshot; newer ones are dropped.
    SnapshotRollback {
        name: u8,
        destroy_newer: bool,
    },
    /// Begins an atomic command.
    Begin,
    /// Ends the atomic command: all of its changes become durable.
    Commit,
    /// Ends the atomic command: none of its changes stay.
    Abort,
    /// Makes the volume larger or smaller: this many eighths of the medium.
    Resize {
        eighths: u8,
    },
    /// Reopens the volume, after closing it or after just dropping it (as `kill -9` does).
    Remount {
        clean: bool,
    },
    /// Compares the whole volume with the model.
    Compare,
}

/// The name of a snapshot by number.
pub fn snapshot_name(number: u8) -> String {
    format!("snapshot-{number}")
}

/// The caller with this number.
pub fn caller(number: u8) -> Caller {
    match number % 3 {
        0 => Caller { uid: 0, gid: 0, umask: 0o022 },
        1 => Caller { uid: 1000, gid: 1000, umask: 0 },
        _ => Caller { uid: u32::MAX - 2, gid: 65_536, umask: 0o077 },
    }
}

/// The name of an extended attribute by number.
pub fn xattr_name(number: u8) -> Vec<u8> {
    match number {
        0 => b"user.a".to_vec(),
        1 => b"trusted.overlay.origin".to_vec(),
        2 => b"security.capability".to_vec(),
        3 => [b"user.".to_vec(), vec![b'x'; 250]].concat(),
        4 => [b"user.".to_vec(), vec![b'x'; 251]].concat(),
        5 => b"user.".to_vec(),
        6 => b"".to_vec(),
        7 => b"nothing".to_vec(),
        _ => format!("user.attribute-{number}").into_bytes(),
    }
}
