//! [`Disk`]: the log on its medium: an image of the array's medium, after a journal with two
//! halves.
//!
//! # Invariants
//! - A batch is journaled, flushed, and then applied to the image. Its flush also covers the
//!   application of the batch before it. The half of that batch is overwritten only by the next
//!   batch. So an application that a power cut interrupts is still in the journal.
//! - A client that starts to use the log applies all valid batches of the journal again, in order,
//!   and flushes. Then the image is at the flush point of the newest batch.

use steadfast_media::{Medium, MediumError};

use super::batch::Batch;
use super::header::{AREA, PLACES};
use super::layer::Layer;
use super::{BLOCK, LogError, LogHeader, Point};
use crate::array::crc32c;

/// Largest request, bytes.
const PIECE: usize = 1 << 20;

/// An open log.
pub(super) struct Disk<D> {
    medium: D,
    header: LogHeader,
    /// Number of the newest batch.
    number: u64,
    /// Flush point of the newest batch, and whether the image is complete.
    newest: Option<(Point, bool)>,
}

impl<D: Medium> Disk<D> {
    /// Whether the header area holds only zeros.
    pub(super) fn is_blank(medium: &D) -> Result<bool, LogError> {
        let mut area = vec![0; (AREA.min(medium.geometry().size)) as usize];
        medium.read(0, &mut area)?;
        Ok(area.iter().all(|byte| *byte == 0))
    }

    /// Makes a log; the previous contents of the medium are lost.
    pub(super) fn create(medium: D, header: LogHeader) -> Result<Disk<D>, LogError> {
        let has = medium.geometry().size;
        if has < header.total() {
            return Err(LogError::TooSmall { has, needs: header.total() });
        }
        let zeros = vec![0; BLOCK];
        // A batch of an earlier log must not look like one of this log.
        for place in [BLOCK as u64, header.half(0), header.half(1)] {
            medium.write(place, &zeros)?;
        }
        medium.flush()?;
        medium.write(0, &header.encode())?;
        medium.flush()?;
        Ok(Disk { medium, header, number: 0, newest: None })
    }

    /// Opens a log without writing to it.
    pub(super) fn look(medium: D) -> Result<Disk<D>, LogError> {
        let header = Self::newest_header(&medium)?.ok_or(LogError::NotALog)?;
        let has = medium.geometry().size;
        if has < header.total() {
            return Err(LogError::TooSmall { has, needs: header.total() });
        }
        let mut disk = Disk { medium, header, number: 0, newest: None };
        if let Some(newest) = disk.journal()?.last() {
            disk.number = newest.number;
            disk.newest = Some((newest.point, newest.complete));
        }
        Ok(disk)
    }

    /// The valid batches of the journal, in order.
    fn journal(&self) -> Result<Vec<Batch>, LogError> {
        let mut batches = Vec::new();
        for half in 0..2 {
            batches.extend(self.journaled(half)?);
        }
        batches.sort_by_key(|batch| batch.number);
        Ok(batches)
    }

    /// Applies the batches of the journal, before the log is used.
    pub(super) fn apply_journal(&self) -> Result<(), LogError> {
        for batch in &self.journal()? {
            self.apply_journaled(batch)?;
        }
        Ok(self.medium.flush()?)
    }

    /// The newest valid header.
    pub(super) fn newest_header(medium: &D) -> Result<Option<LogHeader>, LogError> {
        let mut newest: Option<LogHeader> = None;
        for place in 0..PLACES {
            let mut bytes = vec![0; BLOCK];
            if medium.geometry().size < (place + 1) * BLOCK as u64 {
                break;
            }
            medium.read(place * BLOCK as u64, &mut bytes)?;
            let found = LogHeader::decode(&bytes);
            newest = newest.into_iter().chain(found).max_by_key(|header| header.number);
        }
        Ok(newest)
    }

    pub(super) fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The flush point of the image, and whether the image is complete.
    pub(super) fn newest(&self) -> Option<(Point, bool)> {
        self.newest
    }

    /// Changes the header durably.
    pub(super) fn rewrite(&mut self, change: impl FnOnce(&mut LogHeader)) -> Result<(), LogError> {
        let mut header = self.header.clone();
        change(&mut header);
        header.number += 1;
        // The first header has number 1 and is in place 0.
        let place = (header.number + 1) % PLACES * BLOCK as u64;
        self.medium.write(place, &header.encode())?;
        self.medium.flush()?;
        if header.uuid != self.header.uuid {
            // The batches of the journal belong to another array.
            self.newest = None;
        }
        self.header = header;
        Ok(())
    }

    /// Makes a layer durable as a batch with this flush point.
    pub(super) fn commit(
        &mut self,
        layer: &Layer,
        point: Point,
        complete: bool,
    ) -> Result<(), LogError> {
        let batch = Batch::of(layer, self.number + 1, point, complete);
        let place = self.header.half(batch.number);
        let table = batch.encode(&self.header.uuid);
        self.medium.write(place, &table)?;
        let data = place + self.header.table_bytes();
        let mut piece: Vec<u8> = Vec::with_capacity(PIECE.min(layer.bytes()));
        let mut written = 0;
        for bytes in layer.writes.values() {
            piece.extend_from_slice(&bytes[..]);
            if piece.len() >= PIECE {
                self.medium.write(data + written, &piece)?;
                written += piece.len() as u64;
                piece.clear();
            }
        }
        if !piece.is_empty() {
            self.medium.write(data + written, &piece)?;
        }
        self.medium.flush()?;
        self.number = batch.number;
        self.newest = Some((point, complete));
        self.punch(&batch.holes)?;
        let mut run = BlockRun::default();
        for (block, bytes) in &layer.writes {
            run.add(&self.medium, self.header.image(), *block, &bytes[..])?;
        }
        run.end(&self.medium, self.header.image())
    }

    /// The batch in a half of the journal, if it is valid.
    fn journaled(&self, half: u64) -> Result<Option<Batch>, LogError> {
        let place = self.header.half(half);
        let mut table = vec![0; BLOCK];
        self.medium.read(place, &mut table)?;
        let Some(length) = Batch::bytes_of(&table, &self.header) else { return Ok(None) };
        table.resize(length, 0);
        self.medium.read(place, &mut table)?;
        let Some(batch) = Batch::decode(&table, &self.header) else { return Ok(None) };
        if batch.number % 2 != half {
            return Ok(None);
        }
        let mut whole = true;
        self.each_block(&batch, |_, crc, bytes| {
            whole &= crc32c(bytes) == crc;
            Ok(())
        })?;
        Ok(whole.then_some(batch))
    }

    fn apply_journaled(&self, batch: &Batch) -> Result<(), LogError> {
        self.punch(&batch.holes)?;
        let mut run = BlockRun::default();
        self.each_block(batch, |block, _, bytes| {
            run.add(&self.medium, self.header.image(), block, bytes)
        })?;
        run.end(&self.medium, self.header.image())
    }

    /// Reads the blocks of a batch in the journal.
    fn each_block(
        &self,
        batch: &Batch,
        mut each: impl FnMut(u32, u32, &[u8]) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let mut place = self.header.half(batch.number) + self.header.table_bytes();
        for part in batch.blocks.chunks(PIECE / BLOCK) {
            let mut bytes = vec![0; part.len() * BLOCK];
            self.medium.read(place, &mut bytes)?;
            for ((block, crc), bytes) in part.iter().zip(bytes.chunks_exact(BLOCK)) {
                each(*block, *crc, bytes)?;
            }
            place += bytes.len() as u64;
        }
        Ok(())
    }

    fn punch(&self, holes: &[(u32, u32)]) -> Result<(), MediumError> {
        let place = |block: u32| self.header.image() + u64::from(block) * BLOCK as u64;
        holes.iter().try_for_each(|(first, count)| {
            self.medium.discard(place(*first), u64::from(*count) * BLOCK as u64)
        })
    }

    /// Reads the image.
    pub(super) fn read(&self, first: u32, buffer: &mut [u8]) -> Result<(), LogError> {
        Ok(self.medium.read(self.header.image() + u64::from(first) * BLOCK as u64, buffer)?)
    }

    /// Grows the log for a medium of this size, if needed and possible.
    pub(super) fn grow(&self, size: u64) -> Result<(), LogError> {
        let needs = LogHeader { size, ..self.header.clone() }.total();
        let has = self.medium.geometry().size;
        if has < needs {
            self.medium.set_size(needs).map_err(|_| LogError::TooSmall { has, needs })?;
        }
        Ok(())
    }
}

/// Consecutive blocks, written together.
#[derive(Default)]
struct BlockRun {
    first: u32,
    bytes: Vec<u8>,
}

impl BlockRun {
    fn add<D: Medium>(
        &mut self,
        medium: &D,
        image: u64,
        block: u32,
        bytes: &[u8],
    ) -> Result<(), LogError> {
        let next = self.first + (self.bytes.len() / BLOCK) as u32;
        if self.bytes.is_empty() || next != block || self.bytes.len() >= PIECE {
            self.end(medium, image)?;
            self.first = block;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn end<D: Medium>(&mut self, medium: &D, image: u64) -> Result<(), LogError> {
        if !self.bytes.is_empty() {
            medium.write(image + u64::from(self.first) * BLOCK as u64, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}
