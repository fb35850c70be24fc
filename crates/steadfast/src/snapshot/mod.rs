//! Snapshots: what is kept of them, and the blocks that only they hold.
//!
//! A snapshot is a durable state whose root the live tree remembers under a key, so taking one
//! costs the same at any size of the volume. What keeps its blocks from being used again is their
//! *birth*, the generation that allocated them:
//!
//! - A block that the live tree lets go and that was born after the newest snapshot belongs to no
//!   snapshot and is freed as always. One that was born earlier goes to the *dead list* of the
//!   newest snapshot, and its bit in the allocation bitmap stays set. So the bitmaps say what the
//!   live tree uses or snapshots hold, and normal operation costs the same with none and with a
//!   thousand of them.
//! - The life of a block is one interval of generations. Of the snapshots within it the newest has
//!   it in its dead list, once it is dead. So deleting a snapshot needs only that list: what was
//!   born after the snapshot before it was held by nobody else and is free, and the rest goes to
//!   the list of the one before. What the deleted snapshot shares with the next one is not touched.
//! - Going back to a snapshot makes its tree the live one, with its own bitmaps, so what came later
//!   is free at once.
//!
//! The keys of all this are in no log record. Dead lists follow from the mutations, as bitmaps do,
//! and are found again by replaying them; snapshots come and go with checkpoints only.
//!
//! Here are the values of the keys; [`crate::volume`] has what happens to them.

mod dead;
mod record;
mod shared;

pub(crate) use dead::{
    DeadEntry, Dying, dead_item_len, decode_dead_list, encode_dead_list, entries_max,
};
pub use record::Snapshot;
pub(crate) use record::{Record, check_name};
pub(crate) use shared::Shared;

/// Highest generation of a snapshot: its number and a sequence number share a key's suffix.
pub(crate) const GENERATION_MAX: u64 = (1 << 40) - 1;
