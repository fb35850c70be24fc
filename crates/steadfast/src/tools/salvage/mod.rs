//! Copying everything that is still readable out of a badly damaged volume.
//!
//! [`Salvage::gather`] collects every item of the keyspace that can be found, in this order of
//! trust:
//! 1. the tree of the newest remaining metaroot, and the intent log after it: the state that
//!    [`Volume::open`] would show;
//! 2. for key ranges lost with unreadable nodes, or for all keys if no metaroot is left: leaves
//!    found by reading every block of the medium. The newest generation goes first. A leaf that a
//!    branch points to with the right checksum is preferred to one that only claims to belong here.
//!
//! [`Salvage::gather_snapshot`] does the same with the tree of a snapshot, without the log.
//!
//! [`Salvage::entries`] then builds files from the items, and [`Salvage::read`] returns the bytes
//! that match their checksums. Other bytes are reported and left out; no byte is ever guessed.
//! Nothing is written to the medium.
//!
//! Everything but the data is kept in memory: about 0.1 % of the data for its checksums, and the
//! names and attributes.
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

/// Memory for nodes: each node is read once, so little is enough.
const CACHE_SIZE: usize = 64 << 10;

/// Progress of [`Salvage::gather`], in bytes of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SalvageProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes to be read in total.
    pub total: u64,
}

/// One value of the keyspace.
struct SalvagedValue {
    value: Vec<u8>,
    /// Found through checksums from the metaroot down, or in the log. Otherwise it may be out of
    /// date.
    proven: bool,
}

/// The remaining content of a volume.
pub struct Salvage<'m, M: Medium, P: Platform> {
    medium: &'m M,
    store: Store<&'m M, &'m P>,
    items: BTreeMap<Key, SalvagedValue>,
    /// Keys that no found node covers: there may have been more.
    gone: KeyRanges,
    notes: Vec<String>,
}

impl<M: Medium, P: Platform> Salvage<'_, M, P> {
    /// Messages about the work so far: skipped copies, nodes searched for.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
