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
//! Taking one is two checkpoints in the foreground. The first writes the state that becomes the
//! snapshot; the second, of the generation after it, has the key that remembers the first. A power
//! cut before the second is durable leaves no snapshot, and one after it the whole of it. The
//! newest snapshot's generation counts from the moment of the first freeze, so nothing that the
//! snapshot holds is let go in between.
//!
//! This file takes and lists snapshots. [`delete`], [`open`] and [`rollback`] do the rest; the values
//! of the keys are in [`crate::format`].

mod dead;
mod delete;
mod dying;
mod open;
mod rollback;

pub(crate) use dying::Dying;

use core::sync::atomic::Ordering;

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::More;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::{Key, Kind};
use crate::format::{GENERATION_MAX, Record, Root, Snapshot, check_name};
use crate::memory;
use crate::platform::Platform;
use crate::space::Roots;
use crate::tree::PlannedChange;
use crate::types::{Generation, InodeNumber};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Takes a snapshot of everything accepted so far, which becomes durable with it: a transaction
    /// point. The work does not depend on the size of the volume or the number of snapshots, but
    /// for the search for a snapshot of this name.
    pub(crate) fn snapshot_create(&self, name: &str) -> Result<Snapshot> {
        check_name(name)?;
        self.check_writable()?;
        let mut commit = self.commit.lock();
        self.check_writable()?;
        // A snapshot is a transaction point.
        self.check_not_held()?;
        self.finish_checkpoint()?;
        let (record, entered) = {
            let mut working = self.working.lock();
            let root = self.view.read().root;
            if self.snapshot_record(&root, name)?.is_some() {
                return Err(Error::AlreadyExists);
            }
            let mut record = self.record_of(&working, name)?;
            let key = Key::snapshot(record.generation);
            let change = PlannedChange { key, value_len: Some(record.encode()?.len()) };
            // Every node will be one of an earlier generation.
            let generation = Generation(working.generation.0 + 1);
            let nodes = self.store.plan(&root, generation, &[change])?.nodes;
            let roots = self.roots(&working);
            self.check_room_for_snapshot(&mut working, &roots, nodes)?;
            self.freeze(&mut working)?;
            let before = (working.snapshots, working.held_data);
            let entered = self.enter_snapshot(&mut working, &mut record);
            if entered.is_err() {
                (working.snapshots, working.held_data) = before;
            }
            (record, entered)
        };
        // Also where there is no snapshot now: what was frozen may have left out a number of the
        // log.
        self.finish_checkpoint()?;
        entered?;
        self.freeze_and_finish(&mut commit)?;
        record.to_snapshot()
    }

    /// A record of the state that the next freeze makes, but for its root.
    fn record_of(&self, working: &Working, name: &str) -> Result<Record> {
        if working.generation.0 > GENERATION_MAX {
            return Err(Error::Unsupported("snapshots on a volume with so many checkpoints"));
        }
        let mut owned = alloc::string::String::new();
        owned.try_reserve_exact(name.len()).map_err(|_| Error::OutOfMemory)?;
        owned.push_str(name);
        Ok(Record {
            root: self.view.read().root,
            generation: working.generation,
            deleting: false,
            created: self.store.platform.now(),
            inodes: working.inodes,
            used_blocks: working.space.used(),
            nodes: working.nodes,
            next_inode: working.next_inode,
            snapshots: working.snapshots,
            name: owned,
        })
    }

    /// The room that is kept once the snapshot is there must be there now.
    fn check_room_for_snapshot(
        &self,
        working: &mut Working,
        roots: &Roots,
        nodes: u64,
    ) -> Result<()> {
        // The freeze may still make some nodes.
        let all =
            working.nodes.saturating_add(nodes).saturating_add(u64::from(roots.working.height));
        let freeze = self.freeze_cost(working, &roots.working, More { groups: 4, dead: 2 * nodes });
        let needed = (nodes * self.node_cost())
            .saturating_add(self.kept_for_removal(all, all, self.live_data(working)))
            .saturating_add(self.store.reserve_blocks())
            .saturating_add(2 * freeze);
        if self.has_room(working, roots, needed)? { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// How much data the live tree can have in common with the newest snapshot, from what is kept
    /// of both. Where the snapshot's key cannot be read that is all there is.
    pub(crate) fn find_held_data(&self, working: &mut Working) {
        working.held_data = u64::MAX;
        let newest = working.snapshots.newest;
        let record = |value: &[u8]| Record::decode(newest, value);
        let root = self.view.read().root;
        if newest.0 > 0
            && let Ok(Some(Ok(record))) = self.store.get_with(&root, &Key::snapshot(newest), record)
        {
            working.held_data = self.data_of(&record);
        }
    }

    /// Blocks of data of a snapshot's state.
    pub(crate) fn data_of(&self, record: &Record) -> u64 {
        let nodes = record.nodes.saturating_mul(self.node_cost());
        record.used_blocks.saturating_sub(nodes).saturating_sub(record.snapshots.blocks)
    }

    /// The working state has just been frozen: makes that one a snapshot.
    fn enter_snapshot(&self, working: &mut Working, record: &mut Record) -> Result<()> {
        let frozen =
            working.frozen.as_ref().map(|frozen| frozen.metaroot).ok_or(Error::NoMetaroot)?;
        record.root = frozen.root();
        record.used_blocks = frozen.used_blocks;
        record.nodes = frozen.nodes;
        record.snapshots = frozen.snapshots;
        working.snapshots.newest = record.generation;
        working.snapshots.keys = working.snapshots.keys.saturating_add(1);
        working.snapshots.shared_nodes = frozen.nodes;
        working.held_data = self.data_of(record);
        self.put_record(working, record)
    }

    /// Puts a snapshot's key into the working tree. No record of the log can hold it.
    pub(crate) fn put_record(&self, working: &mut Working, record: &Record) -> Result<()> {
        let key = Key::snapshot(record.generation);
        let value = record.encode()?;
        let roots = self.roots(working);
        let change = PlannedChange { key, value_len: Some(value.len()) };
        let plan = self.store.plan(&roots.working, working.generation, &[change])?;
        self.prepare_change(working, &roots, &plan, &[])?;
        self.change_tree(working, plan, |tree| tree.put(&key, &value).map(drop))?;
        working.pending.set_overflow();
        self.settle(working);
        Ok(())
    }

    /// The snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Result<Vec<Snapshot>> {
        // One whose key will not become durable, because the medium has failed, cannot be opened.
        // While there is memory to wait for it is there: the next transaction point has it.
        let failed = self.failed.load(Ordering::Acquire);
        let durable = self.working.lock().durable.generation;
        let reader = self.reader()?;
        let mut list = Vec::new();
        self.visit_records(reader.root(), |record| {
            if !record.deleting && (record.generation < durable || !failed) {
                memory::push(&mut list, record.to_snapshot()?)?;
            }
            Ok(true)
        })?;
        Ok(list)
    }

    /// Calls `visit` for every snapshot of a tree, oldest first, until it says `false`.
    pub(crate) fn visit_records(
        &self,
        root: &Root,
        mut visit: impl FnMut(Record) -> Result<bool>,
    ) -> Result<()> {
        let (mut from, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Snapshot);
        while let Some((key, value)) = self.store.next(root, &from, &last)? {
            let go_on = visit(Record::decode(Generation(key.suffix()), &value)?)?;
            let Some(next) = key.successor().filter(|_| go_on) else { break };
            from = next;
        }
        Ok(())
    }

    /// The snapshot of this name.
    pub(crate) fn snapshot_record(&self, root: &Root, name: &str) -> Result<Option<Record>> {
        let mut found = None;
        self.visit_records(root, |record| {
            if !record.deleting && record.name == name {
                found = Some(record);
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }
}
