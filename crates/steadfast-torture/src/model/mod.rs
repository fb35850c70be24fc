//! The model: a file system in memory, written from POSIX and from the facade's documentation, not
//! from the core.
//!
//! The model decides what is correct, so it is as plain as possible. Every operation is one
//! function. It either returns the [`Faults`] that forbid it and changes nothing, or it changes the
//! state completely. The model cannot know how much fits on a volume, so it never returns
//! `NoSpace`.
//!
//! A [`State`] is the whole file system at one moment; cloning it copies pointers. The test keeps
//! the state at every transaction point.

mod apply;
mod attributes;
mod content;
mod data;
mod names;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast::fs::FileKind;
use steadfast::{InodeNumber, Timestamp, TransactionMask};

pub use content::Content;
pub use names::NewName;
pub use snapshots::ModelSnapshot;

use crate::digest::Digest;
use crate::fault::{Fault, Faults};

/// Largest size of a file, bytes.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Properties of the volume under test, as it reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest name in bytes.
    pub name_max: usize,
    /// Size of a block in bytes: the alignment of clones.
    pub block_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { name_max: 255, block_size: 4096 }
    }
}

/// The contents of an inode.
#[derive(Debug, Clone)]
pub enum Body {
    /// A regular file's bytes.
    Regular(Content),
    /// A directory's entries, and its parent.
    Directory {
        /// Name to inode.
        entries: BTreeMap<Vec<u8>, InodeNumber>,
        /// The inode of `..`.
        parent: InodeNumber,
    },
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// FIFO, socket or device: no contents.
    Special,
}

/// An inode.
#[derive(Debug, Clone)]
pub struct Node {
    /// Type.
    pub kind: FileKind,
    /// Low twelve bits of the mode.
    pub permissions: u32,
    /// Hard links.
    pub links: u32,
    /// Whether it can get a name although it has none: it was made without a name and never had
    /// one.
    pub nameable: bool,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub device: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    /// Its contents.
    pub body: Body,
}

impl Node {
    /// `st_size`: bytes of a file or a link's target, entries of a directory.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::Regular(content) => content.size(),
            Body::Directory { entries, .. } => entries.len() as u64,
            Body::Symlink(target) => target.len() as u64,
            Body::Special => 0,
        }
    }

    fn add_to(&self, digest: &mut Digest) {
        digest
            .number(self.kind as u64)
            .number(u64::from(self.permissions))
            .number(u64::from(self.links));
        digest
            .number(u64::from(self.uid))
            .number(u64::from(self.gid))
            .number(u64::from(self.device));
        digest.number(u64::from(self.nameable));
        for time in [self.accessed, self.modified, self.changed, self.created] {
            digest.number(time.seconds as u64).number(u64::from(time.nanoseconds));
        }
        digest.number(self.xattrs.len() as u64);
        for (name, value) in &self.xattrs {
            digest.bytes(name).bytes(value);
        }
        match &self.body {
            Body::Regular(content) => content.add_to(digest),
            Body::Directory { entries, parent } => {
                digest.number(parent.0).number(entries.len() as u64);
                for (name, inode) in entries {
                    digest.bytes(name).number(inode.0);
                }
            }
            Body::Symlink(target) => {
                digest.bytes(target);
            }
            Body::Special => {}
        }
    }

    fn directory(kind: FileKind, now: Timestamp, parent: InodeNumber) -> Node {
        Node {
            kind,
            permissions: 0o755,
            links: 2,
            nameable: false,
            uid: 0,
            gid: 0,
            device: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            xattrs: BTreeMap::new(),
            body: Body::Directory { entries: BTreeMap::new(), parent },
        }
    }
}

/// The whole file system at one moment.
#[derive(Debug, Clone)]
pub struct State {
    nodes: BTreeMap<InodeNumber, Arc<Node>>,
    /// Snapshots, oldest first.
    snapshots: Arc<Vec<ModelSnapshot>>,
    /// The transaction mask, if it is known.
    pub mask: Option<TransactionMask>,
    /// Interval of the timer, milliseconds, if it is known.
    pub timer_ms: Option<u32>,
}

impl State {
    /// An empty root directory.
    pub fn empty(now: Timestamp) -> State {
        let root = Node::directory(FileKind::Directory, now, InodeNumber::ROOT);
        State {
            nodes: BTreeMap::from([(InodeNumber::ROOT, Arc::new(root))]),
            snapshots: Arc::default(),
            mask: None,
            timer_ms: None,
        }
    }

    /// An inode.
    pub fn node(&self, inode: InodeNumber) -> Option<&Node> {
        self.nodes.get(&inode).map(Arc::as_ref)
    }

    /// All inodes.
    pub fn nodes(&self) -> impl Iterator<Item = (InodeNumber, &Node)> {
        self.nodes.iter().map(|(inode, node)| (*inode, node.as_ref()))
    }

    /// The inode that `name` has in `directory`.
    pub fn entry(&self, directory: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
        match &self.node(directory)?.body {
            Body::Directory { entries, .. } => entries.get(name).copied(),
            _ => None,
        }
    }

    /// A digest of everything that is visible.
    pub fn digest(&self) -> u128 {
        let mut digest = Digest::default();
        for (inode, node) in &self.nodes {
            digest.number(inode.0);
            node.add_to(&mut digest);
        }
        for parameter in [self.mask.map(|mask| mask.0), self.timer_ms] {
            digest.number(parameter.map_or(0, |value| 1 + u64::from(value)));
        }
        for kept in self.snapshots.iter() {
            digest.bytes(kept.name.as_bytes()).bytes(&kept.digest.to_le_bytes());
        }
        digest.value()
    }

    /// Whether this is the same state, unchanged since one was copied from the other.
    pub fn is_untouched(&self, other: &State) -> bool {
        self.nodes.len() == other.nodes.len()
            && Arc::ptr_eq(&self.snapshots, &other.snapshots)
            && self
                .nodes
                .iter()
                .zip(&other.nodes)
                .all(|(one, two)| one.0 == two.0 && Arc::ptr_eq(one.1, two.1))
    }

    /// Drops every inode that has no name and is not in `open`.
    pub fn reap(&mut self, open: &BTreeMap<InodeNumber, u32>) {
        self.nodes.retain(|inode, node| node.links > 0 || open.contains_key(inode));
    }

    /// The inode, to be changed; only for inodes that were looked up before.
    fn change(&mut self, inode: InodeNumber) -> Option<&mut Node> {
        self.nodes.get_mut(&inode).map(Arc::make_mut)
    }
}

/// An open file system: the state, the descriptors that keep unlinked files alive, and the time.
#[derive(Debug, Clone)]
pub struct Model {
    /// The names, attributes and bytes.
    pub state: State,
    /// How many times each inode is acquired.
    pub open: BTreeMap<InodeNumber, u32>,
    /// The time of the next operation.
    pub now: Timestamp,
    /// The limits of the volume under test.
    pub limits: Limits,
    /// Whether an atomic command holds the volume. Then no other operation may set a transaction
    /// point.
    pub held: bool,
}

impl Model {
    /// Opens `state` without the unlinked files that were open before.
    pub fn open(mut state: State, limits: Limits, now: Timestamp) -> Model {
        state.reap(&BTreeMap::new());
        Model { state, open: BTreeMap::new(), now, limits, held: false }
    }

    /// Returns to an earlier state. Acquired inodes stay acquired if they exist there. Mask and
    /// timer stay: they are the user's present choice.
    pub fn roll_back(&mut self, state: &State) {
        let (mask, timer_ms) = (self.state.mask, self.state.timer_ms);
        self.state = State { mask, timer_ms, ..state.clone() };
        self.state.reap(&self.open);
    }

    /// Refuses an operation that must wait for the end of an atomic command.
    ///
    /// # Errors
    /// Held.
    pub(crate) fn free(&self) -> Result<(), Faults> {
        if self.held { Err(Fault::Held.into()) } else { Ok(()) }
    }

    /// Keeps an inode alive until an equal number of calls to [`release`](Self::release).
    ///
    /// # Errors
    /// Stale, if the inode no longer exists.
    pub fn acquire(&mut self, inode: InodeNumber) -> Result<(), Faults> {
        self.living(inode)?;
        *self.open.entry(inode).or_default() += 1;
        Ok(())
    }

    /// Ends one [`acquire`](Self::acquire).
    pub fn release(&mut self, inode: InodeNumber) {
        if let Some(count) = self.open.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&inode);
            }
        }
        self.state.reap(&self.open);
    }

    /// The inode, if it exists.
    fn living(&self, inode: InodeNumber) -> Result<&Node, Faults> {
        self.state.node(inode).ok_or_else(|| [Fault::Stale, Fault::NotFound].into())
    }

    /// Sets content and attribute change times.
    fn touch(&mut self, inode: InodeNumber) {
        let now = self.now;
        if let Some(node) = self.state.change(inode) {
            node.modified = now;
            node.changed = now;
        }
    }

    /// Sets the attribute change time.
    fn touch_attributes(&mut self, inode: InodeNumber) {
        let now = self.now;
        if let Some(node) = self.state.change(inode) {
            node.changed = now;
        }
    }
}
