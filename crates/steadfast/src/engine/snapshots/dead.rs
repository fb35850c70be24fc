//! Dead lists: noting what the live tree releases while a snapshot holds it, and putting the lists
//! into the tree.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{
    DeadEntry, Root, Value, decode_dead_list, encode_dead_list, entries_max, value_len_max,
};
use crate::memory;
use crate::platform::Platform;
use crate::profile::SNAPSHOTS;
use crate::sabotage::{Sabotage, planted};
use crate::tree::{Plan, PlannedChange, Store};
use crate::types::Generation;

/// Approximate memory of a waiting entry, bytes.
const PENDING_DEAD_MEMORY: usize = 64;
/// Values put into the tree at once: about two full leaves, so that the plan stays small.
const ROUND_VALUES: usize = 6;
/// Minimum and maximum of waiting entries.
const PENDING_DEAD_LIMITS: (usize, usize) = (32, 4096);

impl Working {
    /// Whether the newest snapshot holds blocks born in `birth`.
    pub fn belongs_to_snapshot(&self, birth: Generation) -> bool {
        SNAPSHOTS
            && birth <= self.snapshots.newest
            && !(planted(Sabotage::SnapshotBirthOffByOne) && birth == self.snapshots.newest)
            && !planted(Sabotage::ForgetHeld)
    }

    /// Notes blocks that the live tree releases and the newest snapshot holds: they stay in use.
    pub fn add_dead(&mut self, entry: DeadEntry) {
        self.snapshots.blocks = self.snapshots.blocks.saturating_add(entry.run.count);
        self.pending_dead.add(entry.run, entry.birth);
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Limit of the entries that wait in memory before they are put into the tree.
    pub(crate) fn pending_dead_max(&self) -> usize {
        (self.space_memory / PENDING_DEAD_MEMORY / 4)
            .clamp(PENDING_DEAD_LIMITS.0, PENDING_DEAD_LIMITS.1)
    }

    /// Puts some of the waiting entries into the newest snapshot's dead list. Returns `true` if
    /// there were any.
    pub(crate) fn put_dead_into_tree(&self, working: &mut Working) -> Result<bool> {
        if !SNAPSHOTS {
            return Ok(false);
        }
        let value = entries_max(value_len_max(self.store.device.superblock.node_size as usize));
        match self.put_dead_entries(working, value * ROUND_VALUES) {
            // A plan sets aside more nodes than it uses, and a long plan more than a short one.
            Err(Error::NoSpace) => self.put_dead_entries(working, value),
            other => other,
        }
    }

    fn put_dead_entries(&self, working: &mut Working, limit: usize) -> Result<bool> {
        let entries = working.pending_dead.first(limit)?;
        if entries.is_empty() {
            return Ok(false);
        }
        let roots = self.roots(working);
        let puts = dead_list_puts(&self.store, &roots.working, working.snapshots.newest, &entries)?;
        let changes = memory::collect(
            puts.iter()
                .map(|(key, value)| PlannedChange { key: *key, value_len: Some(value.len()) }),
        )?;
        let plan = self.store.plan(&roots.working, working.generation, &changes)?;
        let plan = Plan { confined: Some(Vec::new()), ..plan };
        working.prepare_change(&self.store, &roots, &plan, &[])?;
        working.pending_dead.remove(&entries);
        self.change_tree(working, plan, |tree| {
            puts.iter().try_for_each(|(key, value)| tree.put(key, value).map(drop))
        })?;
        working.enter_nodes(&self.store);
        Ok(true)
    }
}

/// The keys and values, in order, that add entries to the dead list of the snapshot of
/// `generation`.
pub(in crate::engine) fn dead_list_puts<M: Medium, P: Platform>(
    store: &Store<M, P>,
    root: &Root,
    generation: Generation,
    entries: &[DeadEntry],
) -> Result<Vec<(Key, Value)>> {
    let limit = entries_max(value_len_max(store.device.superblock.node_size as usize));
    let (first, last) = Key::dead_list_range(generation);
    let mut puts = Vec::new();
    let mut key = first;
    let mut rest = entries;
    if let Some((newest, value)) = store.previous(root, &first, &last)? {
        // Continues where the list ends, so many small calls make no more keys than few large
        // ones.
        let mut list = decode_dead_list(&value, |run| store.device.contains(run))?;
        let room = limit.saturating_sub(list.len()).min(rest.len());
        let (here, after) = rest.split_at(room);
        if !here.is_empty() {
            memory::extend(&mut list, here)?;
            memory::push(&mut puts, (newest, encode_dead_list(&list)?))?;
        }
        rest = after;
        key = newest.successor().unwrap_or(last);
    }
    for part in rest.chunks(limit) {
        if key > last {
            return Err(Error::Unsupported("dead list with too many keys"));
        }
        memory::push(&mut puts, (key, encode_dead_list(part)?))?;
        key = key.successor().unwrap_or(Key::MAX);
    }
    Ok(puts)
}
