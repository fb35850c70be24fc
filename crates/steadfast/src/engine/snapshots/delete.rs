//! Deleting snapshots.
//!
//! In the foreground the snapshot's key gets a flag and loses its name. The dead list is then
//! processed in units, each part of a checkpoint. Blocks that were born after the previous snapshot
//! are freed; the others go to the previous snapshot's list. When the list is empty, the key is
//! removed. Every unit leaves a sound state, so a power cut or an unmount only interrupts the work.
//!
//! A unit is no operation and normally sets no transaction point. It waits until nothing is
//! uncommitted, or comes with the next point, unless the timer may set one at any time.

use alloc::vec::Vec;

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::budget::room::Wanted;
use crate::engine::keyspace::SpaceClass;
use crate::engine::snapshots::dead::dead_list_puts;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{DeadEntry, Root, SnapshotRecord, Value, decode_dead_list};
use crate::memory;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::space::Roots;
use crate::tree::{Plan, PlannedChange, Store};
use crate::types::{BlockRun, Generation};

/// Limit of dead list entries in one unit. It is small in the lab, where dead lists are short, so
/// that deletions take several units there too.
const UNIT_ENTRIES: usize = if cfg!(feature = "sabotage") { 8 } else { 512 };

/// Units of deleting a snapshot that an operation without space waits for.
const DELETE_UNITS: u32 = 64;

/// What one unit does.
#[derive(Default)]
struct Unit {
    /// Blocks that are freed.
    freed: Vec<BlockRun>,
    /// Keys that get a value, in order, and keys that are removed.
    puts: Vec<(Key, Value)>,
    removals: Vec<Key>,
    /// The list is empty afterwards, and the snapshot's key is removed.
    last: bool,
}

impl Unit {
    fn changes(&self) -> impl Iterator<Item = PlannedChange> {
        let puts = self.puts.iter().map(|(key, value)| (key, Some(value.len())));
        let all = puts.chain(self.removals.iter().map(|key| (key, None)));
        all.map(|(key, value_len)| PlannedChange { key: *key, value_len })
    }

    /// The next unit for `record`; `before` is the previous snapshot, 0 if there is none.
    #[inline(never)]
    fn of<M: Medium, P: Platform>(
        store: &Store<M, P>,
        root: &Root,
        record: &SnapshotRecord,
        before: Generation,
        entries: usize,
    ) -> Result<Unit> {
        let mut unit = Unit { last: true, ..Unit::default() };
        let mut moved: Vec<DeadEntry> = Vec::new();
        let (mut from, last) = Key::dead_list_range(record.generation);
        let mut left = entries;
        while let Some((key, value)) = store.next(root, &from, &last)? {
            let list = decode_dead_list(&value, |run| store.device.contains(run))?;
            let (now, later) = list.split_at(left.min(list.len()));
            if now.is_empty() {
                unit.last = false;
                break;
            }
            left -= now.len();
            for entry in now {
                match entry.birth > before
                    || (entry.birth == before && planted(Sabotage::DeleteBirthOffByOne))
                {
                    true => memory::push(&mut unit.freed, entry.run)?,
                    false => memory::push(&mut moved, *entry)?,
                }
            }
            if later.is_empty() {
                memory::push(&mut unit.removals, key)?;
            } else {
                memory::push(&mut unit.puts, (key, crate::format::encode_dead_list(later)?))?;
                unit.last = false;
                break;
            }
            let Some(next) = key.successor() else { break };
            from = next;
        }
        if !moved.is_empty() {
            let mut puts = dead_list_puts(store, root, before, &moved)?;
            puts.try_reserve(unit.puts.len()).map_err(|_| Error::OutOfMemory)?;
            puts.append(&mut unit.puts);
            unit.puts = puts;
        }
        if unit.last {
            memory::push(&mut unit.removals, Key::snapshot(record.generation))?;
        }
        Ok(unit)
    }

    /// The plan of the unit, if the volume has room for its nodes and for the freeze afterwards.
    #[inline(never)]
    fn plan<M: Medium, P: Platform>(
        &self,
        budget: &Budget<'_, M, P>,
        working: &mut Working,
        roots: &Roots,
    ) -> Result<Plan> {
        let changes = memory::collect(self.changes())?;
        let wanted =
            Wanted { changes: &changes, runs: &self.freed, dead: 0, class: SpaceClass::Freeing };
        budget.check(working, roots, &wanted)
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Deletes a snapshot. It is gone for every reader at once, and durably when this returns (a
    /// transaction point). [Background work](Self::background_step) frees its blocks. Works on a
    /// full volume.
    pub(crate) fn snapshot_delete(&self, name: &str) -> Result<()> {
        if !SNAPSHOTS {
            return Err(NO_SNAPSHOTS);
        }
        self.ensure_writable()?;
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            // Waiting entries belong to the list of the snapshot that is the newest now.
            while self.put_dead_into_tree(&mut working)? {}
            let root = self.view.read().root;
            let record = self.snapshot_records(&root).find(name)?.ok_or(Error::NotFound)?;
            let before = (working.snapshots, working.shared_data);
            let without = self.snapshot_records(&root).counts_without(&record, &working)?;
            (working.snapshots, working.shared_data) = without;
            let written =
                self.put_record(&mut working, &SnapshotRecord { deleting: true, ..record });
            if let Err(error) = written {
                (working.snapshots, working.shared_data) = before;
                return Err(error);
            }
        }
        self.background.wake_snapshots();
        self.commit_by_checkpoint(&mut commit)
    }

    /// One unit of deleting snapshots; `true` while there is more to do at once. Without
    /// `may_commit` nothing happens while changes are uncommitted.
    pub(crate) fn delete_in_background(&self, may_commit: bool) -> Result<bool> {
        if !SNAPSHOTS || !self.background.snapshots_wait() {
            return Ok(false);
        }
        let mut commit = self.commit.lock();
        self.lifecycle.check_not_failed()?;
        // Changes of the holder must not become durable with the unit.
        if self.lifecycle.is_held() {
            return Ok(false);
        }
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            if !working.pending.is_empty() && !may_commit {
                self.background
                    .snapshots_starve
                    .store(working.snapshots.keys > 0, Ordering::Release);
                return Ok(false);
            }
            if !self.delete_unit(&mut working) {
                return Ok(false);
            }
        }
        self.commit_by_checkpoint(&mut commit)?;
        Ok(self.background.snapshots_wait())
    }

    /// Frees the blocks of deleted snapshots in units; some units only move blocks to another
    /// snapshot. `true`: some were freed.
    pub(crate) fn delete_for_space(&self) -> Result<bool> {
        if !self.background.snapshots_wait() {
            return Ok(false);
        }
        for _ in 0..DELETE_UNITS {
            let before = self.working.lock().space.available();
            let more = self.delete_in_background(true)?;
            if self.working.lock().space.available() > before {
                return Ok(true);
            }
            if !more {
                break;
            }
        }
        Ok(false)
    }

    /// Processes a waiting unit before the working state is frozen in the foreground. `false`:
    /// nothing was done. A unit without room waits and is tried again. A unit that cannot be read
    /// waits for the next deletion or mount.
    pub(crate) fn delete_unit(&self, working: &mut Working) -> bool {
        if !SNAPSHOTS {
            return false;
        }
        self.background.snapshots_starve.store(false, Ordering::Release);
        if !self.background.snapshots_wait() {
            return false;
        }
        let done = self.largest_unit(working);
        if !matches!(done, Ok(true) | Err(Error::NoSpace)) {
            self.background.snapshots.store(false, Ordering::Release);
        }
        matches!(done, Ok(true))
    }

    /// A unit as large as there is room for; `false` if no snapshot is to be deleted.
    fn largest_unit(&self, working: &mut Working) -> Result<bool> {
        if working.snapshots.keys == 0 {
            return Ok(false);
        }
        let mut entries = UNIT_ENTRIES;
        loop {
            match self.try_delete_unit(working, entries) {
                Err(Error::NoSpace) if entries == UNIT_ENTRIES => {
                    // This needs less now than the room that is set aside for it.
                    while self.put_bitmaps_into_tree(working)?
                        || self.put_dead_into_tree(working)?
                    {}
                }
                Err(Error::NoSpace) if entries > 1 => {}
                result => return result,
            }
            entries = (entries / 4).max(1);
        }
    }

    fn try_delete_unit(&self, working: &mut Working, entries: usize) -> Result<bool> {
        let roots = self.roots(working);
        let mut before = Generation(0);
        let mut found = None;
        self.snapshot_records(&roots.working).visit(|record| {
            match record.deleting {
                true => found = Some(record),
                false => before = record.generation,
            }
            Ok(found.is_none())
        })?;
        let Some(record) = found else { return Ok(false) };
        let unit = Unit::of(&self.store, &roots.working, &record, before, entries)?;
        let plan = unit.plan(&self.budget(), working, &roots)?;
        working.prepare_change(&self.store, &roots, &plan, &unit.freed)?;
        self.change_tree(working, plan, |tree| {
            unit.puts.iter().try_for_each(|(key, value)| tree.put(key, value).map(drop))?;
            unit.removals.iter().try_for_each(|key| tree.remove(key).map(drop))
        })?;
        let pinned = self.pins.lock();
        for run in &unit.freed {
            working.space.free_data(*run, &pinned);
            working.snapshots.blocks = working.snapshots.blocks.saturating_sub(run.count);
        }
        drop(pinned);
        working.snapshots.keys = working.snapshots.keys.saturating_sub(u64::from(unit.last));
        working.pending.set_overflow();
        working.enter_nodes(&self.store);
        Ok(true)
    }
}
