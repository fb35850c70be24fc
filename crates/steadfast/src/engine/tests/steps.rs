//! Checkpoints in steps: what a step may write, that operations run between steps, and that no
//! operation waits for a whole checkpoint without background work.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::{Geometry, Medium, MediumError, SimMedium, SimOptions};

use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

type TestVolume<M> = Volume<M, TestPlatform>;

const NODE: u64 = 512;

fn volume(log: u64) -> (Arc<SimMedium>, TestVolume<Arc<SimMedium>>) {
    let medium = formatted(log);
    let volume = open(medium.clone());
    (medium, volume)
}

fn formatted(log: u64) -> Arc<SimMedium> {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(16 << 20)));
    let options = FormatOptions {
        block_size: 512,
        node_size: Some(NODE as u32),
        metadata_copies: Some(2),
        log_size: Some(log),
        mask: TransactionMask::FSYNC,
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    medium
}

/// A medium like flash: flushing costs nothing, and for each byte written it does `own` bytes of
/// upkeep.
struct Flashlike {
    sim: Arc<SimMedium>,
    own: u64,
}

impl Medium for Flashlike {
    fn geometry(&self) -> Geometry {
        self.sim.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.sim.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.sim.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.sim.flush()
    }

    fn flushes_cheaply(&self) -> bool {
        true
    }

    fn upkeep(&self) -> Option<u64> {
        Some(self.own * SimMedium::counters(&self.sim).bytes_written)
    }
}

fn open<M: Medium>(medium: M) -> TestVolume<M> {
    open_with(medium, OpenOptions::default().cache_size)
}

fn open_with<M: Medium>(medium: M, cache_size: usize) -> TestVolume<M> {
    Volume::open(medium, OpenOptions { cache_size, ..OpenOptions::default() }, TestPlatform::new())
        .unwrap()
}

fn make<M: Medium>(volume: &TestVolume<M>, number: u32) -> InodeNumber {
    let name = alloc::format!("file {number}");
    let made = volume.create(
        InodeNumber::ROOT,
        name.as_bytes(),
        NewNode::Regular,
        0o644,
        &Caller::default(),
    );
    made.unwrap().inode
}

fn frozen_nodes<M: Medium>(volume: &TestVolume<M>) -> Option<usize> {
    volume.engine.working.lock().frozen.as_ref().map(|frozen| frozen.nodes.len())
}

/// Commits one file after the other until a checkpoint begins. Returns the number of its nodes.
fn until_frozen<M: Medium>(volume: &TestVolume<M>, next: &mut u32) -> usize {
    loop {
        if let Some(nodes) = frozen_nodes(volume) {
            return nodes;
        }
        make(volume, *next);
        volume.transact().unwrap();
        *next += 1;
    }
}

#[test]
fn a_step_writes_no_more_than_it_may_and_only_the_last_one_the_metaroot() {
    let (medium, volume) = volume(64 << 10);
    let nodes = until_frozen(&volume, &mut 0);
    assert!(nodes > 30, "{nodes}");
    let generation = volume.info().generation;
    let may = 8 * NODE;
    let mut steps = 0;
    while frozen_nodes(&volume) != Some(0) {
        let before = SimMedium::counters(&medium);
        assert!(volume.background_step(may + NODE).unwrap());
        let after = SimMedium::counters(&medium);
        let written = after.bytes_written - before.bytes_written;
        assert!(written > 0 && written <= may, "step {steps}: {written}");
        assert_eq!(after.flushes, before.flushes);
        assert_eq!(volume.info().generation, generation);
        steps += 1;
    }
    assert_eq!(steps, nodes.div_ceil(4), "two copies of each");
    assert!(volume.background_step(may).unwrap());
    assert_eq!((frozen_nodes(&volume), volume.info().generation), (None, generation + 1));
    // A step always makes progress, however small its bound is.
    until_frozen(&volume, &mut 10_000);
    while frozen_nodes(&volume).is_some() {
        assert!(volume.background_step(0).unwrap());
    }
}

#[test]
fn between_the_steps_files_change_and_a_power_cut_loses_no_point() {
    let (medium, volume) = volume(64 << 10);
    let mut next = 0;
    let mut expected: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    until_frozen(&volume, &mut next);
    let first = next;
    let mut cuts = 0;
    for round in 0..3 {
        until_frozen(&volume, &mut next);
        while frozen_nodes(&volume).is_some() {
            volume.background_step(6 * NODE).unwrap();
            let inode = make(&volume, next);
            let data = vec![next as u8; 700];
            volume.write(inode, 0, &data, false).unwrap();
            volume.fsync().unwrap();
            expected.insert(next, data);
            next += 1;
            for seed in 0..3 {
                let after = open(medium.power_cut(u64::from(next) << 8 | seed));
                let name = |number: u32| alloc::format!("file {number}");
                for (number, data) in &expected {
                    let file = after.lookup(InodeNumber::ROOT, name(*number).as_bytes()).unwrap();
                    let mut found = vec![0; data.len()];
                    after.read(file.inode, 0, &mut found).unwrap();
                    assert_eq!(found, *data, "{number} in round {round}");
                }
                assert!(after.lookup(InodeNumber::ROOT, name(first / 2).as_bytes()).is_ok());
                cuts += 1;
            }
        }
    }
    assert!(cuts > 60, "{cuts}");
}

#[test]
fn a_step_ends_when_the_medium_has_done_as_much_of_its_own() {
    let sim = formatted(64 << 10);
    let volume = open(Flashlike { sim: sim.clone(), own: 4 });
    let nodes = until_frozen(&volume, &mut 0);
    let mut steps = 0;
    while frozen_nodes(&volume) != Some(0) {
        let before = SimMedium::counters(&sim).bytes_written;
        assert!(volume.background_step(8 * NODE).unwrap());
        // After the first node the medium has done as much upkeep, after the second node more.
        assert!(SimMedium::counters(&sim).bytes_written - before <= 4 * NODE);
        steps += 1;
    }
    assert_eq!(steps, nodes.div_ceil(2));
}

/// Changes and syncs files all over the tree. Returns the most log blocks in use, the size of the
/// log, and the number of checkpoints meanwhile.
fn most_of_the_log<M: Medium>(volume: &TestVolume<M>, background: bool) -> (u64, u64, u64) {
    let files = many_files(volume);
    let before = volume.activity().unwrap().checkpoints;
    let mut most = 0;
    for round in 0..4000 {
        let inode = files[round * 7919 % files.len()];
        volume.write(inode, round as u64 % 50, &[round as u8; 40], false).unwrap();
        volume.fsync().unwrap();
        most = most.max(volume.activity().unwrap().log_used / 512);
        while background && volume.background().unwrap() {}
    }
    let activity = volume.activity().unwrap();
    (most, activity.log_size / 512, activity.checkpoints - before)
}

/// Where a mount should read little, the log stays as short without background work as with it. On
/// other media checkpoints are rarer.
#[test]
fn a_log_stays_short_without_background_work() {
    let flashlike = || open(Flashlike { sim: formatted(64 << 10), own: 0 });
    let (attended, blocks, _) = most_of_the_log(&flashlike(), true);
    let (unattended, _, checkpoints) = most_of_the_log(&flashlike(), false);
    assert!(
        attended > blocks / 2 && unattended <= attended,
        "{unattended}, {attended} of {blocks}"
    );
    let (disk, _, rarer) = most_of_the_log(&volume(64 << 10).1, false);
    assert!(
        disk > attended && rarer < checkpoints,
        "{disk}, {rarer} checkpoints instead of {checkpoints}"
    );
}

/// Files that fill many leaves, all durable, with no dirty nodes.
fn many_files<M: Medium>(volume: &TestVolume<M>) -> Vec<InodeNumber> {
    let files = (0..1200).map(|number| make(volume, number)).collect();
    volume.checkpoint().unwrap();
    files
}

/// Changes files all over the tree. Returns the most bytes that one change with `after` writes.
fn most_written<M: Medium>(
    medium: &SimMedium,
    volume: &TestVolume<M>,
    files: &[InodeNumber],
    mut after: impl FnMut(InodeNumber),
) -> u64 {
    let mut most = 0;
    for round in 0..4000 {
        let before = medium.counters().bytes_written;
        let inode = files[round * 7919 % files.len()];
        volume.write(inode, round as u64 % 50, &[round as u8; 40], false).unwrap();
        after(inode);
        most = most.max(medium.counters().bytes_written - before);
    }
    most
}

/// Bytes that an operation writes for itself: its data or record, and the metaroot of a checkpoint
/// that it ends.
const OWN: u64 = 8 << 10;
/// Bytes that it writes for a checkpoint: 8 nodes, two copies each.
const PAID: u64 = 8 * 2 * NODE;

#[test]
fn a_log_that_fills_up_makes_nobody_wait_for_a_whole_checkpoint() {
    let (medium, volume) = volume(64 << 10);
    let files = many_files(&volume);
    let before = volume.activity().unwrap().checkpoints;
    let mut largest = 0;
    let most = most_written(&medium, &volume, &files, |_| {
        volume.fsync().unwrap();
        largest = largest.max(frozen_nodes(&volume).unwrap_or(0));
    });
    assert!(volume.activity().unwrap().checkpoints >= before + 8);
    assert!(largest as u64 * 2 * NODE > 4 * (PAID + OWN), "{largest}");
    assert!(most <= PAID + OWN, "{most}");
}

#[test]
fn memory_that_fills_up_makes_nobody_wait_for_all_of_it() {
    for commits in [false, true] {
        let (medium, volume) = volume(1 << 20);
        let files = many_files(&volume);
        volume.close().unwrap();
        // About 300 nodes; half of them may be dirty before the cache is crowded.
        let volume = open_with(medium.clone(), 230 << 10);
        let capacity = volume.engine.store.cache_use().capacity;
        let mut dirty = 0;
        let most = most_written(&medium, &volume, &files, |_| {
            if commits {
                volume.fsync().unwrap();
            }
            dirty = dirty.max(volume.engine.store.cache_use().dirty);
        });
        assert!(most <= PAID + OWN, "{most}, commits: {commits}");
        assert!(dirty > capacity / 3 && dirty <= capacity * 3 / 4, "{dirty} of {capacity}");
        let checkpoints = volume.activity().unwrap().checkpoints;
        assert_eq!(checkpoints > 0, commits, "{checkpoints}");
        volume.checkpoint().unwrap();
        drop(volume);
        let after = open(medium.clone());
        for (number, inode) in files.iter().enumerate() {
            let mut byte = [0];
            after.read(*inode, 0, &mut byte).unwrap();
            let round = (0..4000)
                .rev()
                .find(|round| round * 7919 % files.len() == number && round % 50 == 0);
            assert!(round.is_none_or(|round| byte[0] == round as u8));
        }
    }
}
