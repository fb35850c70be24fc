//! The content of salvaged entries: bytes, link targets, extended attributes.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steadfast_media::Medium;

use crate::format::extent::{Extent, decode_run};
use crate::format::inode::FLAG_INLINE;
use crate::format::key::{Key, Kind};
use crate::platform::Platform;
use crate::tools::salvage::Salvage;
use crate::types::{BlockAddress, InodeNumber};

/// Bytes read at once.
const READ_SIZE: usize = 1 << 20;
/// Bytes before an attribute's name: length of the value (4), length of the name (1).
const XATTR_HEADER: usize = 5;
/// Low bits of an attribute's suffix that number its pieces.
const PIECE_BITS: u32 = 16;

/// Receives pieces of a file with their offsets.
pub type Sink<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

impl<M: Medium, P: Platform> Salvage<'_, M, P> {
    /// Passes every piece of a file that matches its checksums to `sink`, with its offset; holes
    /// are left out. Returns the lost ranges, in order: they are zeros in the copy.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn read<E>(
        &self,
        inode: InodeNumber,
        sink: &mut Sink<'_, E>,
    ) -> Result<Vec<Range<u64>>, E> {
        let found = self.inode(inode);
        let size = found.as_ref().map(|inode| inode.size);
        let mut lost = Lost { ranges: Vec::new(), size: size.unwrap_or(u64::MAX) };
        if let Some(item) = self.items.get(&Key::new(inode, Kind::Inline, 0)) {
            let length = size.map_or(item.value.len(), |size| item.value.len().min(size as usize));
            sink(0, &item.value[..length])?;
            return Ok(lost.ranges);
        }
        let inline = found.as_ref().is_some_and(|inode| inode.has(FLAG_INLINE));
        if inline && self.may_lack(inode, Kind::Inline) {
            lost.add(0..self.store.device.superblock.inline_max.max(1).into());
        }
        let block_size = u64::from(self.store.device.superblock.block_size);
        let granules = self.parameters().granules_per_block();
        let (first, last) = Key::kind_range(inode, Kind::Extent);
        let counted = found.as_ref().map(|inode| inode.blocks);
        // If the extents add up to the inode's count, the gaps between them are holes.
        let complete = counted == Some(self.counted_blocks(inode));
        // Up to here everything was found or is known to be lost.
        let mut end = 0;
        for (key, item) in self.items.range(first..=last) {
            let index = key.suffix();
            if !complete {
                self.add_missing(inode, end..index, &mut lost);
            }
            let Ok(extent) = Extent::decode(&item.value, granules) else {
                lost.add(
                    index.saturating_mul(block_size)
                        ..index.saturating_add(1).saturating_mul(block_size),
                );
                end = end.max(index + 1);
                continue;
            };
            if index >= end {
                self.read_extent(index, &extent, &mut lost, sink)?;
            }
            end = end.max(index.saturating_add(extent.length.into()));
        }
        if !complete {
            self.add_missing(inode, end..u64::MAX, &mut lost);
        }
        Ok(lost.ranges)
    }

    /// Blocks in the extents that were found.
    fn counted_blocks(&self, inode: InodeNumber) -> u64 {
        let (first, last) = Key::kind_range(inode, Kind::Extent);
        let runs = self.items.range(first..=last).filter_map(|(_, item)| decode_run(&item.value));
        runs.fold(0, |sum, run| sum.saturating_add(run.count))
    }

    /// Blocks of a file without an extent are a hole, unless the keys of their extents may be lost.
    fn add_missing(&self, inode: InodeNumber, blocks: Range<u64>, lost: &mut Lost) {
        if blocks.start >= blocks.end || (lost.size == u64::MAX && blocks.end == u64::MAX) {
            return;
        }
        let block_size = u64::from(self.store.device.superblock.block_size);
        let (from, to) = (Key::extent(inode, blocks.start), Key::extent(inode, blocks.end - 1));
        for (first, last) in self.gone.within(from, to) {
            let start = first.suffix().saturating_mul(block_size);
            lost.add(start..last.suffix().saturating_add(1).saturating_mul(block_size));
        }
    }

    fn read_extent<E>(
        &self,
        index: u64,
        extent: &Extent,
        lost: &mut Lost,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        if extent.unwritten {
            return Ok(());
        }
        let superblock = &self.store.device.superblock;
        let block_size = superblock.block_size as usize;
        let granule = superblock.checksum_granule() as usize;
        let at_once = (READ_SIZE / block_size).max(1);
        let mut buffer = vec![0; at_once.min(extent.length as usize) * block_size];
        let mut checksums = extent.checksums.iter();
        let mut done = 0;
        while done < extent.length as usize {
            let count = at_once.min(extent.length as usize - done);
            let offset = index.saturating_add(done as u64).saturating_mul(block_size as u64);
            let address = BlockAddress(extent.address.0 + done as u64);
            let bytes = &mut buffer[..count * block_size];
            let whole = self.store.device.read_blocks(address, bytes).is_ok();
            for (piece, (bytes, expected)) in
                bytes.chunks_exact_mut(granule).zip(checksums.by_ref()).enumerate()
            {
                let at = offset.saturating_add((piece * granule) as u64);
                let block = BlockAddress(address.0 + (piece * granule / block_size) as u64);
                let within = piece * granule % block_size;
                let good = (whole && self.store.device.crc(bytes) == *expected)
                    || self.read_granule(block, within, bytes, *expected);
                let length = lost.size.saturating_sub(at).min(granule as u64) as usize;
                if good {
                    sink(at, &bytes[..length])?;
                } else {
                    lost.add(at..at.saturating_add(granule as u64));
                }
            }
            done += count;
        }
        Ok(())
    }

    /// Reads a single granule, from each copy that the medium keeps.
    fn read_granule(
        &self,
        block: BlockAddress,
        within: usize,
        bytes: &mut [u8],
        expected: u32,
    ) -> bool {
        let block_size = self.store.device.superblock.block_size as usize;
        let Some(offset) = block.0.checked_mul(block_size as u64) else { return false };
        let mut whole = vec![0; block_size];
        for copy in 0..self.store.device.medium.copies().max(1) {
            if self.store.device.medium.read_copy(copy, offset, &mut whole).is_err() {
                continue;
            }
            let found = &whole[within..within + bytes.len()];
            if self.store.device.crc(found) == expected {
                bytes.copy_from_slice(found);
                return true;
            }
        }
        false
    }

    /// The target of a symbolic link, as far as it was found.
    pub fn symlink_target(&self, inode: InodeNumber) -> Vec<u8> {
        let (first, _) = Key::kind_range(inode, Kind::Symlink);
        self.pieces(first)
    }

    /// Pieces under `first` and the following suffixes, up to the first missing one.
    fn pieces(&self, first: Key) -> Vec<u8> {
        let mut joined = Vec::new();
        let mut next = Some(first);
        while let Some(key) = next
            && let Some(item) = self.items.get(&key)
        {
            joined.extend_from_slice(&item.value);
            next = key.successor().filter(|next| next.kind() == first.kind());
        }
        joined
    }

    /// The complete extended attributes, and whether there are or may be others.
    pub fn xattrs(&self, inode: InodeNumber) -> (Vec<Xattr>, bool) {
        let mut incomplete = self.may_lack(inode, Kind::Xattr) && self.inode(inode).is_some();
        let mut found = Vec::new();
        let (first, last) = Key::kind_range(inode, Kind::Xattr);
        let mut slot = None;
        for (key, _) in self.items.range(first..=last) {
            let this = key.suffix() >> PIECE_BITS;
            if slot.replace(this) == Some(this) {
                continue;
            }
            let bytes = self.pieces(Key::new(inode, Kind::Xattr, this << PIECE_BITS));
            let Some((header, rest)) = bytes.split_first_chunk::<XATTR_HEADER>() else {
                incomplete = true;
                continue;
            };
            let [v0, v1, v2, v3, name_length] = *header;
            let value_length = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
            match rest.split_at_checked(name_length.into()) {
                Some((name, value)) if !name.is_empty() && value.len() == value_length => {
                    found.push((name.to_vec(), value.to_vec()));
                }
                _ => incomplete = true,
            }
        }
        (found, incomplete)
    }
}

/// Lost ranges of a file.
struct Lost {
    ranges: Vec<Range<u64>>,
    /// End of the file.
    size: u64,
}

impl Lost {
    /// Adds a range, cut at the end of the file; it begins at or after the start of the last one.
    fn add(&mut self, range: Range<u64>) {
        let end = range.end.min(self.size);
        if range.start >= end {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(end),
            _ => self.ranges.push(range.start..end),
        }
    }
}
