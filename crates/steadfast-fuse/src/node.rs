//! Node ids: the kernel's numbers for inodes.
//!
//! A node id is the inode number with a tag in bits 48 to 62. Bit 63 marks the node ids of
//! [`crate::snapshots`]. The tag counts rollbacks. In a cluster it goes on through takeovers that
//! lose nothing. After a rollback all ids with an old tag are stale and return ESTALE. A file that
//! survives has a new id under the new tag, and a new inode in the kernel.
//!
//! Directories are the exception: a shell may have one as working directory, so a directory that
//! survived a rollback keeps its node id. That needs a table of the directories that the kernel
//! knows, with their lookup counts; all other inodes need no state. The table is bounded:
//! directories beyond [`DIRECTORIES_MAX`] behave like other files.
//!
//! Invariants: an id with the current tag is valid. An id with another tag is valid only if the
//! table contains it. The root has tag 0 and is always valid. Tags wrap after 32,768 rollbacks of
//! one mount.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::InodeNumber;
use steadfast::fs::{Attributes, FileKind};

use crate::abi::ROOT_ID;
use crate::errno::Errno;
use crate::snapshots;

const TAG_SHIFT: u32 = 48;
const INODE_MASK: u64 = (1 << TAG_SHIFT) - 1;
const TAG_MASK: u16 = 0x7fff;
/// Largest number of directories with counted lookups (32 bytes each).
const DIRECTORIES_MAX: usize = 1 << 18;

#[derive(Debug, Clone, Copy)]
struct Directory {
    tag: u16,
    lookups: u64,
}

/// Converts between node ids and inode numbers.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    tag: AtomicU16,
    directories: Mutex<HashMap<u64, Directory>>,
}

impl Nodes {
    /// An empty table whose ids have this tag, at first.
    pub(crate) fn starting_at(tag: u16) -> Nodes {
        Nodes { tag: AtomicU16::new(tag), directories: Mutex::default() }
    }

    /// The node id of an inode for an answer to the kernel; counts one lookup.
    ///
    /// # Errors
    /// EOVERFLOW if the inode number leaves no room for the tag.
    pub(crate) fn enter(&self, attributes: &Attributes) -> Result<u64, Errno> {
        let inode = attributes.inode;
        if inode == InodeNumber::ROOT {
            return Ok(ROOT_ID);
        }
        if inode.0 > INODE_MASK {
            return Err(Errno(libc::EOVERFLOW));
        }
        let mut tag = self.tag();
        if attributes.kind == FileKind::Directory {
            let mut directories = self.directories();
            if let Some(known) = directories.get_mut(&inode.0) {
                known.lookups += 1;
                tag = known.tag;
            } else if directories.len() < DIRECTORIES_MAX {
                directories.insert(inode.0, Directory { tag, lookups: 1 });
            }
        }
        Ok(id(inode.0, tag))
    }

    /// The node id of an inode, without counting a lookup; `None` for a directory that is not in
    /// the table.
    pub(crate) fn id(&self, attributes: &Attributes) -> Option<u64> {
        let inode = attributes.inode.0;
        let tag = match attributes.kind {
            FileKind::Directory => self.directories().get(&inode)?.tag,
            _ => self.tag(),
        };
        (inode <= INODE_MASK).then(|| id(inode, tag))
    }

    /// The node id that the kernel has for an inode, if it has one.
    pub(crate) fn known(&self, inode: InodeNumber) -> u64 {
        if inode == InodeNumber::ROOT {
            return ROOT_ID;
        }
        let tag = self.directories().get(&inode.0).map_or_else(|| self.tag(), |known| known.tag);
        id(inode.0, tag)
    }

    /// The inode of a node id.
    ///
    /// # Errors
    /// ESTALE for an id from before a rollback. EXDEV for an id of a snapshot, which has no inodes
    /// of the live tree.
    pub(crate) fn resolve(&self, nodeid: u64) -> Result<InodeNumber, Errno> {
        if snapshots::is_snapshot(nodeid) {
            return Err(Errno(libc::EXDEV));
        }
        if nodeid == ROOT_ID || tag_of(nodeid) == self.tag() || self.is_known_directory(nodeid) {
            Ok(inode(nodeid))
        } else {
            Err(Errno(libc::ESTALE))
        }
    }

    /// Whether the id is that of a directory that keeps its id across a rollback.
    pub(crate) fn is_known_directory(&self, nodeid: u64) -> bool {
        nodeid == ROOT_ID
            || self
                .directories()
                .get(&(nodeid & INODE_MASK))
                .is_some_and(|known| known.tag == tag_of(nodeid))
    }

    /// The kernel drops `lookups` of its references.
    pub(crate) fn forget(&self, nodeid: u64, lookups: u64) {
        let mut directories = self.directories();
        let inode = nodeid & INODE_MASK;
        if let Some(known) = directories.get_mut(&inode)
            && known.tag == tag_of(nodeid)
        {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                directories.remove(&inode);
            }
        }
    }

    /// After a rollback of the volume: makes all node ids stale, except those of directories for
    /// which `survives` holds. Returns the node ids of the survivors, including the root.
    pub(crate) fn roll_back(&self, survives: impl Fn(InodeNumber) -> bool) -> Vec<u64> {
        let mut directories = self.directories();
        directories.retain(|inode, _| survives(InodeNumber(*inode)));
        self.tag.fetch_add(1, Ordering::AcqRel);
        let known = directories.iter().map(|(inode, known)| id(*inode, known.tag));
        std::iter::once(ROOT_ID).chain(known).collect()
    }

    /// The tag of new node ids.
    pub(crate) fn tag(&self) -> u16 {
        self.tag.load(Ordering::Acquire) & TAG_MASK
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<u64, Directory>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inode number in a node id, stale or not.
pub(crate) fn inode(nodeid: u64) -> InodeNumber {
    InodeNumber(nodeid & INODE_MASK)
}

fn id(inode: u64, tag: u16) -> u64 {
    u64::from(tag) << TAG_SHIFT | inode
}

/// The tag in a node id: each rollback makes another one, and ids with an older one stale.
pub(crate) fn tag_of(nodeid: u64) -> u16 {
    (nodeid >> TAG_SHIFT) as u16
}

#[cfg(test)]
mod tests {
    use steadfast::Timestamp;
    use steadfast::fs::FileFlags;

    use super::*;

    fn attributes(inode: u64, kind: FileKind) -> Attributes {
        let time = Timestamp::default();
        Attributes {
            inode: InodeNumber(inode),
            kind,
            permissions: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            allocated: 0,
            shrinking: false,
            block_size: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            flags: FileFlags::NONE,
        }
    }

    #[test]
    fn files_get_new_ids_and_directories_keep_theirs() {
        let nodes = Nodes::default();
        let file = nodes.enter(&attributes(20, FileKind::Regular)).unwrap();
        let kept = nodes.enter(&attributes(21, FileKind::Directory)).unwrap();
        let gone = nodes.enter(&attributes(22, FileKind::Directory)).unwrap();
        let mut survivors = nodes.roll_back(|inode| inode.0 == 21);
        survivors.sort_unstable();
        assert_eq!(survivors, [ROOT_ID, kept]);
        assert_eq!(nodes.resolve(file), Err(Errno(libc::ESTALE)));
        assert_eq!(nodes.resolve(gone), Err(Errno(libc::ESTALE)));
        assert_eq!(nodes.resolve(kept), Ok(InodeNumber(21)));
        assert_eq!(nodes.resolve(ROOT_ID), Ok(InodeNumber::ROOT));
        let again = nodes.enter(&attributes(20, FileKind::Regular)).unwrap();
        assert_ne!(again, file);
        assert_eq!(nodes.resolve(again), Ok(InodeNumber(20)));
        // The number of a removed directory can be used again for another directory.
        let reborn = nodes.enter(&attributes(22, FileKind::Directory)).unwrap();
        assert_ne!(reborn, gone);
        assert_eq!(nodes.resolve(gone), Err(Errno(libc::ESTALE)));
    }

    #[test]
    fn a_forgotten_directory_leaves_the_table() {
        let nodes = Nodes::default();
        let id = nodes.enter(&attributes(30, FileKind::Directory)).unwrap();
        nodes.enter(&attributes(30, FileKind::Directory)).unwrap();
        nodes.forget(id, 1);
        assert!(nodes.is_known_directory(id));
        nodes.forget(id, 1);
        assert!(!nodes.is_known_directory(id));
        // Still valid, because the tag is the current one (an NFS handle may use it again).
        assert_eq!(nodes.resolve(id), Ok(InodeNumber(30)));
    }

    #[test]
    fn large_inode_numbers_are_refused() {
        let nodes = Nodes::default();
        assert_eq!(
            nodes.enter(&attributes(1 << 48, FileKind::Regular)),
            Err(Errno(libc::EOVERFLOW))
        );
    }
}
