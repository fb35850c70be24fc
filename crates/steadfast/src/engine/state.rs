//! What the writer and the committer keep in memory.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::engine::budget::futile::FutileCheckpoints;
use crate::engine::deltas::changed_keys::ChangedKeys;
use crate::engine::snapshots::pending_dead::PendingDead;
use crate::engine::spare::SpareMemory;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{Metaroot, NodePointer, Root, SnapshotCounts};
use crate::log::Log;
use crate::sabotage::{Sabotage, planted};
use crate::sort::sort;
use crate::space::Space;
use crate::tree::{NodePool, Scratch, SealedNode};
use crate::types::{Generation, InodeNumber};

/// The state that a checkpoint is writing.
pub struct Frozen {
    pub metaroot: Metaroot,
    /// The nodes still to be written, the next ones last.
    pub nodes: Vec<SealedNode>,
    /// Number of nodes at the freeze.
    pub all: usize,
    /// Blocks of the log in use at the freeze.
    pub log_used: u64,
    /// Blocks that could be allocated at the freeze.
    pub available: u64,
    /// It has changes that no log record has: nothing can be committed before it is durable.
    pub uncommitted: bool,
}

/// Keys for which [`Pending`] keeps memory.
const KEYS_KEPT: usize = 64;

/// Keys changed since the last commit record: the next record of the log. Their values are taken
/// from the tree when the record is built, so a key that changes often is logged once.
#[derive(Default)]
pub struct Pending {
    /// Each key, with the size of its mutation in the record.
    keys: HashMap<Key, usize>,
    /// Sum of the sizes: the record's payload, bytes.
    bytes: usize,
    /// Too much for the log: the next transaction point is a checkpoint.
    overflow: bool,
}

impl Pending {
    /// Notes a change that no record can hold.
    pub fn set_overflow(&mut self) {
        *self = Pending { overflow: true, ..Pending::default() };
    }

    /// Notes a changed key and the size of its mutation. Without memory for it, or with a record
    /// longer than `limit`, the next transaction point is a checkpoint.
    pub fn add(&mut self, key: Key, size: usize, limit: usize) {
        if self.overflow {
            return;
        }
        if self.keys.try_reserve(1).is_err() {
            return self.set_overflow();
        }
        let before = self.keys.insert(key, size).unwrap_or(0);
        self.bytes = self.bytes - before + size;
        if self.bytes > limit {
            self.set_overflow();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.overflow
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Payload of the next record, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn overflow(&self) -> bool {
        self.overflow
    }

    /// Sets `sorted` to the keys, in order.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn keys(&self, sorted: &mut Vec<Key>) -> Result<()> {
        sorted.clear();
        sorted.try_reserve(self.keys.len()).map_err(|_| Error::OutOfMemory)?;
        sorted.extend(self.keys.keys());
        sort(sorted);
        Ok(())
    }

    /// Forgets all keys. The memory for a few stays.
    pub fn clear(&mut self) {
        if self.keys.capacity() > KEYS_KEPT {
            self.keys = HashMap::new();
        }
        self.keys.clear();
        self.bytes = 0;
        self.overflow = false;
    }
}

/// The working state beside its tree, under the writer's lock.
pub struct Working {
    /// Counts the freezes: one more than that of the newest frozen or checkpointed state. Nodes
    /// that change get it, and the next metaroot has it.
    pub generation: Generation,
    pub nodes: u64,
    pub inodes: u64,
    pub next_inode: u64,
    pub pool: NodePool,
    /// The tree's memory to work with.
    pub scratch: Scratch,
    /// Memory for the next batch.
    pub spare: SpareMemory,
    pub space: Space,
    pub log: Log,
    pub pending: Pending,
    /// Counts the batches that were accepted since open. (LSNs count log records.)
    pub sequence: u64,
    /// The state that the checkpoint in progress writes; `None`: none is in progress.
    pub frozen: Option<Frozen>,
    /// Nodes of the working generation that were sealed to be written out, the next ones last. The
    /// list holds pointers only: an owner of a node here would make a change copy it, which can
    /// fail. A node that has changed since, or has left the tree, is no longer sealed and is
    /// ignored.
    pub leaving: Vec<NodePointer>,
    /// The newest metaroot on the medium: the state of the last complete checkpoint.
    pub checkpointed: Metaroot,
    /// Mask or timer have changed since that metaroot.
    pub parameters_changed: bool,
    /// Counts of snapshots and clones; the next metaroot has them.
    pub snapshots: SnapshotCounts,
    /// Upper bound of the data blocks that the live tree shares with the newest snapshot.
    pub shared_data: u64,
    /// Entries that the newest snapshot's dead list takes at the next freeze.
    pub pending_dead: PendingDead,
    /// Blocks that the last failed change needs after a checkpoint, without those that its class
    /// must leave. `None`: they were not counted.
    pub needs_later: Option<u64>,
    /// Checkpoints that freed too little.
    pub futile: FutileCheckpoints,
    /// What changed since the durable state, if other nodes keep it.
    pub changed: Option<ChangedKeys>,
}

impl Working {
    /// A fresh inode number.
    pub fn take_inode_number(&mut self) -> InodeNumber {
        let inode = InodeNumber(self.next_inode);
        self.next_inode += 1;
        inode
    }

    /// Raises the generation of a state without changes to at least `generation`. It advances by an
    /// even number, because the generation chooses the slot: the next metaroot must overwrite the
    /// older of the two.
    pub fn raise_generation(&mut self, generation: Generation) {
        let ahead = generation.0.saturating_sub(self.generation.0);
        self.generation = Generation(self.generation.0 + ahead.next_multiple_of(2));
    }

    /// Whether a transaction point must store mask or timer.
    pub fn must_store_parameters(&self) -> bool {
        self.parameters_changed && !planted(Sabotage::ForgetParameters)
    }

    /// Generation of the frozen state.
    pub fn frozen_generation(&self) -> Option<Generation> {
        self.frozen.as_ref().map(|frozen| frozen.metaroot.generation)
    }

    pub fn frozen_root(&self) -> Option<Root> {
        self.frozen.as_ref().map(|frozen| frozen.metaroot.root())
    }
}

/// How the last transaction point went.
#[derive(Debug, Default, Clone, Copy)]
pub struct LastPoint {
    /// Committers present when it was set.
    pub present: u32,
    /// Time that it took, microseconds.
    pub duration: u64,
}

/// The committer's state, under the commit lock.
#[derive(Debug, Default)]
pub struct CommitState {
    /// The [`Working::sequence`] up to which everything is committed.
    pub committed: u64,
    /// Time of the last transaction point,
    /// [`Platform::monotonic_ms`](crate::platform::Platform::monotonic_ms).
    pub last_ms: u64,
    /// How the last point went. The caller that sets the next one waits for as many committers, for
    /// at most half of that time.
    pub last_point: LastPoint,
    /// Memory for the next record.
    pub record: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::InodeNumber;

    #[test]
    fn a_key_that_changes_often_counts_once() {
        let key = |number| Key::inode(InodeNumber(number));
        let mut pending = Pending::default();
        for round in 0..100 {
            pending.add(key(1), 40 + round % 10, 100);
            pending.add(key(2), 50, 100);
        }
        assert!(!pending.overflow());
        let mut keys = Vec::new();
        pending.keys(&mut keys).unwrap();
        assert_eq!(keys, [key(1), key(2)]);
        pending.add(key(3), 20, 100);
        assert!(pending.overflow());
    }
}
