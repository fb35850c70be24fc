//! The files that are open through the mount, and which of them are open for writing.
//!
//! For the kernel a mapped file stays open until its last mapping ends. So this table also knows
//! every file that may have dirty pages.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::Timestamp;

/// Modification and change time of a file as the kernel has them (see `filesystem/times.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
}

/// A handle without server-side state: its bits contain everything that must be remembered of the
/// open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    const WRITABLE: u64 = 1;
    const SYNC: u64 = 2;
    const APPEND: u64 = 4;
    const EMPTY: u64 = 8;
    const NUMBER_SHIFT: u32 = 8;

    /// Converts the flags of open(2).
    pub(crate) fn new(flags: u32) -> Handle {
        let flags = flags as i32;
        let mut bits = 0;
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            bits |= Handle::WRITABLE;
        }
        if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            bits |= Handle::SYNC;
        }
        if flags & libc::O_APPEND != 0 {
            bits |= Handle::APPEND;
        }
        if flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE) != 0 {
            bits |= Handle::EMPTY;
        }
        Handle(bits)
    }

    /// The same handle with a number, by which locks know it. Zero is none.
    #[must_use]
    pub(crate) fn numbered(self, number: u64) -> Handle {
        Handle(self.0 | number << Handle::NUMBER_SHIFT)
    }

    /// By which locks know it.
    pub(crate) fn number(self) -> u64 {
        self.0 >> Handle::NUMBER_SHIFT
    }

    pub(crate) fn is_writable(self) -> bool {
        self.0 & Handle::WRITABLE != 0
    }

    /// Opened with O_APPEND.
    pub(crate) fn appends(self) -> bool {
        self.0 & Handle::APPEND != 0
    }

    /// Created or truncated by the open: all data in the file was written later.
    pub(crate) fn starts_empty(self) -> bool {
        self.0 & Handle::EMPTY != 0
    }

    /// Opened with O_SYNC or O_DSYNC.
    pub(crate) fn is_sync(self) -> bool {
        self.0 & Handle::SYNC != 0
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    handles: u32,
    writers: u32,
    /// Allocated bytes that the kernel was last told; `None`: not told yet.
    allocated: Option<u64>,
    /// The times that both sides last agreed on; `None`: the file was not opened for writing.
    times: Option<Times>,
    /// A later request has changed the file, and its times in the volume.
    late: bool,
}

/// Number of locks for times, shared by files.
const TIME_LOCKS: usize = 16;

/// Open files by node id, and locks for setting their times.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<HashMap<u64, Counts>>, [Mutex<()>; TIME_LOCKS]);

impl OpenFiles {
    pub(crate) fn opened(&self, nodeid: u64, handle: Handle) {
        let mut files = self.files();
        let counts = files.entry(nodeid).or_default();
        counts.handles += 1;
        counts.writers += u32::from(handle.is_writable());
    }

    /// Removes a handle. Returns whether it was known; handles from before a rollback are not.
    pub(crate) fn closed(&self, nodeid: u64, handle: Handle) -> bool {
        let mut files = self.files();
        let Some(counts) = files.get_mut(&nodeid) else { return false };
        counts.handles = counts.handles.saturating_sub(1);
        counts.writers = counts.writers.saturating_sub(u32::from(handle.is_writable()));
        if counts.handles == 0 {
            files.remove(&nodeid);
        }
        true
    }

    /// Whether the file is open for writing, and so may have dirty pages.
    pub(crate) fn is_written(&self, nodeid: u64) -> bool {
        self.files().get(&nodeid).is_some_and(|counts| counts.writers > 0)
    }

    /// Whether exactly one handle may write to the file.
    pub(crate) fn has_one_writer(&self, nodeid: u64) -> bool {
        self.files().get(&nodeid).is_some_and(|counts| counts.writers == 1)
    }

    /// Files that are open for writing.
    pub(crate) fn written(&self) -> Vec<u64> {
        self.files()
            .iter()
            .filter(|(_, counts)| counts.writers > 0)
            .map(|(nodeid, _)| *nodeid)
            .collect()
    }

    /// Records the allocated bytes of a file. Returns whether the kernel may have a different
    /// number.
    pub(crate) fn allocation_changed(&self, nodeid: u64, allocated: u64) -> bool {
        let mut files = self.files();
        let Some(counts) = files.get_mut(&nodeid) else { return false };
        counts.allocated.replace(allocated) != Some(allocated)
    }

    /// The file is open for writing, and the kernel adopts these times, unless it already has
    /// others.
    pub(crate) fn times_shown(&self, nodeid: u64, times: Times) {
        if let Some(counts) = self.files().get_mut(&nodeid) {
            counts.times.get_or_insert(times);
        }
    }

    /// To be held while the volume gets times of a file. Else agreed times could come after newer
    /// ones that the kernel has told meanwhile.
    pub(crate) fn lock_times(&self, nodeid: u64) -> MutexGuard<'_, ()> {
        let lock = &self.1[nodeid as usize % TIME_LOCKS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel sets times. Called before the volume gets them, so that a concurrent late change
    /// is noticed.
    pub(crate) fn times_told(
        &self,
        nodeid: u64,
        modified: Option<Timestamp>,
        changed: Option<Timestamp>,
    ) {
        let mut files = self.files();
        let Some(counts) = files.get_mut(&nodeid) else { return };
        if let Some(times) = &mut counts.times {
            times.modified = modified.unwrap_or(times.modified);
            times.changed = changed.unwrap_or(times.changed);
            counts.late = false;
        }
    }

    /// The volume has given the file the time of a request. Called afterwards.
    pub(crate) fn times_late(&self, nodeid: u64) {
        if let Some(counts) = self.files().get_mut(&nodeid) {
            counts.late = counts.times.is_some();
        }
    }

    /// The times that the volume should have, if it may have later ones. A second call returns
    /// `None`.
    pub(crate) fn take_late(&self, nodeid: u64) -> Option<Times> {
        let mut files = self.files();
        let counts = files.get_mut(&nodeid)?;
        if std::mem::take(&mut counts.late) { counts.times } else { None }
    }

    /// All files whose times in the volume may be too late.
    pub(crate) fn late(&self) -> Vec<u64> {
        self.files().iter().filter(|(_, counts)| counts.late).map(|(nodeid, _)| *nodeid).collect()
    }

    /// Empties the table and returns the open files with their numbers of handles.
    pub(crate) fn take(&self) -> Vec<(u64, u32)> {
        self.files().drain().map(|(nodeid, counts)| (nodeid, counts.handles)).collect()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_handles_and_writers() {
        let files = OpenFiles::default();
        let (reader, writer) =
            (Handle::new(libc::O_RDONLY as u32), Handle::new((libc::O_RDWR | libc::O_SYNC) as u32));
        assert!(writer.is_sync() && writer.is_writable() && !reader.is_writable());
        files.opened(7, reader);
        assert!(!files.is_written(7));
        files.opened(7, writer);
        assert_eq!(files.written(), [7]);
        assert!(files.closed(7, writer));
        assert!(files.written().is_empty());
        assert_eq!(files.take(), [(7, 1)]);
        assert!(!files.closed(7, reader));
    }

    #[test]
    fn knows_whose_times_are_late() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let times = |modified, changed| Times { modified: at(modified), changed: at(changed) };
        let files = OpenFiles::default();
        let handle = Handle::new(libc::O_WRONLY as u32);
        files.opened(7, handle);
        files.times_late(7);
        assert_eq!(files.take_late(7), None, "nothing is known of its times");
        files.times_shown(7, times(1, 1));
        files.times_shown(7, times(5, 5));
        assert_eq!(files.take_late(7), None, "nothing was written");
        files.times_late(7);
        assert_eq!(files.late(), [7]);
        assert_eq!((files.take_late(7), files.take_late(7)), (Some(times(1, 1)), None));
        files.times_told(7, None, Some(at(2)));
        files.times_late(7);
        assert_eq!(files.take_late(7), Some(times(1, 2)));
        files.times_late(7);
        files.times_told(7, Some(at(3)), Some(at(3)));
        assert_eq!(files.take_late(7), None, "the volume gets what the kernel has just told");
        files.times_late(7);
        assert!(files.closed(7, handle) && files.late().is_empty());
    }
}
