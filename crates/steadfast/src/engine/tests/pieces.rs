//! Replaying a log that changes more nodes than the cache holds: in pieces, with the power cut at
//! every request of the opening, and again at those of the next one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::sim::Survival;
use steadfast_media::{MemoryMedium, SimMedium, SimOptions};

use crate::engine::tests::TestPlatform;
use crate::error::{Error, Result};
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
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
    Volume::open(medium.clone(), options, TestPlatform)
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
    Volume::format(&medium, &options, &TestPlatform).unwrap();
    let large = OpenOptions { cache_size: 1 << 20, ..OpenOptions::default() };
    let volume = Volume::open(medium.clone(), large, TestPlatform).unwrap();
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

/// Whether a volume holds just these files, and the checker finds nothing.
fn holds(medium: &Arc<SimMedium>, files: &Files) -> Result<bool> {
    let volume = open(medium, false)?;
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
    let report = check(medium, &TestPlatform, &CheckOptions::default(), &mut |_| ())?;
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
            let checkpoints = opened.unwrap().activity().unwrap().checkpoints;
            assert!(checkpoints > 3, "{checkpoints} pieces");
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
fn no_cut_of_a_replay_in_pieces_loses_anything() {
    assert!(every_cut_keeps_the_state());
}

/// The test above finds a piece that says too much.
#[test]
#[cfg(feature = "sabotage")]
fn a_piece_that_names_the_end_of_the_log_is_found() {
    crate::sabotage::plant(Some(crate::sabotage::Sabotage::ReplayEndsEarly));
    let kept = every_cut_keeps_the_state();
    crate::sabotage::plant(None);
    assert!(!kept);
}

/// A reader replays at once, and holds more than twice the nodes of the cache.
#[test]
fn a_replay_in_pieces_holds_no_more_nodes_than_the_cache() {
    let (image, _) = with_long_log();
    let medium = Arc::new(SimMedium::on(&image, simulator()));
    let cache = open(&medium, false).unwrap().activity().unwrap().cache;
    assert!(cache.pinned < cache.capacity, "{} of {}", cache.pinned, cache.capacity);
    let read_only = open(&Arc::new(SimMedium::on(&image, simulator())), true).unwrap();
    let cache = read_only.activity().unwrap().cache;
    assert!(cache.pinned > 2 * cache.capacity, "{} of {}", cache.pinned, cache.capacity);
}

/// A volume that is opened for reading writes nothing.
#[test]
fn a_reader_makes_no_pieces() {
    let (image, _) = with_long_log();
    let medium = Arc::new(SimMedium::on(&image, simulator()));
    drop(open(&medium, true).unwrap());
    assert_eq!(medium.counters().writes, 0);
}
