//! Write-behind for cold writes of a mount, which are file data and a few small blocks: they are
//! answered before the device has them.
//!
//! The bytes are copied into this module's memory and written from there. Long runs bypass the page
//! cache; shorter runs go through it. So many small writes become few, and the device works on one
//! write while the next arrives. Writer threads do this, and so do callers that must wait for the
//! result anyway.
//!
//! Invariants:
//! - Bytes are in one place at a time. A write, discard or read that overlaps bytes in this memory
//!   waits until the device or its page cache has them. So two writes of the same bytes are never
//!   under way together.
//! - A flush begins when all earlier bytes have been written. A write error is reported by every
//!   later flush.
//! - Direct writes are [apart](super::apart) from those through the page cache.
//! - At most [`BATCHES`] × [`CAPACITY`] bytes are held; further writes wait.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::{Errno, ReadWriteFlags};

use super::apart::{Apart, Entered, Way};
use super::batch::{Batch, CAPACITY, Memory};
use super::large::Large;
use super::transfer;

/// Largest number of batches.
const BATCHES: usize = 4;
/// Number of writer threads, so that the device is busy while the next write is on its way.
const WRITERS: usize = 2;
/// Writes of at least this many bytes are batches of their own: they are copied without the lock
/// and leave immediately.
const ALONE: usize = 64 << 10;
/// The longest accepted write: half a batch, which is the longest request of the kernel to a mount.
const LONGEST: usize = CAPACITY / 2;
/// Runs of at least this many bytes bypass the page cache. For shorter runs the page cache is
/// faster.
const STRAIGHT: usize = 128 << 10;

/// Writes on their way to a file or device.
pub(super) struct Behind {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

impl Behind {
    /// Creates the write-behind memory for `file`; `straight` bypasses its page cache.
    ///
    /// # Errors
    /// No thread can be created.
    pub(super) fn new(file: File, straight: Arc<Large>) -> io::Result<Behind> {
        let shared = Arc::new(Shared {
            file,
            straight,
            apart: Apart::default(),
            here: AtomicUsize::new(0),
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let mut behind = Behind { shared, writers: Vec::new() };
        for _ in 0..WRITERS {
            let shared = behind.shared.clone();
            let writer = thread::Builder::new().name("writes".to_owned());
            behind.writers.push(writer.spawn(move || shared.write_until_closed())?);
        }
        Ok(behind)
    }

    /// Accepts a write of `length` bytes in total; `false` if it is too long or memory is
    /// exhausted.
    pub(super) fn take(&self, offset: u64, buffers: &[&[u8]], length: usize) -> bool {
        length <= LONGEST && self.shared.take(offset, buffers, length)
    }

    /// Has to be called before another write through the page cache.
    pub(super) fn enter_cache(&self, offset: u64, length: usize) -> Entered<'_> {
        self.shared.apart.enter(Way::Cached, offset, length)
    }

    /// Waits until no bytes of this range are held.
    pub(super) fn wait_for(&self, range: Range<u64>) {
        // A caller that relies on a write knows that it was accepted, so it sees the count.
        if self.shared.here.load(Ordering::Acquire) > 0 {
            drop(
                self.shared.wait_for_batches(self.shared.state.lock(), |batch| batch.meets(&range)),
            );
        }
    }

    /// Waits until all bytes accepted earlier have been written.
    ///
    /// # Errors
    /// The first error of these or of earlier bytes.
    pub(super) fn wait_for_all(&self) -> Result<(), Errno> {
        let mut state = self.shared.state.lock();
        state.seal();
        let end = state.sealed;
        let state = self.shared.wait_for_batches(state, |batch| batch.number < end);
        state.failed.map_or(Ok(()), Err)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // A page cache would do the same. A flush reports errors.
        let _ = self.wait_for_all();
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
        for writer in self.writers.drain(..) {
            let _ = writer.join();
        }
    }
}

struct Shared {
    file: File,
    straight: Arc<Large>,
    apart: Apart,
    /// Number of batches that contain bytes.
    here: AtomicUsize,
    state: Mutex<State>,
    /// A batch is waiting, or the write-behind memory is closing.
    work: Condvar,
    /// A batch has been written.
    done: Condvar,
}

type Locked<'a> = MutexGuard<'a, State>;

#[derive(Default)]
struct State {
    /// The batch that collects small writes.
    filling: Option<Batch>,
    /// Sealed batches, the oldest first.
    waiting: VecDeque<Batch>,
    /// Batches that are being written.
    leaving: Vec<Arc<Batch>>,
    spare: Vec<Memory>,
    /// Pieces of memory that exist, wherever they are.
    made: usize,
    /// Number of batches sealed so far, which is the number of the next batch.
    sealed: u64,
    failed: Option<Errno>,
    closed: bool,
}

impl State {
    /// Seals the batch that is being filled.
    fn seal(&mut self) {
        if let Some(batch) = self.filling.take() {
            self.push(batch);
        }
    }

    fn push(&mut self, mut batch: Batch) {
        batch.number = self.sealed;
        self.sealed += 1;
        self.waiting.push_back(batch);
    }
}

impl Shared {
    fn take(&self, offset: u64, buffers: &[&[u8]], length: usize) -> bool {
        let range = offset..offset + length as u64;
        if length >= ALONE {
            let (state, memory) = self.memory(self.state.lock());
            drop(state);
            let Some(mut batch) = memory.map(Batch::new) else { return false };
            batch.add(offset, buffers, length);
            let mut state = self.wait_for_batches(self.state.lock(), |batch| batch.meets(&range));
            state.push(batch);
            self.here.fetch_add(1, Ordering::Release);
            drop(state);
            self.work.notify_one();
            return true;
        }
        let mut state = self.state.lock();
        loop {
            state = self.wait_for_batches(state, |batch| batch.meets(&range));
            match &mut state.filling {
                Some(batch) if length <= batch.room() => {
                    batch.add(offset, buffers, length);
                    return true;
                }
                Some(_) => {
                    state.seal();
                    self.work.notify_one();
                }
                None => {
                    let (locked, memory) = self.memory(state);
                    state = locked;
                    let Some(memory) = memory else { return false };
                    // The call may have waited, so another thread may have started a batch.
                    match state.filling {
                        None => {
                            state.filling = Some(Batch::new(memory));
                            self.here.fetch_add(1, Ordering::Release);
                        }
                        Some(_) => {
                            state.spare.push(memory);
                            self.done.notify_one();
                        }
                    }
                }
            }
        }
    }

    /// Returns memory for another batch, after waiting if all of it is in use. Returns none if the
    /// system has none.
    fn memory<'a>(&'a self, mut state: Locked<'a>) -> (Locked<'a>, Option<Memory>) {
        loop {
            if let Some(memory) = state.spare.pop() {
                return (state, Some(memory));
            }
            if state.made < BATCHES {
                let memory = Memory::new();
                state.made += usize::from(memory.is_some());
                return (state, memory);
            }
            state = match state.waiting.pop_front() {
                Some(batch) => self.leave(state, batch),
                None => {
                    // All batches are being written, or a writer is copying into one.
                    self.done.wait(&mut state);
                    state
                }
            };
        }
    }

    /// Waits until no held batch `concerns` the caller. The caller itself writes the sealed batches
    /// among them.
    fn wait_for_batches<'a>(
        &'a self,
        mut state: Locked<'a>,
        concerns: impl Fn(&Batch) -> bool,
    ) -> Locked<'a> {
        loop {
            if state.filling.as_ref().is_some_and(&concerns) {
                state.seal();
            }
            if let Some(place) = state.waiting.iter().position(&concerns)
                && let Some(batch) = state.waiting.remove(place)
            {
                state = self.leave(state, batch);
            } else if state.leaving.iter().any(|batch| concerns(batch)) {
                self.done.wait(&mut state);
            } else {
                return state;
            }
        }
    }

    /// Writes a batch, without holding the lock.
    fn leave<'a>(&'a self, mut state: Locked<'a>, batch: Batch) -> Locked<'a> {
        let batch = Arc::new(batch);
        state.leaving.push(batch.clone());
        drop(state);
        let result = self.write(&batch);
        let mut state = self.state.lock();
        state.leaving.retain(|other| !Arc::ptr_eq(other, &batch));
        if let Err(errno) = result {
            // Flushes report the first cause.
            state.failed.get_or_insert(errno);
        }
        match Arc::into_inner(batch) {
            Some(batch) => state.spare.push(batch.memory),
            None => state.made -= 1,
        }
        self.here.fetch_sub(1, Ordering::Release);
        self.done.notify_all();
        state
    }

    fn write_until_closed(&self) {
        let mut state = self.state.lock();
        loop {
            match state.waiting.pop_front() {
                Some(batch) => state = self.leave(state, batch),
                None if state.closed => return,
                None => self.work.wait(&mut state),
            }
        }
    }

    /// Writes the pieces of a batch, adjacent pieces together. Continues after an error.
    fn write(&self, batch: &Batch) -> Result<(), Errno> {
        let mut pieces = batch.pieces.clone();
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let mut result = Ok(());
        for run in pieces.chunk_by(|first, second| first.end() == second.offset) {
            let slices: Vec<&[u8]> = run.iter().map(|piece| batch.bytes(piece)).collect();
            let written = self.write_run(run[0].offset, &slices);
            result = result.and(written);
        }
        result
    }

    fn write_run(&self, offset: u64, slices: &[&[u8]]) -> Result<(), Errno> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if length >= STRAIGHT && self.straight.takes(offset, slices) {
            let _entered = self.apart.enter(Way::Direct, offset, length);
            if self.straight.write(offset, slices) {
                return Ok(());
            }
        }
        let _entered = self.apart.enter(Way::Cached, offset, length);
        transfer::write(&self.file, None, offset, slices, ReadWriteFlags::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 24 << 20;

    fn file() -> File {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(SIZE as u64).unwrap();
        file
    }

    /// `None` if the system has no direct I/O for the file.
    fn behind(file: &File) -> Option<Behind> {
        let straight = Large::open(file, true, 4096, 4096)?;
        Some(Behind::new(file.try_clone().unwrap(), Arc::new(straight)).unwrap())
    }

    fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0xee; length];
        transfer::read(file, None, offset, &mut [&mut data]).unwrap();
        data
    }

    #[test]
    fn a_read_waits_for_its_range_and_a_flush_for_all() {
        let file = file();
        let Some(behind) = behind(&file) else { return };
        let lengths = [4096, 512, ALONE, STRAIGHT + 512, LONGEST, ALONE - 512];
        let mut at = 0;
        let mut taken = Vec::new();
        for (mark, length) in (1..).zip(lengths.into_iter().cycle().take(30)) {
            assert!(behind.take(
                at,
                &[&vec![mark; length / 2], &vec![mark; length - length / 2]],
                length
            ));
            taken.push((at, length, mark));
            // Some writes leave a gap.
            at += length as u64 + u64::from(mark % 3) * 4096;
        }
        for (at, length, mark) in taken.iter().step_by(4) {
            behind.wait_for(*at..at + 1);
            assert!(read(&file, *at, *length).iter().all(|byte| byte == mark));
        }
        behind.wait_for_all().unwrap();
        assert_eq!(behind.shared.here.load(Ordering::Relaxed), 0);
        for (at, length, mark) in taken {
            assert!(
                read(&file, at, length).iter().all(|byte| *byte == mark),
                "{length} bytes at {at}"
            );
        }
        assert!(!behind.take(0, &[&vec![1; LONGEST + 1]], LONGEST + 1));
    }

    #[test]
    fn the_last_write_of_the_same_bytes_counts() {
        let file = file();
        let Some(behind) = behind(&file) else { return };
        for round in 0..40_u8 {
            let length = [512, ALONE, 4096, STRAIGHT][usize::from(round) % 4];
            assert!(behind.take(u64::from(round % 3) * 512, &[&vec![round; length]], length));
            if round % 7 == 0 {
                behind.wait_for_all().unwrap();
            }
        }
        behind.wait_for_all().unwrap();
        assert_eq!(read(&file, 0, 1024), [vec![39; 512], vec![39; 512]].concat());
        // Just after the end of the last write. The write of round 35 was the last that reached
        // this far.
        assert_eq!(read(&file, STRAIGHT as u64, 512), [35; 512]);
    }

    #[test]
    fn many_writers_share_bounded_memory() {
        let file = file();
        let Some(behind) = behind(&file) else { return };
        let share = SIZE / 4;
        thread::scope(|scope| {
            for writer in 0..4_usize {
                let (behind, file) = (&behind, &file);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer as u64);
                    let mut expected = vec![0_u8; share];
                    for round in 0..400_usize {
                        let length = if round % 5 == 0 {
                            random.usize(1..2000)
                        } else {
                            random.usize(1..40)
                        } * 512;
                        let at = random.usize(0..(share - length) / 512) * 512;
                        expected[at..at + length].fill((round + writer) as u8);
                        let offset = (writer * share + at) as u64;
                        assert!(behind.take(offset, &[&expected[at..at + length]], length));
                        if round % 50 == 0 {
                            behind.wait_for_all().unwrap();
                        } else if round % 3 == 0 {
                            behind.wait_for(offset..offset + length as u64);
                            assert!(read(file, offset, length) == expected[at..at + length]);
                        }
                        assert!(behind.shared.state.lock().made <= BATCHES);
                    }
                    behind.wait_for_all().unwrap();
                    assert!(read(file, (writer * share) as u64, share) == expected);
                });
            }
        });
    }

    #[test]
    fn what_could_not_be_written_is_told_to_every_flush() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        std::fs::write(&path, [0; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        let Some(straight) = Large::open(&file, false, 512, 512) else { return };
        let behind = Behind::new(file, Arc::new(straight)).unwrap();
        behind.wait_for_all().unwrap();
        assert!(behind.take(0, &[&[1; 4096]], 4096));
        assert_eq!(
            (behind.wait_for_all(), behind.wait_for_all()),
            (Err(Errno::BADF), Err(Errno::BADF))
        );
        // Later writes are still attempted, and no caller waits forever.
        assert!(behind.take(0, &[&vec![1; ALONE]], ALONE));
        behind.wait_for(0..1);
    }

    #[test]
    fn nothing_is_left_when_it_ends() {
        let file = file();
        let Some(behind) = behind(&file) else { return };
        for place in 0..10 {
            assert!(behind.take(place * 2 * ALONE as u64, &[&vec![5; ALONE + 512]], ALONE + 512));
        }
        assert!(behind.take(SIZE as u64 - 512, &[&[6; 512]], 512));
        drop(behind);
        assert_eq!(read(&file, 18 * ALONE as u64, ALONE + 512), vec![5; ALONE + 512]);
        assert_eq!(read(&file, SIZE as u64 - 512, 512), [6; 512]);
    }
}
