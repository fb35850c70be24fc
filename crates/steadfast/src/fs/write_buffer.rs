//! The blocks of a write: those that it replaces, and their new content, which is the caller's bytes
//! and old bytes in the first and the last block.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::kept_block::KeptBlock;
use crate::error::{Error, Result};
use crate::format::extent::Checksums;
use crate::fs::extent_map::Mapped;
use crate::fs::parameters::Parameters;
use crate::fs::publish::WritePlan;
use crate::memory;
use crate::platform::Platform;
use crate::profile::NAME_CACHE;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// The state that a write replaces.
pub(super) struct Old {
    /// Extents in the range, in order.
    pub extents: Vec<Mapped>,
    /// End of the range: the requested end, or less if there are many extents.
    pub end: u64,
    /// Where the blocks of the file before the range end on the volume.
    pub goal: Option<BlockAddress>,
    /// Bytes of inline data, with which the range then starts.
    pub inline: usize,
    /// Size of the file.
    pub size: u64,
}

impl Old {
    /// Blocks from `at` on that cannot be written in place.
    pub fn missing(&self, at: u64) -> u64 {
        let unwritten = self.extents.iter().filter(|mapped| mapped.extent.unwritten);
        let in_place =
            unwritten.map(|mapped| mapped.end().min(self.end).saturating_sub(mapped.index.max(at)));
        self.end.saturating_sub(at).saturating_sub(in_place.sum())
    }

    /// Number of blocks of the range that the file has.
    pub fn mapped(&self, from: u64) -> u64 {
        let parts = self.extents.iter();
        parts.map(|mapped| mapped.end().min(self.end).saturating_sub(mapped.index.max(from))).sum()
    }

    /// Whether block `index`, the first of the range, is this one.
    fn has_kept(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        index: u64,
        kept: &KeptBlock,
    ) -> bool {
        let Some(mapped) = self.extents.first().filter(|mapped| mapped.index <= index) else {
            return false;
        };
        let skip = index - mapped.index;
        let address = BlockAddress(mapped.extent.address.0 + skip);
        let checksums = block_checksums(&mapped.extent.checksums, parameters, skip);
        kept.is(inode, address, checksums) && kept.bytes.len() as u64 == parameters.block()
    }
}

/// The checksums of the block at this index among those of several blocks. None: it has none.
fn block_checksums<'a>(all: &'a [u32], parameters: &Parameters, index: u64) -> &'a [u32] {
    all.chunks(parameters.granules_per_block() as usize).nth(index as usize).unwrap_or_default()
}

/// The new content of whole blocks. The first and the last blocks, which also keep old bytes, are
/// copies; between them are the caller's bytes.
pub(super) struct WriteBuffer<'a> {
    head: Vec<u8>,
    middle: &'a [u8],
    tail: Vec<u8>,
}

impl WriteBuffer<'_> {
    /// The bytes `from..to` of the buffer, in up to three slices.
    pub fn slices(&self, from: usize, to: usize) -> [&[u8]; 3] {
        let mut start = 0;
        [&self.head[..], self.middle, &self.tail[..]].map(|part| {
            let (first, last) = (from.max(start), to.min(start + part.len()));
            let slice = if first < last { &part[first - start..last - start] } else { &[][..] };
            start += part.len();
            slice
        })
    }

    /// The bytes of the last block that is a copy, and its index in the buffer.
    pub fn into_partial(self, parameters: &Parameters) -> Option<(u64, Vec<u8>)> {
        let before = (self.head.len() + self.middle.len()) as u64;
        let (start, bytes) =
            if self.tail.is_empty() { (0, self.head) } else { (before, self.tail) };
        (bytes.len() as u64 == parameters.block()).then_some((start / parameters.block(), bytes))
    }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The new content of all blocks from block `from` to the end of the data.
    #[inline(never)]
    pub(super) fn image<'a>(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        old: &Old,
        from: u64,
        offset: u64,
        data: &'a [u8],
    ) -> Result<WriteBuffer<'a>> {
        let block = parameters.block();
        let start = from * block;
        let end = offset + data.len() as u64;
        // The head ends where the caller's whole blocks begin; they end where the tail begins.
        let head_end = match start == offset && data.len() as u64 >= block {
            true => start,
            false => offset.next_multiple_of(block).max(start + block),
        };
        let tail_start = (end / block * block).max(head_end);
        let mut head = Vec::new();
        let kept = match NAME_CACHE {
            true => self.engine.kept_block.lock().take(inode, head_end > start),
            false => KeptBlock::default(),
        };
        if head_end > start {
            let new = (offset - start) as usize;
            let after = ((head_end - start) as usize).min(new + data.len());
            if old.has_kept(parameters, inode, from, &kept) {
                head = kept.bytes;
                let end_of_old = old.size.saturating_sub(start).min(block) as usize;
                if !planted(Sabotage::KeepPastEnd) {
                    head[end_of_old..].fill(0);
                }
            } else {
                head = kept.into_zeros((head_end - start) as usize)?;
                // Old bytes on both sides are read together, so they are checked once.
                let (at, past) = if new > 0 { (start, 0) } else { (end, after) };
                self.read_old(parameters, inode, old, at, &mut head[past..])?;
            }
            head[new..after].copy_from_slice(&data[..after - new]);
        }
        let middle = data.get(
            (head_end - offset) as usize
                ..(tail_start.min(end) - offset).max(head_end - offset) as usize,
        );
        let mut tail = Vec::new();
        if end > tail_start {
            tail = memory::zeroed(parameters.block_size as usize)?;
            let (new, after) = tail.split_at_mut((end - tail_start) as usize);
            new.copy_from_slice(&data[(tail_start - offset) as usize..]);
            self.read_old(parameters, inode, old, end, after)?;
        }
        Ok(WriteBuffer { head, middle: middle.unwrap_or_default(), tail })
    }

    /// Fills the start of `buffer`, which is zero, with the old bytes from `at` on, which are in
    /// the first or the last block of a write.
    #[inline(never)]
    fn read_old(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        old: &Old,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let block = parameters.block();
        let length = (buffer.len() as u64).min(old.size.saturating_sub(at)) as usize;
        if length == 0 {
            return Ok(());
        }
        let end = at + length as u64;
        let first = old.extents.partition_point(|mapped| mapped.end() * block <= at);
        let after = old.extents.partition_point(|mapped| mapped.index * block < end);
        let extents = old.extents.get(first..after).unwrap_or_default();
        let written = extents.iter().all(|mapped| !mapped.extent.unwritten);
        if old.inline == 0 && written && parameters.blocks_for(end) <= old.end {
            // Whole blocks are read into their place, also past the end of the file.
            let whole = if at.is_multiple_of(block) {
                length.next_multiple_of(block as usize).min(buffer.len())
            } else {
                length
            };
            match self.read_extents(parameters, inode, at, &mut buffer[..whole], extents) {
                // As any reader: look the extents up once more.
                Err(Error::CorruptData { .. }) => self.engine.repeated_reads.note(),
                read => {
                    read?;
                    if !planted(Sabotage::KeepPastEnd) {
                        buffer[length..].fill(0);
                    }
                    return Ok(());
                }
            }
            buffer.fill(0);
        }
        self.read_data(inode, at, buffer).map(drop)
    }

    /// Keeps the last block of a published write that the write changed in part.
    #[inline(never)]
    pub(super) fn keep_block(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        plan: &WritePlan,
        image: WriteBuffer<'_>,
    ) {
        if !NAME_CACHE {
            return;
        }
        let Some((offset, bytes)) = image.into_partial(parameters) else { return };
        let index = plan.from + offset;
        let holds = |first: u64, count: u64| (first..first + count).contains(&index);
        let Some(part) = plan.parts.iter().find(|part| holds(part.index, part.run.count)) else {
            return;
        };
        let skip = index - part.index;
        let checksums = block_checksums(&part.checksums, parameters, skip);
        let Ok(checksums) = Checksums::of(checksums) else { return };
        let address = BlockAddress(part.run.start.0 + skip);
        *self.engine.kept_block.lock() = KeptBlock { inode, address, checksums, bytes };
    }
}
