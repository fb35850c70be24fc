//! Clones together with everything else that moves, holds or frees blocks: random steps on files
//! that share blocks, compared with plain vectors of bytes. The volume is checked after each step.
//! At the end every block is free again.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use steadfast::check::{CheckOptions, CheckReport, check};
use steadfast::fs::{AllocateMode, Caller, DefragmentCursor, NewNode, SetAttributes};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::MemoryMedium;

type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;
type Files = BTreeMap<String, Vec<u8>>;

const BLOCK: u64 = 512;
const SIZE: u64 = 4 << 20;

fn name(file: u8) -> String {
    format!("file {file}")
}

fn format() -> Arc<MemoryMedium> {
    let medium = Arc::new(MemoryMedium::new(SIZE, 512).unwrap());
    let options = FormatOptions {
        block_size: BLOCK as u32,
        mask: TransactionMask::MANUAL,
        size: Some(SIZE / 2),
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    medium
}

fn open(medium: &Arc<MemoryMedium>) -> TestVolume {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

fn report(medium: &Arc<MemoryMedium>) -> CheckReport {
    check(medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap()
}

/// Data blocks on a clean volume, after a checkpoint.
fn data_blocks(volume: &TestVolume) -> u64 {
    volume.checkpoint().unwrap();
    let report = report(volume.medium());
    assert!(report.is_clean(), "{:#?}", report.findings);
    let info = volume.info();
    let node_blocks = u64::from(info.node_size / info.block_size) * u64::from(info.metadata_copies);
    report.used_blocks - report.nodes * node_blocks - report.snapshot_blocks
}

/// Does all background work.
fn settle(volume: &TestVolume) {
    while volume.background().unwrap() {}
}

fn inode(volume: &TestVolume, name: &str) -> InodeNumber {
    match volume.lookup(InodeNumber::ROOT, name.as_bytes()) {
        Ok(found) => found.inode,
        Err(Error::NotFound) => {
            let caller = Caller::default();
            volume
                .create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller)
                .unwrap()
                .inode
        }
        Err(error) => panic!("{error}"),
    }
}

fn contents(volume: &TestVolume, name: &str) -> Vec<u8> {
    let found = volume.lookup(InodeNumber::ROOT, name.as_bytes()).unwrap();
    let mut bytes = vec![0xaa; found.size as usize + 1];
    let count = volume.read(found.inode, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn put(volume: &TestVolume, name: &str, data: &[u8]) -> InodeNumber {
    let inode = inode(volume, name);
    volume.write(inode, 0, data, false).unwrap();
    inode
}

/// Blocks of bytes that all differ.
fn pattern(blocks: u64, more: usize) -> Vec<u8> {
    (0..(blocks * BLOCK) as usize + more).map(|at| (at / 7 + at / 512) as u8).collect()
}

fn defragment(volume: &TestVolume, inode: InodeNumber) {
    let mut cursor = DefragmentCursor::default();
    while let Some(next) = volume.defragment_step(inode, cursor).unwrap() {
        cursor = next;
    }
}

#[test]
fn extents_tell_what_is_shared() {
    let volume = open(&format());
    let source = put(&volume, "source", &pattern(40, 0));
    let all = volume.file_extents(source, 0, 100).unwrap();
    assert!(all.len() > 1 && all.iter().all(|extent| !extent.shared && !extent.unwritten));
    // From within an extent on, this extent is the first.
    let (second, last) = (all[1], *all.last().unwrap());
    assert_eq!(volume.file_extents(source, second.index, 1), Ok(vec![second]));
    assert_eq!(volume.file_extents(source, second.index + 1, 100).unwrap(), all[1..]);
    assert_eq!(volume.file_extents(source, last.index + last.blocks, 100), Ok(vec![]));
    let copy = inode(&volume, "copy");
    assert_eq!(
        volume.copy_range(source, 0, copy, 0, BLOCK * second.index),
        Ok(BLOCK * second.index)
    );
    let shared = |inode| -> Vec<bool> {
        let extents = volume.file_extents(inode, 0, 100).unwrap();
        extents.iter().map(|extent| extent.shared).collect()
    };
    assert_eq!(shared(copy), [true]);
    assert!(volume.shares_blocks(copy).unwrap() && volume.shares_blocks(source).unwrap());
    assert_eq!(shared(source)[..2], [true, false]);
    // A snapshot has all that was written before it.
    volume.snapshot_create("before").unwrap();
    assert!(shared(source).iter().all(|shared| *shared));
    volume.append(source, &pattern(1, 0), false).unwrap();
    assert_eq!(shared(source).last(), Some(&false));
}

#[test]
fn a_file_shares_blocks_wherever_they_are_in_it() {
    let volume = open(&format());
    let [torn, alone, copy] = ["torn", "alone", "copy"].map(|name| inode(&volume, name));
    // In turns, so that the blocks of each file have those of the other between them.
    for block in 0..150 {
        volume.append(torn, &pattern(1, block), false).unwrap();
        volume.append(alone, &pattern(1, block), false).unwrap();
    }
    assert!(volume.file_extents(torn, 0, 200).unwrap().len() > 128);
    assert!(!volume.shares_blocks(torn).unwrap(), "nothing is shared");
    volume.clone_range(torn, BLOCK * 149, copy, 0, BLOCK).unwrap();
    assert!(volume.shares_blocks(torn).unwrap(), "the last block");
    assert!(!volume.shares_blocks(alone).unwrap());
    volume.write(torn, BLOCK * 149, &pattern(1, 0), false).unwrap();
    assert!(!volume.shares_blocks(torn).unwrap(), "it has a block of its own now");
}

#[test]
fn copies_share_whole_blocks() {
    let volume = open(&format());
    let data = pattern(40, 100);
    let source = put(&volume, "source", &data);
    assert_eq!(data_blocks(&volume), 41);
    // The end of the source is the end of the copy, so its last block is shared too.
    let whole = inode(&volume, "whole");
    assert_eq!(volume.copy_range(source, 0, whole, 0, u64::MAX / 2), Ok(data.len() as u64));
    assert_eq!(data_blocks(&volume), 41);
    // At the same offset within a block, two blocks at the ends are copied, and the 29 between them
    // are shared.
    let inner = inode(&volume, "inner");
    assert_eq!(volume.copy_range(source, 700, inner, 188, 30 * BLOCK), Ok(30 * BLOCK));
    assert_eq!(data_blocks(&volume), 43);
    // At a different offset within a block nothing can be shared.
    let askew = inode(&volume, "askew");
    assert_eq!(volume.copy_range(source, 1, askew, 0, 10 * BLOCK), Ok(10 * BLOCK));
    assert_eq!(data_blocks(&volume), 53);
    // Within a file, before its existing data: the last block of the source stays as long as the
    // target's.
    assert_eq!(volume.copy_range(whole, 0, whole, 50 * BLOCK, 10 * BLOCK), Ok(10 * BLOCK));
    assert_eq!(volume.copy_range(source, 40 * BLOCK, whole, 40 * BLOCK, 1000), Ok(100));
    assert_eq!(data_blocks(&volume), 54);
    assert_eq!(volume.copy_range(source, data.len() as u64, whole, 0, 10), Ok(0));
    assert!(matches!(volume.copy_range(whole, 0, whole, 9, 10), Err(Error::InvalidArgument(_))));
    assert_eq!(volume.copy_range(whole, 0, InodeNumber::ROOT, 0, 10), Err(Error::IsADirectory));
    let mut expected = data.clone();
    expected.resize(50 * BLOCK as usize, 0);
    expected.extend_from_slice(&data[..10 * BLOCK as usize]);
    assert!(contents(&volume, "whole") == expected);
    assert!(contents(&volume, "inner")[..188] == [0; 188]);
    assert!(contents(&volume, "inner")[188..] == data[700..700 + 30 * 512]);
    assert!(contents(&volume, "askew") == data[1..1 + 10 * 512]);
    // A small file stays in the tree.
    let (small, copy) = (put(&volume, "small", b"in the tree"), inode(&volume, "small copy"));
    assert_eq!(volume.copy_range(small, 0, copy, 0, 4096), Ok(11));
    assert_eq!(data_blocks(&volume), 54);
}

#[test]
fn copies_keep_holes() {
    let volume = open(&format());
    let source = put(&volume, "source", b"front");
    volume.write(source, 1 << 40, b"back", false).unwrap();
    volume
        .allocate(source, 100 * BLOCK, 100 * BLOCK, AllocateMode::Allocate { keep_size: true })
        .unwrap();
    let copy = inode(&volume, "copy");
    volume.write(copy, 50 * BLOCK, &[7; 3000], false).unwrap();
    let size = (1 << 40) + 4;
    assert_eq!(volume.copy_range(source, 0, copy, 0, size), Ok(size));
    assert_eq!(volume.attributes(copy).unwrap().size, size);
    assert_eq!(volume.attributes(copy).unwrap().allocated, 2 * BLOCK);
    let mut bytes = [1; 4];
    volume.read(copy, 1 << 40, &mut bytes).unwrap();
    assert_eq!(&bytes, b"back");
    assert_eq!(data_blocks(&volume), 102, "what was allocated for one file is not for the other");
    // A sparse file whose data is in the tree.
    let (sparse, copy) = (put(&volume, "sparse", b"tiny"), put(&volume, "of it", &[5; 9000]));
    let set = SetAttributes { size: Some(1 << 30), ..SetAttributes::default() };
    volume.set_attributes(sparse, &set).unwrap();
    assert_eq!(volume.copy_range(sparse, 0, copy, 0, 1 << 30), Ok(1 << 30));
    assert_eq!(volume.attributes(copy).unwrap().allocated, BLOCK);
    volume.read(copy, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"tiny");
}

#[test]
fn times_of_a_copy() {
    let volume = open(&format());
    let source = put(&volume, "source", &pattern(20, 0));
    let copy = put(&volume, "copy", b"old");
    let before = (volume.attributes(source).unwrap(), volume.attributes(copy).unwrap());
    volume.platform().advance_ms(10);
    volume.copy_range(source, 0, copy, 0, 20 * BLOCK).unwrap();
    let after = (volume.attributes(source).unwrap(), volume.attributes(copy).unwrap());
    assert_eq!((after.0.modified, after.0.changed), (before.0.modified, before.0.changed));
    assert!(after.0.accessed > before.0.accessed, "it was read");
    assert!(after.1.modified > before.1.modified && after.1.changed > before.1.changed);
    // A copy of nothing changes nothing.
    volume.copy_range(source, 20 * BLOCK, copy, 0, 20 * BLOCK).unwrap();
    assert_eq!(volume.attributes(copy).unwrap(), after.1);
}

/// A file in 30 pieces, interleaved with another one, and a clone of each.
fn scattered(volume: &TestVolume) -> (Vec<u8>, [InodeNumber; 4]) {
    let data = pattern(60, 0);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| inode(volume, name));
    for at in (0..60).step_by(2) {
        let bytes = &data[(at * BLOCK) as usize..((at + 2) * BLOCK) as usize];
        volume.write(a, at * BLOCK, bytes, false).unwrap();
        volume.write(b, at * BLOCK, bytes, false).unwrap();
    }
    volume.clone_range(a, 0, c, 0, 0).unwrap();
    volume.clone_range(b, 10 * BLOCK, d, 0, 40 * BLOCK).unwrap();
    (data, [a, b, c, d])
}

#[test]
fn defragmenting_shares_as_before() {
    let volume = open(&format());
    let (data, [a, b, c, d]) = scattered(&volume);
    assert_eq!(data_blocks(&volume), 120);
    let before = volume.fragmentation(a).unwrap();
    for inode in [a, b, c, d] {
        defragment(&volume, inode);
        assert_eq!(data_blocks(&volume), 120);
    }
    assert_eq!(volume.fragmentation(a).unwrap(), before, "shared: it stays");
    volume.unlink(InodeNumber::ROOT, b"c").unwrap();
    settle(&volume);
    defragment(&volume, a);
    assert_eq!(volume.fragmentation(a).unwrap().runs, 1, "alone: it moves");
    assert_eq!(data_blocks(&volume), 120);
    assert!(contents(&volume, "a") == data && contents(&volume, "b") == data);
    assert!(contents(&volume, "d") == data[10 * 512..50 * 512]);
}

/// Files at the end of the volume share blocks in every way. All of them move, and no block is
/// duplicated.
#[test]
fn a_smaller_volume_shares_as_before() {
    let medium = format();
    let volume = open(&medium);
    // A file that is removed later, so that the rest lies far past it.
    put(&volume, "front", &pattern(1500, 0));
    let (data, [a, b, c, d]) = scattered(&volume);
    volume.clone_range(c, 5 * BLOCK, c, 70 * BLOCK, 33 * BLOCK).unwrap();
    volume.clone_range(a, BLOCK, b, 80 * BLOCK, 50 * BLOCK).unwrap();
    volume.write(d, 7 * BLOCK, &[9; 1000], false).unwrap();
    let names = ["a", "b", "c", "d"];
    let expected = names.map(|name| contents(&volume, name));
    assert!(expected[0] == data);
    volume.unlink(InodeNumber::ROOT, b"front").unwrap();
    settle(&volume);
    let before = data_blocks(&volume);
    let size = volume.size_least();
    assert!(size < SIZE / 4, "{size}");
    volume.shrink(size, &mut |_| {}).unwrap();
    drop(volume);
    let volume = open(&medium);
    assert_eq!(data_blocks(&volume), before);
    for (name, expected) in names.iter().zip(&expected) {
        assert!(contents(&volume, name) == *expected, "{name}");
    }
    for name in names {
        volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
    }
    settle(&volume);
    assert_eq!(data_blocks(&volume), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Write { file: u8, offset: u64, length: usize },
    Truncate { file: u8, size: u64 },
    Punch { file: u8, offset: u64, length: u64 },
    Allocate { file: u8, offset: u64, length: u64 },
    Clone { from: u8, to: u8, blocks: [u64; 3] },
    Copy { from: u8, to: u8, bytes: [u64; 3] },
    Remove { file: u8 },
    Defragment { file: u8 },
    Resize { shrink: bool },
    Transact,
    Rollback,
    Background,
    Take,
    Delete { which: usize },
    GoBack { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let file = || 0u8..6;
    // Near block ends, and at arbitrary places.
    let place = || {
        prop_oneof![
            (0u64..40).prop_map(|n| n * BLOCK),
            0u64..20_000,
            (1u64..40).prop_map(|n| n * BLOCK - 1)
        ]
    };
    let three = || [0u64..40, 0..40, 0..40];
    prop_oneof![
        8 => (file(), place(), 1usize..9000).prop_map(|(file, offset, length)| Step::Write { file, offset, length }),
        2 => (file(), place()).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => (file(), place(), place()).prop_map(|(file, offset, length)| Step::Punch { file, offset, length }),
        1 => (file(), place(), place()).prop_map(|(file, offset, length)| Step::Allocate { file, offset, length }),
        8 => (file(), file(), three()).prop_map(|(from, to, blocks)| Step::Clone { from, to, blocks }),
        4 => (file(), file(), [place().boxed(), place().boxed(), place().boxed()])
            .prop_map(|(from, to, bytes)| Step::Copy { from, to, bytes }),
        3 => (file(), file(), three())
            .prop_map(|(from, to, blocks)| Step::Copy { from, to, bytes: blocks.map(|n| n * BLOCK + 77) }),
        3 => file().prop_map(|file| Step::Remove { file }),
        2 => file().prop_map(|file| Step::Defragment { file }),
        2 => any::<bool>().prop_map(|shrink| Step::Resize { shrink }),
        2 => Just(Step::Transact),
        1 => Just(Step::Rollback),
        2 => Just(Step::Background),
        3 => Just(Step::Take),
        2 => (0usize..4).prop_map(|which| Step::Delete { which }),
        1 => (0usize..4).prop_map(|which| Step::GoBack { which }),
    ]
}

struct World {
    medium: Arc<MemoryMedium>,
    volume: TestVolume,
    files: Files,
    /// The files at the last transaction point.
    durable: Files,
    snapshots: Vec<(String, Files)>,
    steps: usize,
}

/// Copies within the model.
fn copy(files: &mut Files, from: &str, to: &str, at: usize, to_at: usize, count: usize) {
    let bytes = files[from][at..at + count].to_vec();
    let target = files.get_mut(to).unwrap();
    target.resize(target.len().max(to_at + count), 0);
    target[to_at..to_at + count].copy_from_slice(&bytes);
}

impl World {
    fn new() -> World {
        let medium = format();
        let volume = open(&medium);
        // Until the first shrink it keeps everything else after it.
        put(&volume, "front", &pattern(1500, 0));
        volume.transact().unwrap();
        let (files, durable) = (Files::new(), Files::new());
        World { medium, volume, files, durable, snapshots: Vec::new(), steps: 0 }
    }

    /// The inode of a file, which is made if necessary.
    fn file(&mut self, file: u8) -> (String, InodeNumber) {
        let name = name(file);
        self.files.entry(name.clone()).or_default();
        let inode = inode(&self.volume, &name);
        (name, inode)
    }

    fn zero(&mut self, name: &str, offset: u64, length: u64) {
        let content = self.files.get_mut(name).unwrap();
        let end = content.len().min((offset + length) as usize);
        if let Some(part) = content.get_mut(offset as usize..end) {
            part.fill(0);
        }
    }

    fn run(&mut self, step: &Step) {
        self.steps += 1;
        match *step {
            Step::Write { file, offset, length } => {
                let (name, inode) = self.file(file);
                let data: Vec<u8> =
                    (0..length).map(|at| (at / 100 + self.steps) as u8 | 1).collect();
                self.volume.write(inode, offset, &data, false).unwrap();
                let content = self.files.get_mut(&name).unwrap();
                content.resize(content.len().max(offset as usize + length), 0);
                content[offset as usize..offset as usize + length].copy_from_slice(&data);
            }
            Step::Truncate { file, size } => {
                let (name, inode) = self.file(file);
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                self.volume.set_attributes(inode, &set).unwrap();
                self.files.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            Step::Punch { file, offset, length } => {
                let (name, inode) = self.file(file);
                if self.volume.allocate(inode, offset, length, AllocateMode::PunchHole).is_ok() {
                    self.zero(&name, offset, length);
                }
            }
            Step::Allocate { file, offset, length } => {
                let (_, inode) = self.file(file);
                let _ = self.volume.allocate(
                    inode,
                    offset,
                    length,
                    AllocateMode::Allocate { keep_size: true },
                );
            }
            Step::Clone { from, to, blocks } => self.clone(from, to, blocks),
            Step::Copy { from, to, bytes } => self.copy(from, to, bytes),
            Step::Remove { file } => {
                if self.files.remove(&name(file)).is_some() {
                    self.volume.unlink(InodeNumber::ROOT, name(file).as_bytes()).unwrap();
                }
            }
            Step::Defragment { file } => {
                let (_, inode) = self.file(file);
                defragment(&self.volume, inode);
            }
            Step::Resize { shrink } => self.resize(shrink),
            Step::Transact => {
                self.volume.transact().unwrap();
                self.durable = self.files.clone();
            }
            Step::Rollback => {
                self.volume.rollback().unwrap();
                self.files = self.durable.clone();
            }
            Step::Background => settle(&self.volume),
            Step::Take => {
                let name = format!("snapshot {}", self.steps);
                if self.snapshots.len() < 4 && self.volume.snapshot_create(&name).is_ok() {
                    self.snapshots.push((name, self.files.clone()));
                }
                self.volume.transact().unwrap();
                self.durable = self.files.clone();
            }
            Step::Delete { which } if which < self.snapshots.len() => {
                self.volume.snapshot_delete(&self.snapshots.remove(which).0).unwrap();
                self.durable = self.files.clone();
            }
            Step::GoBack { which } if which < self.snapshots.len() => {
                self.volume.snapshot_rollback(&self.snapshots[which].0, true).unwrap();
                self.snapshots.truncate(which + 1);
                self.files = self.snapshots[which].1.clone();
                self.durable = self.files.clone();
            }
            Step::Delete { .. } | Step::GoBack { .. } => {}
        }
    }

    fn clone(&mut self, from: u8, to: u8, [at, to_at, length]: [u64; 3]) {
        let ((source, from), (target, to)) = (self.file(from), self.file(to));
        let [at, to_at, length] = [at, to_at, length].map(|blocks| blocks * BLOCK);
        let result = self.volume.clone_range(from, at, to, to_at, length);
        let (size, target_size) =
            (self.files[&source].len() as u64, self.files[&target].len() as u64);
        let length = if length == 0 { size.saturating_sub(at) } else { length };
        let whole =
            length.is_multiple_of(BLOCK) || (at + length == size && to_at + length >= target_size);
        let overlap = from == to && at.abs_diff(to_at) < length;
        if at + length > size || !whole || overlap {
            assert!(matches!(result, Err(Error::InvalidArgument(_))), "{result:?}");
            return;
        }
        assert_eq!(result, Ok(length));
        if length > 0 {
            copy(&mut self.files, &source, &target, at as usize, to_at as usize, length as usize);
        }
    }

    fn copy(&mut self, from: u8, to: u8, [at, to_at, length]: [u64; 3]) {
        let ((source, from), (target, to)) = (self.file(from), self.file(to));
        let count = (self.files[&source].len() as u64).saturating_sub(at).min(length);
        let result = self.volume.copy_range(from, at, to, to_at, length);
        if from == to && at.abs_diff(to_at) < count {
            assert!(matches!(result, Err(Error::InvalidArgument(_))), "{result:?}");
            return;
        }
        assert_eq!(result, Ok(count));
        if count > 0 {
            copy(&mut self.files, &source, &target, at as usize, to_at as usize, count as usize);
        }
    }

    /// Shrinks to the least size and grows back, or grows to the size of the medium. Neither
    /// duplicates a data block.
    fn resize(&mut self, shrink: bool) {
        if shrink && self.volume.unlink(InodeNumber::ROOT, b"front").is_ok() {
            settle(&self.volume);
        }
        let before = data_blocks(&self.volume);
        self.durable = self.files.clone();
        if !shrink {
            match self.volume.grow(SIZE) {
                Ok(()) | Err(Error::InvalidArgument(_)) => {}
                Err(error) => panic!("{error}"),
            }
        } else {
            let size = self.volume.size_least() + (16 << 10);
            match self.volume.shrink(size, &mut |_| ()) {
                Ok(()) => {
                    self.volume = open(&self.medium);
                    assert!(data_blocks(&self.volume) <= before, "shared blocks were copied");
                    // The following steps need room.
                    self.volume.grow(SIZE / 2).unwrap();
                }
                // The size is not smaller, or a snapshot holds blocks.
                Err(Error::InvalidArgument(_) | Error::Busy | Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(data_blocks(&self.volume) <= before, "shared blocks were copied");
    }

    fn compare(&self) {
        for file in 0..6 {
            let name = name(file);
            match self.files.get(&name) {
                Some(expected) => assert!(contents(&self.volume, &name) == *expected, "{name}"),
                None => assert!(self.volume.lookup(InodeNumber::ROOT, name.as_bytes()).is_err()),
            }
        }
    }

    fn compare_snapshots(&self) {
        for (snapshot, files) in &self.snapshots {
            let options = OpenOptions::default();
            let view =
                Volume::open_snapshot(self.medium.clone(), TestPlatform::new(), options, snapshot)
                    .unwrap();
            for (name, expected) in files {
                assert!(contents(&view, name) == *expected, "{name} of {snapshot}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_steps(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
            world.compare();
            let report = report(&world.medium);
            assert!(report.is_clean(), "after {step:?}: {:#?}", report.findings);
        }
        world.compare_snapshots();
        for (name, _) in &world.snapshots {
            world.volume.snapshot_delete(name).unwrap();
        }
        for name in world.files.keys() {
            world.volume.unlink(InodeNumber::ROOT, name.as_bytes()).unwrap();
        }
        let _ = world.volume.unlink(InodeNumber::ROOT, b"front");
        world.volume.transact().unwrap();
        settle(&world.volume);
        assert_eq!(data_blocks(&world.volume), 0);
        let statistics = world.volume.statistics().unwrap();
        assert_eq!(statistics.blocks - statistics.blocks_free, report(&world.medium).used_blocks);
    }
}

/// Cases of the test above; STEADFAST_CASES raises the number.
fn cases() -> u32 {
    std::env::var("STEADFAST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}
