//! The check on damaged snapshots, dead lists and counts of clones.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::error::{Error, Result};
use crate::format::GENERATION_MAX;
use crate::format::key::{Key, Kind};
use crate::fs::{Caller, NewNode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::types::{Generation, InodeNumber};
use crate::volume::Volume;

fn run(medium: &Arc<MemoryMedium>) -> Result<CheckReport> {
    check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
}

type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

/// A volume with two snapshots, dead blocks in the list of each, and a clone.
fn with_snapshots() -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let caller = Caller::default();
    let make = |name: &[u8]| {
        let made =
            volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller).unwrap();
        volume.write(made.inode, 0, name.repeat(2000).as_slice(), false).unwrap();
        made.inode
    };
    let [a, _, c] = [make(b"a"), make(b"b"), make(b"c")];
    volume.snapshot_create("one").unwrap();
    volume.unlink(InodeNumber::ROOT, b"b").unwrap();
    volume.snapshot_create("two").unwrap();
    volume.clone_range(a, 0, c, 0, 1024).unwrap();
    volume.checkpoint().unwrap();
    (medium, volume)
}

/// Every contradiction between snapshots, dead lists and counts is found.
#[test]
fn damage_to_snapshots_is_found() {
    let (medium, volume) = with_snapshots();
    let report = run(&medium).unwrap();
    assert!(report.is_clean() && report.snapshots == 2, "{:#?}", report.findings);
    drop(volume);

    let of_kind = |volume: &TestVolume, kind| {
        let (first, last) = Key::kind_range(InodeNumber::SYSTEM, kind);
        volume.engine.store().next(&volume.engine.working_root(), &first, &last).unwrap().unwrap()
    };
    let with_byte = |mut value: Vec<u8>, at: usize, change: fn(u8) -> u8| {
        value[at] = change(value[at]);
        value
    };
    type Damage<'a> = (&'a str, &'a dyn Fn(&TestVolume));
    let damages: &[Damage<'_>] = &[
        ("is the newest", &|volume| volume.tamper_counts(|counts| counts.newest = Generation(1))),
        ("counts 3 snapshots", &|volume| volume.tamper_counts(|counts| counts.keys += 1)),
        ("blocks of snapshots", &|volume| volume.tamper_counts(|counts| counts.blocks += 1)),
        ("nodes that the newest snapshot has", &|volume| {
            volume.tamper_counts(|counts| counts.shared_nodes = 0)
        }),
        ("shared extents", &|volume| volume.tamper_counts(|counts| counts.shared_extents += 1)),
        ("are in no dead list", &|volume| volume.tamper(of_kind(volume, Kind::DeadList).0, None)),
        ("with another birth", &|volume| {
            let (key, value) = of_kind(volume, Kind::DeadList);
            volume.tamper(key, Some(with_byte(value, 12, |byte| byte - 1)));
        }),
        ("were born after it", &|volume| {
            let (key, value) = of_kind(volume, Kind::DeadList);
            volume.tamper(key, Some(with_byte(value, 12, |_| 200)));
        }),
        ("dead list: wrong length", &|volume| {
            let (key, value) = of_kind(volume, Kind::DeadList);
            volume.tamper(key, Some(value[..19].to_vec()));
        }),
        ("in dead lists twice", &|volume| {
            let (key, value) = of_kind(volume, Kind::DeadList);
            let entry = value[..20].to_vec();
            volume.tamper(key, Some([entry, value].concat()));
        }),
        ("which is not there", &|volume| {
            let (key, value) = of_kind(volume, Kind::DeadList);
            let (other, _) = Key::dead_list_range(Generation(77));
            volume.tamper(key, None);
            volume.tamper(other, Some(value));
        }),
        ("that it does not hold", &|volume| {
            let (_, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::DeadList);
            let first = of_kind(volume, Kind::DeadList);
            let found = volume
                .engine
                .store()
                .previous(&volume.engine.working_root(), &first.0, &last)
                .unwrap()
                .unwrap();
            volume.tamper(first.0, None);
            volume.tamper(found.0, Some([found.1, first.1].concat()));
        }),
        ("snapshot: wrong length", &|volume| {
            let (key, value) = of_kind(volume, Kind::Snapshot);
            volume.tamper(key, Some(value[..50].to_vec()));
        }),
        ("snapshot: values out of range", &|volume| {
            let (key, value) = of_kind(volume, Kind::Snapshot);
            volume.tamper(key, None);
            volume.tamper(Key::snapshot(Generation(GENERATION_MAX + 1)), Some(value));
            assert!(matches!(volume.snapshots(), Err(Error::CorruptMetadata { .. })));
        }),
        ("not from an earlier generation", &|volume| {
            let (key, value) = of_kind(volume, Kind::Snapshot);
            volume.tamper(key, None);
            volume.tamper(Key::snapshot(Generation(GENERATION_MAX)), Some(value));
        }),
        ("have the name", &|volume| {
            let (key, value) = of_kind(volume, Kind::Snapshot);
            let name = value.len() - 3;
            volume.tamper(key, Some([&value[..name], b"two"].concat()));
        }),
        ("cannot be read", &|volume| {
            let (key, value) = of_kind(volume, Kind::Snapshot);
            volume.tamper(key, Some(with_byte(value, 24, |byte| !byte)));
        }),
        ("more extents than their count", &|volume| {
            let a = volume.lookup(InodeNumber::ROOT, b"a").unwrap().inode;
            volume.clone_range(a, 0, a, 4096, 1024).unwrap();
            let (key, value) = of_kind(volume, Kind::SharedExtent);
            volume.tamper(key, Some(with_byte(value, 4, |count| count - 1)));
        }),
        ("extents less than their count", &|volume| {
            let (key, value) = of_kind(volume, Kind::SharedExtent);
            volume.tamper(key, Some(with_byte(value, 4, |count| count + 1)));
        }),
        ("used twice", &|volume| volume.tamper(of_kind(volume, Kind::SharedExtent).0, None)),
        ("shared extent", &|volume| {
            let (key, value) = of_kind(volume, Kind::SharedExtent);
            volume.tamper(key, Some(with_byte(value, 4, |_| 1)));
        }),
    ];
    for (expected, damage) in damages {
        let (medium, volume) = with_snapshots();
        damage(&volume);
        volume.checkpoint().unwrap();
        drop(volume);
        let report = run(&medium).unwrap();
        let found = report.findings.iter().any(|finding| finding.text.contains(expected));
        assert!(found, "{expected}: {:#?}", report.findings);
    }
}

/// Damage in a snapshot alone is reported with the name of the snapshot and the path of the file in
/// it.
#[test]
fn damage_inside_a_snapshot_names_it_and_the_path() {
    let (medium, volume) = with_snapshots();
    drop(volume);
    let view =
        Volume::open_snapshot(medium.clone(), TestPlatform::new(), OpenOptions::default(), "one")
            .unwrap();
    let inode = view.lookup(InodeNumber::ROOT, b"b").unwrap().inode;
    let extent = view
        .engine
        .store()
        .get(&view.engine.working_root(), &Key::extent(inode, 0))
        .unwrap()
        .unwrap();
    drop(view);
    let run_of = crate::format::extent::decode_run(&extent).unwrap();
    medium.write(run_of.start.0 * 512, &[0xee; 512]).unwrap();
    let report = run(&medium).unwrap();
    assert_eq!(report.damaged, 1, "{:#?}", report.findings);
    let finding = &report.findings[0];
    assert!(finding.text.starts_with("snapshot \"one\": "), "{finding}");
    assert_eq!(
        (&finding.paths[..], finding.bytes.clone()),
        (&[b"/b".to_vec()][..], Some(0..512)),
        "{finding}"
    );
    let line = alloc::format!("{finding}");
    assert!(line.contains("affects /b, bytes 0 to 511"), "{line}");
}

/// With records in the log too, damage to data of a snapshot is found. The data may be only in a
/// snapshot, or also in the checkpointed tree and freed by the records, or still live.
#[test]
fn damage_to_data_of_snapshots_is_found_after_a_log() {
    for victim in [&b"b"[..], b"a", b"c"] {
        let (medium, volume) = with_snapshots();
        let block = block_of_data(&volume, "one", victim);
        let a = volume.lookup(InodeNumber::ROOT, b"a").unwrap().inode;
        volume.write(a, 0, &[7; 2000], false).unwrap();
        volume.transact().unwrap();
        // As a power cut leaves it.
        drop(volume);
        let report = run(&medium).unwrap();
        assert!(report.is_clean() && report.replayed_records == 1, "{:#?}", report.findings);
        let mut bytes = [0; 512];
        medium.read(block * 512, &mut bytes).unwrap();
        bytes[99] ^= 1;
        medium.write(block * 512, &bytes).unwrap();
        let report = run(&medium).unwrap();
        let found = report.findings.iter().any(|finding| {
            finding.text.contains("does not match its checksum")
                && finding.text.contains("snapshot")
                && finding.paths.iter().any(|path| path.ends_with(victim))
        });
        assert!(found, "block {block} of {victim:?}: {:#?}", report.findings);
        let volume =
            Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
        let mut scrub = crate::tools::scrub::Scrub::new();
        while !scrub.report().finished {
            volume.scrub_step(&mut scrub).unwrap();
        }
        assert_eq!(scrub.report().bad, 1, "a scrub and a check agree on {victim:?}");
    }
}

/// A data block of a file in a snapshot.
fn block_of_data(volume: &TestVolume, snapshot: &str, name: &[u8]) -> u64 {
    let medium = volume.engine.store().device.medium.0.clone();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let past = Volume::open_snapshot(medium, TestPlatform::new(), options, snapshot).unwrap();
    let inode = past.lookup(InodeNumber::ROOT, name).unwrap().inode;
    let (_, value) = past
        .engine
        .store()
        .next(&past.engine.working_root(), &Key::extent(inode, 0), &Key::MAX)
        .unwrap()
        .unwrap();
    crate::format::extent::decode_run(&value).unwrap().start.0
}
