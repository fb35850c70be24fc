//! The write-behind log: a second state of an array on a local disk, for the loss of all servers.
//! It is behind by at most a stated number of bytes. Decision 0018 has the reasons.
//!
//! Writes to the array are also kept in memory, in two layers: writes since the last flush, and
//! writes that earlier flushes covered. A background thread makes the second layer durable as one
//! batch. So the disk is always at a flush point of the array, and flushes do not wait for it
//! unless the memory is full.
//!
//! # Invariants
//! - Writes, discards and flushes of the array are made with the intake locked, so the log has them
//!   in the array's order.
//! - A layer becomes a batch only after the array has answered a flush that covers all of it. So no
//!   state on the disk is newer than the state that the servers have acknowledged.
//! - Both layers and the batch in progress together never exceed the limit. A write beyond the
//!   limit first flushes the array if needed, and then writes the batch itself.
//! - The disk records whether its image is complete. Until it was copied in full it is not, and it
//!   cannot be restored.
//! - An error of the log never fails the array. The log is marked as given up until the array is
//!   opened again.

mod batch;
mod copy;
mod disk;
mod header;
mod layer;
mod restore;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use steadfast_media::{Medium, MediumError};

pub use restore::{Kept, RestoreError};

use crate::array::{Array, BLOCK, Fleet, Point};
use disk::Disk;
use header::LogHeader;
use layer::Layer;

/// Most bytes written to the array at once: the log takes no larger steps.
const PIECE: usize = 1 << 20;

/// Why a log cannot be made, used or restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The medium holds something else.
    #[error("holds no write-behind log")]
    NotALog,
    /// The log belongs to another array.
    #[error("is the write-behind log of another array")]
    Other,
    /// The array has another size.
    #[error("is the log of a medium of {0} bytes, the array has {1}")]
    Size(u64, u64),
    /// The requested limit is out of range.
    #[error("a log may be {0} to {1} bytes behind")]
    Bound(u64, u64),
    /// The log was made for a smaller limit.
    #[error("was made to be at most {0} MiB behind: give log_behind={0} or less, or remove it")]
    Room(u64),
    /// The medium is too small.
    #[error("has {has} bytes, {needs} are needed")]
    TooSmall {
        /// Bytes of the medium.
        has: u64,
        /// Bytes needed.
        needs: u64,
    },
    /// The copy was not complete when the log was last used.
    #[error("was never complete: there is no state to restore")]
    Incomplete,
    /// The log was given up, and is older than its limit promises.
    #[error("was given up ({0}): its state is older than promised; --force restores that")]
    Stale(String),
    /// The array was opened since then without the log.
    #[error(
        "was not used when the array was opened last: its state is older; --force restores that"
    )]
    Unused,
    /// An error of the disk.
    #[error("{}", disk_text(.0))]
    Disk(MediumError),
}

fn disk_text(error: &MediumError) -> String {
    match error.os_error {
        0 => error.to_string(),
        number => format!("{error}: {}", std::io::Error::from_raw_os_error(number)),
    }
}

impl From<MediumError> for LogError {
    fn from(error: MediumError) -> LogError {
        LogError::Disk(error)
    }
}

/// Status of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStatus {
    /// The image is complete, at a flush point.
    pub complete: bool,
    /// Why the log was given up.
    pub failed: Option<String>,
    /// Bytes that were flushed to the array and are not on the disk.
    pub behind: u64,
    /// Upper limit of `behind`.
    pub bound: u64,
    /// Time of the flush point on the disk, in milliseconds since 1970.
    pub time_ms: u64,
    /// Copied blocks, and all blocks.
    pub copied: (u32, u32),
    /// Flush points that the log made itself, to stay within its limit.
    pub forced: u64,
}

/// Changes on their way to the disk.
struct Intake {
    /// Changes since the last flush of the array.
    fresh: Layer,
    /// Changes before that flush.
    flushed: Layer,
    /// The flush point between the two.
    point: Point,
    /// The disk needs an update, even if only to a later point.
    due: bool,
    /// The next block to copy, while some are left.
    copy: Option<u32>,
}

impl Intake {
    /// Everything taken in is flushed, at this point.
    fn seal(&mut self, point: Point) {
        self.flushed.absorb(std::mem::take(&mut self.fresh));
        self.point = point;
        self.due = true;
    }
}

/// A log in use, beside an array.
pub struct WriteBehind<D> {
    /// Locked while the array is changed. A thread that locks both takes the disk first.
    intake: Mutex<Intake>,
    disk: Mutex<Disk<D>>,
    /// Bytes of the batch that is being written.
    flying: AtomicUsize,
    bound: usize,
    failed: Mutex<Option<String>>,
    /// Time of the flush point on the disk, in milliseconds since 1970.
    time_ms: AtomicU64,
    forced: AtomicU64,
    complete: std::sync::atomic::AtomicBool,
    /// Blocks of the medium.
    blocks: u32,
    /// The image held only zeros when the array was opened.
    blank: bool,
    /// There is work for the disk.
    news: Mutex<bool>,
    wake: Condvar,
    /// Milliseconds since 1970.
    clock: fn() -> u64,
}

impl<D: Medium> WriteBehind<D> {
    /// Begins to follow an array that was just opened or made; `disk` is its log. Missing changes
    /// are written at once if they fit the limit. Otherwise [`copy`](Self::copy) copies the array.
    ///
    /// `blank` says that the image is zeros. An image that was in use may hold data that the array
    /// has lost, such as writes that were copied and never flushed.
    ///
    /// # Errors
    /// [`LogError`], also for errors of the array while it is read.
    fn attach<F: Fleet>(
        mut disk: Disk<D>,
        array: &Array<F>,
        bound: u64,
        blank: bool,
        clock: fn() -> u64,
    ) -> Result<WriteBehind<D>, LogError> {
        let bound = usize::try_from(bound).unwrap_or(usize::MAX);
        let blocks = disk.header().blocks();
        let point = Point { time_ms: clock(), ..array.point() };
        let caught_up = copy::catch_up(&mut disk, array, bound, point)?;
        if !caught_up && disk.newest().is_some_and(|(_, complete)| complete) {
            // From here on the image mixes copied blocks; it has a flush point again only after the
            // last one.
            disk.commit(&Layer::default(), point, false)?;
        }
        let (newest, complete) = disk.newest().unwrap_or_default();
        if complete && !disk.header().failed.is_empty() {
            disk.rewrite(|header| header.failed.clear())?;
        }
        Ok(WriteBehind {
            intake: Mutex::new(Intake {
                fresh: Layer::default(),
                flushed: Layer::default(),
                point,
                due: false,
                copy: (!caught_up).then_some(0),
            }),
            disk: Mutex::new(disk),
            flying: AtomicUsize::new(0),
            bound,
            failed: Mutex::new(None),
            time_ms: AtomicU64::new(newest.time_ms),
            forced: AtomicU64::new(0),
            complete: complete.into(),
            blocks,
            blank,
            news: Mutex::new(false),
            wake: Condvar::new(),
            clock,
        })
    }

    /// Status of the log.
    pub fn status(&self) -> LogStatus {
        let (behind, copied) = {
            let intake = self.intake.lock();
            let flying = self.flying.load(Ordering::Relaxed);
            ((intake.flushed.bytes() + flying) as u64, intake.copy.unwrap_or(self.blocks))
        };
        LogStatus {
            complete: self.complete.load(Ordering::Relaxed),
            failed: self.failed.lock().clone(),
            behind,
            bound: self.bound as u64,
            time_ms: self.time_ms.load(Ordering::Relaxed),
            copied: (copied, self.blocks),
            forced: self.forced.load(Ordering::Relaxed),
        }
    }

    /// Writes to the array.
    ///
    /// # Errors
    /// Errors of the array only.
    pub fn write<F: Fleet>(
        &self,
        array: &Array<F>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), MediumError> {
        let (mut at, step) = (offset, PIECE.min(self.bound / 2).next_multiple_of(BLOCK));
        for piece in data.chunks(step) {
            let mut intake = self.room(array, piece.len())?;
            let first = (at / BLOCK as u64) as u32;
            let written = array.write(at, piece);
            if self.is_working() {
                match &written {
                    Ok(()) => intake.fresh.write(first, piece),
                    // Some of the blocks may be new; the log must have what the array has now.
                    Err(_) => {
                        let mut found = vec![0; piece.len()];
                        if array.read(at, &mut found).is_ok() {
                            intake.fresh.write(first, &found);
                        }
                    }
                }
            }
            written?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Locks the intake with room for this many bytes. If there is no room, the flushed layer goes
    /// to the disk first. If that layer is empty, the array is flushed before.
    fn room<F: Fleet>(
        &self,
        array: &Array<F>,
        bytes: usize,
    ) -> Result<parking_lot::MutexGuard<'_, Intake>, MediumError> {
        loop {
            let mut intake = self.intake.lock();
            let flying = self.flying.load(Ordering::Relaxed);
            let held = intake.fresh.bytes() + intake.flushed.bytes() + flying;
            if !self.is_working() || held + bytes <= self.bound {
                return Ok(intake);
            }
            if flying == 0 && intake.flushed.bytes() == 0 {
                self.flush_held(array, &mut intake)?;
                self.forced.fetch_add(1, Ordering::Relaxed);
            }
            drop(intake);
            self.work();
        }
    }

    /// Discards blocks of the array.
    ///
    /// # Errors
    /// Errors of the array only.
    pub fn discard<F: Fleet>(
        &self,
        array: &Array<F>,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        let mut intake = self.intake.lock();
        array.discard(offset, length)?;
        if self.is_working() {
            intake.fresh.discard((offset / BLOCK as u64) as u32, (length / BLOCK as u64) as u32);
        }
        Ok(())
    }

    /// Flushes the array.
    ///
    /// # Errors
    /// Errors of the array only.
    pub fn flush<F: Fleet>(&self, array: &Array<F>) -> Result<(), MediumError> {
        self.flush_held(array, &mut self.intake.lock())
    }

    fn flush_held<F: Fleet>(
        &self,
        array: &Array<F>,
        intake: &mut Intake,
    ) -> Result<(), MediumError> {
        array.flush()?;
        if self.is_working() && !intake.fresh.is_empty() {
            intake.seal(Point { time_ms: (self.clock)(), ..array.point() });
            self.tell();
        }
        Ok(())
    }

    /// Writes the flushed layer to the disk. Returns whether there was one.
    pub fn work(&self) -> bool {
        let mut disk = self.disk.lock();
        let (layer, point, complete) = {
            let mut intake = self.intake.lock();
            if !intake.due || !self.is_working() {
                return false;
            }
            intake.due = false;
            let layer = std::mem::take(&mut intake.flushed);
            self.flying.store(layer.bytes(), Ordering::Relaxed);
            (layer, intake.point, intake.copy.is_none())
        };
        let made = disk.commit(&layer, point, complete).and_then(|()| {
            self.time_ms.store(point.time_ms, Ordering::Relaxed);
            if complete && !disk.header().failed.is_empty() {
                disk.rewrite(|header| header.failed.clear())?;
            }
            self.complete.store(complete, Ordering::Relaxed);
            Ok(())
        });
        drop(layer);
        if let Err(error) = made {
            self.give_up(&mut disk, &error.to_string());
        }
        self.flying.store(0, Ordering::Relaxed);
        true
    }

    /// Whether the log is in use, and not given up.
    fn is_working(&self) -> bool {
        self.failed.lock().is_none()
    }

    /// Gives the log up: nothing more is written to the disk, except the reason if possible.
    fn give_up(&self, disk: &mut Disk<D>, why: &str) {
        *self.failed.lock() = Some(why.to_owned());
        {
            let mut intake = self.intake.lock();
            (intake.fresh, intake.flushed, intake.due) =
                (Layer::default(), Layer::default(), false);
        }
        // Overwritten in place, so it works on a full disk too. If even this fails, the status and
        // the witness still have the reason.
        let _ = disk.rewrite(|header| header.failed = why.to_owned());
    }

    /// Wakes the background thread.
    fn tell(&self) {
        *self.news.lock() = true;
        self.wake.notify_one();
    }

    /// Waits until there is work for the disk, [`wake`](Self::wake) is called, or the time has
    /// passed.
    pub fn wait(&self, time: Duration) {
        let mut news = self.news.lock();
        if !*news {
            self.wake.wait_for(&mut news, time);
        }
        *news = false;
    }

    /// Ends a [`wait`](Self::wait).
    pub fn wake(&self) {
        self.tell();
    }
}
