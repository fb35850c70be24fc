//! A volume whose log is not replayed yet shows the same content as after the replay.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::sim::{Action, Fault};
use steadfast_media::{ErrorClass, MediumOperation, MemoryMedium, Random, SimMedium, SimOptions};

use crate::engine::apply::is_recorded;
use crate::engine::keyspace::KeyspaceRead;
use crate::format::key::Key;
use crate::fs::{Caller, NewNode, RenameMode, SetAttributes, SetXattrMode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;

type Items = Vec<(Key, Vec<u8>)>;

/// Everything that a record can hold, as readers see it. Reading forwards, backwards and one by one
/// must agree.
fn items<M: steadfast_media::Medium>(volume: &Volume<M, TestPlatform>) -> Items {
    let reader = volume.engine.reader().unwrap();
    let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
    let mut from = Some(Key::MIN);
    while let Some((key, found)) = from.and_then(|from| reader.next(&from, &Key::MAX).unwrap()) {
        assert_eq!(reader.get(&key).unwrap().unwrap(), found);
        forwards.push((key, found));
        from = key.successor();
    }
    let mut to = Some(Key::MAX);
    while let Some((key, found)) = to.and_then(|to| reader.previous(&Key::MIN, &to).unwrap()) {
        backwards.push((key, found));
        to = key.predecessor();
    }
    backwards.reverse();
    assert!(forwards == backwards);
    for pair in forwards.windows(2) {
        let between = pair[0].0.successor().unwrap();
        assert!(between == pair[1].0 || reader.get(&between).unwrap().is_none());
    }
    forwards.retain(|(key, _)| is_recorded(key));
    forwards
}

/// One random change of a file or name.
fn change<M: steadfast_media::Medium>(volume: &Volume<M, TestPlatform>, seed: &mut Random) {
    let name = |seed: &mut Random| format!("file {}", seed.below(1 << 31) % 40).into_bytes();
    let (one, other, length) = (name(seed), name(seed), seed.below(1 << 31) % 9000);
    let file = volume.lookup(ROOT, &one).map(|attributes| attributes.inode);
    let done = match (seed.below(1 << 31) % 7, file) {
        (_, Err(_)) => {
            volume.create(ROOT, &one, NewNode::Regular, 0o644, &Caller::default()).map(drop)
        }
        (0, Ok(_)) => volume.unlink(ROOT, &one),
        (1, Ok(_)) => volume.rename(ROOT, &one, ROOT, &other, RenameMode::Replace).map(drop),
        (2, Ok(file)) => {
            let set = SetAttributes { size: Some(length), ..SetAttributes::default() };
            volume.set_attributes(file, &set).map(drop)
        }
        (3, Ok(file)) => {
            let xattr = format!("user.{}", length % 5);
            volume.set_xattr(
                file,
                xattr.as_bytes(),
                &vec![7; length as usize % 90],
                SetXattrMode::Any,
            )
        }
        (_, Ok(file)) => {
            volume.write(file, length, &vec![length as u8; length as usize / 3], false)
        }
    };
    done.unwrap();
}

fn options() -> FormatOptions {
    FormatOptions { block_size: 512, mask: TransactionMask::MANUAL, ..FormatOptions::default() }
}

fn open(medium: &Arc<MemoryMedium>) -> Volume<Arc<MemoryMedium>, TestPlatform> {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

/// Fills a volume that has a log. Returns its content.
fn filled<M: steadfast_media::Medium>(volume: &Volume<M, TestPlatform>, seed: u64) -> Items {
    let mut seed = Random::new(seed);
    for round in 0..150 {
        change(volume, &mut seed);
        match seed.below(1 << 31) % 30 {
            0 if round < 100 => volume.checkpoint().unwrap(),
            1 if round < 100 => drop(volume.snapshot_create(&format!("{round}")).unwrap()),
            _ => volume.transact().unwrap(),
        }
    }
    items(volume)
}

#[test]
fn what_is_shown_does_not_depend_on_the_replay() {
    for seed in 0..60 {
        let medium = Arc::new(MemoryMedium::new(8 << 20, 512).unwrap());
        Volume::format(&medium, &options(), &TestPlatform::new()).unwrap();
        let volume = open(&medium);
        let expected = filled(&volume, seed);
        let statistics = volume.statistics().unwrap();
        drop(volume);

        let volume = open(&medium);
        assert!(volume.replay_pending(), "seed {seed}");
        assert_eq!(volume.engine.store.cache_use().misses, 0, "opening reads nothing of the tree");
        assert!(items(&volume) == expected, "seed {seed}: before the replay");
        assert!(volume.replay_pending(), "looking replays nothing");
        assert_eq!(volume.statistics().unwrap().inodes, statistics.inodes);
        assert!(!volume.replay_pending());
        assert!(items(&volume) == expected, "seed {seed}: after the replay");
        drop(volume);

        // The content is also right if the log is never replayed, or if close, rollback or a change
        // comes first.
        let volume = open(&medium);
        volume.rollback().unwrap();
        assert!(items(&volume) == expected, "seed {seed}: rolled back");
        drop(volume);
        let volume = open(&medium);
        change(&volume, &mut Random::new(seed + 1));
        volume.rollback().unwrap();
        assert!(items(&volume) == expected, "seed {seed}: changed and rolled back");
        drop(volume);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let volume = Volume::open(medium.clone(), options, TestPlatform::new()).unwrap();
        assert!(items(&volume) == expected, "seed {seed}: read-only");
        drop(volume);
        open(&medium).checkpoint().unwrap();
        let volume = open(&medium);
        assert_eq!(volume.info().replayed_records, 0);
        assert!(items(&volume) == expected, "seed {seed}: after a checkpoint");
    }
}

/// Any read of the replay may fail: the change is refused, readers see the same content, and the
/// next replay finds everything.
#[test]
fn a_replay_that_fails_changes_nothing() {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    Volume::format(&medium, &options(), &TestPlatform::new()).unwrap();
    let open =
        || Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let volume = open();
    let expected = filled(&volume, 5);
    drop(volume);
    let mut failures = 0;
    for count in 0.. {
        let volume = open();
        let fault = Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read);
        medium.arm(fault.after(count).forever());
        let made = volume.create(ROOT, b"new", NewNode::Regular, 0o644, &Caller::default());
        medium.disarm();
        if made.is_ok() {
            break;
        }
        failures += 1;
        assert!(items(&volume) == expected, "read {count}");
        // The medium recovers, and so does the volume.
        assert_eq!(volume.info().poisoned, None, "read {count}");
        volume.statistics().unwrap();
        assert!(items(&volume) == expected, "read {count}: replayed");
    }
    assert!(failures > 3, "the replay reads more than that: {failures}");
}
