//! Inodes that have lost their last name while the kernel still knows them.
//!
//! A shell can stand in a directory that is gone, a program can hold a FIFO; both may still ask for
//! its attributes. The kernel says nothing when such things are opened, so their inodes are kept
//! (as those of open files are) from the removal of the last name until the kernel forgets them,
//! which is at once where nobody holds them. Regular files need none of this when they are
//! unlinked, since their opening and closing is told; nor do symbolic links. But what a rename
//! replaces may have been looked up by somebody who is about to open or read it: the promise of
//! rename is that the name always leads to the old or to the new file, so the old one stays until
//! the kernel lets it go.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::fs::FileKind;
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;

use super::Filesystem;
use crate::node;

/// Node ids that are kept. The count is there so that FORGET, which comes in masses, need not take
/// the lock.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    count: AtomicUsize,
    nodes: Mutex<HashSet<u64>>,
}

impl Removed {
    fn insert(&self, nodeid: u64) -> bool {
        let mut nodes = self.nodes();
        let new = nodes.insert(nodeid);
        self.count.store(nodes.len(), Ordering::Release);
        new
    }

    fn remove(&self, nodeid: u64) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut nodes = self.nodes();
        let known = nodes.remove(&nodeid);
        self.count.store(nodes.len(), Ordering::Release);
        known
    }

    fn take(&self) -> HashSet<u64> {
        let mut nodes = self.nodes();
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *nodes)
    }

    fn nodes(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Medium, P: Platform> Filesystem<M, P> {
    /// Runs `remove`, which takes the name away or gives it (`replaces`) to another inode, and
    /// keeps the inode behind it where that is needed.
    pub(super) fn removing<T, E>(
        &self,
        directory: InodeNumber,
        name: &[u8],
        replaces: bool,
        remove: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let kept = self.keep(directory, name, replaces);
        let result = remove();
        if let (Err(_), Some(nodeid)) = (&result, kept) {
            self.let_go(nodeid);
        }
        result
    }

    fn keep(&self, directory: InodeNumber, name: &[u8], replaces: bool) -> Option<u64> {
        let found = self.volume.lookup(directory, name).ok()?;
        let goes = match found.kind {
            FileKind::Directory => true,
            FileKind::Regular | FileKind::Symlink if !replaces => false,
            _ => found.links <= 1,
        };
        let nodeid = self.nodes.id(&found).filter(|_| goes)?;
        self.volume.acquire(found.inode).ok()?;
        if !self.removed.insert(nodeid) {
            // Two requests about one name: the other one keeps it.
            self.volume.release(found.inode);
            return None;
        }
        Some(nodeid)
    }

    /// The kernel has forgotten a node.
    pub(super) fn let_go(&self, nodeid: u64) {
        if self.removed.remove(nodeid) {
            self.volume.release(node::inode(nodeid));
        }
    }

    /// All of them, at a rollback.
    pub(crate) fn let_all_go(&self) {
        for nodeid in self.removed.take() {
            self.volume.release(node::inode(nodeid));
        }
    }
}
