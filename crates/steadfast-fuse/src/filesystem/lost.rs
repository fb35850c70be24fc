//! Cached writes that could not be stored.
//!
//! When such a write arrives, the kernel has already reported success to write(2). The kernel
//! reports the error once, to the first fsync, close or utimensat(2) that follows, and programs
//! ignore the result of utimensat(2). So the daemon keeps the error until a write or an fsync of
//! that file has returned it. It also counts the losses since the mount for
//! [`LOST_WRITES`](crate::ioctl::LOST_WRITES).

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

/// Lost writes of one mount.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Errors that are still unreported, by node id.
    untold: Mutex<HashMap<u64, Errno>>,
    /// Whether `untold` has entries.
    any: AtomicBool,
    bytes: AtomicU64,
    writes: AtomicU64,
    errno: AtomicU64,
}

impl Lost {
    fn untold(&self) -> MutexGuard<'_, HashMap<u64, Errno>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.untold().insert(nodeid, errno).is_none() {
            let reason = std::io::Error::from_raw_os_error(errno.0);
            let (inode, offset) = (node::inode(nodeid).0, write.offset);
            log_error!(
                "cannot store what was written to inode {inode} at offset {offset}: {reason}"
            );
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// The unreported error of the file, if it has one.
    pub(super) fn peek(&self, nodeid: u64) -> Option<Errno> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.untold().get(&nodeid).copied()
    }

    /// Like [`peek`](Self::peek); the caller reports the error, so it is cleared.
    pub(super) fn tell(&self, nodeid: u64) -> Option<Errno> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut untold = self.untold();
        let told = untold.remove(&nodeid);
        if untold.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        told
    }

    /// After a rollback the lost data would be gone anyway.
    pub(crate) fn forget_all(&self) {
        self.untold().clear();
    }

    /// The losses since the mount.
    pub(super) fn count(&self) -> LostWritesArgument {
        LostWritesArgument {
            bytes: self.bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            errno: self.errno.load(Ordering::Relaxed),
        }
    }
}
