//! The bytes that statfs promises can be written, and little more.

use alloc::vec;
use alloc::vec::Vec;
use std::sync::Arc;

use steadfast_media::MemoryMedium;

use crate::engine::tests::{TestVolume, make};
use crate::error::Error;
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;

fn format(size: u64, options: &FormatOptions) -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(size, 128).unwrap());
    Volume::format(&medium, options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    (medium, volume)
}

/// The default mask, and one without transaction points, where freed blocks never come back.
const MASKS: [TransactionMask; 2] = [TransactionMask::DEFAULT, TransactionMask::MANUAL];

/// Bytes that statfs promises.
fn promised(volume: &TestVolume) -> u64 {
    let statistics = volume.statistics().unwrap();
    statistics.blocks_available * u64::from(statistics.block_size)
}

/// Writes `bytes` bytes at the end of a file, `step` at a time.
fn append(
    volume: &TestVolume,
    inode: InodeNumber,
    bytes: u64,
    step: u64,
) -> Result<(), (u64, Error)> {
    let data = vec![7; step as usize];
    let mut done = 0;
    while done < bytes {
        let now = step.min(bytes - done);
        volume.append(inode, &data[..now as usize], false).map_err(|error| (done, error))?;
        done += now;
    }
    Ok(())
}

/// Appends blocks until there is no space. Returns the number of bytes.
fn append_the_rest(volume: &TestVolume, inode: InodeNumber) -> u64 {
    let block = u64::from(volume.engine.superblock().block_size);
    let mut more = 0;
    for step in [64, 1].map(|blocks| blocks * block) {
        while volume.append(inode, &vec![8; step as usize], false).is_ok() {
            more += step;
        }
    }
    more
}

fn assert_clean(medium: &Arc<MemoryMedium>) {
    let report =
        check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(report.damaged, 0, "{:#?}", report.findings);
}

/// The state of a volume before it is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Empty,
    /// Files of three blocks, every other one of them removed.
    InPieces,
    /// A snapshot holds half of the space.
    Snapshot,
    /// Most of it was just removed, and that is not durable yet.
    JustRemoved,
}

fn prepare(volume: &TestVolume, before: Before) {
    let block = u64::from(volume.engine.superblock().block_size);
    match before {
        Before::Empty => {}
        Before::InPieces => {
            // Names and inodes take more space than small blocks.
            let count = promised(volume) / (5 * block.max(512));
            let name = |number: u64| alloc::format!("piece{number}");
            for number in 0..count {
                let inode = make(volume, name(number));
                volume.write(inode, 0, &vec![1; 3 * block as usize], false).unwrap();
            }
            for number in (0..count).step_by(2) {
                volume.unlink(ROOT, name(number).as_bytes()).unwrap();
            }
        }
        Before::Snapshot | Before::JustRemoved => {
            let inode = make(volume, "old");
            append(volume, inode, promised(volume) / 2, 1 << 16).unwrap();
            if before == Before::Snapshot {
                volume.snapshot_create("s").unwrap();
            } else {
                volume.transact().unwrap();
            }
            volume.unlink(ROOT, b"old").unwrap();
        }
    }
    while volume.background().unwrap() {}
}

#[test]
fn what_statfs_promises_can_be_written_and_little_more() {
    let mut wrong = Vec::new();
    for (size, block_size, step) in [
        (4 << 20, 128, 1024),
        (256 << 10, 512, 512),
        (1 << 20, 512, 5000),
        (4 << 20, 512, 128 << 10),
        (4 << 20, 4096, 4096),
        (16 << 20, 4096, 128 << 10),
        (64 << 20, 4096, 1 << 20),
        (192 << 20, 4096, 128 << 10),
        (64 << 20, 65536, 1 << 20),
    ] {
        for (before, mask) in
            [Before::Empty, Before::InPieces, Before::Snapshot, Before::JustRemoved]
                .into_iter()
                .flat_map(|before| MASKS.map(|mask| (before, mask)))
        {
            let (medium, volume) =
                format(size, &FormatOptions { block_size, mask, ..FormatOptions::default() });
            prepare(&volume, before);
            let inode = make(&volume, "file");
            let promise = promised(&volume);
            let sure = volume.available_bytes().unwrap();
            let what = alloc::format!(
                "{size} bytes in blocks of {block_size}, {before:?}, mask {:x}: {promise} promised",
                mask.0
            );
            assert!(sure <= promise && sure >= promise / 8, "{what}, {sure} sure");
            let written = append(&volume, inode, promise, step);
            let more = if written.is_ok() { append_the_rest(&volume, inode) } else { 0 };
            std::eprintln!("{what}, {sure} sure, {written:?}, {more} more");
            // Half of the nodes that map small blocks, and a few more nodes.
            let mapping = if block_size < 512 { promise / 6 } else { promise / 16 };
            if written.is_err() || more > mapping + 24 * u64::from(block_size).max(8192) {
                wrong.push(what);
            }
            volume.checkpoint().unwrap();
            assert_clean(&medium);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Beside its data a small file takes an inode, a name and an extent: their space in the tree, with
/// all copies.
#[test]
fn small_files_fill_what_statfs_promises_less_their_keys() {
    const KEYS: u64 = 1024;
    for (size, block_size, length) in
        [(4 << 20, 512, 512), (16 << 20, 4096, 4096), (64 << 20, 4096, 12_000)]
    {
        let (medium, volume) =
            format(size, &FormatOptions { block_size, ..FormatOptions::default() });
        let (promise, sure) = (promised(&volume), volume.available_bytes().unwrap());
        let mut made = 0;
        let refused = loop {
            let name = alloc::format!("{made}");
            let file =
                volume.create(ROOT, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default());
            let written =
                file.and_then(|file| volume.write(file.inode, 0, &vec![7; length], false));
            match written {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        let taken = (length as u64).next_multiple_of(u64::from(block_size));
        std::eprintln!(
            "{size} bytes: {promise} promised, {sure} sure, {made} files of {length}, {refused}"
        );
        assert_eq!(refused, Error::NoSpace);
        assert!(made * (taken + KEYS) >= promise, "{made} files of {length} of {promise} bytes");
        assert!(made * taken <= promise, "{made} files of {length} are more than {promise} bytes");
        volume.checkpoint().unwrap();
        assert_clean(&medium);
    }
}
