//! The engine compared with an ordered map: random batches, transaction points, rollbacks,
//! reopening and power cuts.

mod budget;
mod budget_data;
mod fault;
mod log;
mod multi_mount;
mod newer;
mod open;
mod overlay;
mod parameters;
mod reclaim;
mod replay;
mod snapshot_limits;
mod snapshot_model;
mod snapshots;
mod steps;
mod stress;
mod tamper;
mod unreadable;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use steadfast_media::{Medium, MemoryMedium};

use crate::engine::keyspace::{KeyspaceRead, SpaceClass};
use crate::error::Error;
use crate::format::key::{Key, Kind};
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::platform::Platform;
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

type Map = BTreeMap<Key, Vec<u8>>;
type TestVolume = Volume<std::sync::Arc<MemoryMedium>, TestPlatform>;

/// Makes an empty file in the root directory.
fn make<M: Medium, P: Platform>(volume: &Volume<M, P>, name: impl AsRef<[u8]>) -> InodeNumber {
    let (name, caller) = (name.as_ref(), Caller::default());
    volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller).unwrap().inode
}

fn key(number: u64) -> Key {
    Key::new(InodeNumber(100 + number / 8), Kind::Xattr, number % 8)
}

#[derive(Debug, Clone)]
enum Step {
    Batch(Vec<(u64, Option<usize>)>),
    Transact,
    Checkpoint,
    Rollback,
    Reopen,
    Background,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0u64..400, prop::option::weighted(0.7, 0usize..300));
    prop_oneof![
        12 => prop::collection::vec(change, 1..20).prop_map(Step::Batch),
        3 => Just(Step::Transact),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Rollback),
        1 => Just(Step::Reopen),
        2 => Just(Step::Background),
    ]
}

fn apply(
    volume: &TestVolume,
    map: &mut Map,
    changes: &[(u64, Option<usize>)],
    salt: u8,
) -> Result<(), Error> {
    *map = volume.update(SpaceClass::Normal, |tx| {
        let mut new = map.clone();
        for (number, length) in changes {
            let key = key(*number);
            match length {
                Some(length) => {
                    let value = vec![salt ^ *number as u8; *length];
                    new.insert(key, value.clone());
                    tx.put(key, value)?;
                }
                None => {
                    new.remove(&key);
                    tx.delete(&key)?;
                }
            }
        }
        Ok(new)
    })?;
    Ok(())
}

fn contents(volume: &TestVolume) -> Map {
    let reader = volume.engine.reader().unwrap();
    let mut map = Map::new();
    let mut from = key(0);
    while let Some((key, found)) = reader.next(&from, &Key::MAX).unwrap() {
        map.insert(key, found);
        let Some(next) = key.successor() else { break };
        from = next;
    }
    let mut backward = Map::new();
    let mut to = Key::MAX;
    while let Some((found, value)) = reader.previous(&key(0), &to).unwrap() {
        backward.insert(found, value);
        let Some(before) = found.predecessor() else { break };
        to = before;
    }
    assert_eq!(map, backward);
    map
}

fn check(options: FormatOptions, steps: Vec<Step>, size: u64, cache: usize) {
    let medium = std::sync::Arc::new(MemoryMedium::new(size, options.block_size.min(512)).unwrap());
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let open_options = OpenOptions { cache_size: cache, ..OpenOptions::default() };
    let open = || Volume::open(medium.clone(), open_options.clone(), TestPlatform::new()).unwrap();
    let mut volume = open();
    volume.set_mask(TransactionMask::MANUAL).unwrap();
    volume.transact().unwrap();
    let mut working = Map::new();
    let mut durable = Map::new();
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Step::Batch(changes) => match apply(&volume, &mut working, &changes, index as u8) {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    volume.checkpoint().unwrap();
                    durable = working.clone();
                }
                Err(error) => panic!("{error}"),
            },
            Step::Transact => {
                volume.transact().unwrap();
                durable = working.clone();
            }
            Step::Checkpoint => {
                volume.checkpoint().unwrap();
                durable = working.clone();
            }
            Step::Rollback => {
                volume.rollback().unwrap();
                working = durable.clone();
            }
            Step::Reopen => {
                drop(volume);
                volume = open();
                working = durable.clone();
            }
            Step::Background => {
                volume.background().unwrap();
            }
        }
        if index % 7 == 0 {
            assert_eq!(contents(&volume), working);
        }
    }
    assert_eq!(contents(&volume), working);
    drop(volume);
    assert_eq!(contents(&open()), durable);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn small_nodes(steps in prop::collection::vec(step(), 1..60)) {
        let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
        check(options, steps, 2 << 20, 0);
    }

    #[test]
    fn nodes_of_several_blocks(steps in prop::collection::vec(step(), 1..60)) {
        let options = FormatOptions { block_size: 128, node_size: Some(1024), ..FormatOptions::default() };
        check(options, steps, 1 << 20, 4096);
    }

    #[test]
    fn large_nodes_without_log(steps in prop::collection::vec(step(), 1..60)) {
        let options = FormatOptions { log_size: Some(0), metadata_copies: Some(1), ..FormatOptions::default() };
        check(options, steps, 2 << 20, 1 << 20);
    }

    #[test]
    fn tiny_volume(steps in prop::collection::vec(step(), 1..60)) {
        check(FormatOptions::default(), steps, 64 * 4096, 0);
    }
}

#[test]
fn space_returns_to_the_block() {
    let medium = std::sync::Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    Volume::format(
        &medium,
        &FormatOptions { block_size: 512, ..FormatOptions::default() },
        &TestPlatform::new(),
    )
    .unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    volume.checkpoint().unwrap();
    let empty = volume.statistics().unwrap().blocks_free;
    for round in 0..3 {
        let mut map = Map::new();
        for number in 0..3000 {
            apply(&volume, &mut map, &[(number, Some(200))], round).unwrap();
        }
        assert!(volume.statistics().unwrap().blocks_free < empty);
        for number in 0..3000 {
            apply(&volume, &mut map, &[(number, None)], round).unwrap();
        }
        volume.checkpoint().unwrap();
        assert_eq!(volume.statistics().unwrap().blocks_free, empty, "round {round}");
    }
    drop(volume);
    let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new()).unwrap();
    assert_eq!(volume.statistics().unwrap().blocks_free, empty);
}

#[test]
fn allocate_and_release() {
    let medium = std::sync::Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new()).unwrap();
    let mut runs = Vec::new();
    loop {
        match volume.allocate_blocks(37, 1, None, SpaceClass::Normal) {
            Ok(run) => runs.push(run),
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                break;
            }
        }
    }
    let mut blocks: Vec<u64> = runs.iter().flat_map(|run| run.start.0..run.end()).collect();
    let count = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), count, "no block was handed out twice");
    for run in runs {
        volume.engine.release_blocks(run);
    }
    let again: u64 =
        core::iter::from_fn(|| volume.allocate_blocks(37, 1, None, SpaceClass::Normal).ok())
            .map(|run| run.count)
            .sum();
    assert_eq!(again, count as u64);
}

/// Both copies of the newest metaroot are lost. The previous metaroot must not continue with
/// records that followed the newest one.
#[test]
fn records_do_not_continue_an_older_metaroot() {
    let medium = std::sync::Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let mut map = Map::new();
    apply(&volume, &mut map, &[(1, Some(10))], 1).unwrap();
    volume.checkpoint().unwrap();
    let before = map.clone();
    apply(&volume, &mut map, &[(2, Some(10))], 1).unwrap();
    volume.checkpoint().unwrap();
    let newest = volume.info().generation;
    apply(&volume, &mut map, &[(3, Some(10))], 1).unwrap();
    volume.transact().unwrap();
    let offsets = volume.engine.superblock().metaroot_offsets(newest);
    drop(volume);
    for offset in offsets {
        steadfast_media::Medium::write(&medium, offset, &[0; 4096]).unwrap();
    }
    let refused = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).err();
    assert!(
        matches!(refused, Some(Error::NewerStateLost(_))),
        "the record says that there was a newer state"
    );
    let recovering = OpenOptions { recover: true, ..OpenOptions::default() };
    let volume = Volume::open(medium, recovering, TestPlatform::new()).unwrap();
    assert_eq!(contents(&volume), before);
}

/// A record removes a key that was made and removed between two commit records. It also removes the
/// last key of the leaf where that key would be. Without the leaf, the path to the absent key leads
/// to a neighbour without a planned copy. Such a volume could not be opened any more.
#[test]
fn a_record_removes_a_key_that_is_not_there() {
    for gone in (0..40).step_by(2) {
        let medium = std::sync::Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
        let options =
            FormatOptions { block_size: 512, node_size: Some(512), ..FormatOptions::default() };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        let volume =
            Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
        volume.set_mask(TransactionMask::MANUAL).unwrap();
        let mut map = Map::new();
        for number in (0..40).step_by(2) {
            // One key a leaf.
            apply(&volume, &mut map, &[(number, Some(250))], 1).unwrap();
        }
        volume.checkpoint().unwrap();
        apply(&volume, &mut map, &[(gone, None), (gone + 1, Some(5))], 1).unwrap();
        apply(&volume, &mut map, &[(gone + 1, None)], 1).unwrap();
        volume.transact().unwrap();
        assert_eq!(contents(&volume), map);
        drop(volume);
        let volume =
            Volume::open(medium, OpenOptions::default(), TestPlatform::new()).expect("opens");
        assert!(volume.info().replayed_records > 0);
        assert_eq!(contents(&volume), map);
        // The same in one batch.
        apply(&volume, &mut map, &[(2, None), (3, None), (5, None), (6, None), (7, None)], 1)
            .unwrap();
        assert_eq!(contents(&volume), map);
    }
}
