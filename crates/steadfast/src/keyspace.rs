//! The seam between the POSIX semantics and the engine below: an ordered map with atomic batches,
//! plus opaque places for data.
//!
//! The semantics (`crate::fs`) are written once against these traits. The copy-on-write tree of
//! `crate::volume` is their first implementation; its writers are serialised, so it never answers
//! [`Error::Conflict`](crate::Error::Conflict). A distributed engine may: every operation is a
//! retryable function that emits a bounded batch.

use alloc::vec::Vec;

use crate::error::Result;
use crate::key::Key;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Timestamp};

/// The most mutations in one batch; larger work goes in steps.
pub const BATCH_MUTATIONS_MAX: usize = 64;

/// A value's bytes.
pub type Value = Vec<u8>;

/// Changes whenever the value of a key may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

/// A value (or the absence of one is expressed by `Option` around it) with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The bytes.
    pub value: Value,
    /// Its version when it was read.
    pub version: Version,
}

/// The key was at this version (`None`: absent) when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precondition {
    /// Which key.
    pub key: Key,
    /// What was seen.
    pub version: Option<Version>,
}

/// One change to the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// Which key.
    pub key: Key,
    /// The new value, or `None` to remove the key (it exists).
    pub value: Option<Value>,
}

/// Who may use the space that is kept back so that a full volume can always be cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceClass {
    /// Everything that makes the volume fuller.
    Normal,
    /// What replaces as much as it takes: may take half of the reserve until the next transaction
    /// point brings it back.
    Rewrite,
    /// Removal: may dip into the reserve.
    Freeing,
}

/// A set of changes that becomes visible, and after a power cut is found, as a whole or not at all.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The changes, at most one a key and at most [`BATCH_MUTATIONS_MAX`].
    pub mutations: Vec<Mutation>,
    /// What the changes rely on.
    pub preconditions: Vec<Precondition>,
    /// Which space may be used.
    pub class: SpaceClass,
}

/// Looks at an item; `false`: it was the last one.
pub type Visit<'a> = &'a mut dyn FnMut(&Key, &[u8], Version) -> Result<bool>;

/// Reading the map.
pub trait KeyspaceRead {
    /// The value of `key`.
    fn get(&self, key: &Key) -> Result<Option<Versioned>>;

    /// The first key in `from..=to`.
    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>>;

    /// The last key in `from..=to`.
    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>>;

    /// Passes the value of `key` to `take` where it lies: for who needs no copy.
    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8], Version) -> T) -> Result<Option<T>> {
        Ok(self.get(key)?.map(|found| take(&found.value, found.version)))
    }

    /// Passes the items with keys in `from..=to` to `visit`, in order and without copies, until
    /// that says `false`.
    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        let mut next = Some(*from);
        while let Some(from) = next.filter(|from| from <= to) {
            let Some((key, found)) = self.next(&from, to)? else { break };
            if !visit(&key, &found.value, found.version)? {
                break;
            }
            next = key.successor();
        }
        Ok(())
    }

    /// Largest value the engine stores under one key, in bytes (depends on the node size).
    fn value_len_max(&self) -> usize;
}

/// Changing the map, and the control plane of the data.
pub trait Keyspace: KeyspaceRead {
    /// Applies a batch atomically.
    ///
    /// The engine follows [`Kind::Extent`](crate::key::Kind::Extent) values: blocks that appear in
    /// the batch go from reserved to used, blocks that disappear are freed (reusable after the next
    /// durable checkpoint), and blocks that only move from one key to another stay as they are.
    ///
    /// # Errors
    /// `NoSpace` and `Conflict` before anything has changed.
    fn commit(&self, batch: Batch) -> Result<()>;

    /// A fresh inode number.
    fn allocate_inode(&self) -> Result<InodeNumber>;

    /// Birth stamp for new extents.
    fn generation(&self) -> Generation;

    /// Time for time stamps.
    fn now(&self) -> Timestamp;

    /// Reserves up to `blocks` blocks near `goal` as one run (possibly shorter, at least one
    /// block), to be written and then published by a commit that names them in an extent, or given
    /// back with [`release`](Self::release).
    fn reserve(&self, blocks: u64, goal: Option<BlockAddress>) -> Result<BlockRun>;

    /// Gives reserved blocks back.
    fn release(&self, run: BlockRun);
}
