//! Parameters of a new volume and of opening one.

use crate::mask::TransactionMask;

/// Parameters of a new volume. The defaults suit disks, eMMC and image files.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Size of the volume in bytes; `None` uses the whole medium.
    pub size: Option<u64>,
    /// Block size in bytes: a power of two from 128 to 65,536, and at least the medium's atomic
    /// unit.
    pub block_size: u32,
    /// Tree node size in bytes: a power of two from 512 to 65,536, and at least the block size.
    /// `None`: the block size, at least 512; at least 8 KiB on volumes from 16 MiB on with blocks
    /// of 4 KiB or more.
    pub node_size: Option<u32>,
    /// Copies of each metadata block, 1 or 2; `None`: 2, or 1 below 128 KiB.
    pub metadata_copies: Option<u8>,
    /// Intent log size in bytes, rounded to blocks. `None` chooses it by the size of the volume; 0:
    /// no log, every transaction point is a checkpoint.
    pub log_size: Option<u64>,
    /// 16 random bytes that identify the volume; they also key the name hash.
    pub uuid: [u8; 16],
    /// A label for people, at most 32 bytes of UTF-8.
    pub label: alloc::string::String,
    /// The transaction mask stored in the volume.
    pub mask: TransactionMask,
    /// Interval of the transaction timer in milliseconds.
    pub timer_ms: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: u32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            size: None,
            block_size: 4096,
            node_size: None,
            metadata_copies: None,
            log_size: None,
            uuid: [0; 16],
            label: alloc::string::String::new(),
            mask: TransactionMask::DEFAULT,
            timer_ms: 5000,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
        }
    }
}

/// How to open a volume.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Nothing is written to the medium; a pending intent log is replayed in memory only.
    pub read_only: bool,
    /// Memory for cached tree nodes and allocation bitmaps, bytes.
    pub cache_size: usize,
    /// Whether access times are updated as relatime does; `false` leaves them unchanged (noatime).
    pub access_times: bool,
    /// Opens for writing even if a newer state than the remaining one [is
    /// damaged](crate::NewerState), and gives the newer one up.
    pub recover: bool,
    /// Other machines can write to the medium: the writer checks for another writer around every
    /// log record and metaroot, not only once a second.
    pub shared: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            cache_size: 32 << 20,
            access_times: true,
            recover: false,
            shared: false,
        }
    }
}
