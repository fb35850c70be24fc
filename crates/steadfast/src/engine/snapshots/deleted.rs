//! Room for going back on a full volume.
//!
//! In the state of a snapshot, the blocks of older snapshots that were deleted since count as used.
//! A full live volume may have no free block beside these. No state has them any more: the live one
//! does not, and those snapshots are deleted again anyway. So where the way back finds no room, it
//! frees entries of their dead lists itself.
//!
//! Invariants:
//! - An entry is freed and leaves its list in one and the same checkpoint.
//! - Blocks that the checkpointed state uses stay taken until that checkpoint is durable.
//! - The work ends as soon as there is room. Background work deletes the rest.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{DeadEntry, Root, decode_dead_list, encode_dead_list};
use crate::memory;
use crate::platform::Platform;
use crate::tree::PlannedChange;
use crate::types::Generation;

/// Deleted snapshots in the tree of the snapshot to go back to.
pub(super) struct DeletedSnapshots {
    /// That tree.
    root: Root,
    /// Each deleted snapshot, with the snapshot before it that stays (0: none).
    snapshots: Vec<(Generation, Generation)>,
    /// The list that comes next: which snapshot, and from which key on.
    at: (usize, Option<Key>),
    /// Lists whose entries were freed, and the entries that stay: not in the tree yet.
    changed: Vec<(Key, Vec<DeadEntry>)>,
}

impl DeletedSnapshots {
    pub fn new(root: Root) -> DeletedSnapshots {
        DeletedSnapshots { root, snapshots: Vec::new(), at: (0, None), changed: Vec::new() }
    }

    /// Adds a deleted snapshot; `before` is the one before it that stays.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn add(&mut self, snapshot: Generation, before: Generation) -> Result<()> {
        memory::push(&mut self.snapshots, (snapshot, before))
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Runs `step`, which changes nothing where it finds no room, until there is room.
    ///
    /// # Errors
    /// Those of `step`: `NoSpace` if no list is left.
    pub(super) fn with_space_of_deleted(
        &self,
        working: &mut Working,
        deleted: &mut DeletedSnapshots,
        step: impl Fn(&mut Working) -> Result<()>,
    ) -> Result<()> {
        loop {
            match step(working) {
                Err(Error::NoSpace) if self.free_deleted(working, deleted)? => {}
                done => return done,
            }
        }
    }

    /// Puts the changed lists into the tree.
    ///
    /// # Errors
    /// `NoSpace`, and those of reading.
    pub(super) fn put_deleted_lists(
        &self,
        working: &mut Working,
        deleted: &mut DeletedSnapshots,
    ) -> Result<()> {
        while let Some((key, entries)) = deleted.changed.pop() {
            let value = match entries.is_empty() {
                true => None,
                false => Some(encode_dead_list(&entries)?),
            };
            self.with_space_of_deleted(working, deleted, |working| {
                self.put_list(working, &key, value.as_deref())
            })?;
        }
        Ok(())
    }

    fn put_list(&self, working: &mut Working, key: &Key, value: Option<&[u8]>) -> Result<()> {
        let roots = self.roots(working);
        let change = PlannedChange { key: *key, value_len: value.map(<[u8]>::len) };
        let plan = self.store.plan(&roots.working, working.generation, &[change])?;
        working.prepare_change(&self.store, &roots, &plan, &[])?;
        self.change_tree(working, plan, |tree| match value {
            Some(value) => tree.put(key, value).map(drop),
            None => tree.remove(key).map(drop),
        })?;
        working.enter_nodes(&self.store);
        Ok(())
    }

    /// Frees entries of the next list that has some whose blocks can be used at once. `false`: no
    /// list is left.
    pub(super) fn free_deleted(
        &self,
        working: &mut Working,
        deleted: &mut DeletedSnapshots,
    ) -> Result<bool> {
        while let Some((snapshot, before)) = deleted.snapshots.get(deleted.at.0).copied() {
            let (first, last) = Key::dead_list_range(snapshot);
            let from = deleted.at.1.unwrap_or(first);
            let Some((key, value)) = self.store.next(&deleted.root, &from, &last)? else {
                deleted.at = (deleted.at.0 + 1, None);
                continue;
            };
            deleted.at = match key.successor() {
                Some(next) => (deleted.at.0, Some(next)),
                None => (deleted.at.0 + 1, None),
            };
            if self.free_entries(working, deleted, key, &value, before)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the entries of one list, if any of their blocks can be used at once.
    fn free_entries(
        &self,
        working: &mut Working,
        deleted: &mut DeletedSnapshots,
        key: Key,
        value: &[u8],
        before: Generation,
    ) -> Result<bool> {
        let list = decode_dead_list(value, |run| self.store.device.contains(run))?;
        // A snapshot that stays has the others.
        let freed = list.iter().filter(|entry| entry.birth > before);
        let freed = memory::collect(freed.map(|entry| entry.run))?;
        let stays = list.iter().filter(|entry| entry.birth <= before);
        let stays = memory::collect(stays.copied())?;
        let roots = self.roots(working);
        working.space.prepare(&self.store, &roots, &freed)?;
        if !freed.iter().any(|run| working.space.is_free_otherwise(*run)) {
            return Ok(false);
        }
        working.space.reserve_notes(&freed)?;
        memory::push(&mut deleted.changed, (key, stays))?;
        let pinned = self.pins.lock();
        for run in &freed {
            working.space.free_dead(*run, &pinned);
            working.snapshots.blocks = working.snapshots.blocks.saturating_sub(run.count);
        }
        Ok(true)
    }
}
