//! Deleting snapshots.
//!
//! In the foreground the snapshot's key gets a flag, and it has no name any more. Its dead list is
//! then worked off in units, each part of a checkpoint: blocks that were born after the snapshot
//! before it are freed, the others go to that one's list. When the list is empty the key goes.
//! Every unit leaves a sound state, so a power cut or an unmount only interrupts the work.
//!
//! A unit is no operation and sets no transaction point of its own accord: it waits for a moment
//! when nothing is uncommitted, or comes with the next point, unless the timer may set one at any
//! time.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::change::Wanted;
use crate::engine::keyspace::SpaceClass;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{DeadEntry, Record, Root, SnapshotCounts, Value};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::space::Roots;
use crate::tree::{Plan, PlannedChange};
use crate::types::{BlockRun, Generation};

/// Entries of a dead list in one unit at most. Few in the lab, whose dead lists are short:
/// deletions are to take several units there, too.
const UNIT_ENTRIES: usize = if cfg!(feature = "sabotage") { 8 } else { 512 };

/// What one unit does.
#[derive(Default)]
struct Unit {
    /// Blocks that come back.
    freed: Vec<BlockRun>,
    /// Keys that get a value, in order, and keys that go.
    puts: Vec<(Key, Value)>,
    removals: Vec<Key>,
    /// The list is empty afterwards and the snapshot's key goes.
    last: bool,
}

impl Unit {
    fn changes(&self) -> impl Iterator<Item = PlannedChange> {
        let puts = self.puts.iter().map(|(key, value)| (key, Some(value.len())));
        let all = puts.chain(self.removals.iter().map(|key| (key, None)));
        all.map(|(key, value_len)| PlannedChange { key: *key, value_len })
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Deletes a snapshot: at once for everybody who looks, and durably when this returns (a
    /// transaction point). Its blocks come back by [`background`](Self::background) work. Works on
    /// a full volume.
    pub(crate) fn snapshot_delete(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut commit = self.commit.lock();
        self.check_writable()?;
        self.check_not_held()?;
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            // What waits is for the list of the snapshot that is the newest now.
            while self.flush_dead(&mut working)? {}
            let root = self.view.read().root;
            let record = self.snapshot_record(&root, name)?.ok_or(Error::NotFound)?;
            let before = (working.snapshots, working.held_data);
            let without = self.counts_without(&root, &record, &working)?;
            (working.snapshots, working.held_data) = without;
            let marked = self.put_record(&mut working, &Record { deleting: true, ..record });
            if let Err(error) = marked {
                (working.snapshots, working.held_data) = before;
                return Err(error);
            }
        }
        self.wake_snapshots();
        self.freeze_and_finish(&mut commit)
    }

    /// The counts, and the data in common with the newest snapshot, when `record` is a snapshot no
    /// more.
    fn counts_without(
        &self,
        root: &Root,
        record: &Record,
        working: &Working,
    ) -> Result<(SnapshotCounts, u64)> {
        let counts = working.snapshots;
        if record.generation != counts.newest {
            return Ok((counts, working.held_data));
        }
        let (mut newest, mut shared_nodes, mut data) = (Generation(0), 0, 0);
        self.visit_records(root, |other| {
            if (!other.deleting || planted(Sabotage::NewestIsDeleting))
                && other.generation < record.generation
            {
                (newest, shared_nodes, data) =
                    (other.generation, other.nodes, self.data_of(&other));
            }
            Ok(other.generation < record.generation)
        })?;
        // What is in common with the one before is in common with both.
        let shared_nodes = counts.shared_nodes.min(shared_nodes);
        Ok((SnapshotCounts { newest, shared_nodes, ..counts }, working.held_data.min(data)))
    }

    /// Whether background work has a snapshot to delete, as far as is known without a look.
    pub(crate) fn wake_snapshots(&self) {
        self.snapshots_waiting.store(true, Ordering::Release);
    }

    /// Whether a snapshot may be waiting for its blocks to be freed.
    pub(crate) fn snapshots_wait(&self) -> bool {
        self.snapshots_waiting.load(Ordering::Acquire)
    }

    /// One unit of deleting snapshots; `true` while there is more to do at once. Unless it
    /// `may_commit`, nothing happens while something is uncommitted.
    pub(crate) fn delete_in_background(&self, may_commit: bool) -> Result<bool> {
        if !self.snapshots_wait() {
            return Ok(false);
        }
        let mut commit = self.commit.lock();
        // What the holder has changed must not become durable with it.
        if self.is_held() {
            return Ok(false);
        }
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            if !working.pending.is_empty() && !may_commit {
                self.snapshots_starve.store(working.snapshots.keys > 0, Ordering::Release);
                return Ok(false);
            }
            if !self.delete_unit(&mut working) {
                return Ok(false);
            }
        }
        self.freeze_and_finish(&mut commit)?;
        Ok(self.snapshots_wait())
    }

    /// The working state is about to be frozen in the foreground: works off a unit, if one waits.
    /// `false`: nothing was done. A unit that does not find room waits for another moment; one that
    /// cannot be read, for the next deletion or mount.
    pub(crate) fn delete_unit(&self, working: &mut Working) -> bool {
        self.snapshots_starve.store(false, Ordering::Release);
        if !self.snapshots_wait() {
            return false;
        }
        let done = self.largest_unit(working);
        if !matches!(done, Ok(true) | Err(Error::NoSpace)) {
            self.snapshots_waiting.store(false, Ordering::Release);
        }
        matches!(done, Ok(true))
    }

    /// A unit as large as there is room for; `false` where no snapshot is to be deleted.
    fn largest_unit(&self, working: &mut Working) -> Result<bool> {
        if working.snapshots.keys == 0 {
            return Ok(false);
        }
        let mut entries = UNIT_ENTRIES;
        loop {
            match self.try_delete_unit(working, entries) {
                Err(Error::NoSpace) if entries == UNIT_ENTRIES => {
                    // What the freeze is about to do needs less than what is set aside for it.
                    while self.flush_groups(working)? || self.flush_dead(working)? {}
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
        self.visit_records(&roots.working, |record| {
            match record.deleting {
                true => found = Some(record),
                false => before = record.generation,
            }
            Ok(found.is_none())
        })?;
        let Some(record) = found else { return Ok(false) };
        let unit = self.plan_unit(&roots.working, &record, before, entries)?;
        let plan = self.room_for_unit(working, &roots, &unit)?;
        self.prepare_change(working, &roots, &plan, &unit.freed)?;
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
        self.settle(working);
        Ok(true)
    }

    /// The next unit for `record`; `before` is the snapshot before it, 0 where there is none.
    fn plan_unit(
        &self,
        root: &Root,
        record: &Record,
        before: Generation,
        entries: usize,
    ) -> Result<Unit> {
        let mut unit = Unit { last: true, ..Unit::default() };
        let mut moved: Vec<DeadEntry> = Vec::new();
        let (mut from, last) = Key::dead_list_range(record.generation);
        let mut left = entries;
        while let Some((key, value)) = self.store.next(root, &from, &last)? {
            let list = self.decode_dead_list(&value)?;
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
            let mut puts = self.dead_list_puts(root, before, &moved)?;
            puts.try_reserve(unit.puts.len()).map_err(|_| Error::OutOfMemory)?;
            puts.append(&mut unit.puts);
            unit.puts = puts;
        }
        if unit.last {
            memory::push(&mut unit.removals, Key::snapshot(record.generation))?;
        }
        Ok(unit)
    }

    /// The nodes that a unit needs, where the volume has room for them and for the freeze
    /// afterwards.
    fn room_for_unit(&self, working: &mut Working, roots: &Roots, unit: &Unit) -> Result<Plan> {
        let changes = memory::collect(unit.changes())?;
        let wanted =
            Wanted { changes: &changes, runs: &unit.freed, dead: 0, class: SpaceClass::Freeing };
        self.check_room(working, roots, &wanted)
    }
}
