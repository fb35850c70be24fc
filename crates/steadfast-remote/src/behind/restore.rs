//! From a log to an array: reading a log that is not in use, starting to use it, and restoring a
//! new array from it.
//!
//! A restored array has an identity of its own, so no server of the old array is taken for one of
//! its members. It is unfinished, and cannot be opened, until it has everything. Meanwhile the log
//! names it as its heir and still belongs to the old array. So an interrupted restore starts again
//! from the same state.

use steadfast_media::Medium;

use super::disk::Disk;
use super::layer::Layer;
use super::{BLOCK, LogError, LogHeader, PIECE, WriteBehind};
use crate::array::{Array, ArrayError, Fleet, Point};

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// An error of the log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An error of the new array.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// The new array is too small.
    #[error("the servers lend too little: an array on them has {0} bytes, the log has {1}")]
    TooSmall(u64, u64),
}

/// A log that is not in use.
pub struct Kept<D>(Disk<D>);

impl<D: Medium> Kept<D> {
    /// Reads a log without writing to it. `None` if the medium holds only zeros.
    ///
    /// # Errors
    /// [`LogError::NotALog`] if the medium holds something else, and errors of the disk.
    pub fn look(medium: D) -> Result<Option<Kept<D>>, LogError> {
        match Disk::newest_header(&medium)? {
            None if Disk::is_blank(&medium)? => Ok(None),
            None => Err(LogError::NotALog),
            Some(_) => Ok(Some(Kept(Disk::look(medium)?))),
        }
    }

    /// The array that the log belongs to.
    pub fn uuid(&self) -> [u8; 16] {
        self.0.header().uuid
    }

    /// The flush point of the log, and whether it is complete.
    pub fn newest(&self) -> Option<(Point, bool)> {
        self.0.newest()
    }

    /// Why the log was given up.
    pub fn failed(&self) -> Option<&str> {
        Some(self.0.header().failed.as_str()).filter(|why| !why.is_empty())
    }

    /// The flush point that can be restored. `witnessed` is the newest stamp and epoch known. With
    /// `force`, a point that is older than the limit promises is accepted too.
    ///
    /// # Errors
    /// [`LogError::Incomplete`], [`LogError::Stale`], [`LogError::Unused`].
    pub fn restorable(
        &self,
        witnessed: Option<(u64, u64)>,
        force: bool,
    ) -> Result<Point, LogError> {
        let Some((point, true)) = self.newest() else { return Err(LogError::Incomplete) };
        if force {
            return Ok(point);
        }
        match self.failed() {
            Some(why) => Err(LogError::Stale(why.to_owned())),
            None if witnessed.is_some_and(|(stamp, _)| stamp > point.order.0) => {
                Err(LogError::Unused)
            }
            None => Ok(point),
        }
    }

    /// Records which array is about to be made from the log.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn begin(&mut self, heir: [u8; 16]) -> Result<(), LogError> {
        self.0.apply_journal()?;
        self.0.rewrite(|header| header.heir = heir)
    }

    /// Fills the unfinished array that was [begun](Self::begin), finishes it, and makes this its
    /// log. Returns the bytes written to the array.
    ///
    /// # Errors
    /// [`RestoreError`]; the restore can be repeated with another new array.
    pub fn restore<F: Fleet>(
        &mut self,
        array: &Array<F>,
        time_ms: u64,
    ) -> Result<u64, RestoreError> {
        let (size, kept) = (array.geometry().size, self.0.header().size);
        if size < kept {
            return Err(RestoreError::TooSmall(size, kept));
        }
        self.0.grow(size)?;
        let (mut first, mut restored) = (0, 0);
        let mut piece = vec![0; PIECE];
        let blocks = self.0.header().blocks();
        while first < blocks {
            let count = (PIECE / BLOCK).min((blocks - first) as usize);
            let bytes = &mut piece[..count * BLOCK];
            self.0.read(first, bytes)?;
            // Runs of blocks that are not zeros.
            let mut at = 0;
            for run in
                bytes.as_chunks::<BLOCK>().0.chunk_by(|one, next| is_zero(one) == is_zero(next))
            {
                if !is_zero(&run[0]) {
                    array.append(first + at, run.as_flattened())?;
                    restored += (run.len() * BLOCK) as u64;
                }
                at += run.len() as u32;
            }
            first += count as u32;
        }
        array.finish()?;
        let uuid = array.status().uuid;
        self.0.rewrite(|header| {
            (header.uuid, header.heir, header.size) = (uuid, [0; 16], size);
            header.failed.clear();
        })?;
        self.0.commit(&Layer::default(), Point { time_ms, ..array.point() }, true)?;
        Ok(restored)
    }
}

fn is_zero(block: &[u8; BLOCK]) -> bool {
    block == &[0; BLOCK]
}

impl<D: Medium> WriteBehind<D> {
    /// Makes the log of an open array; the previous contents of `medium` are lost. `blank` says
    /// that it held only zeros. The log is behind by at most `bound` bytes and reads the time from
    /// `clock`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn create<F: Fleet>(
        medium: D,
        array: &Array<F>,
        bound: u64,
        blank: bool,
        clock: fn() -> u64,
    ) -> Result<WriteBehind<D>, LogError> {
        let header = LogHeader::first(array.status().uuid, array.geometry().size, bound)?;
        Self::attach(Disk::create(medium, header)?, array, bound, blank, clock)
    }

    /// Continues the log of an open array.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open<F: Fleet>(
        kept: Kept<D>,
        array: &Array<F>,
        bound: u64,
        clock: fn() -> u64,
    ) -> Result<WriteBehind<D>, LogError> {
        let mut disk = kept.0;
        let (uuid, size) = (array.status().uuid, array.geometry().size);
        if disk.header().uuid != uuid && disk.header().heir != uuid {
            return Err(LogError::Other);
        }
        disk.apply_journal()?;
        if disk.header().uuid != uuid {
            // Only this step of the restore is missing. The log lacks writes since then, so they
            // are copied.
            disk.grow(size)?;
            disk.rewrite(|header| (header.uuid, header.heir, header.size) = (uuid, [0; 16], size))?;
        }
        if disk.header().size != size {
            return Err(LogError::Size(disk.header().size, size));
        }
        if disk.header().bound < bound {
            return Err(LogError::Room(disk.header().bound >> 20));
        }
        Self::attach(disk, array, bound, false, clock)
    }

    /// Bytes of a log for a medium of `size` bytes that may be `bound` bytes behind.
    ///
    /// # Errors
    /// [`LogError::Bound`].
    pub fn bytes_needed(size: u64, bound: u64) -> Result<u64, LogError> {
        Ok(LogHeader::first([0; 16], size, bound)?.total())
    }
}
