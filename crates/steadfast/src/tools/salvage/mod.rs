//! Copying out of a badly damaged volume whatever can still be read.
//!
//! [`Salvage::gather`] collects every item of the keyspace that can be found, in this order of
//! trust:
//! 1. the tree of the newest metaroot that is left, and the intent log behind it: what
//!    [`Volume::open`] would show;
//! 2. for key ranges that are lost with unreadable nodes, or all keys where no metaroot is left:
//!    leaves found by looking at every block of the medium, the newest generation first. A leaf
//!    that some branch points to with the right checksum is preferred to one that only says of
//!    itself that it belongs here.
//!
//! [`Salvage::gather_snapshot`] does the same with the tree of a snapshot, without the log.
//!
//! [`Salvage::entries`] then makes files of it, [`Salvage::read`] gives their bytes: those that
//! match their checksums. What does not is reported and left out; no byte is ever guessed. Nothing
//! is written to the medium.
//!
//! Everything but the data is kept in memory: about 0.1 % of the data for its checksums, and what
//! names and attributes take.
//!
//! [`Volume::open`]: crate::Volume::open

mod entries;
mod find;
mod gather;
mod ranges;
mod read;
mod scan;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use steadfast_media::Medium;

pub use entries::{Entry, Problem};
pub(crate) use find::search_superblock;
pub use read::{Sink, Xattr};

use crate::format::key::Key;
use crate::platform::Platform;
use crate::tree::Store;
use ranges::KeyRanges;

/// Memory for nodes: every one is read once, so a few are enough.
const CACHE_SIZE: usize = 64 << 10;

/// How far [`Salvage::gather`] is, in bytes of the medium that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SalvageProgress {
    /// Bytes looked at.
    pub done: u64,
    /// Bytes that will be looked at.
    pub total: u64,
}

/// One value of the keyspace.
struct Item {
    value: Vec<u8>,
    /// Found through checksums from the metaroot down, or in the log. Otherwise it may be out of
    /// date.
    proven: bool,
}

/// What is left of a volume.
pub struct Salvage<'m, M: Medium, P: Platform> {
    medium: &'m M,
    store: Store<&'m M, &'m P>,
    items: BTreeMap<Key, Item>,
    /// Keys that are in no node that was found: there may have been more.
    gone: KeyRanges,
    notes: Vec<String>,
}

impl<M: Medium, P: Platform> Salvage<'_, M, P> {
    /// What had to be done to get this far, in lines for people: copies passed over, nodes searched
    /// for.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
