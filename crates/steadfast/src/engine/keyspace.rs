//! The interface between the file system and the engine: an ordered map that one writer at a time
//! changes in atomic batches. Data blocks go beside it, through the engine's own methods.
//!
//! The file system ([`crate::fs`]) is written against these traits. Its operations read through
//! them as readers do, and its unit tests run on a map in memory that checks the rules.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::{Mutation, Value};
use crate::types::{Generation, InodeNumber, Timestamp};

/// Limit of the mutations in one batch; larger work is done in steps.
pub const BATCH_MUTATIONS_MAX: usize = 64;

/// Limit of the keys that the extents of one batch change. The rest of the batch is for the inode
/// and for extents that are merged or split beside them.
pub const EXTENT_CHANGES_MAX: usize = 58;

/// How much of the space budget an operation may use. The budget keeps a full volume clearable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceClass {
    /// An operation that makes the volume fuller.
    Normal,
    /// An operation that replaces as much as it takes: may take half of the reserve until the next
    /// checkpoint frees it again.
    Rewrite,
    /// A removal: may use the reserve.
    Freeing,
}

/// Called with each item; returns `false` after the last one that it needs.
pub type Visit<'a> = &'a mut dyn FnMut(&Key, &[u8]) -> Result<bool>;

/// Reading the map.
pub trait KeyspaceRead {
    /// The value of `key`.
    fn get(&self, key: &Key) -> Result<Option<Value>>;

    /// The first key in `from..=to`.
    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>>;

    /// The last key in `from..=to`.
    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>>;

    /// As [`next`](Self::next), passed to `take` without a copy where that is possible.
    fn next_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        Ok(self.next(from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// As [`previous`](Self::previous), passed to `take` without a copy where that is possible.
    fn previous_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        Ok(self.previous(from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// Calls `take` with the value of `key` in place, without a copy.
    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>;

    /// Passes the items with keys in `from..=to` to `visit`, in order and without copies, until
    /// `visit` returns `false`.
    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()>;

    /// Largest value that fits under one key, in bytes (depends on the node size).
    fn value_len_max(&self) -> usize;
}

/// Changing the map. The writer is alone: nothing that it has read changes before it applies its
/// batch.
pub trait Keyspace: KeyspaceRead {
    /// Applies changes: at most one a key, sorted by key, at most [`BATCH_MUTATIONS_MAX`]. They
    /// become visible as a whole. After a power cut all of them are there, or none.
    ///
    /// The engine follows [`Kind::Extent`](crate::format::key::Kind::Extent) values. Blocks that
    /// appear in the batch change from unpublished to used. Blocks that disappear are freed:
    /// reusable after the next durable checkpoint, or at once if no commit record has them yet.
    /// Blocks that only move from one key to another stay unchanged. Nothing becomes durable here:
    /// that is what a transaction point does.
    ///
    /// # Errors
    /// `NoSpace` before anything has changed.
    fn apply(&self, mutations: Vec<Mutation>, class: SpaceClass) -> Result<()>;

    /// An empty list of mutations, perhaps with memory.
    fn blank_list(&self) -> Vec<Mutation> {
        Vec::new()
    }

    /// An empty value, perhaps with memory.
    fn blank_value(&self) -> Value {
        Vec::new()
    }

    /// A fresh inode number.
    fn allocate_inode(&self) -> Result<InodeNumber>;

    /// Birth stamp for new extents.
    fn generation(&self) -> Generation;

    /// Time for time stamps.
    fn now(&self) -> Timestamp;
}
