//! Collecting items: the remaining tree, the log, and nodes found by searching.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::key::{Key, Kind};
use crate::format::{Metaroot, Node, NodePointer, Root, SnapshotRecord, Superblock};
use crate::log::scan;
use crate::platform::Platform;
use crate::tools::salvage::ranges::KeyRanges;
use crate::tools::salvage::scan::Scan;
use crate::tools::salvage::{CACHE_SIZE, Salvage, SalvageProgress, SalvagedValue, find};
use crate::tree::Store;
use crate::types::{BlockRun, Generation, InodeNumber};

impl<'m, M: Medium, P: Platform> Salvage<'m, M, P> {
    /// Finds everything that is left of the volume on `medium`. `progress` is called repeatedly
    /// while the whole medium must be read.
    ///
    /// # Errors
    /// `NotSteadfast` and similar errors if nothing on the medium identifies the volume, or if its
    /// version or features are unknown.
    pub fn gather(
        medium: &'m M,
        platform: &'m P,
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Result<Self> {
        let mut notes = Vec::new();
        let superblock = find::superblock(medium, platform, &mut notes)?;
        let (metaroots, slot_lost) = find::metaroots(medium, &superblock, platform);
        let store = Store::new(medium, platform, superblock, CACHE_SIZE);
        let mut salvage =
            Salvage { medium, store, items: BTreeMap::new(), gone: KeyRanges::default(), notes };
        let mut lost = KeyRanges::default();
        let newest = metaroots.first();
        match newest {
            Some(metaroot) => salvage.take_tree(&metaroot.root(), &mut lost),
            None => lost.add(Key::MIN, Key::MAX),
        }
        salvage.note_metaroots(newest, slot_lost);
        if !lost.is_empty() {
            // Nodes above the metaroot's generation were written for a checkpoint that was never
            // finished. But if that metaroot itself may be lost, they are the newest state.
            let limit = newest.filter(|_| !slot_lost).map(|metaroot| metaroot.generation);
            salvage.search(&lost, limit, progress);
        }
        if let Some(metaroot) = newest {
            salvage.take_log(metaroot);
        }
        Ok(salvage)
    }

    /// As [`gather`](Self::gather), for the state of a snapshot instead of the present state: data
    /// lost there may be intact in the snapshot. The snapshot is found if its key is found, in the
    /// tree or by searching.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); `NotFound` if no snapshot of this name was found.
    pub fn gather_snapshot(
        medium: &'m M,
        platform: &'m P,
        name: &str,
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Result<Self> {
        let live = Self::gather(medium, platform, progress)?;
        let (first, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Snapshot);
        let decoded = |(key, item): (&Key, &SalvagedValue)| {
            SnapshotRecord::decode(Generation(key.suffix()), &item.value).ok()
        };
        let mut records = live.items.range(first..=last).rev().filter_map(decoded);
        let found = records.find(|record| !record.deleting && record.name == name);
        drop(records);
        let record = found.ok_or(Error::NotFound)?;
        let mut salvage = Salvage {
            items: BTreeMap::new(),
            gone: KeyRanges::default(),
            notes: Vec::new(),
            ..live
        };
        let mut lost = KeyRanges::default();
        salvage.take_tree(&record.root, &mut lost);
        if !lost.is_empty() {
            salvage.search(&lost, Some(record.generation), progress);
        }
        Ok(salvage)
    }

    fn note_metaroots(&mut self, newest: Option<&Metaroot>, slot_lost: bool) {
        let text = match newest {
            None => String::from("no metaroot is left: everything was searched for"),
            Some(metaroot) if slot_lost => format!(
                "one metaroot slot is damaged; the state of generation {} was used, a newer one may be lost",
                metaroot.generation.0
            ),
            Some(_) => return,
        };
        self.notes.push(text);
    }

    /// Takes everything readable below `root`, and notes the lost key ranges.
    fn take_tree(&mut self, root: &Root, lost: &mut KeyRanges) {
        let mut stack = Vec::from([(root.pointer, root.level(), Key::MIN, Key::MAX)]);
        // A tree that seems to have more nodes than fit leads to the same ones repeatedly.
        let mut left = self.store.device.superblock.usable_blocks()
            / self.store.device.superblock.node_blocks()
            + 1;
        while let Some((pointer, level, low, high)) = stack.pop() {
            let node = if left == 0 { None } else { self.read_node(&pointer, level) };
            left = left.saturating_sub(1);
            let Some(node) = node else {
                lost.add(low, high);
                continue;
            };
            for index in 0..node.count() {
                if level == 0 {
                    self.take(node.key(index), node.value(index).to_vec(), true);
                    continue;
                }
                let from = if index == 0 { low } else { node.key(index) };
                let to = if index + 1 < node.count() {
                    node.key(index + 1).predecessor()
                } else {
                    Some(high)
                };
                stack.push((node.child(index), level - 1, from, to.unwrap_or(high)));
            }
        }
    }

    /// The first good copy, even if the address of the other one is invalid.
    fn read_node(&self, pointer: &NodePointer, level: u8) -> Option<Node> {
        let good = |node: &Node| node.level() == level && node.generation() == pointer.generation;
        pointer
            .copies()
            .find_map(|address| self.store.read_node_copy(pointer, address).ok().filter(good))
    }

    fn take(&mut self, key: Key, value: Vec<u8>, proven: bool) {
        // Bitmaps have no information about files.
        if key.kind() != Some(Kind::Group) {
            self.items.insert(key, SalvagedValue { value, proven });
        }
    }

    /// Searches for leaves with lost keys on the whole medium.
    fn search(
        &mut self,
        lost: &KeyRanges,
        limit: Option<Generation>,
        progress: &mut dyn FnMut(SalvageProgress),
    ) {
        let scan = Scan::run(&self.store, limit, progress);
        let mut covered = KeyRanges::default();
        let mut used = 0u64;
        let mut restored = 0u64;
        for leaf in scan.leaves() {
            let Some(node) = scan.read(&self.store, leaf) else { continue };
            if node.count() == 0 {
                continue;
            }
            let before = restored;
            for index in 0..node.count() {
                let key = node.key(index);
                if lost.contains(&key) && !covered.contains(&key) && !self.items.contains_key(&key)
                {
                    self.take(key, node.value(index).to_vec(), false);
                    restored += 1;
                }
            }
            used += u64::from(restored > before);
            // When this leaf was written, older leaves were out of date for all keys between these
            // two.
            covered.add(node.key(0), node.key(node.count() - 1));
            if let Some((low, high)) = leaf.range {
                covered.add(low, high);
            }
        }
        self.gone = lost.without(&covered);
        self.notes.push(format!(
            "parts of the tree cannot be read: {restored} items were restored from {used} nodes found by searching"
        ));
    }

    /// Applies the intent log.
    fn take_log(&mut self, metaroot: &Metaroot) {
        let known = self.store.device.superblock.log.count > 0;
        let inferred;
        let store = if known {
            &self.store
        } else if self.store.device.superblock.inline_max == 0 && metaroot.log.lsn.0 > 0 {
            // The superblock was inferred: continue reading as long as there are records.
            let mut superblock: Superblock = self.store.device.superblock.clone();
            let most = (1 << 30) / u64::from(superblock.block_size);
            superblock.log =
                BlockRun { count: most.min(superblock.usable_blocks()), ..superblock.log };
            inferred = Store::new(self.medium, self.store.device.platform, superblock, CACHE_SIZE);
            &inferred
        } else {
            return;
        };
        let result = scan(store, metaroot.log, metaroot.generation).and_then(|found| {
            if let Some(error) = found.unreadable {
                self.notes.push(format!(
                    "the intent log cannot be read after record {} ({error}): what was committed last may be missing",
                    found.end.lsn.0
                ));
            }
            (0..found.len()).map(|index| found.mutations(store, index)).collect::<Result<Vec<_>, Error>>()
        });
        match result {
            Ok(records) => {
                for mutation in records.into_iter().flatten() {
                    match mutation.value {
                        Some(value) => self.take(mutation.key, value, true),
                        None => drop(self.items.remove(&mutation.key)),
                    }
                }
            }
            Err(error) => self.notes.push(format!(
                "the intent log cannot be read ({error}): what was committed since the last checkpoint is missing"
            )),
        }
    }
}
