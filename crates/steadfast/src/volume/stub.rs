//! STUB of the operations that crate::fs implements. SEMANTICS deletes each method here as the real one appears, and
//! this file in the end.
#![allow(missing_docs, unused_variables, clippy::todo)]
use super::Volume;
use crate::error::Result;
use crate::fs::*;
use crate::platform::Platform;
use crate::types::InodeNumber;
use alloc::vec::Vec;
use steadfast_media::Medium;

impl<M: Medium, P: Platform> Volume<M, P> {
    pub(crate) fn reclaim_step(&self) -> Result<bool> {
        Ok(false)
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
