//! Copying between files: blocks are shared if source and target have the same offset within a
//! block. The rest is read and written.
//!
//! If the offsets differ by whole blocks, only the bytes before the first whole block and after the
//! last one are copied. The last block of the source is shared too if the target ends with it. Data
//! small enough for the tree is copied, so a copy of a small file is a real copy.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::inode::{FILE_SIZE_MAX, Inode};
use crate::mask::TransactionMask;
use crate::memory;
use crate::platform::Platform;
use crate::profile::SNAPSHOTS;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Bytes read and written at once.
const COPY_BYTES: u64 = 256 << 10;

/// A place in a file.
type FilePosition = (InodeNumber, u64);

impl<M: Medium, P: Platform> Volume<M, P> {
    /// copy_file_range: copies up to `length` bytes and returns their number. The number is smaller
    /// only at the end of the source, or before an error that the next call would report.
    ///
    /// If the offsets differ by whole blocks, whole blocks are shared between both files, as by
    /// [`clone_range`](Self::clone_range). The rest is written in pieces of at most 256 KiB. The
    /// whole copy is one event for the transaction mask.
    ///
    /// # Errors
    /// `InvalidArgument` if source and target overlap in one file; `NotPermitted`: flags of the
    /// target. If nothing was copied yet, those of [`read`](Self::read), [`write`](Self::write) and
    /// [`clone_range`](Self::clone_range).
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let size = {
            let reader = self.engine.reader()?;
            Inode::load_regular(&reader, to)?.file_flags().check_change()?;
            Inode::load_regular(&reader, from)?.size
        };
        let length = length.min(size.saturating_sub(from_offset));
        if from == to && from_offset.abs_diff(to_offset) < length {
            return Err(Error::InvalidArgument("source and target overlap"));
        }
        to_offset
            .checked_add(length)
            .filter(|end| *end <= FILE_SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        let mut done = 0;
        while done < length {
            let places = ((from, from_offset + done), (to, to_offset + done));
            let (count, result) = self.copy_some(places.0, places.1, length - done);
            done += count;
            match result {
                Err(error) if done == 0 => return Err(error),
                Ok(()) if count > 0 => {}
                _ => break,
            }
        }
        if done > 0 {
            self.engine.event(TransactionMask::WRITE)?;
        }
        Ok(done)
    }

    /// Copies some bytes and returns their number: 0 without an error at the end of the source,
    /// which may have shrunk.
    fn copy_some(&self, from: FilePosition, to: FilePosition, length: u64) -> (u64, Result<()>) {
        let block = self.parameters().block();
        let mut piece = length.min(COPY_BYTES);
        if SNAPSHOTS && from.1 % block == to.1 % block {
            let (shared, result) = self.share_front(from, to, length);
            if shared > 0 || result.is_err() {
                return (shared, result);
            }
            let front = from.1.next_multiple_of(block) - from.1;
            if front > 0 && length - front.min(length) >= block {
                piece = front;
            }
        }
        match self.copy_bytes(from, to, piece) {
            Ok(count) => (count, Ok(())),
            Err(error) => (0, Err(error)),
        }
    }

    fn copy_bytes(&self, from: FilePosition, to: FilePosition, length: u64) -> Result<u64> {
        let mut buffer = memory::zeroed(length as usize)?;
        let count = self.read(from.0, from.1, &mut buffer)?;
        let _guard = self.inode_lock(to.0);
        self.write_locked(to.0, to.1, &buffer[..count])?;
        Ok(count as u64)
    }
}
