//! Replaying a log that changes more nodes than the cache holds, so that some are written out in
//! the middle. The power is cut at every request of the opening, and again at those of the next
//! one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::sim::{Action, Fault, Survival};
use steadfast_media::{ErrorClass, MediumOperation, MemoryMedium, SimMedium, SimOptions};

use crate::error::{Error, Result};
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

const SIZE: u64 = 2 << 20;

type Files = BTreeMap<String, Vec<u8>>;

fn simulator() -> SimOptions {
    SimOptions::disk(SIZE)
}

/// Opens with a cache of 16 nodes.
fn open(medium: &Arc<SimMedium>, read_only: bool) -> Result<Volume<Arc<SimMedium>, TestPlatform>> {
    let options = OpenOptions { cache_size: 0, read_only, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new())
}

/// A medium with a long log and no checkpoint, and what the volume holds.
fn with_long_log() -> (MemoryMedium, Files) {
    let medium = Arc::new(SimMedium::new(simulator()));
    let options = FormatOptions {
        block_size: 512,
        log_size: Some(128 << 10),
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let large = OpenOptions { cache_size: 1 << 20, ..OpenOptions::default() };
    let volume = Volume::open(medium.clone(), large, TestPlatform::new()).unwrap();
    let root = InodeNumber::ROOT;
    let mut files = Files::new();
    for round in 0..70_usize {
        let name = format!("file-{}", round * 7 % 45);
        let length = [100, 1500, 700, 5000][round % 4] + round;
        if files.remove(&name).is_some() {
            volume.unlink(root, name.as_bytes()).unwrap();
        }
        let caller = Caller::default();
        let made = volume.create(root, name.as_bytes(), NewNode::Regular, 0o644, &caller).unwrap();
        let data = vec![round as u8; length];
        volume.write(made.inode, 0, &data, false).unwrap();
        files.insert(name, data);
        if round % 2 == 0 || round > 60 {
            volume.transact().unwrap();
        }
    }
    volume.transact().unwrap();
    assert_eq!(volume.activity().unwrap().checkpoints, 0, "everything is in the log");
    drop(volume);
    (medium.power_cut_with(Survival::Flushed), files)
}

/// Whether a volume holds just these files, also after a rollback, and the checker finds nothing.
fn holds(medium: &Arc<SimMedium>, files: &Files) -> Result<bool> {
    let volume = open(medium, false)?;
    volume.unlink(InodeNumber::ROOT, b"file-1")?;
    volume.rollback()?;
    let mut buffer = vec![0; 8192];
    let all = volume.read_directory(InodeNumber::ROOT, 0, 100)?.len() == files.len() + 2;
    for (name, data) in files {
        let found = match volume.lookup(InodeNumber::ROOT, name.as_bytes()) {
            Err(Error::NotFound) => return Ok(false),
            found => found?,
        };
        let length = volume.read(found.inode, 0, &mut buffer)?;
        if buffer[..length] != data[..] {
            return Ok(false);
        }
    }
    // It goes on from here.
    volume.unlink(InodeNumber::ROOT, b"file-0")?;
    volume.transact()?;
    drop(volume);
    let report = check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ())?;
    Ok(all && report.is_clean())
}

/// The state after every cut of an opening, with some of what was in flight.
fn every_cut_keeps_the_state() -> bool {
    let (image, files) = with_long_log();
    let mut cuts = 0;
    for request in 0.. {
        let medium = Arc::new(SimMedium::on(&image, simulator()));
        medium.arm_power_cut(request);
        let opened = open(&medium, false);
        if !medium.is_off() {
            assert_eq!(opened.unwrap().activity().unwrap().checkpoints, 0);
            assert!(medium.counters().writes > 100, "{} writes", medium.counters().writes);
            break;
        }
        drop(opened);
        for survival in [Survival::Flushed, Survival::Everything, Survival::Seeded(request)] {
            cuts += 1;
            let mut next = medium.power_cut_with(survival);
            if request % 3 == 0 {
                // A second cut, in the opening after the first.
                let again = Arc::new(SimMedium::on(&next, simulator()));
                again.arm_power_cut(20 + request % 50);
                drop(open(&again, false));
                next = again.power_cut(request);
            }
            if !matches!(holds(&Arc::new(SimMedium::on(&next, simulator())), &files), Ok(true)) {
                return false;
            }
        }
    }
    assert!(cuts > 300, "{cuts} cuts");
    true
}

#[test]
fn no_cut_of_a_replay_loses_anything() {
    assert!(every_cut_keeps_the_state());
}

/// The test above finds nodes that are written over data of the log.
#[test]
#[cfg(feature = "sabotage")]
fn a_replay_that_writes_over_data_of_the_log_is_found() {
    crate::sabotage::plant(Some(crate::sabotage::Sabotage::ReplayOverLog));
    let kept = every_cut_keeps_the_state();
    crate::sabotage::plant(None);
    assert!(!kept);
}

/// A reader writes nothing, and holds more than twice the nodes of the cache.
#[test]
fn only_a_reader_holds_more_nodes_than_the_cache() {
    let (image, _) = with_long_log();
    let medium = Arc::new(SimMedium::on(&image, simulator()));
    let cache = open(&medium, false).unwrap().activity().unwrap().cache;
    assert!(cache.nodes <= cache.capacity, "{} of {}", cache.nodes, cache.capacity);
    let medium = Arc::new(SimMedium::on(&image, simulator()));
    let read_only = open(&medium, true).unwrap();
    let cache = read_only.activity().unwrap().cache;
    assert!(cache.dirty > 2 * cache.capacity, "{} of {}", cache.dirty, cache.capacity);
    assert_eq!(medium.counters().writes, 0);
}

/// The medium refuses one write of the replay. The opening fails, and the next one finds all.
#[test]
fn a_replay_that_cannot_write_changes_nothing() {
    let (image, files) = with_long_log();
    for skipped in [0, 1, 40, 100] {
        let medium = Arc::new(SimMedium::on(&image, simulator()));
        let fault = Fault::new(Action::FailTorn(ErrorClass::Permanent));
        medium.arm(fault.on(MediumOperation::Write).after(skipped));
        let refused = open(&medium, false).err();
        assert!(matches!(refused, Some(Error::Medium(_))), "{refused:?}");
        assert!(holds(&medium, &files).unwrap(), "write {skipped}");
    }
}
