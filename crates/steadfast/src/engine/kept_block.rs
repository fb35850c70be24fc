//! The block that the last write to a part of a block has written, with its memory. The next append
//! of a few bytes to that file changes the same block, and need not read and check it again.
//!
//! The extents decide whether the block is still that of the file. A change that is no write puts
//! another block in its place: one at another address, or with other checksums. A write to the file
//! takes the kept block out first. A clone forgets it, because it brings blocks of other files with
//! their checksums. So does a rollback, after which an inode number may come back.
//!
//! Invariant: `bytes` are what a write to `inode` has published at `address`, and `checksums` are
//! theirs.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::extent::Checksums;
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber};

/// See the module. A build without the dentry and inode cache has little memory, and keeps none.
#[derive(Default)]
pub(crate) struct KeptBlock {
    /// [`SYSTEM`](InodeNumber::SYSTEM), which is no file: the bytes are memory alone.
    pub inode: InodeNumber,
    pub address: BlockAddress,
    pub checksums: Checksums,
    pub bytes: Vec<u8>,
}

impl KeptBlock {
    /// Forgets the block.
    pub fn forget(&mut self) {
        self.inode = InodeNumber::SYSTEM;
    }

    /// Takes out the block for a write to `inode`. The block of another file stays, unless the
    /// write needs memory for a block.
    pub fn take(&mut self, inode: InodeNumber, for_memory: bool) -> KeptBlock {
        if for_memory || self.inode == inode { core::mem::take(self) } else { Self::default() }
    }

    /// Whether it is the block of this file at this address, with these checksums.
    pub fn is(&self, inode: InodeNumber, address: BlockAddress, checksums: &[u32]) -> bool {
        let is_present = self.address == address && *self.checksums == *checksums;
        let is_present = is_present || planted(Sabotage::TrustKeptBlock);
        self.inode == inode && !self.checksums.is_empty() && is_present
    }

    /// `length` zero bytes, in the memory of the block as far as it is enough.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn into_zeros(self, length: usize) -> Result<Vec<u8>> {
        if self.bytes.capacity() < length {
            return memory::zeroed(length);
        }
        let mut bytes = self.bytes;
        bytes.clear();
        bytes.resize(length, 0);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn it_is_taken_once_and_only_for_its_file() {
        let (file, other, at) = (InodeNumber(30), InodeNumber(31), BlockAddress(7));
        let checksums = Checksums::of(&[1, 2]).unwrap();
        let mut kept = KeptBlock { inode: file, address: at, checksums, bytes: vec![9; 1024] };
        assert!(!kept.take(other, false).is(file, at, &[1, 2]));
        let block = kept.take(file, false);
        assert!(block.is(file, at, &[1, 2]));
        for (inode, address, checksums) in [
            (other, at, &[1, 2][..]),
            (file, BlockAddress(8), &[1, 2]),
            (file, at, &[1, 3]),
            (file, at, &[1]),
        ] {
            assert!(!block.is(inode, address, checksums), "{inode:?} {address:?} {checksums:?}");
        }
        assert!(!kept.take(file, true).is(file, at, &[1, 2]), "it is gone");
        kept = block;
        kept.forget();
        let block = kept.take(other, true);
        assert!(!block.is(file, at, &[1, 2]));
        let zeros = block.into_zeros(1024).unwrap();
        assert_eq!((zeros.len(), zeros.iter().any(|byte| *byte != 0)), (1024, false));
    }
}
