//! Inodes that have lost their last name while the kernel still knows them.
//!
//! A shell can have a removed working directory, and a program can hold a removed FIFO. Both may
//! still request attributes. The kernel does not report when such objects are opened. So their
//! inodes are kept, like those of open files, from the removal of the last name until the kernel
//! forgets them. If no program holds them, the kernel forgets them immediately.
//!
//! An unlinked regular file does not need this, because the kernel reports its open and close; a
//! symbolic link does not need it either. But a program may have looked up an object that a rename
//! replaces, and may be about to open or read it. A rename guarantees that the name always leads to
//! the old or to the new file. So the old one stays until the kernel forgets it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::fs::FileKind;
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;

use super::Filesystem;
use crate::node;

/// Node ids that are kept. The count lets FORGET, which is very frequent, skip the lock.
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

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Runs `remove`, which removes the name or gives it to another inode (`replaces`). Keeps the
    /// inode of the name if necessary.
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
            // Two requests removed one name concurrently; the other request keeps the inode.
            self.volume.release(found.inode);
            return None;
        }
        Some(nodeid)
    }

    /// Called when the kernel has forgotten a node.
    pub(super) fn let_go(&self, nodeid: u64) {
        if self.removed.remove(nodeid) {
            self.volume.release(node::inode(nodeid));
        }
    }

    /// Releases all kept inodes, at a rollback.
    pub(crate) fn let_all_go(&self) {
        for nodeid in self.removed.take() {
            self.volume.release(node::inode(nodeid));
        }
    }
}
