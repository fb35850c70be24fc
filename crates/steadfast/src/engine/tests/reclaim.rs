//! Full volumes: which operations still succeed, and how many transaction points they need.

use alloc::vec;
use std::sync::Arc;

use steadfast_media::MemoryMedium;

use crate::engine::Shortage;
use crate::engine::keyspace::SpaceClass;
use crate::engine::tests::{TestVolume, make};
use crate::error::{Error, Result};
use crate::fs::{AllocateMode, SetAttributes};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;
/// Sizes of volumes and blocks.
const VOLUMES: [(u64, u32); 4] =
    [(4 << 20, 512), (4 << 20, 4096), (16 << 20, 4096), (64 << 20, 4096)];

fn format(size: u64, block_size: u32) -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(size, 128).unwrap());
    let options = FormatOptions { block_size, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    (medium, volume)
}

fn points(volume: &TestVolume) -> u64 {
    volume.info().transaction_points
}

/// Appends until not even a block fits. Returns the number of bytes.
fn fill(volume: &TestVolume, inode: InodeNumber) -> u64 {
    let block = volume.engine.superblock().block_size as usize;
    let mut written = 0;
    for length in [64 * block, block] {
        loop {
            match volume.append(inode, &vec![7; length], false) {
                Ok(_) => written += length as u64,
                Err(error) => break assert_eq!(error, Error::NoSpace),
            }
        }
    }
    written
}

fn touch(volume: &TestVolume, inode: InodeNumber, permissions: u32) -> Result<()> {
    let change = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    volume.set_attributes(inode, &change).map(drop)
}

fn assert_clean(medium: &Arc<MemoryMedium>) {
    let report =
        check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(report.damaged, 0, "{:#?}", report.findings);
}

/// Each failed append comes with a change that frees one or two nodes, as opening and closing a
/// file does.
#[test]
fn what_finds_no_space_again_and_again_sets_no_points() {
    for (size, block_size) in VOLUMES {
        let (medium, volume) = format(size, block_size);
        let inode = make(&volume, "file");
        let filled = fill(&volume, inode);
        let filling = points(&volume);
        for length in [1usize, 3000, 1 << 20] {
            for round in 0..200 {
                touch(&volume, inode, 0o600 + round % 8).unwrap();
                // The last block may have room for a byte; it is then replaced.
                let written = volume.append(inode, &vec![9; length + block_size as usize], false);
                assert_eq!(written, Err(Error::NoSpace));
            }
        }
        let failing = points(&volume) - filling;
        std::eprintln!(
            "{size} bytes in blocks of {block_size}: {filled} filled, {filling} points, {failing} then"
        );
        assert!(failing <= 3, "{failing} points for 600 writes that found no space");
        assert!(filling <= 20, "{filling} points to fill {filled} bytes");
        volume.checkpoint().unwrap();
        assert_clean(&medium);
    }
}

/// POSIX: after a successful posix_fallocate, writes to the range do not fail for lack of space. A
/// database that overwrites its pages must go on.
#[test]
fn a_full_volume_takes_rewrites_and_what_was_allocated() {
    // The reserve of smaller volumes is only what removals need; with small blocks it holds no map.
    for (size, block_size) in VOLUMES.into_iter().filter(|volume| volume.0 > 4 << 20) {
        let (medium, volume) = format(size, block_size);
        let block = u64::from(block_size);
        let (old, promised, rest) =
            (make(&volume, "old"), make(&volume, "promised"), make(&volume, "rest"));
        let length = size / 4 / (64 * block) * (64 * block);
        for at in (0..length).step_by(64 * block as usize) {
            volume.write(old, at, &vec![1; 64 * block as usize], false).unwrap();
        }
        volume.allocate(promised, 0, length, AllocateMode::Allocate { keep_size: false }).unwrap();
        fill(&volume, rest);
        let before = points(&volume);
        let mut bytes = 0;
        for pieces in [1, 4, 16] {
            let piece = (pieces * block).min(size / 256);
            for (name, inode) in [("old", old), ("promised", promised)] {
                // Scattered single blocks cut extents, so the map grows.
                let step = if pieces == 1 { 128 * block } else { piece };
                for at in (0..length).step_by(step as usize) {
                    let written = volume.write(inode, at, &vec![2; piece as usize], false);
                    assert_eq!(written, Ok(()), "{name} of {size}: {piece} bytes at {at}");
                    bytes += piece;
                }
                touch(&volume, inode, 0o640).unwrap();
            }
        }
        let set = points(&volume) - before;
        std::eprintln!(
            "{size} bytes in blocks of {block_size}: {bytes} rewritten with {set} points"
        );
        assert!(set <= 20 + 2 * bytes / (size / 256), "{set} points for {bytes} bytes");
        volume.checkpoint().unwrap();
        assert_clean(&medium);
        volume.unlink(ROOT, b"rest").unwrap();
        volume.unlink(ROOT, b"promised").unwrap();
        volume.unlink(ROOT, b"old").unwrap();
        while volume.background().unwrap() {}
        assert_eq!(volume.statistics().unwrap().inodes, 1);
    }
}

/// A snapshot leaves far more room than a write. So a checkpoint that was in vain for a snapshot
/// says nothing about writes.
#[test]
fn a_snapshot_without_space_leaves_checkpoints_to_writes() {
    let (medium, volume) = format(16 << 20, 512);
    let [old, rest] = ["old", "rest"].map(|name| make(&volume, name));
    let piece = vec![1; 16 * 512];
    let replace = || volume.write(old, 0, &piece, false).unwrap();
    replace();
    loop {
        volume.append(rest, &piece, false).unwrap();
        // What this frees comes back with the next checkpoint only.
        replace();
        match volume.snapshot_create("some") {
            Ok(_) => volume.snapshot_delete("some").unwrap(),
            Err(error) => break assert_eq!(error, Error::NoSpace),
        }
        while volume.background().unwrap() {}
    }
    replace();
    let wanted = Shortage::Change(SpaceClass::Normal, Some(1));
    assert_eq!(volume.engine.checkpoint_for_space(Shortage::Snapshot), Ok(false), "it was in vain");
    assert_eq!(volume.engine.checkpoint_for_space(wanted), Ok(true));
    assert_clean(&medium);
}

/// Blocks that two files share are no reason to refuse overwrites of other files, or holes in them.
#[test]
fn a_full_volume_with_a_clone_takes_rewrites_of_other_files() {
    for (size, block_size) in VOLUMES.into_iter().filter(|volume| volume.0 > 4 << 20) {
        let (medium, volume) = format(size, block_size);
        let block = u64::from(block_size);
        let [source, clone, old, rest] =
            ["source", "clone", "old", "rest"].map(|name| make(&volume, name));
        let length = 64 * block;
        for inode in [source, old] {
            volume.write(inode, 0, &vec![1; length as usize], false).unwrap();
        }
        assert_eq!(volume.clone_range(source, 0, clone, 0, length), Ok(length));
        fill(&volume, rest);
        for round in 0..20 {
            for at in (0..length).step_by(8 * block as usize) {
                let written = volume.write(old, at, &vec![2; block as usize], false);
                assert_eq!(written, Ok(()), "{size}: at {at} in round {round}");
            }
            volume.transact().unwrap();
        }
        // A hole in the middle of an extent gives back more than its second key takes.
        for at in (0..length).step_by(8 * block as usize) {
            let hole = volume.allocate(old, at + 3 * block, block, AllocateMode::PunchHole);
            assert_eq!(hole, Ok(()), "{size}: at {at}");
        }
        volume.checkpoint().unwrap();
        assert_clean(&medium);
    }
}

/// Removing a large file is background work, and its blocks wait for a transaction point.
#[test]
fn space_that_was_just_removed_can_be_taken() {
    for (size, block_size) in VOLUMES {
        for kind in 0..3 {
            let (medium, volume) = format(size, block_size);
            let (large, held) = (make(&volume, "large"), make(&volume, "held"));
            volume.write(held, 0, &[1; 100], false).unwrap();
            let filled = fill(&volume, large);
            volume.unlink(ROOT, b"large").unwrap();
            let new = make(&volume, "new");
            let length = filled * 9 / 10;
            match kind {
                0 => volume
                    .allocate(new, 0, length, AllocateMode::Allocate { keep_size: false })
                    .unwrap(),
                1 => volume
                    .allocate(new, 0, length, AllocateMode::ZeroRange { keep_size: true })
                    .unwrap(),
                _ => {
                    for at in (0..length).step_by(1 << 17) {
                        volume.write(new, at, &[3; 1 << 17], false).unwrap();
                    }
                }
            }
            let too_much =
                volume.allocate(new, 0, size, AllocateMode::Allocate { keep_size: false });
            assert_eq!(too_much, Err(Error::NoSpace));
            volume.checkpoint().unwrap();
            assert_clean(&medium);
        }
    }
}

/// Blocks that a write has allocated are free again when it finds no space: repeated failures leak
/// nothing.
#[test]
fn no_space_halfway_leaves_nothing_unpublished() {
    for (size, block_size) in VOLUMES {
        let (medium, volume) = format(size, block_size);
        let inode = make(&volume, "file");
        let block = u64::from(block_size);
        let room = volume.statistics().unwrap().blocks_available;
        for at in (0..room - 100).step_by(50) {
            volume.write(inode, at * block, &vec![1; 50 * block as usize], false).unwrap();
        }
        let before = volume.statistics().unwrap();
        assert_eq!(before.blocks_unpublished, 0);
        for _ in 0..20 {
            // More than there is: the write takes all space before it fails.
            let most = vec![2; (before.blocks_free * block).min(1 << 20) as usize];
            assert_eq!(volume.append(inode, &most, false), Err(Error::NoSpace));
            let after = volume.statistics().unwrap();
            assert_eq!((after.blocks_unpublished, after.blocks_free), (0, before.blocks_free));
        }
        assert!(fill(&volume, inode) >= before.blocks_available * block);
        volume.checkpoint().unwrap();
        assert_clean(&medium);
    }
}
