//! close(2): the event `close`, without a round trip if the mask does not have it.
//!
//! When a descriptor is closed, the kernel writes back the dirty pages of the file and then sends
//! FLUSH. FLUSH has no other meaning than the event `close`. The first FLUSH of a mount decides: if
//! the mask does not have the event then, the answer is ENOSYS. From then on the kernel still
//! writes back, but never sends FLUSH on this connection.
//!
//! With several kernels FLUSH also ends locks, so it is never answered so. Instead the owner tells
//! the node of a peer, with the answer that opens a file, that a close does nothing at the owner.
//! Where the node's programs have no locks, it then answers FLUSH itself ([`crate::cluster`]). That
//! ends by time, and is recalled before the mask changes or nodes become stale. It stands among the
//! delegations as those of [`CLOSES`](super::affected::CLOSES).
//!
//! Invariant: after that answer the mask of the mount cannot get `close`, because the daemon could
//! not honour it. A rollback keeps the mask in force.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use steadfast::{Platform, TransactionMask};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome};
use crate::abi::input::FlushIn;
use crate::errno::Errno;
use crate::open::Handle;
use crate::request::Request;
use crate::snapshots::is_snapshot;
use crate::validity;

/// Whether the kernel reports closes; `None` before the first FLUSH. The lock is held while this
/// state or the mask changes.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Option<bool>>);

impl Closing {
    /// Called for each FLUSH: whether the kernel shall continue to report closes.
    fn is_reported(&self, mask: impl FnOnce() -> TransactionMask) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reported.get_or_insert_with(|| mask().contains(TransactionMask::CLOSE))
    }

    /// Changes the mask to `mask` by `change`. Fails with EBUSY, without a change, if `mask` has
    /// `close` and the kernel does not report closes.
    pub(crate) fn change_mask(
        &self,
        mask: TransactionMask,
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported == Some(false) && mask.contains(TransactionMask::CLOSE) {
            return Err(Errno(libc::EBUSY));
        }
        change()
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Marks the file that an answer opens, if its closes do nothing here but end locks. `asked`:
    /// when the request was begun.
    pub(super) fn delegate_close(&self, request: &Request<'_>, asked: Instant, answer: &mut [u8]) {
        // This node's own kernel reaches the file system without a round trip.
        if self.device.is_some() || self.recaller.get().is_none() || self.is_control_file(request) {
            return;
        }
        let (Some(delegations), Some(opened)) =
            (&self.kernels.delegations, validity::opened_node(request, answer))
        else {
            return;
        };
        // The order matters: a change of the mask after this look is seen by the delegations.
        if !is_snapshot(opened.nodeid)
            && self.lost.peek(opened.nodeid).is_none()
            && !self.volume.mask().contains(TransactionMask::CLOSE)
            && delegations.grant_closes(self.id, asked)
        {
            validity::set_no_flush(request, answer);
        }
    }

    /// FLUSH: one descriptor of an open file is closed; others may remain.
    pub(super) fn flush(&self, request: &Request<'_>) -> Outcome {
        self.node(request)?;
        let closed = request.arguments().take::<FlushIn>()?;
        if self.is_shared() {
            let owner = self.lock_owner(closed.lock_owner);
            self.kernels.locks.closed(self.locked_file(request)?, owner);
        } else if !self.closing.is_reported(|| self.volume.mask()) {
            return Err(Errno(libc::ENOSYS));
        }
        if Handle(closed.fh).is_writable() {
            if self.files.has_one_writer(request.header.nodeid) {
                self.settle_times(request.header.nodeid);
            }
            self.volume.closed()?;
            // Many programs ignore the result of close(2), so the next call returns it, too.
            if let Some(errno) = self.lost.peek(request.header.nodeid) {
                return Err(errno);
            }
        }
        Ok(Answer::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH: TransactionMask = TransactionMask::ALL;
    const WITHOUT: TransactionMask = TransactionMask::DEFAULT;

    #[test]
    fn the_first_flush_decides() {
        let never = || -> Result<(), Errno> { panic!("the mask is not to be changed") };
        let closing = Closing::default();
        assert_eq!(closing.change_mask(WITH, || Ok(())), Ok(()), "nothing was closed before");
        assert!(!closing.is_reported(|| WITHOUT) && !closing.is_reported(|| WITH));
        assert_eq!(closing.change_mask(WITH, never), Err(Errno(libc::EBUSY)));
        assert_eq!(closing.change_mask(WITHOUT, || Err(Errno(libc::EIO))), Err(Errno(libc::EIO)));
        let closing = Closing::default();
        assert!(closing.is_reported(|| WITH) && closing.is_reported(|| WITHOUT));
        assert_eq!(closing.change_mask(WITHOUT, || Ok(())), Ok(()));
        assert_eq!(closing.change_mask(WITH, || Ok(())), Ok(()));
    }
}
