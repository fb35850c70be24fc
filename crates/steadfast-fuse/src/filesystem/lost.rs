//! Cached writes that could not be stored.
//!
//! When such a write arrives, the kernel has already reported success to write(2). The kernel
//! reports the error once, to the first fsync, close or utimensat(2) that follows, and programs
//! ignore the result of utimensat(2). So the daemon keeps the error for each file and returns it
//! twice. The next call that changes the file gets it, and so does the next fsync. It also counts
//! the losses since the mount for [`LOST_WRITES`](crate::ioctl::LOST_WRITES), and returns each once
//! to [`LOST_WRITES_NEW`](crate::ioctl::LOST_WRITES_NEW).
//!
//! With cached attributes the kernel does not ask before a write. So it must not have valid
//! attributes of a file with an error that no call has returned, whatever answer contains them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::flags::write as write_flag;
use crate::abi::input::WriteIn;
use crate::abi::opcode;
use crate::errno::Errno;
use crate::ioctl::LostWritesArgument;
use crate::log::log_error;
use crate::node;
use crate::request::Request;

/// The error of lost writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    errno: Errno,
    /// A call other than fsync has returned it.
    told: bool,
    /// Bytes and writes that no call has returned, [`take_new`](Lost::take_new) included.
    new: (u64, u64),
}

/// Lost writes of one mount.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Errors that fsync has not returned, by node id.
    losses: Mutex<HashMap<u64, Loss>>,
    /// Whether `losses` has entries.
    any: AtomicBool,
    bytes: AtomicU64,
    writes: AtomicU64,
    errno: AtomicU64,
}

impl Lost {
    fn losses(&self) -> MutexGuard<'_, HashMap<u64, Loss>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, if it has entries.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<u64, Loss>) -> Option<T>) -> Option<T> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut losses = self.losses();
        let result = change(&mut losses);
        if losses.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        result
    }

    /// Called when a request is answered with this error. Returns whether it was a cached write.
    pub(super) fn note(&self, request: &Request<'_>, errno: Errno) -> bool {
        if request.header.opcode != opcode::WRITE {
            return false;
        }
        let Ok(write) = request.arguments().take::<WriteIn>() else { return false };
        // Pages from before a rollback belong to the state that was rolled back.
        if write.write_flags & write_flag::CACHE == 0 || errno.0 == libc::ESTALE {
            return false;
        }
        self.bytes.fetch_add(u64::from(write.size), Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.errno.store(errno.0.cast_unsigned().into(), Ordering::Relaxed);
        let nodeid = request.header.nodeid;
        let mut losses = self.losses();
        let before = losses.get(&nodeid).copied();
        let (bytes, writes) = before.filter(|loss| !loss.told).map_or((0, 0), |loss| loss.new);
        let new = (bytes + u64::from(write.size), writes + 1);
        losses.insert(nodeid, Loss { errno, told: false, new });
        self.any.store(true, Ordering::Release);
        drop(losses);
        if before.is_none_or(|loss| loss.told) {
            let reason = std::io::Error::from_raw_os_error(errno.0);
            let (inode, offset) = (node::inode(nodeid).0, write.offset);
            log_error!(
                "cannot store what was written to inode {inode} at offset {offset}: {reason}"
            );
        }
        true
    }

    /// The error of the file that no call has returned, if there is one.
    pub(super) fn peek(&self, nodeid: u64) -> Option<Errno> {
        self.change(|losses| losses.get(&nodeid).filter(|loss| !loss.told).map(|loss| loss.errno))
    }

    /// Like [`peek`](Self::peek); the caller returns the error, so only fsync returns it again.
    pub(super) fn tell(&self, nodeid: u64) -> Option<Errno> {
        self.change(|losses| {
            let loss = losses.get_mut(&nodeid)?;
            (!std::mem::replace(&mut loss.told, true)).then_some(loss.errno)
        })
    }

    /// The error for fsync, which returns it even after another call has. The error ends with that,
    /// or with a truncation to 0 bytes.
    pub(super) fn end(&self, nodeid: u64) -> Option<Errno> {
        self.change(|losses| losses.remove(&nodeid)).map(|loss| loss.errno)
    }

    /// The file is no longer open for writing: an error that was returned does not concern programs
    /// that open the file later.
    pub(super) fn closed(&self, nodeid: u64) {
        self.change(|losses| if losses.get(&nodeid)?.told { losses.remove(&nodeid) } else { None });
    }

    /// After a rollback the lost data would be gone anyway.
    pub(crate) fn forget_all(&self) {
        self.change(|losses| {
            losses.clear();
            None::<()>
        });
    }

    /// The losses since the mount.
    pub(super) fn count(&self) -> LostWritesArgument {
        LostWritesArgument {
            bytes: self.bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            errno: self.errno.load(Ordering::Relaxed),
        }
    }

    /// The losses that no call has returned, this one included. The kernel may have returned some by
    /// itself. `exists`: whether a file still has a name; no transaction point keeps another.
    pub(super) fn take_new(&self, exists: impl Fn(u64) -> bool) -> LostWritesArgument {
        let mut all = LostWritesArgument { bytes: 0, writes: 0, errno: 0 };
        self.change(|losses| {
            for (nodeid, loss) in losses {
                if loss.told || loss.new.1 == 0 || !exists(*nodeid) {
                    continue;
                }
                let (bytes, writes) = std::mem::take(&mut loss.new);
                all.bytes += bytes;
                all.writes += writes;
                all.errno = loss.errno.0.cast_unsigned().into();
            }
            None::<()>
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Errno = Errno(libc::ENOSPC);

    fn lost(nodeid: u64) -> Lost {
        let lost = Lost::default();
        lost.losses().insert(nodeid, Loss { errno: FULL, told: false, new: (30, 2) });
        lost.any.store(true, Ordering::Release);
        lost
    }

    #[test]
    fn a_write_and_an_fsync_get_the_error_once_each() {
        let lost = lost(7);
        assert_eq!((lost.peek(8), lost.tell(8), lost.end(8)), (None, None, None));
        assert_eq!((lost.peek(7), lost.peek(7)), (Some(FULL), Some(FULL)));
        assert_eq!((lost.tell(7), lost.tell(7), lost.peek(7)), (Some(FULL), None, None));
        assert_eq!((lost.end(7), lost.end(7)), (Some(FULL), None));
        assert!(!lost.any.load(Ordering::Acquire));
    }

    #[test]
    fn losses_that_no_call_has_returned_are_returned_once() {
        let new = |lost: &Lost| {
            let found = lost.take_new(|_| true);
            (found.bytes, found.writes, found.errno)
        };
        let (all, none) = ((30, 2, libc::ENOSPC as u64), (0, 0, 0));
        let unknown = lost(7);
        assert_eq!((new(&unknown), new(&unknown)), (all, none));
        assert_eq!(unknown.end(7), Some(FULL), "fsync returns the error of its file, too");
        for returns in [Lost::end, Lost::tell] {
            let known = lost(7);
            assert_eq!(returns(&known, 7), Some(FULL));
            assert_eq!(new(&known), none);
        }
        let gone = lost(7);
        gone.forget_all();
        assert_eq!(new(&gone), none);
        let removed = lost(7);
        assert_eq!(removed.take_new(|_| false).writes, 0);
        assert_eq!(removed.end(7), Some(FULL), "a program may have it open");
    }

    #[test]
    fn what_no_call_has_returned_survives_a_close() {
        let lost = lost(7);
        lost.closed(7);
        assert_eq!(lost.tell(7), Some(FULL));
        lost.closed(7);
        assert_eq!(lost.end(7), None);
    }
}
