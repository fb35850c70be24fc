//! Quantities with their own types, so that an index, a count and a size are never mixed up.

/// Index of a block on the medium, from the start of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BlockAddress(pub u64);

impl BlockAddress {
    /// "No block": the second copy of a node that is stored once.
    pub const NONE: BlockAddress = BlockAddress(u64::MAX);
}

/// Number of an inode. Never reused within the life of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct InodeNumber(pub u64);

impl InodeNumber {
    /// Owner of the keys that belong to the volume and not to a file.
    pub const SYSTEM: InodeNumber = InodeNumber(0);
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber(1);
    /// The first number given to a new file.
    pub const FIRST_USER: InodeNumber = InodeNumber(16);
}

/// Counts checkpoints: everything written between two durable checkpoints has the same generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Generation(pub u64);

/// Log sequence number: grows with each record of the intent log. There may be gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Lsn(pub u64);

/// A run of consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockRun {
    /// First block.
    pub start: BlockAddress,
    /// Number of blocks, at least one in a valid run.
    pub count: u64,
}

impl BlockRun {
    /// One past the last block.
    pub fn end(&self) -> u64 {
        self.start.0 + self.count
    }
}

/// A point in time: seconds since 1970-01-01 UTC (negative before) and nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}
