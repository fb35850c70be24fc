//! File contents against a plain vector of bytes, in geometries from 128-byte to 64 KiB blocks.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::error::Error;
use crate::fs::tests::{ROOT, TestVolume, plain, volume};
use crate::fs::{AllocateMode, NewNode, SeekTo, SetAttributes};
use crate::types::InodeNumber;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize),
    Append(usize),
    Truncate(u64),
    Read(u64, usize),
    Allocate(u64, u64, bool),
    Punch(u64, u64),
    Zero(u64, u64, bool),
    Copy(u64, u64, u64),
    Seek(u64),
    Transact,
    Checkpoint,
    Background,
}

/// Offsets and lengths near the points where behaviour changes: block ends, the inline limit, large
/// values.
fn position(unit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..unit * 3,
        (0u64..40).prop_map(move |n| n * unit),
        (0u64..40, 0u64..3).prop_map(move |(n, d)| (n * unit + d).saturating_sub(1)),
    ]
}

fn step(unit: u64) -> impl Strategy<Value = Step> {
    let length = || position(unit).prop_map(|length| length.min(60_000) as usize);
    prop_oneof![
        6 => (position(unit), length()).prop_map(|(at, length)| Step::Write(at, length)),
        3 => length().prop_map(Step::Append),
        3 => position(unit).prop_map(Step::Truncate),
        1 => Just(Step::Truncate(0)),
        4 => (position(unit), length()).prop_map(|(at, length)| Step::Read(at, length)),
        2 => (position(unit), position(unit), any::<bool>()).prop_map(|(a, b, keep)| Step::Allocate(a, b, keep)),
        2 => (position(unit), position(unit)).prop_map(|(a, b)| Step::Punch(a, b)),
        2 => (position(unit), position(unit), any::<bool>()).prop_map(|(a, b, keep)| Step::Zero(a, b, keep)),
        2 => (position(unit), position(unit), position(unit)).prop_map(|(a, b, c)| Step::Copy(a, b, c)),
        2 => position(unit).prop_map(Step::Seek),
        1 => Just(Step::Transact),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Background),
    ]
}

/// Bytes that are never zero and differ between writes.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 7 + seed * 31) % 251 + 1) as u8).collect()
}

fn grow(model: &mut Vec<u8>, end: u64) {
    if model.len() < end as usize {
        model.resize(end as usize, 0);
    }
}

fn zero(model: &mut [u8], from: u64, end: u64) {
    let end = (end as usize).min(model.len());
    if (from as usize) < end {
        model[from as usize..end].fill(0);
    }
}

/// Seek may answer in units of blocks, so this checks only properties of every valid answer.
fn check_seek(volume: &TestVolume, inode: InodeNumber, model: &[u8], offset: u64) {
    let size = model.len() as u64;
    let non_zero =
        |from: u64, to: u64| model[from as usize..to as usize].iter().any(|byte| *byte != 0);
    match volume.seek(inode, offset, SeekTo::Data) {
        Ok(data) => {
            assert!(data >= offset && data < size && !non_zero(offset, data));
            let hole = volume.seek(inode, data, SeekTo::Hole).unwrap();
            assert!(hole > data && hole <= size);
        }
        Err(Error::NoSuchOffset) => assert!(offset >= size || !non_zero(offset, size)),
        Err(error) => panic!("{error}"),
    }
    match volume.seek(inode, offset, SeekTo::Hole) {
        Ok(hole) => assert!(hole >= offset && hole <= size),
        Err(Error::NoSuchOffset) => assert!(offset >= size),
        Err(error) => panic!("{error}"),
    }
}

fn run(volume: &TestVolume, inode: InodeNumber, steps: &[Step]) {
    let mut model: Vec<u8> = vec![];
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write(at, length) => {
                let data = pattern(number, *length);
                volume.write(inode, *at, &data, false).unwrap();
                if !data.is_empty() {
                    grow(&mut model, at + data.len() as u64);
                    model[*at as usize..*at as usize + data.len()].copy_from_slice(&data);
                }
            }
            Step::Append(length) => {
                let data = pattern(number, *length);
                assert_eq!(volume.append(inode, &data, false).unwrap(), model.len() as u64);
                model.extend_from_slice(&data);
            }
            Step::Truncate(size) => {
                let set = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                assert_eq!(volume.set_attributes(inode, &set).unwrap().size, *size);
                model.resize(*size as usize, 0);
            }
            Step::Read(at, length) => {
                let mut buffer = vec![0xaa; *length];
                let count = volume.read(inode, *at, &mut buffer).unwrap();
                let start = model.len().min(*at as usize);
                let expected = &model[start..model.len().min(start + length)];
                assert!(&buffer[..count] == expected, "read at {at} after step {number}");
            }
            Step::Allocate(at, length, keep_size) => {
                let mode = AllocateMode::Allocate { keep_size: *keep_size };
                match volume.allocate(inode, *at, *length, mode) {
                    Ok(()) if !keep_size => grow(&mut model, at + length),
                    Ok(()) => {}
                    Err(error) => assert!(*length == 0, "{error}"),
                }
            }
            Step::Punch(at, length) => {
                if volume.allocate(inode, *at, *length, AllocateMode::PunchHole).is_ok() {
                    zero(&mut model, *at, at + length);
                }
            }
            Step::Zero(at, length, keep_size) => {
                let mode = AllocateMode::ZeroRange { keep_size: *keep_size };
                if volume.allocate(inode, *at, *length, mode).is_ok() {
                    if !keep_size {
                        grow(&mut model, at + length);
                    }
                    zero(&mut model, *at, at + length);
                }
            }
            Step::Copy(from, to, length) => match volume
                .copy_range(inode, *from, inode, *to, *length)
            {
                Ok(count) => {
                    let start = model.len().min(*from as usize);
                    let bytes = model[start..model.len().min(start + *length as usize)].to_vec();
                    assert_eq!(bytes.len() as u64, count);
                    if count > 0 {
                        grow(&mut model, to + count);
                        model[*to as usize..(*to + count) as usize].copy_from_slice(&bytes);
                    }
                }
                Err(error) => assert!(matches!(error, Error::InvalidArgument(_)), "{error}"),
            },
            Step::Seek(at) => check_seek(volume, inode, &model, *at),
            Step::Transact => volume.transact().unwrap(),
            Step::Checkpoint => volume.checkpoint().unwrap(),
            Step::Background => drop(volume.background().unwrap()),
        }
        let contents = volume.contents(inode);
        if contents != model {
            let at = contents.iter().zip(&model).position(|(a, b)| a != b);
            panic!(
                "after step {number} {step:?}: {} bytes, expected {}, first difference at {at:?}",
                contents.len(),
                model.len()
            );
        }
    }
}

fn check_geometry(block_size: u32, node_size: u32, steps: &[Step]) {
    let volume = volume(16 << 20, block_size, node_size);
    let before = volume.free_blocks();
    let inode = volume.make("f", NewNode::Regular).inode;
    run(&volume, inode, steps);
    volume.assert_clean();
    volume.unlink(ROOT, b"f").unwrap();
    // Bitmaps of changed groups stay in the tree: a few nodes, two copies each.
    let (after, nodes) = (volume.free_blocks(), 8 * u64::from(node_size / block_size));
    assert!(after + 2 * nodes >= before, "blocks leaked: {before} before, {after} after");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_blocks(steps in prop::collection::vec(step(128), 1..60)) {
        check_geometry(128, 512, &steps);
    }

    #[test]
    fn usual_blocks(steps in prop::collection::vec(step(4096), 1..60)) {
        check_geometry(4096, 4096, &steps);
    }

    #[test]
    fn sectors_and_large_nodes(steps in prop::collection::vec(step(512), 1..60)) {
        check_geometry(512, 8192, &steps);
    }

    #[test]
    fn large_blocks(steps in prop::collection::vec(step(16384), 1..40)) {
        check_geometry(16384, 16384, &steps);
    }
}

#[test]
fn a_megabyte_is_one_batch_and_more_is_written_too() {
    let volume = plain();
    let inode = volume.make("f", NewNode::Regular).inode;
    let data = pattern(1, 3 << 20);
    volume.write(inode, 100, &data, false).unwrap();
    let contents = volume.contents(inode);
    assert!(contents[..100].iter().all(|byte| *byte == 0) && contents[100..] == data[..]);
    assert_eq!(volume.attributes(inode).unwrap().allocated, (3 << 20) + 4096);
}

#[test]
fn sequential_appends_join() {
    let volume = plain();
    let inode = volume.make("f", NewNode::Regular).inode;
    for number in 0..200 {
        volume.append(inode, &pattern(number, 4096), false).unwrap();
    }
    let reader = volume.engine.reader().unwrap();
    let (mut count, mut at) = (0, 0);
    while let Some(mapped) =
        crate::fs::extent_map::starting(&reader, &volume.parameters(), inode, at, u64::MAX).unwrap()
    {
        at = mapped.end();
        count += 1;
    }
    assert!(count <= 3, "{count} extents for 200 sequential blocks");
}

#[test]
fn huge_sparse_files() {
    let volume = plain();
    let inode = volume.make("f", NewNode::Regular).inode;
    let last = i64::MAX as u64 - 1;
    volume.write(inode, last, b"x", false).unwrap();
    assert_eq!(volume.attributes(inode).unwrap().size, i64::MAX as u64);
    assert_eq!(volume.write(inode, last + 1, b"x", false), Err(Error::FileTooLarge));
    assert_eq!(volume.write(inode, u64::MAX, b"x", false), Err(Error::FileTooLarge));
    let set = SetAttributes { size: Some(1 << 63), ..SetAttributes::default() };
    assert_eq!(volume.set_attributes(inode, &set), Err(Error::FileTooLarge));
    let mut byte = [0; 4];
    assert_eq!(volume.read(inode, last, &mut byte), Ok(1));
    assert_eq!(volume.read(inode, u64::MAX, &mut byte), Ok(0));
    assert_eq!(volume.seek(inode, 5, SeekTo::Data), Ok(last / 4096 * 4096));
    assert_eq!(volume.seek(inode, last, SeekTo::Hole), Ok(i64::MAX as u64));
    assert_eq!(volume.append(inode, b"y", false), Err(Error::FileTooLarge));
}

#[test]
fn large_truncations_go_on_in_the_background() {
    let volume = volume(16 << 20, 512, 512);
    let before = volume.free_blocks();
    let inode = volume.make("f", NewNode::Regular).inode;
    volume.write(inode, 0, &pattern(3, 4 << 20), false).unwrap();
    let set = |size| {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        volume.set_attributes(inode, &set).unwrap()
    };
    let after = set(700);
    assert!(after.allocated > 1024 && after.shrinking, "more extents than one batch removes");
    // Growing first finishes the truncation, so no old data becomes visible.
    set(2 << 20);
    let contents = volume.contents(inode);
    assert!(
        contents[..700] == pattern(3, 4 << 20)[..700]
            && contents[700..].iter().all(|byte| *byte == 0)
    );
    assert_eq!(volume.attributes(inode).unwrap().allocated, 1024);
    volume.write(inode, 0, &pattern(4, 4 << 20), false).unwrap();
    set(0);
    volume.settle_orphans();
    let settled = volume.attributes(inode).unwrap();
    assert_eq!((settled.allocated, settled.shrinking), (0, false));
    volume.write(inode, 0, b"small again", false).unwrap();
    assert_eq!(volume.contents(inode), b"small again");
    volume.write(inode, 0, &pattern(5, 4 << 20), false).unwrap();
    volume.unlink(ROOT, b"f").unwrap();
    while volume.orphan_step().unwrap() {
        volume.assert_clean();
    }
    assert!(volume.free_blocks() >= before);
}

#[test]
fn damaged_data_is_an_error_and_costs_only_itself() {
    let medium = steadfast_media::SimMedium::new(steadfast_media::SimOptions::disk(16 << 20));
    let platform = crate::testing::TestPlatform::new();
    let options = crate::FormatOptions::default();
    crate::Volume::format(&medium, &options, &platform).unwrap();
    let volume = crate::Volume::open(&medium, crate::OpenOptions::default(), platform).unwrap();
    let caller = crate::fs::Caller::default();
    let inode = volume.create(ROOT, b"f", NewNode::Regular, 0o644, &caller).unwrap().inode;
    volume.write(inode, 0, &pattern(9, 5 * 4096), false).unwrap();
    let mapped = {
        let reader = volume.engine.reader().unwrap();
        crate::fs::extent_map::overlap(&reader, &volume.parameters(), inode, 2, 3).unwrap().unwrap()
    };
    let bad = mapped.extent.address.0 + 2 - mapped.index;
    medium.flip_bit(bad * 4096 + 77, 3);
    let mut buffer = vec![0; 5 * 4096];
    let damaged = Err(Error::CorruptData { inode, address: crate::BlockAddress(bad) });
    assert_eq!(volume.read(inode, 0, &mut buffer), damaged);
    assert_eq!(volume.read(inode, 2 * 4096 + 5, &mut buffer[..1]).err(), damaged.err());
    assert_eq!(volume.read(inode, 0, &mut buffer[..2 * 4096]), Ok(2 * 4096));
    assert_eq!(volume.read(inode, 3 * 4096, &mut buffer), Ok(2 * 4096));
    // A partial write would keep damaged bytes; a whole block replaces them.
    assert_eq!(volume.write(inode, 2 * 4096 + 1, b"x", false).err(), damaged.err());
    volume.write(inode, 2 * 4096, &pattern(1, 4096), false).unwrap();
    assert_eq!(volume.read(inode, 0, &mut buffer), Ok(5 * 4096));
}

#[test]
fn a_full_volume_refuses_and_can_be_cleared() {
    let volume = volume(4 << 20, 4096, 4096);
    let inode = volume.make("f", NewNode::Regular).inode;
    let mut written = 0;
    let error = loop {
        match volume.append(inode, &pattern(written, 65536), false) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    assert!(written > 20, "{written} pieces");
    assert_eq!(volume.attributes(inode).unwrap().size, written as u64 * 65536, "nothing half done");
    let mode = AllocateMode::Allocate { keep_size: false };
    assert_eq!(volume.allocate(inode, 1 << 30, 1 << 30, mode), Err(Error::NoSpace));
    // Fills the rest with small files.
    let mut files = 0;
    while volume
        .create(
            ROOT,
            alloc::format!("n{files}").as_bytes(),
            NewNode::Regular,
            0o644,
            &Default::default(),
        )
        .and_then(|made| volume.write(made.inode, 0, &[1; 500], false))
        .is_ok()
    {
        files += 1;
        assert!(files < 100_000);
    }
    volume
        .set_attributes(inode, &SetAttributes { size: Some(10), ..SetAttributes::default() })
        .unwrap();
    for number in 0..files {
        volume.unlink(ROOT, alloc::format!("n{number}").as_bytes()).unwrap();
    }
    volume.unlink(ROOT, b"f").unwrap();
    volume.settle_orphans();
    volume.assert_clean();
    let inode = volume.make("g", NewNode::Regular).inode;
    for number in 0..written / 2 {
        volume.append(inode, &pattern(number, 65536), false).unwrap();
    }
}

#[test]
fn ranges_in_many_pieces_are_written_in_steps() {
    let volume = volume(8 << 20, 512, 512);
    let f = volume.make("f", NewNode::Regular).inode;
    // Old extents in more pieces than a batch replaces: alternating data, holes and allocated
    // blocks.
    for block in (0..600u64).step_by(3) {
        volume.write(f, block * 512, &pattern(block as usize, 512), false).unwrap();
        let mode = AllocateMode::Allocate { keep_size: true };
        volume.allocate(f, (block + 1) * 512, 512, mode).unwrap();
    }
    volume.assert_clean();
    let data = pattern(77, 590 * 512);
    volume.write(f, 100, &data, false).unwrap();
    assert!(volume.contents(f)[100..100 + data.len()] == data[..]);
    volume.assert_clean();
    // Free space in pieces of one block.
    let (mut a, mut b) =
        (volume.make("a", NewNode::Regular).inode, volume.make("b", NewNode::Regular).inode);
    while volume.append(a, &[1; 512], false).is_ok() {
        core::mem::swap(&mut a, &mut b);
    }
    volume.unlink(ROOT, b"a").unwrap();
    volume.free_blocks();
    let c = volume.make("c", NewNode::Regular).inode;
    let data = pattern(78, 1 << 20);
    volume.write(c, 0, &data, false).unwrap();
    assert!(volume.contents(c) == data);
    volume.assert_clean();
}

#[test]
fn a_file_that_is_truncated_to_nothing_takes_a_clone_at_once() {
    let volume = volume(16 << 20, 512, 512);
    let source = volume.make("source", NewNode::Regular).inode;
    volume.write(source, 0, &pattern(6, 64 << 10), false).unwrap();
    for allocates in [false, true] {
        let inode = volume.make(if allocates { "a" } else { "b" }, NewNode::Regular).inode;
        volume.write(inode, 0, &pattern(3, 4 << 20), false).unwrap();
        let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert!(
            volume.set_attributes(inode, &set).unwrap().shrinking,
            "more extents than one batch removes"
        );
        if allocates {
            volume
                .allocate(inode, 0, 64 << 10, AllocateMode::ZeroRange { keep_size: false })
                .unwrap();
            assert_eq!(volume.contents(inode), vec![0; 64 << 10]);
        } else {
            volume.clone_range(source, 0, inode, 0, 0).unwrap();
            assert!(volume.contents(inode) == pattern(6, 64 << 10));
        }
        volume.settle_orphans();
        volume.assert_clean();
    }
}

/// The bytes that a clone brings may have the checksums of other ones.
#[test]
fn a_clone_forgets_the_block_of_the_last_write() {
    let volume = volume(16 << 20, 512, 512);
    let kept = || volume.engine.kept_block.lock().inode;
    let [file, source] = ["file", "source"].map(|name| volume.make(name, NewNode::Regular).inode);
    volume.write(source, 0, &pattern(6, 512), false).unwrap();
    volume.write(file, 0, &pattern(3, 700), false).unwrap();
    volume.write(file, 5, &[1], false).unwrap();
    assert_eq!(kept(), file);
    volume.clone_range(source, 0, file, 0, 0).unwrap();
    assert_ne!(kept(), file);
}
