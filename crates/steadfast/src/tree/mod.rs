//! The copy-on-write B+tree: one ordered map from [`Key`](crate::format::key::Key) to bytes.
//!
//! Invariants:
//! - A node is changed only in the generation in which it was allocated. A node of an earlier
//!   generation is copied to a new address first, so no committed node is ever overwritten.
//! - A [`NodePointer`](crate::format::NodePointer) holds the checksum of what it points to, so the
//!   tree is a Merkle tree up to the metaroot. The checksum of a node that has changed is filled in
//!   when the node is written ([`seal`]).
//! - Every ancestor of a dirty node is dirty.
//! - The tree knows nothing about space: addresses come from and go to a [`NodePool`].

mod cache;
mod copies;
mod dentry_cache;
mod diff;
mod finger;
mod inserted;
mod leaves;
mod plan;
mod pool;
mod read;
mod seal;
mod store;
mod write;

pub use cache::CacheUse;
pub use copies::NodeCopies;
pub use dentry_cache::CachedDentry;
pub use diff::{Difference, NextDifference};
pub use leaves::FoundKey;
pub use plan::{Plan, PlannedChange};
pub use pool::NodePool;
pub use seal::SealedNode;
pub use store::Store;
pub use write::{Scratch, TreeWriter};
