//! Snapshots at their limits: full volumes, many snapshots, a log that was cut while a checkpoint
//! was in flight.

use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::sim::Survival;
use steadfast_media::{MemoryMedium, Random, SimMedium, SimOptions};

use crate::engine::keyspace::KeyspaceRead;
use crate::error::Error;
use crate::format::extent::decode_birth;
use crate::format::key::Key;
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;

type Medium = Arc<MemoryMedium>;
type TestVolume = Volume<Medium, TestPlatform>;

fn format(size: u64, options: &FormatOptions) -> Medium {
    let medium = Arc::new(MemoryMedium::new(size, 512).unwrap());
    Volume::format(&medium, options, &TestPlatform::new()).unwrap();
    medium
}

fn open(medium: &Medium) -> TestVolume {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

fn assert_clean(medium: &Medium) {
    let report =
        check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn make(volume: &TestVolume, name: &str) -> Result<InodeNumber, Error> {
    let made = volume.create(ROOT, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default())?;
    Ok(made.inode)
}

fn without_timer() -> TransactionMask {
    TransactionMask(TransactionMask::DEFAULT.0 & !TransactionMask::TIMER.0)
}

/// Makes files of `length` bytes until nothing fits.
fn fill(volume: &TestVolume, prefix: &str, length: usize) -> Vec<alloc::string::String> {
    let mut names = Vec::new();
    loop {
        let name = alloc::format!("{prefix}{}", names.len());
        let made = make(volume, &name).and_then(|inode| {
            names.push(name);
            volume.write(inode, 0, &vec![3; length], false)
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => return names,
            Err(error) => panic!("{error}"),
        }
    }
}

/// An extent born in the generation after a checkpoint that was in flight must not seem younger
/// than a later snapshot.
#[test]
fn births_of_the_log_are_not_above_the_working_generation() {
    let options = FormatOptions {
        block_size: 512,
        log_size: Some(16 << 10),
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    let medium = format(4 << 20, &options);
    let volume = open(&medium);
    let mut number = 0;
    while volume.engine.working.lock().frozen.is_none() {
        make(&volume, &alloc::format!("{number}")).unwrap();
        volume.transact().unwrap();
        number += 1;
    }
    let durable = volume.info().generation;
    let late = make(&volume, "late").unwrap();
    volume.write(late, 0, &[1; 4096], false).unwrap();
    volume.transact().unwrap();
    drop(volume);

    let volume = open(&medium);
    assert_eq!(volume.info().generation, durable, "the checkpoint was lost");
    let extent = |volume: &TestVolume| {
        let found = volume.engine.reader().unwrap().get(&Key::extent(late, 0)).unwrap().unwrap();
        decode_birth(&found).unwrap()
    };
    let birth = extent(&volume);
    volume.engine.replay_overlay().unwrap();
    let working = volume.engine.working.lock().generation;
    assert!(birth.0 == durable + 2 && working >= birth && working.0 % 2 != durable % 2);
    let snapshot = volume.snapshot_create("s").unwrap();
    assert!(snapshot.generation >= birth);
    volume.unlink(ROOT, b"late").unwrap();
    volume.checkpoint().unwrap();
    let other = make(&volume, "other").unwrap();
    for at in 0..400 {
        volume.write(other, at * 4096, &[2; 4096], false).unwrap();
    }
    volume.checkpoint().unwrap();
    assert_clean(&medium);
    let view =
        Volume::open_snapshot(medium.clone(), TestPlatform::new(), OpenOptions::default(), "s")
            .unwrap();
    let mut data = [0; 4096];
    view.read(late, 0, &mut data).unwrap();
    assert_eq!(data, [1; 4096]);
}

/// Everything can be removed, in any order, while a snapshot holds all of it and the volume is
/// full.
#[test]
fn a_full_volume_under_a_snapshot_can_be_emptied() {
    for (length, size, block_size) in
        [(20_000, 16 << 20, 4096), (700, 8 << 20, 512), (90, 4 << 20, 512)]
    {
        let options =
            FormatOptions { block_size, mask: without_timer(), ..FormatOptions::default() };
        let medium = format(size, &options);
        let volume = open(&medium);
        let count = volume.statistics().unwrap().blocks_available * u64::from(block_size) / 8;
        let mut names = Vec::new();
        for number in 0..count / (length as u64 + 400) {
            let name = alloc::format!("before{number}");
            let inode = make(&volume, &name).unwrap();
            volume.write(inode, 0, &vec![1; length], false).unwrap();
            names.push(name);
        }
        volume.snapshot_create("s").unwrap();
        names.extend(fill(&volume, "after", length));
        assert!(matches!(volume.snapshot_create("t"), Err(Error::NoSpace) | Ok(_)));
        let mut random = Random::new(5);
        while !names.is_empty() {
            let name = names.swap_remove(random.below(names.len() as u64) as usize);
            volume.unlink(ROOT, name.as_bytes()).unwrap();
        }
        volume.checkpoint().unwrap();
        assert_clean(&medium);
        fill(&volume, "again", length);
        for name in volume.snapshots().unwrap() {
            volume.snapshot_delete(&name.name).unwrap();
        }
        // A writer gets the blocks of the snapshot without background work too.
        fill(&volume, "last", length);
        while volume.background().unwrap() {}
        volume.checkpoint().unwrap();
        assert_clean(&medium);
        assert_eq!(volume.statistics().unwrap().blocks_snapshots, 0);
    }
}

/// The blocks of a snapshot that was deleted count as used in the state of a later one. All free
/// blocks may be among them.
#[test]
fn a_full_volume_goes_back_past_deleted_snapshots() {
    goes_back(4 << 20, 9000, 60);
    for size in [2 << 20, 3000 << 10] {
        for small in [0, 60] {
            (200..12_000).step_by(373).for_each(|large| goes_back(size, large, small));
        }
    }
}

/// A volume of `size` bytes, full of files of `large` and then of `small` bytes. It has the
/// snapshot `s`, and an older one was deleted since. The file that `s` has, and what was free at
/// first.
fn full_past_a_deleted_snapshot(
    size: u64,
    large: usize,
    small: usize,
) -> (Medium, TestVolume, InodeNumber, u64) {
    let options =
        FormatOptions { block_size: 512, mask: without_timer(), ..FormatOptions::default() };
    let medium = format(size, &options);
    let volume = open(&medium);
    let kept = make(&volume, "kept").unwrap();
    volume.write(kept, 0, &[9; 5000], false).unwrap();
    let most = make(&volume, "large").unwrap();
    let free = volume.statistics().unwrap().blocks_available * 512;
    for at in 0..free * 8 / 10 / 4096 {
        volume.write(most, at * 4096, &[1; 4096], false).unwrap();
    }
    volume.snapshot_create("old").unwrap();
    volume.unlink(ROOT, b"large").unwrap();
    while volume.background().unwrap() {}
    volume.snapshot_create("s").unwrap();
    volume.snapshot_delete("old").unwrap();
    while volume.background().unwrap() {}
    fill(&volume, "fill", large);
    fill(&volume, "small", small);
    (medium, volume, kept, free)
}

/// Such a volume goes back.
fn goes_back(size: u64, large: usize, small: usize) {
    let (medium, volume, kept, free) = full_past_a_deleted_snapshot(size, large, small);
    if let Err(error) = volume.snapshot_rollback("s", false) {
        panic!("{error}: {size} bytes, files of {large} and {small}");
    }
    assert_clean(&medium);
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    assert_clean(&medium);
    assert_eq!(volume.lookup(ROOT, b"fill0").unwrap_err(), Error::NotFound);
    let mut data = [0; 5000];
    volume.read(kept, 0, &mut data).unwrap();
    assert_eq!(data, [9; 5000]);
    assert_eq!(volume.engine.working.lock().snapshots.keys, 1);
    assert!(volume.statistics().unwrap().blocks_available * 512 > free * 9 / 10);
}

/// Power cuts on the way back of volumes that find no room without the blocks of the deleted
/// snapshot. The volume is where it was or at the snapshot, with every byte, and goes on.
#[test]
fn a_cut_on_the_way_back_past_deleted_snapshots_leaves_one_of_two_states() {
    const SIZE: u64 = 3000 << 10;
    // At the snapshot, and before the way back.
    let mut states = [0, 0];
    for (large, step) in [(3184, 1), (9898, 3)] {
        let (medium, volume, kept, _) = full_past_a_deleted_snapshot(SIZE, large, 0);
        volume.transact().unwrap();
        drop(volume);
        for requests in (0..).step_by(step) {
            let sim = Arc::new(SimMedium::on(&medium, SimOptions::disk(SIZE)));
            let open_sim =
                || Volume::open(sim.clone(), OpenOptions::default(), TestPlatform::new());
            let volume = open_sim().unwrap();
            sim.arm_power_cut(requests);
            let back = volume.snapshot_rollback("s", false);
            drop(volume);
            if !sim.is_off() {
                back.unwrap();
                break;
            }
            let survival = match requests % 3 {
                0 => Survival::First(0),
                1 => Survival::First(sim.in_flight()),
                _ => Survival::Seeded(requests),
            };
            let medium = Arc::new(sim.power_cut_with(survival));
            assert_clean(&medium);
            let volume = open(&medium);
            let mut data = [0; 5000];
            volume.read(kept, 0, &mut data).unwrap();
            assert_eq!(data, [9; 5000]);
            let is_old = match volume.lookup(ROOT, b"fill0") {
                Ok(found) => {
                    let mut data = vec![0; large];
                    volume.read(found.inode, 0, &mut data).unwrap();
                    assert_eq!(data, vec![3; large]);
                    volume.snapshot_rollback("s", false).unwrap();
                    true
                }
                Err(error) => {
                    assert_eq!(error, Error::NotFound);
                    false
                }
            };
            states[usize::from(is_old)] += 1;
            while volume.background().unwrap() {}
            fill(&volume, "again", 3000);
            volume.checkpoint().unwrap();
            assert_clean(&medium);
            volume.read(kept, 0, &mut data).unwrap();
            assert_eq!(data, [9; 5000]);
        }
    }
    assert!(states[0] > 1 && states[1] > 100, "{states:?}");
}

/// Medium requests and node reads for making a file: the median of several runs.
fn cost(medium: &Arc<SimMedium>, volume: &Volume<Arc<SimMedium>, TestPlatform>) -> (u64, u64, u64) {
    let create = || {
        volume.create(ROOT, b"name", NewNode::Regular, 0o644, &Caller::default()).unwrap();
        volume.transact().unwrap();
        volume.checkpoint().unwrap();
        volume.unlink(ROOT, b"name").unwrap();
        volume.checkpoint().unwrap();
        volume.checkpoint().unwrap();
    };
    // The first rounds copy the nodes that the last snapshot holds.
    for _ in 0..8 {
        create();
    }
    let mut costs = [(); 9].map(|()| {
        let (before, cache) = (medium.counters(), volume.engine.store.cache_use());
        create();
        let (after, now) = (medium.counters(), volume.engine.store.cache_use());
        (after.writes - before.writes, after.reads - before.reads, now.misses - cache.misses)
    });
    costs.sort_unstable();
    costs[4]
}

#[test]
fn a_thousand_snapshots_cost_nothing() {
    let run = |snapshots: u64| {
        let medium = Arc::new(SimMedium::new(SimOptions::disk(512 << 20)));
        let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        let volume =
            Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
        for number in 0..2000u32 {
            let name = alloc::format!("file {number}");
            volume
                .create(ROOT, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default())
                .unwrap();
            if number % 2 == 0 && u64::from(number) / 2 < snapshots {
                volume.snapshot_create(&alloc::format!("snapshot {number}")).unwrap();
            }
        }
        volume.checkpoint().unwrap();
        assert_eq!(volume.snapshots().unwrap().len() as u64, snapshots);
        cost(&medium, &volume)
    };
    let (none, many) = (run(0), run(1000));
    assert_eq!(none, many, "writes, reads, nodes read");
}
