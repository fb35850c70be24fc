//! The write-behind log: a second state of an array on a local disk, a stated number of bytes
//! behind at most, for the day on which all servers are lost. Decision 0018 has the reasons.
//!
//! What is written to the array is kept in memory, too, in two layers: what came since the last
//! flush, and what the flushes before it covered. Whoever has time takes the second one and makes
//! it durable as one batch. So the disk is always at a flush point of the array, and flushes do not
//! wait for it unless the memory is full.
//!
//! # Invariants
//! - Writes, discards and flushes of the array are made with the intake held: the log has them in
//!   the array's order.
//! - A layer becomes a batch only after a flush of the array was answered that covers all of it. So
//!   no state on the disk is newer than what the servers have promised to hold.
//! - Both layers and the batch under way are never more than the bound together. Where more is to
//!   be written the array is flushed, if it was not, and the writer carries out the batch itself.
//! - The disk says whether its image is complete; until it was copied in full it is not, and nobody
//!   restores from it.
//! - What fails here never fails the array. The log is given up until the array is opened again,
//!   and marked.

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
use header::Header;
use layer::Layer;

/// Bytes that are written to the array at once, at most: the log takes no larger steps.
const PIECE: usize = 1 << 20;

/// Why a log cannot be made, used or restored from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is something else.
    #[error("holds no write-behind log")]
    NotALog,
    /// It is another array's.
    #[error("is the write-behind log of another array")]
    Other,
    /// The array's size is another one.
    #[error("is the log of a medium of {0} bytes, the array has {1}")]
    Size(u64, u64),
    /// What the log may be behind is out of bounds.
    #[error("a log may be {0} to {1} bytes behind")]
    Bound(u64, u64),
    /// The log was made with room for less.
    #[error("was made to be at most {0} MiB behind: give log_behind={0} or less, or remove it")]
    Room(u64),
    /// No room for it.
    #[error("has {has} bytes, {needs} are needed")]
    TooSmall {
        /// Bytes that there are.
        has: u64,
        /// Bytes that there should be.
        needs: u64,
    },
    /// The copy was not complete when it ended.
    #[error("was never complete: there is no state to restore")]
    Incomplete,
    /// It was given up, and is older than its bound says.
    #[error("was given up ({0}): its state is older than promised; --force restores that")]
    Stale(String),
    /// Somebody has opened the array since without it.
    #[error(
        "was not used when the array was opened last: its state is older; --force restores that"
    )]
    Unused,
    /// Its disk.
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

/// What there is to know of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStatus {
    /// The image is at a flush point.
    pub complete: bool,
    /// Why it was given up.
    pub failed: Option<String>,
    /// Bytes that were flushed and are not on the disk.
    pub behind: u64,
    /// The most that this can be.
    pub bound: u64,
    /// When the flush point was that the disk is at, in milliseconds since 1970.
    pub time_ms: u64,
    /// Blocks that are copied, and all of them.
    pub copied: (u32, u32),
    /// Flush points that the log made itself, to stay in its bound.
    pub forced: u64,
}

/// What is on its way to the disk.
struct Intake {
    /// Since the last flush of the array.
    fresh: Layer,
    /// Before it.
    flushed: Layer,
    /// The flush point between the two.
    point: Point,
    /// `flushed` has something to tell, be it only a later point.
    due: bool,
    /// The next block to be copied, while some are left.
    copy: Option<u32>,
}

impl Intake {
    /// Everything that was taken in is flushed, at this point.
    fn seal(&mut self, point: Point) {
        self.flushed.absorb(std::mem::take(&mut self.fresh));
        self.point = point;
        self.due = true;
    }
}

/// A log in use, beside an array.
pub struct WriteBehind<D> {
    /// Held while the array is changed. Taken after the disk by who has both.
    intake: Mutex<Intake>,
    disk: Mutex<Disk<D>>,
    /// Bytes of the batch that is being made durable.
    flying: AtomicUsize,
    bound: usize,
    failed: Mutex<Option<String>>,
    /// When the flush point was that the disk is at.
    time_ms: AtomicU64,
    forced: AtomicU64,
    complete: std::sync::atomic::AtomicBool,
    /// Blocks of the medium.
    blocks: u32,
    /// The image was zeros when the array was opened.
    blank: bool,
    /// Somebody has something for the disk.
    news: Mutex<bool>,
    wake: Condvar,
    /// Milliseconds since 1970.
    clock: fn() -> u64,
}

impl<D: Medium> WriteBehind<D> {
    /// Begins to follow an array that was just opened or made, with `disk` as its log was left.
    /// What the array has that the log has not is brought at once where the bound has room for it;
    /// otherwise it is copied, by [`copy`](Self::copy). `blank`: the image is zeros. One that was
    /// in use may have what the array has lost, such as writes that were copied and never flushed.
    ///
    /// # Errors
    /// [`LogError`]; and the array's, while it is read.
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
            // What is copied from here on belongs to no flush point before the last of it is there.
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

    /// What there is to know.
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
    /// Those of the array alone.
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
                    // Some of the blocks may be new; whatever they are is what the log has to have.
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

    /// The intake, with room for so many bytes. Otherwise what was flushed goes to the disk first,
    /// and where nothing was, it is.
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

    /// Tells the array that blocks are not needed.
    ///
    /// # Errors
    /// Those of the array alone.
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
    /// Those of the array alone.
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

    /// Brings what was flushed to the disk: whether there was something.
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

    /// Whether it was not given up.
    fn is_working(&self) -> bool {
        self.failed.lock().is_none()
    }

    /// Nothing goes to the disk any more, and it says so if it can.
    fn give_up(&self, disk: &mut Disk<D>, why: &str) {
        *self.failed.lock() = Some(why.to_owned());
        {
            let mut intake = self.intake.lock();
            (intake.fresh, intake.flushed, intake.due) =
                (Layer::default(), Layer::default(), false);
        }
        // In place, so that there is room for it also on a disk that is full. Where even this
        // fails, whoever has the array open knows, and what was noted outside.
        let _ = disk.rewrite(|header| header.failed = why.to_owned());
    }

    /// Somebody has something for the disk.
    fn tell(&self) {
        *self.news.lock() = true;
        self.wake.notify_one();
    }

    /// Waits until there is something for the disk, or somebody [wakes](Self::wake) it, or time has
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
