//! The bytes of regular files.

use steadfast::InodeNumber;
use steadfast::fs::{AllocateMode, FileKind};

use super::{Body, Content, FILE_SIZE_MAX, Model};
use crate::fault::{Fault, Faults, Objections};

impl Model {
    /// The content of a regular file.
    ///
    /// # Errors
    /// Stale, or not a regular file.
    pub fn content(&self, inode: InodeNumber) -> Result<&Content, Faults> {
        let node = self.living(inode)?;
        match (&node.body, node.kind) {
            (Body::Regular(content), _) => Ok(content),
            (_, FileKind::Directory) => {
                Err([Fault::IsADirectory, Fault::NotARegularFile, Fault::InvalidArgument].into())
            }
            _ => Err([Fault::NotARegularFile, Fault::InvalidArgument].into()),
        }
    }

    fn content_mut(&mut self, inode: InodeNumber) -> Option<&mut Content> {
        match &mut self.state.change(inode)?.body {
            Body::Regular(content) => Some(content),
            _ => None,
        }
    }

    /// Writes `data` at `offset`; empty data changes nothing.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn write(&mut self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<(), Faults> {
        let mut objections = Objections::default();
        self.object_to_content(inode, &mut objections);
        let beyond = offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX);
        objections.any(beyond, &[Fault::FileTooLarge, Fault::InvalidArgument]);
        objections.check()?;
        if data.is_empty() {
            return Ok(());
        }
        if let Some(content) = self.content_mut(inode) {
            content.write(offset, data);
        }
        self.touch(inode);
        Ok(())
    }

    /// Writes at the end and returns that offset.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn append(&mut self, inode: InodeNumber, data: &[u8]) -> Result<u64, Faults> {
        let offset = self.content(inode)?.size();
        self.write(inode, offset, data)?;
        Ok(offset)
    }

    /// Notes the objections to changing the bytes of this inode. Returns the size of a regular
    /// file.
    fn object_to_content(&self, inode: InodeNumber, objections: &mut Objections) -> u64 {
        match self.content(inode) {
            Ok(content) => content.size(),
            Err(faults) => {
                objections.all(&faults);
                0
            }
        }
    }

    /// Allocates, punches or zeroes a range.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn allocate(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<(), Faults> {
        let mut objections = Objections::default();
        let size = self.object_to_content(inode, &mut objections);
        let end = offset.saturating_add(length);
        objections
            .when(length == 0, Fault::InvalidArgument)
            .any(end > FILE_SIZE_MAX, &[Fault::FileTooLarge, Fault::InvalidArgument])
            .check()?;
        let keep_size = match mode {
            AllocateMode::Allocate { keep_size } | AllocateMode::ZeroRange { keep_size } => {
                keep_size
            }
            AllocateMode::PunchHole => true,
        };
        if let Some(content) = self.content_mut(inode) {
            if !matches!(mode, AllocateMode::Allocate { .. }) {
                content.zero(offset, length);
            }
            if !keep_size && end > size {
                content.set_size(end);
            }
        }
        self.touch(inode);
        Ok(())
    }

    /// Checks a copy and returns the most bytes that it copies.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn copy_length(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64, Faults> {
        let mut objections = Objections::default();
        let size = self.object_to_content(from, &mut objections);
        self.object_to_content(to, &mut objections);
        let count = size.saturating_sub(from_offset).min(length);
        // As in Linux, the length that is really copied counts, not the requested one.
        let overlap = from == to && from_offset.abs_diff(to_offset) < count;
        let beyond = to_offset.checked_add(count).is_none_or(|end| end > FILE_SIZE_MAX);
        objections
            .when(overlap, Fault::InvalidArgument)
            .any(beyond, &[Fault::FileTooLarge, Fault::InvalidArgument])
            .check()?;
        Ok(count)
    }

    /// Checks a clone and returns the number of bytes that it shares.
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn clone_length(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64, Faults> {
        let mut objections = Objections::default();
        let size = self.object_to_content(from, &mut objections);
        let to_size = self.object_to_content(to, &mut objections);
        let count = if length == 0 { size.saturating_sub(from_offset) } else { length };
        let (end, to_end) = (from_offset.checked_add(count), to_offset.checked_add(count));
        let whole = |bytes: u64| bytes.is_multiple_of(self.limits.block_size);
        // The partial last block of a file may be cloned if it becomes the last block of the other
        // file.
        let ends_whole = end.is_none_or(|end| {
            whole(end) || (end == size && to_end.is_none_or(|to_end| to_end >= to_size))
        });
        let overlap = from == to && from_offset.abs_diff(to_offset) < count;
        let beyond = to_end.is_none_or(|end| end > FILE_SIZE_MAX);
        objections
            .when(end.is_none_or(|end| end > size), Fault::InvalidArgument)
            .when(!whole(from_offset) || !whole(to_offset) || !ends_whole, Fault::InvalidArgument)
            .when(overlap, Fault::InvalidArgument)
            .any(beyond, &[Fault::FileTooLarge, Fault::InvalidArgument])
            .check()?;
        Ok(count)
    }

    /// Clones `count` bytes, as returned by [`clone_length`](Self::clone_length).
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn clone_range(
        &mut self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        count: u64,
    ) -> Result<(), Faults> {
        if count == 0 {
            return Ok(());
        }
        let source = self.content(from)?.clone();
        if let Some(content) = self.content_mut(to) {
            content.copy_from(&source, from_offset, to_offset, count);
        }
        self.touch(to);
        Ok(())
    }

    /// Copies `count` bytes, as returned by [`copy_length`](Self::copy_length).
    ///
    /// # Errors
    /// See [`Faults`].
    pub fn copy_range(
        &mut self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        count: u64,
    ) -> Result<(), Faults> {
        let data = self.content(from)?.read(from_offset, count as usize);
        self.write(to, to_offset, &data)
    }
}
