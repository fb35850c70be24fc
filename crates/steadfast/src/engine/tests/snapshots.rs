//! Snapshots on a live volume.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::sim::{Action, Fault};
use steadfast_media::{ErrorClass, MediumOperation, MemoryMedium, SimMedium, SimOptions};

use crate::error::Error;
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::InodeChange;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::types::{Generation, InodeNumber};
use crate::volume::Volume;

type Medium = Arc<MemoryMedium>;
type TestVolume = Volume<Medium, TestPlatform>;

fn format(size: u64, options: &FormatOptions) -> Medium {
    let medium = Arc::new(MemoryMedium::new(size, 128).unwrap());
    Volume::format(&medium, options, &TestPlatform::new()).unwrap();
    medium
}

fn small() -> FormatOptions {
    FormatOptions { block_size: 512, mask: TransactionMask::MANUAL, ..FormatOptions::default() }
}

fn open(medium: &Medium) -> TestVolume {
    let options = OpenOptions { cache_size: 1 << 20, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new()).unwrap()
}

fn open_snapshot(medium: &Medium, name: &str) -> Result<TestVolume, Error> {
    Volume::open_snapshot(medium.clone(), TestPlatform::new(), OpenOptions::default(), name)
}

fn report(medium: &Medium) -> CheckReport {
    check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap()
}

fn assert_clean(medium: &Medium) {
    let report = report(medium);
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn put(volume: &TestVolume, name: &str, data: &[u8]) -> InodeNumber {
    let root = InodeNumber::ROOT;
    let inode = match volume.lookup(root, name.as_bytes()) {
        Ok(found) => found.inode,
        Err(Error::NotFound) => {
            volume
                .create(root, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default())
                .unwrap()
                .inode
        }
        Err(error) => panic!("{error}"),
    };
    volume.write(inode, 0, data, false).unwrap();
    inode
}

fn get(volume: &TestVolume, name: &str) -> Result<Vec<u8>, Error> {
    let inode = volume.lookup(InodeNumber::ROOT, name.as_bytes())?.inode;
    let mut data = vec![0; volume.attributes(inode)?.size as usize];
    volume.read(inode, 0, &mut data)?;
    Ok(data)
}

fn names(volume: &TestVolume) -> Vec<String> {
    volume.snapshots().unwrap().into_iter().map(|snapshot| snapshot.name).collect()
}

#[test]
fn a_snapshot_keeps_what_the_volume_changes() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    for number in 0..60u8 {
        put(&volume, &alloc::format!("file{number}"), &vec![number; 100 * usize::from(number)]);
    }
    let first = volume.snapshot_create("first").unwrap();
    assert_eq!((first.inodes, &first.name[..]), (61, "first"));
    assert_eq!(volume.snapshot_create("first"), Err(Error::AlreadyExists));
    assert_clean(&medium);
    for number in 0..60u8 {
        put(&volume, &alloc::format!("file{number}"), &vec![!number; 50 * usize::from(number)]);
        if number % 3 == 0 {
            volume.unlink(InodeNumber::ROOT, alloc::format!("file{number}").as_bytes()).unwrap();
        }
    }
    volume.checkpoint().unwrap();
    assert_clean(&medium);
    volume.snapshot_create("second").unwrap();
    for number in 0..60u8 {
        put(&volume, &alloc::format!("new{number}"), &[number; 5000]);
    }
    volume.transact().unwrap();
    assert_clean(&medium);
    drop(volume);
    let volume = open(&medium);
    assert_eq!(names(&volume), ["first", "second"]);
    put(&volume, "more", &[1; 9999]);
    volume.checkpoint().unwrap();
    assert_clean(&medium);
    let report = report(&medium);
    assert!(report.snapshots == 2 && report.snapshot_blocks > 300, "{report:?}");
    assert_eq!(volume.statistics().unwrap().blocks_snapshots, report.snapshot_blocks);
    let before = medium.to_bytes();
    let view = open_snapshot(&medium, "first").unwrap();
    for number in 0..60u8 {
        let data = get(&view, &alloc::format!("file{number}")).unwrap();
        assert_eq!(data, vec![number; 100 * usize::from(number)]);
    }
    assert_eq!(view.unlink(InodeNumber::ROOT, b"file1"), Err(Error::ReadOnly));
    assert_eq!(view.snapshots().unwrap(), []);
    view.close().unwrap();
    assert!(medium.to_bytes() == before);
    let view = open_snapshot(&medium, "second").unwrap();
    assert_eq!(get(&view, "file3").unwrap_err(), Error::NotFound);
    assert_eq!(get(&view, "file4").unwrap()[..200], [!4; 200]);
    assert_eq!(open_snapshot(&medium, "third").err(), Some(Error::NotFound));
}

/// A view of an open volume reads nothing of the medium until a file is wanted, and is the same as
/// the snapshot that a program without the volume opens.
#[test]
fn a_view_beside_the_volume_is_the_snapshot() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    put(&volume, "file", &[1; 3000]);
    let taken = volume.snapshot_create("one").unwrap();
    put(&volume, "file", &[2; 3000]);
    let newer = volume.snapshot_create("two").unwrap();
    let view_of =
        |generation| volume.open_view(medium.clone(), TestPlatform::new(), generation, 1 << 20);
    let unwritten = Generation(newer.generation.0 + 5);
    for none in [Generation(0), unwritten, Generation(u64::MAX)] {
        assert_eq!(view_of(none).err(), Some(Error::NotFound));
        assert_eq!(volume.has_snapshot(none), Ok(false));
    }
    assert_eq!(volume.has_snapshot(taken.generation), Ok(true));
    assert_eq!(volume.snapshot("one"), Ok(taken.clone()));
    assert_eq!(volume.snapshot("three"), Err(Error::NotFound));
    let (view, past) = (view_of(taken.generation).unwrap(), open_snapshot(&medium, "one").unwrap());
    assert_eq!(get(&view, "file").unwrap(), [1; 3000]);
    assert_eq!(view.info(), past.info());
    assert_eq!(view.statistics(), past.statistics());
    assert_eq!(view.unlink(InodeNumber::ROOT, b"file"), Err(Error::ReadOnly));
    drop(view);
    volume.snapshot_delete("one").unwrap();
    assert_eq!(view_of(taken.generation).err(), Some(Error::NotFound));
    assert_eq!(volume.has_snapshot(taken.generation), Ok(false));
    assert_eq!(volume.has_snapshot(newer.generation), Ok(true));
    assert_eq!(get(&view_of(newer.generation).unwrap(), "file").unwrap(), [2; 3000]);
}

/// Every change between two states, from steps of `limit`.
fn differences(
    volume: &TestVolume,
    before: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<InodeChange> {
    let (mut all, mut from) = (Vec::new(), InodeNumber(0));
    loop {
        let part = volume.snapshot_diff(before, after, from, limit).unwrap();
        assert!(part.changes.len() <= limit);
        all.extend(part.changes);
        match part.next {
            Some(next) => from = next,
            None => return all,
        }
    }
}

#[test]
fn differences_are_told_by_inode() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    let files: Vec<InodeNumber> = (0..200u8)
        .map(|number| put(&volume, &alloc::format!("file{number}"), &vec![number; 2000]))
        .collect();
    volume.snapshot_create("a").unwrap();
    assert_eq!(differences(&volume, "a", None, 10), []);
    put(&volume, "file3", b"other");
    volume.set_xattr(files[5], b"user.x", b"y", crate::fs::SetXattrMode::Any).unwrap();
    volume.unlink(InodeNumber::ROOT, b"file7").unwrap();
    let new = put(&volume, "new", b"1");
    volume.snapshot_create("b").unwrap();
    let root = InodeNumber::ROOT;
    volume.rename(root, b"file9", root, b"renamed", crate::fs::RenameMode::Replace).unwrap();
    for limit in [1, 3, 100] {
        let found = differences(&volume, "a", Some("b"), limit);
        let of = |inode: InodeNumber| {
            found.iter().find(|change| change.inode == inode).copied().unwrap()
        };
        assert_eq!(found.len(), 5);
        let top = of(root);
        assert!(
            top.entries
                && !top.content
                && !top.created
                && top.kind == crate::fs::FileKind::Directory
        );
        assert!(of(files[3]).content && !of(files[3]).attributes);
        assert!(of(files[5]).attributes && !of(files[5]).content);
        assert!(of(files[7]).removed && of(new).created);
        let later = differences(&volume, "b", None, limit);
        assert!(later.iter().any(|change| change.inode == root && change.entries));
        let back = differences(&volume, "b", Some("a"), limit);
        assert!(back.len() == 5 && back.iter().any(|change| change.inode == new && change.removed));
    }
    // With many files and one change, few nodes are read.
    let before = volume.engine.store.cache_use();
    differences(&volume, "b", None, 100);
    let after = volume.engine.store.cache_use();
    let looked = after.hits + after.misses - before.hits - before.misses;
    assert!(looked < 400, "{looked} nodes for one rename");
    assert_eq!(volume.snapshot_diff("c", None, InodeNumber(0), 1), Err(Error::NotFound));
}

/// Data blocks that the volume uses, as counted by the checker, and shared-extent keys.
fn data_blocks(volume: &TestVolume, medium: &Medium) -> (u64, u64) {
    volume.checkpoint().unwrap();
    let report = report(medium);
    assert!(report.is_clean(), "{:#?}", report.findings);
    let superblock = volume.engine.superblock();
    let nodes = report.nodes * superblock.node_blocks() * u64::from(superblock.metadata_copies);
    (
        report.used_blocks - nodes - report.snapshot_blocks,
        volume.engine.working.lock().snapshots.shared_extents,
    )
}

#[test]
fn clones_share_blocks_until_the_last_one_goes() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    let data: Vec<u8> = (0..40 * 512 + 100).map(|index| (index / 512) as u8).collect();
    let source = put(&volume, "source", &data);
    let alone = data_blocks(&volume, &medium);
    assert_eq!(alone, (41, 0));
    let copies: Vec<InodeNumber> =
        (0..3).map(|number| put(&volume, &alloc::format!("{number}"), b"old")).collect();
    for copy in &copies {
        assert_eq!(volume.clone_range(source, 0, *copy, 0, 0), Ok(data.len() as u64));
    }
    let (blocks, keys) = data_blocks(&volume, &medium);
    assert!(blocks == 41 && keys >= 1, "{blocks} blocks, {keys} keys");
    for name in ["0", "1", "2", "source"] {
        assert_eq!(get(&volume, name).unwrap(), data);
    }
    // Each copy changes alone.
    volume.write(copies[0], 512 * 10, &[9; 1024], false).unwrap();
    assert_eq!(data_blocks(&volume, &medium).0, 43);
    assert_eq!(get(&volume, "1").unwrap(), data);
    // The clone is in a log record and is replayed.
    volume.unlink(InodeNumber::ROOT, b"source").unwrap();
    assert_eq!(volume.clone_range(copies[1], 512, copies[2], 512 * 30, 512 * 4), Ok(2048));
    volume.transact().unwrap();
    drop(volume);
    let volume = open(&medium);
    assert!(volume.info().replayed_records > 0);
    assert_eq!(get(&volume, "1").unwrap(), data);
    assert_eq!(get(&volume, "2").unwrap()[512 * 30..512 * 34], data[512..512 * 5]);
    data_blocks(&volume, &medium);
    for name in ["0", "1"] {
        volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
        data_blocks(&volume, &medium);
    }
    volume.clone_range(copies[2], 0, copies[2], 512 * 100, 512 * 20).unwrap();
    assert_eq!(data_blocks(&volume, &medium).0, 37);
    volume.unlink(InodeNumber::ROOT, b"2").unwrap();
    while volume.orphan_step().unwrap() {}
    assert_eq!(data_blocks(&volume, &medium), (0, 0));
}

#[test]
fn clones_refuse_what_blocks_cannot_share() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    let (a, b) = (put(&volume, "a", &[1; 5000]), put(&volume, "b", &[2; 9000]));
    for (from, at, to, to_at, length) in [
        (a, 1, b, 0, 512),
        (a, 0, b, 1, 512),
        (a, 0, b, 0, 513),
        (a, 0, b, 0, 5000),
        (a, 0, b, 0, 5632),
        (a, 0, a, 512, 1024),
        (a, 5120, b, 0, 0),
    ] {
        let refused = volume.clone_range(from, at, to, to_at, length);
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{at} {to_at} {length}: {refused:?}"
        );
    }
    assert_eq!(volume.clone_range(a, 0, InodeNumber::ROOT, 0, 0), Err(Error::IsADirectory));
    assert_eq!(volume.clone_range(a, 512, b, 512 * 20, 4488), Ok(4488));
    assert_eq!(get(&volume, "b").unwrap().len(), 512 * 20 + 4488);
    // A file in the tree is copied, and its missing part becomes a hole.
    let small = put(&volume, "small", b"tiny");
    let sparse = crate::fs::SetAttributes { size: Some(3000), ..Default::default() };
    volume.set_attributes(small, &sparse).unwrap();
    assert_eq!(volume.clone_range(small, 0, b, 512, 2560), Ok(2560));
    let mut expected = vec![0; 2560];
    expected[..4].copy_from_slice(b"tiny");
    assert_eq!(get(&volume, "b").unwrap()[512..3072], expected);
    data_blocks(&volume, &medium);
}

/// A dead block, a clone of it and a snapshot: each keeps the block until the last one is removed.
#[test]
fn clones_and_snapshots_share_the_same_blocks() {
    let medium = format(8 << 20, &small());
    let volume = open(&medium);
    let source = put(&volume, "source", &[7; 20 * 512]);
    volume.snapshot_create("s").unwrap();
    let copy = put(&volume, "copy", b"");
    volume.clone_range(source, 0, copy, 0, 0).unwrap();
    volume.unlink(InodeNumber::ROOT, b"source").unwrap();
    assert_eq!(data_blocks(&volume, &medium).0, 20, "the copy has them");
    volume.snapshot_delete("s").unwrap();
    while volume.background().unwrap() {}
    assert_eq!(get(&volume, "copy").unwrap(), [7; 20 * 512]);
    assert_eq!(data_blocks(&volume, &medium), (20, 0));
    volume.snapshot_create("t").unwrap();
    volume.unlink(InodeNumber::ROOT, b"copy").unwrap();
    assert_eq!(data_blocks(&volume, &medium).0, 0);
    assert_eq!(get(&open_snapshot(&medium, "t").unwrap(), "copy").unwrap(), [7; 20 * 512]);
    volume.snapshot_delete("t").unwrap();
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    assert_eq!(volume.statistics().unwrap().blocks_snapshots, 0);
    assert_clean(&medium);
}

/// Superblock and metaroots used to be read only once.
#[test]
fn a_transient_fault_while_a_snapshot_is_opened_is_seen_by_nobody() {
    let medium = SimMedium::new(SimOptions::disk(4 << 20));
    Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new()).unwrap();
    let volume = Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).unwrap();
    volume.snapshot_create("first").unwrap();
    let open = || {
        Volume::open_snapshot(&medium, TestPlatform::new(), OpenOptions::default(), "first")
            .map(drop)
    };
    for read in 0..6 {
        let hiccup = Fault::new(Action::Fail(ErrorClass::Transient)).on(MediumOperation::Read);
        medium.arm(hiccup.after(read).times(2));
        assert_eq!(open(), Ok(()), "read {read}");
        medium.disarm();
    }
}
