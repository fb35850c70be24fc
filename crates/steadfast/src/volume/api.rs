//! The operations of a volume by inode number. THE FACADE (contract for the FUSE mount and the command line).

use alloc::string::String;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::fs::*;
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::platform::Platform;
use crate::types::InodeNumber;

/// What a volume is (superblock and present state).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    pub version: u32,
    pub uuid: [u8; 16],
    pub label: String,
    pub size: u64,
    pub block_size: u32,
    pub node_size: u32,
    pub metadata_copies: u8,
    pub log_size: u64,
    pub features_compatible: u64,
    pub features_read_only: u64,
    pub features_incompatible: u64,
    /// Generation of the newest durable checkpoint.
    pub generation: u64,
    /// Records replayed when the volume was opened (0 after a clean unmount).
    pub replayed_records: u64,
    /// Bytes of the log in use since the last checkpoint.
    pub log_used: u64,
    /// Transaction points since the volume was opened.
    pub transaction_points: u64,
    /// Copies of metadata found damaged and answered from the other copy since the volume was opened.
    pub repaired_reads: u64,
    /// A superblock copy was found damaged at open.
    pub superblock_damaged: bool,
    pub mask: TransactionMask,
    pub timer_ms: u32,
    pub read_only: bool,
    /// Why the volume went read-only by itself, if it did.
    pub poisoned: Option<&'static str>,
    /// Counts rollbacks since open; inode numbers handed out before a rollback may be gone.
    pub incarnation: u64,
}

/// A mounted volume. All methods take `&self` and may be called from several threads.
pub struct Volume<M: Medium, P: Platform> {
    medium: M,
    platform: P,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    // ---- life cycle (engine)
    pub fn format(medium: &M, options: &FormatOptions, platform: &P) -> Result<()> {
        todo!()
    }
    /// On error the medium is dropped.
    pub fn open(medium: M, options: OpenOptions, platform: P) -> Result<Self> {
        todo!()
    }
    /// Sets a transaction point where the mask has `unmount`, otherwise drops what is not committed. Afterwards every operation fails.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    pub fn medium(&self) -> &M {
        &self.medium
    }
    pub fn platform(&self) -> &P {
        &self.platform
    }
    pub fn info(&self) -> VolumeInfo {
        todo!()
    }
    pub fn statistics(&self) -> Result<Statistics> {
        todo!()
    }

    // ---- transactions (engine)
    /// Makes everything accepted so far durable.
    pub fn transact(&self) -> Result<()> {
        todo!()
    }
    /// transact() and then a checkpoint that empties the log.
    pub fn checkpoint(&self) -> Result<()> {
        todo!()
    }
    /// Returns the live volume to the last durable transaction point. Callers drop every cached fact.
    pub fn rollback(&self) -> Result<()> {
        todo!()
    }
    pub fn mask(&self) -> TransactionMask {
        todo!()
    }
    /// Takes effect at once; stored in the volume with the next checkpoint.
    pub fn set_mask(&self, mask: TransactionMask) -> Result<()> {
        todo!()
    }
    pub fn timer_ms(&self) -> u32 {
        todo!()
    }
    pub fn set_timer_ms(&self, ms: u32) -> Result<()> {
        todo!()
    }
    /// Background work in one bounded step: timer, checkpoint I/O, orphan reclaim. Returns true while there is more to do
    /// at once. A host calls it from a thread of its own, at least every 100 ms.
    pub fn background(&self) -> Result<bool> {
        todo!()
    }
    /// sync(2)/syncfs(2): a transaction point if the mask has `sync`.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }

    // ---- names (fs)
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes> {
        todo!()
    }
    /// Up to `count` entries behind `cookie` (0 starts). `.` and `..` come first with cookies 1 and 2.
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        todo!()
    }
    /// Like read_directory, with the attributes of each entry, consistent with each other.
    pub fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>> {
        todo!()
    }
    /// Creates an inode; `permissions` before umask / default ACL.
    pub fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        todo!()
    }
    /// O_TMPFILE: a regular file without a name, already acquired (see [`acquire`](Self::acquire)) once; `link` can name it.
    pub fn create_unnamed(
        &self,
        directory: InodeNumber,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        todo!()
    }
    pub fn link(&self, inode: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<Attributes> {
        todo!()
    }
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn remove_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn rename(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        todo!()
    }
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        todo!()
    }

    // ---- attributes (fs)
    pub fn attributes(&self, inode: InodeNumber) -> Result<Attributes> {
        todo!()
    }
    pub fn set_attributes(&self, inode: InodeNumber, set: &SetAttributes) -> Result<Attributes> {
        todo!()
    }
    pub fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }
    pub fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: SetXattrMode) -> Result<()> {
        todo!()
    }
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        todo!()
    }

    // ---- files (fs)
    /// Keeps the inode alive while it has no name, until as many `release` calls. Counts are in memory.
    pub fn acquire(&self, inode: InodeNumber) -> Result<()> {
        todo!()
    }
    /// Never blocks for long: reclaiming the space is background work.
    pub fn release(&self, inode: InodeNumber) {
        todo!()
    }
    /// Call when a descriptor that was open for writing is closed: a transaction point if the mask has `close`.
    pub fn closed(&self, inode: InodeNumber) -> Result<()> {
        todo!()
    }
    /// Fills the front of `buffer`, returns how many bytes (fewer only at the end of the file). Holes read as zeros.
    pub fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// Writes all of `data` or fails. `sync`: the descriptor has O_SYNC or O_DSYNC.
    /// Atomic as a whole up to 1 MiB; longer data is written as several operations.
    pub fn write(&self, inode: InodeNumber, offset: u64, data: &[u8], sync: bool) -> Result<()> {
        todo!()
    }
    /// O_APPEND: writes at the end, returns the offset used.
    pub fn append(&self, inode: InodeNumber, data: &[u8], sync: bool) -> Result<u64> {
        todo!()
    }
    pub fn allocate(&self, inode: InodeNumber, offset: u64, length: u64, mode: AllocateMode) -> Result<()> {
        todo!()
    }
    pub fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64> {
        todo!()
    }
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        todo!()
    }
    /// fsync/fdatasync: a transaction point if the mask has `fsync`.
    pub fn fsync(&self, inode: InodeNumber, data_only: bool) -> Result<()> {
        todo!()
    }
}
