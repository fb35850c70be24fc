//! The check on volumes that have grown or shrunk, and on volumes that are smaller than their
//! medium.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::sim::Survival;
use steadfast_media::{Medium, MemoryMedium, SimMedium, SimOptions};

use crate::error::Result;
use crate::fs::{Caller, NewNode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::tools::salvage::Salvage;
use crate::types::InodeNumber;
use crate::volume::Volume;

const MEDIUM: u64 = 4 << 20;

fn run(medium: &Arc<MemoryMedium>) -> Result<CheckReport> {
    check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
}

fn open(medium: &Arc<MemoryMedium>) -> Volume<Arc<MemoryMedium>, TestPlatform> {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

fn fill(volume: &Volume<Arc<MemoryMedium>, TestPlatform>, prefix: u8) {
    for number in 0..10u8 {
        let name = [prefix, b'0' + number];
        let made = volume
            .create(InodeNumber::ROOT, &name, NewNode::Regular, 0o644, &Caller::default())
            .unwrap();
        volume.write(made.inode, 0, &[number; 3000], false).unwrap();
    }
}

/// A volume of 2 MiB on a medium of 4 MiB: formatted with, grown to, or shrunk to that size; with
/// two snapshots.
fn volumes() -> Vec<(&'static str, Arc<MemoryMedium>)> {
    let make = |size: u64| {
        let medium = Arc::new(MemoryMedium::new(MEDIUM, 512).unwrap());
        let options =
            FormatOptions { block_size: 512, size: Some(size), ..FormatOptions::default() };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        let volume = open(&medium);
        fill(&volume, b'a');
        volume.checkpoint().unwrap();
        (medium, volume)
    };
    let finish = |medium: &Arc<MemoryMedium>| {
        let volume = open(medium);
        for name in ["one", "two"] {
            volume.snapshot_create(name).unwrap();
            volume.unlink(InodeNumber::ROOT, if name == "one" { b"a1" } else { b"a2" }).unwrap();
        }
        fill(&volume, b'b');
        volume.checkpoint().unwrap();
    };
    let (made, _) = make(2 << 20);
    let (grown, volume) = make(1 << 20);
    volume.grow(2 << 20).unwrap();
    drop(volume);
    let (shrunk, volume) = make(MEDIUM);
    volume.shrink(2 << 20, &mut |_| {}).unwrap();
    drop(volume);
    let all = Vec::from([("made", made), ("grown", grown), ("shrunk", shrunk)]);
    all.iter().for_each(|(_, medium)| finish(medium));
    all
}

#[test]
fn resized_volumes_with_snapshots_are_clean() {
    for (what, medium) in volumes() {
        let report = run(&medium).unwrap();
        assert!(report.is_clean() && report.snapshots == 2, "{what}: {:#?}", report.findings);
    }
}

/// Format and a resize erase a slot of metaroots. The next checkpoint writes its first copy, and
/// the writer may be killed before the second one.
#[test]
fn an_end_between_the_first_two_copies_of_a_slot_is_no_damage() {
    for grows in [false, true] {
        for requests in 0.. {
            let sim = Arc::new(SimMedium::new(SimOptions::disk(2 << 20)));
            let options =
                FormatOptions { block_size: 512, size: Some(1 << 20), ..FormatOptions::default() };
            Volume::format(&sim, &options, &TestPlatform::new()).unwrap();
            let volume =
                Volume::open(sim.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
            if grows {
                volume.checkpoint().unwrap();
                volume.grow(2 << 20).unwrap();
            }
            volume
                .create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &Caller::default())
                .unwrap();
            sim.arm_power_cut(requests);
            let ended = volume.checkpoint().is_ok() && !sim.is_off();
            let image = Arc::new(sim.power_cut_with(Survival::First(sim.in_flight())));
            let report = run(&image).unwrap();
            assert!(report.is_clean(), "{grows}, {requests}: {:#?}", report.findings);
            if ended {
                assert!(requests > 3, "{requests} requests");
                break;
            }
        }
    }
}

/// The second superblock is at the end of the volume, wherever that is on the medium.
#[test]
fn a_damaged_superblock_is_no_loss_inside_a_larger_medium() {
    for (what, medium) in volumes() {
        let files = run(&medium).unwrap().inodes;
        medium.write(0, &[0xff; 512]).unwrap();
        let report = run(&medium).unwrap();
        assert_eq!((report.damaged, report.inodes), (0, files), "{what}: {:#?}", report.findings);
        assert!(report.degraded > 0, "{what}: nothing is said of the first copy");
        let platform = TestPlatform::new();
        for (name, lost) in [("one", b"a1"), ("two", b"a2")] {
            let salvage = Salvage::gather_snapshot(&medium, &platform, name, &mut |_| {}).unwrap();
            let has = salvage
                .entries()
                .iter()
                .any(|entry| entry.path.last().is_some_and(|last| last == lost));
            assert!(has, "{what}: {name} without what was removed after it");
        }
        let gone = Salvage::gather_snapshot(&medium, &platform, "none", &mut |_| {});
        assert_eq!(gone.err(), Some(crate::Error::NotFound));
    }
}
