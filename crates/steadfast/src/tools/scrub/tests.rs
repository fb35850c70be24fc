//! Scrubs of sound and of damaged volumes, while they change.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::format::key::{Key, Kind};
use crate::format::{Metaroot, Root, Superblock};
use crate::fs::{Caller, NewNode, RenameMode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::tools::scrub::{Scrub, ScrubReport};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;
type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

fn format() -> Arc<MemoryMedium> {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options =
        FormatOptions { block_size: 512, log_size: Some(64 << 10), ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    medium
}

fn open(medium: &Arc<MemoryMedium>, read_only: bool) -> TestVolume {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new()).unwrap()
}

fn fill(volume: &TestVolume, directory: &[u8], files: u8) -> Vec<InodeNumber> {
    let caller = Caller::default();
    let inode = volume.create(ROOT, directory, NewNode::Directory, 0o755, &caller).unwrap().inode;
    let make = |number: u8| {
        let file =
            volume.create(inode, &[b'f', b'0' + number], NewNode::Regular, 0o644, &caller).unwrap();
        volume
            .write(file.inode, 0, &vec![number + 1; 3000 * usize::from(number + 1)], false)
            .unwrap();
        file.inode
    };
    (0..files).map(make).collect()
}

fn scrub(volume: &TestVolume) -> ScrubReport {
    scrub_with(volume, |_| {})
}

fn scrub_with(volume: &TestVolume, mut between: impl FnMut(u64)) -> ScrubReport {
    let mut scrub = Scrub::new();
    let mut steps = 0;
    while !scrub.report().finished {
        assert!(volume.scrub_step(&mut scrub).unwrap() <= 512 << 10);
        steps += 1;
        assert!(steps < 100_000, "a pass ends");
        between(steps);
    }
    scrub.report().clone()
}

fn rot(medium: &MemoryMedium, address: BlockAddress) {
    let mut unit = [0; 512];
    medium.read(address.0 * 512, &mut unit).unwrap();
    unit[100..].iter_mut().for_each(|byte| *byte ^= 0x33);
    medium.write(address.0 * 512, &unit).unwrap();
}

/// Every node of a tree.
fn nodes(volume: &TestVolume, root: &Root) -> Vec<[BlockAddress; 2]> {
    let mut found = Vec::new();
    let mut stack = vec![(root.pointer, root.level())];
    while let Some((pointer, level)) = stack.pop() {
        found.push(pointer.addresses);
        let node = volume.engine.store().node(&pointer, level).unwrap();
        if level > 0 {
            stack.extend((0..node.count()).map(|index| (node.child(index), level - 1)));
        }
    }
    found
}

fn lines(report: &ScrubReport) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

fn is_clean(medium: &Arc<MemoryMedium>) -> bool {
    check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
        .unwrap()
        .is_clean()
}

#[test]
fn a_sound_volume_is_read_as_a_whole() {
    let medium = format();
    let volume = open(&medium, false);
    fill(&volume, b"sub", 9);
    volume.checkpoint().unwrap();
    let report = scrub(&volume);
    assert_eq!((report.bad, report.healed), (0, 0), "{:?}", lines(&report));
    assert_eq!(report.nodes as usize, nodes(&volume, &volume.engine.working_root()).len());
    assert!(report.data_blocks > 200 && report.bytes > 100 << 10, "{report:?}");
}

#[test]
fn every_bad_copy_is_healed_and_data_is_located() {
    for which in 0..2 {
        let medium = format();
        let volume = open(&medium, false);
        let files = fill(&volume, b"sub", 9);
        volume.close().unwrap();
        let volume = open(&medium, false);
        let all = nodes(&volume, &volume.engine.working_root());
        volume.engine.store().forget_all();
        for (index, addresses) in all.iter().enumerate() {
            rot(&medium, addresses[(index + which) % 2]);
        }
        rot(&medium, BlockAddress(0));
        let (superblock, metaroot) = {
            let (superblock, _) = Superblock::read(&medium, &TestPlatform::new()).unwrap();
            let metaroot =
                Metaroot::read_newest(&medium, &superblock, &TestPlatform::new()).unwrap();
            (superblock, metaroot)
        };
        rot(&medium, BlockAddress(superblock.metaroot_offsets(metaroot.generation.0)[which] / 512));
        let (first, last) = Key::kind_range(files[5], Kind::Extent);
        let (_, value) = volume
            .engine
            .store()
            .next(&volume.engine.working_root(), &first, &last)
            .unwrap()
            .unwrap();
        let start = crate::format::extent::decode_run(&value).unwrap().start;
        rot(&medium, BlockAddress(start.0 + 2));
        let report = scrub(&volume);
        assert_eq!(
            (report.healed as usize, report.bad),
            (all.len() + 2, 1),
            "{:?}",
            lines(&report)
        );
        let words = "does not match its checksum; affects /sub/f5, bytes 1024 to 1535";
        assert!(lines(&report).iter().any(|line| line.ends_with(words)), "{:?}", lines(&report));
        // A second pass finds only the data, and the check of the medium agrees.
        assert_eq!(scrub(&volume).findings.len(), 1);
        volume.unlink(volume.lookup(ROOT, b"sub").unwrap().inode, b"f5").unwrap();
        volume.close().unwrap();
        assert!(is_clean(&medium));
    }
}

#[test]
fn nothing_is_written_read_only() {
    let medium = format();
    let volume = open(&medium, false);
    fill(&volume, b"sub", 5);
    volume.close().unwrap();
    let volume = open(&medium, true);
    let all = nodes(&volume, &volume.engine.working_root());
    volume.engine.store().forget_all();
    rot(&medium, all[all.len() / 2][1]);
    rot(&medium, all[0][0]);
    rot(&medium, all[0][1]);
    let before = medium.to_bytes();
    let report = scrub(&volume);
    assert!(report.healed == 0 && report.bad == 2, "{:?}", lines(&report));
    assert!(lines(&report)[0].contains("what is below it is lost"), "{:?}", lines(&report));
    assert!(medium.to_bytes() == before);
}

#[test]
fn a_volume_that_changes_all_the_time_has_no_findings() {
    let medium = format();
    let volume = open(&medium, false);
    let files = fill(&volume, b"sub", 9);
    volume.checkpoint().unwrap();
    let report = scrub_with(&volume, |step| {
        let file = files[(step * 7 % 9) as usize];
        volume.write(file, step * 512 % 9000, &[step as u8; 700], false).unwrap();
        match step % 5 {
            0 => volume.checkpoint().unwrap(),
            1 => volume.transact().unwrap(),
            2 if step % 3 == 0 => volume.rollback().unwrap(),
            _ => drop(volume.background().unwrap()),
        }
    });
    assert_eq!((report.bad, report.healed), (0, 0), "{:?}", lines(&report));
    volume.close().unwrap();
    assert!(is_clean(&medium));
}

#[test]
fn snapshots_are_scrubbed_once() {
    let medium = format();
    let volume = open(&medium, false);
    fill(&volume, b"one", 6);
    volume.checkpoint().unwrap();
    let alone = scrub(&volume);
    volume.snapshot_create("first").unwrap();
    volume.unlink(volume.lookup(ROOT, b"one").unwrap().inode, b"f5").unwrap();
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    volume.snapshot_create("second").unwrap();
    volume.checkpoint().unwrap();
    let report = scrub(&volume);
    assert_eq!(report.bad, 0, "{:?}", lines(&report));
    assert_eq!(
        report.data_blocks, alone.data_blocks,
        "each block once, those that only a snapshot holds, too"
    );
    // Rot in data that only the snapshot holds.
    let (superblock, end) =
        (volume.engine.superblock().clone(), volume.engine.superblock().end_block());
    let needle = vec![6u8; 512];
    let mut unit = [0; 512];
    let block = (superblock.first_block()..end).find(|block| {
        medium.read(block * 512, &mut unit).unwrap();
        unit[..] == needle[..]
    });
    rot(&medium, BlockAddress(block.unwrap()));
    let report = scrub(&volume);
    let lines = lines(&report);
    assert!(report.bad == 1 && lines[0].starts_with("snapshot \"first\": inode "), "{lines:?}");
    assert!(lines[0].contains("; affects /one/f5, bytes "), "its name there: {lines:?}");
}

/// Rot in two files: the live volume has one of them under another name, and no longer has the
/// other. Each finding has a name that leads to the file.
#[test]
fn rot_below_a_snapshot_is_named_where_the_file_is() {
    let medium = format();
    let volume = open(&medium, false);
    let files = fill(&volume, b"one", 6);
    volume.snapshot_create("first").unwrap();
    let directory = volume.lookup(ROOT, b"one").unwrap().inode;
    volume.rename(directory, b"f4", ROOT, b"moved", RenameMode::Replace).unwrap();
    volume.unlink(directory, b"f5").unwrap();
    // The file that was moved is longer in the live volume, so its extents differ.
    volume.write(files[4], 15_000, &[9; 3000], false).unwrap();
    volume.checkpoint().unwrap();
    while volume.background().unwrap() {}
    let end = volume.engine.superblock().end_block();
    let mut unit = [0; 512];
    for content in [5u8, 6] {
        let block = (volume.engine.superblock().first_block()..end).find(|block| {
            medium.read(block * 512, &mut unit).unwrap();
            unit == [content; 512]
        });
        rot(&medium, BlockAddress(block.unwrap()));
    }
    let report = scrub(&volume);
    let lines = lines(&report);
    let has = |start: &str, path: &str| {
        lines.iter().any(|line| line.starts_with(start) && line.contains(path))
    };
    assert_eq!(report.bad, 2, "{lines:?}");
    assert!(has("snapshot \"first\" and the live volume: inode ", "; affects /moved, bytes 0 to"));
    assert!(has("snapshot \"first\": inode ", "; affects /one/f5, bytes 0 to"), "{lines:?}");
    // A snapshot that is deleted before the names are looked up leaves its finding without one.
    let mut pass = Scrub::new();
    while !pass.report().finished {
        volume.scrub_step(&mut pass).unwrap();
        if pass.report().findings.len() == 2 {
            let _ = volume.snapshot_delete("first");
        }
    }
    let named = pass.report().findings.iter().filter(|finding| finding.path.is_some());
    assert_eq!((pass.report().bad, named.count()), (2, 1), "{:?}", pass.report());
}

/// A volume grows in the middle of a pass, and shrinks before the next one. The pass reads the
/// present content, and repairs the copies at the present end of the volume.
#[test]
fn volumes_of_another_size_are_scrubbed_to_their_new_end() {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options =
        FormatOptions { block_size: 512, size: Some(2 << 20), ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, false);
    fill(&volume, b"one", 9);
    let report = scrub_with(&volume, |step| match step {
        2 => volume.grow(4 << 20).unwrap(),
        3 => drop(fill(&volume, b"two", 9)),
        4 => volume.checkpoint().unwrap(),
        _ => {}
    });
    assert_eq!((report.bad, report.healed), (0, 0), "{:?}", lines(&report));
    for size in [4 << 20, 3 << 20] {
        let mut volume = open(&medium, false);
        if size < 4 << 20 {
            volume.shrink(size, &mut |_| ()).unwrap();
            volume = open(&medium, false);
        }
        volume.checkpoint().unwrap();
        let superblock = volume.engine.superblock().clone();
        assert_eq!(superblock.byte_size(), size);
        let (report, tree) = (scrub(&volume), nodes(&volume, &volume.engine.working_root()).len());
        assert_eq!((report.bad, report.healed), (0, 0), "{:?}", lines(&report));
        assert_eq!(report.nodes as usize, tree);
        // The copies at the end: superblock, and the newest metaroot.
        let generation =
            Metaroot::read_newest(&medium, &superblock, &TestPlatform::new()).unwrap().generation.0;
        for offset in [superblock.second_offset(), superblock.metaroot_offsets(generation)[1]] {
            assert!(offset < size && offset > size - (16 << 10));
            rot(&medium, BlockAddress(offset / 512));
        }
        let report = scrub(&volume);
        assert_eq!((report.bad, report.healed), (0, 2), "{:?}", lines(&report));
        assert_eq!(scrub(&volume).findings.len(), 0);
        volume.close().unwrap();
        assert!(is_clean(&medium));
    }
}

/// The same with snapshots. A snapshot keeps a volume from shrinking only if it holds blocks past
/// the new end.
#[test]
fn snapshots_of_a_volume_of_another_size_are_scrubbed() {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options =
        FormatOptions { block_size: 512, size: Some(2 << 20), ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, false);
    fill(&volume, b"one", 6);
    volume.snapshot_create("first").unwrap();
    let directory = volume.lookup(ROOT, b"one").unwrap().inode;
    (0..6).for_each(|number| volume.unlink(directory, &[b'f', b'0' + number]).unwrap());
    while volume.background().unwrap() {}
    volume.grow(4 << 20).unwrap();
    let held = scrub(&volume);
    assert_eq!(held.bad, 0, "{:?}", lines(&held));
    assert!(held.data_blocks > 100, "what only the snapshot holds is read: {held:?}");
    volume.shrink(3 << 20, &mut |_| ()).unwrap();
    let volume = open(&medium, false);
    let report = scrub(&volume);
    assert_eq!((report.bad, report.data_blocks), (0, held.data_blocks), "{:?}", lines(&report));
}

/// A scrub uses the size that the volume has grown to while it was open, and the matching reserve.
#[test]
fn a_volume_that_grew_while_it_was_open_has_no_rot() {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options =
        FormatOptions { block_size: 512, size: Some(1 << 20), ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, false);
    fill(&volume, b"before", 3);
    let before = volume.engine.superblock().reserve_blocks;
    volume.grow(4 << 20).unwrap();
    let report = scrub(&volume);
    assert_eq!((report.healed, report.bad), (0, 0), "{:?}", report.findings);
    let (written, damaged) = Superblock::read(&medium, &TestPlatform::new()).unwrap();
    assert!(
        !damaged && written.reserve_blocks > before,
        "{} blocks of reserve",
        written.reserve_blocks
    );
    assert_eq!(
        volume.engine.store().device.reserve_blocks(),
        written.reserve_blocks,
        "what files cannot take"
    );
    // A copy that is really bad is rewritten with its old content.
    let mut cell = vec![0; 512];
    medium.read(written.second_offset(), &mut cell).unwrap();
    cell[100] ^= 1;
    medium.write(written.second_offset(), &cell).unwrap();
    let report = scrub(&volume);
    assert_eq!((report.healed, report.bad), (1, 0), "{:?}", report.findings);
    drop(volume);
    assert_eq!(Superblock::read(&medium, &TestPlatform::new()).unwrap(), (written, false));
}
