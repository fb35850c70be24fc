//! close(2): the event `close`, and a round trip less where nobody wants it.
//!
//! The kernel writes back what a file has dirty when a descriptor is closed, and then sends FLUSH,
//! which means nothing but the event `close`. The first FLUSH of a mount decides: where the mask
//! does not have that event then, the answer is ENOSYS. The kernel goes on writing back, and never
//! sends FLUSH again on this connection.
//!
//! Invariant: from that answer on the mask of the mount does not get `close`, which could not be
//! honoured. A rollback keeps the mask that is in force.

use std::sync::{Mutex, PoisonError};

use steadfast::{Platform, TransactionMask};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome};
use crate::abi::input::FlushIn;
use crate::errno::Errno;
use crate::open::Handle;
use crate::request::Request;

/// Whether the kernel reports when files are closed; `None` before the first FLUSH. The lock is
/// held where that, or the mask, changes.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Option<bool>>);

impl Closing {
    /// For each FLUSH: whether it is wanted.
    fn is_reported(&self, mask: impl FnOnce() -> TransactionMask) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reported.get_or_insert_with(|| mask().contains(TransactionMask::CLOSE))
    }

    /// Changes the mask to `mask` by `change`. EBUSY, and no change, where it has `close` and the
    /// kernel does not report that.
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

impl<M: Medium, P: Platform> Filesystem<M, P> {
    /// FLUSH: one descriptor of possibly several of an open file is closed.
    pub(super) fn flush(&self, request: &Request<'_>) -> Outcome {
        let inode = self.node(request)?;
        if !self.closing.is_reported(|| self.volume.mask()) {
            return Err(Errno(libc::ENOSYS));
        }
        if Handle(request.arguments().take::<FlushIn>()?.fh).is_writable() {
            if self.files.has_one_writer(request.header.nodeid) {
                self.settle_times(request.header.nodeid);
            }
            self.volume.closed(inode)?;
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
