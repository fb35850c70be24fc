//! Reading data: the reader looks up the extents and pins their blocks. It then reads them for the
//! caller outside all locks, and checks each granule.
//!
//! One call sees one state of up to [`STEP_BYTES`] (in up to [`STEP_EXTENTS`] extents); a longer
//! read is done in steps.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_INLINE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map::{self, Mapped};
use crate::fs::parameters::Parameters;
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Limit of the bytes read in one step.
pub(crate) const STEP_BYTES: usize = 1 << 20;
/// Limit of the extents read in one step.
const STEP_EXTENTS: usize = 256;

/// The data that one step reads: `length` bytes; written ones are in `extents`.
pub(crate) struct ReadStep {
    pub length: usize,
    pub extents: Short<Mapped, 1>,
}

/// Finds the extents of `length` bytes from `offset`, which lie within the file. With many extents
/// it covers fewer bytes.
pub(crate) fn find_extents(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    offset: u64,
    length: usize,
) -> Result<ReadStep> {
    let end = parameters.blocks_for(offset + length as u64);
    let mut at = parameters.block_of(offset);
    let mut extents = Short::default();
    let mut found = extent_map::overlap(view, parameters, inode, at, end)?;
    while let Some(mapped) = found {
        if extents.len() == STEP_EXTENTS {
            let length = (at * parameters.block() - offset) as usize;
            return Ok(ReadStep { length, extents });
        }
        let part = mapped.clip(at, end)?;
        at = part.end();
        if !part.extent.unwritten {
            extents.push(part)?;
        }
        found = extent_map::starting(view, parameters, inode, at, end)?;
    }
    Ok(ReadStep { length, extents })
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Fills the start of `buffer` from byte `offset`. Returns the number of bytes, which is
    /// smaller only at the end of the file. Holes read as zeros. Every byte is checked. Up to 1 MiB
    /// in up to 256 extents comes from one state of the file.
    ///
    /// # Errors
    /// `CorruptData` if data does not match its checksum; `IsADirectory`, `NotARegularFile`,
    /// `Stale`, `Medium`.
    pub fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_with(inode, offset, buffer, true)
    }

    /// As [`read`](Self::read), without changing the access time (O_NOATIME).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_unnoticed(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.read_with(inode, offset, buffer, false)
    }

    fn read_with(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
        note: bool,
    ) -> Result<usize> {
        let (count, attributes) = self.read_data(inode, offset, buffer)?;
        if note && !buffer.is_empty() {
            self.note_access(inode, &attributes);
        }
        Ok(count)
    }

    /// As [`read`](Self::read), without renewing the access time; also returns the attributes of
    /// the first step.
    pub(crate) fn read_data(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, Inode)> {
        let (mut done, mut first) = (0, None);
        loop {
            let (from, rest) = (offset.saturating_add(done as u64), &mut buffer[done..]);
            let count = match self.read_step(inode, from, rest, &mut first) {
                // After a rollback the blocks may have been reused: look the extents up once more.
                Err(Error::CorruptData { .. }) => {
                    self.engine.repeated_reads.note();
                    first = first.filter(|_| done > 0);
                    self.read_step(inode, from, rest, &mut first)?
                }
                other => other?,
            };
            done += count;
            let at = from.saturating_add(count as u64);
            if let Some(attributes) = first
                && (count == 0 || done == buffer.len() || at >= attributes.size)
            {
                return Ok((done, attributes));
            }
        }
    }

    /// Reads from one state of the file. Sets `first` to its attributes if it is empty.
    fn read_step(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
        first: &mut Option<Inode>,
    ) -> Result<usize> {
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        let attributes = Inode::load_regular(&reader, inode)?;
        first.get_or_insert(attributes);
        let rest = usize::try_from(attributes.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = buffer.len().min(rest).min(STEP_BYTES);
        if length == 0 {
            return Ok(0);
        }
        if attributes.has(FLAG_INLINE) {
            let buffer = &mut buffer[..length];
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let copied = reader.get_with(&Key::new(inode, Kind::Inline, 0), |value| {
                let from = value.get(start..).unwrap_or_default();
                let count = buffer.len().min(from.len());
                buffer[..count].copy_from_slice(&from[..count]);
                count
            })?;
            buffer[copied.unwrap_or(0)..].fill(0);
            return Ok(length);
        }
        let step = find_extents(&reader, &parameters, inode, offset, length)?;
        let mut runs = Short::default();
        for mapped in step.extents.iter() {
            runs.push(mapped.extent.run())?;
        }
        let _pin = self.engine.pin(runs)?;
        drop(reader);
        let buffer = &mut buffer[..step.length];
        self.read_extents(&parameters, inode, offset, buffer, &step.extents)?;
        Ok(step.length)
    }

    /// Fills `buffer`, which starts at `offset` of the file, from the extents, with zeros between
    /// them.
    #[inline(never)]
    pub(crate) fn read_extents(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
        extents: &[Mapped],
    ) -> Result<()> {
        let block = parameters.block();
        let end = offset + buffer.len() as u64;
        let mut bounce = Vec::new();
        let mut at = offset;
        for mapped in extents {
            let from = offset.max(mapped.index * block);
            let to = end.min(mapped.end() * block);
            buffer[(at - offset) as usize..(from - offset) as usize].fill(0);
            at = from;
            while at < to {
                let into = at % block;
                let piece = if into == 0 && to - at >= block {
                    let length = (to - at) / block * block;
                    let target =
                        &mut buffer[(at - offset) as usize..(at - offset + length) as usize];
                    self.read_checked(parameters, inode, mapped, at / block, target)?;
                    length
                } else {
                    if bounce.is_empty() {
                        bounce = memory::zeroed(parameters.block_size as usize)?;
                    }
                    self.read_checked(parameters, inode, mapped, at / block, &mut bounce)?;
                    let length = (block - into).min(to - at);
                    buffer[(at - offset) as usize..(at - offset + length) as usize]
                        .copy_from_slice(&bounce[into as usize..(into + length) as usize]);
                    length
                };
                at += piece;
            }
        }
        buffer[(at - offset) as usize..].fill(0);
        Ok(())
    }

    /// Reads whole blocks from block `index` of the file, which `mapped` holds, and checks each
    /// granule.
    fn read_checked(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        mapped: &Mapped,
        index: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let skip = index - mapped.index;
        let address = mapped.extent.address.0 + skip;
        self.engine.device().read_blocks(BlockAddress(address), buffer)?;
        let granule = parameters.granule as usize;
        let first = skip as usize * parameters.granules_per_block() as usize;
        let checksums = mapped.extent.checksums.get(first..).unwrap_or_default();
        for (number, bytes) in buffer.chunks_mut(granule).enumerate() {
            let Some(expected) = checksums.get(number) else {
                return Err(Error::CorruptData { inode, address: BlockAddress(address) });
            };
            if self.engine.device().crc(bytes) != *expected
                && !planted(Sabotage::IgnoreDataChecksum)
            {
                let position = address * parameters.block() + (number * granule) as u64;
                if !self.read_other_copy(position, bytes, *expected) {
                    let address = BlockAddress(position / parameters.block());
                    return Err(Error::CorruptData { inode, address });
                }
            }
        }
        Ok(())
    }

    /// On a medium that keeps several copies, searches for a copy of a granule that matches its
    /// checksum. Reports the bad copies.
    #[inline(never)]
    fn read_other_copy(&self, position: u64, bytes: &mut [u8], expected: u32) -> bool {
        let medium = &self.engine.store().device.medium;
        let copies = medium.copies();
        if copies < 2 {
            return false;
        }
        for copy in 0..copies {
            match medium.read_copy(copy, position, bytes) {
                Ok(()) if self.engine.device().crc(bytes) == expected => return true,
                _ => medium.report_bad(copy, position, bytes.len() as u64),
            }
        }
        false
    }
}
