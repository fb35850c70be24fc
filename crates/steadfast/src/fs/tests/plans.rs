//! Plans of reads: whatever happens to the file and its blocks after a plan was made, it gives the
//! bytes of then, or none.

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::random::Random;

use crate::error::Error;
use crate::fs::tests::{plain, volume};
use crate::fs::{NewNode, PlannedExtent, ReadPlan, SetAttributes};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;

const SIZE_MAX: u64 = 1 << 20;

/// Returns how many reads of kept plans matched, and how many did not.
fn run(seed: u64, block_size: u32) -> (usize, usize) {
    let volume = volume(8 << 20, block_size, 4096.max(block_size));
    let mut random = Random::new(seed);
    let mut files: Vec<(InodeNumber, Vec<u8>)> = ["a", "b"]
        .map(|name| (volume.make(name, NewNode::Regular).inode, Vec::new()))
        .into_iter()
        .collect();
    let mut kept: Vec<(ReadPlan, Vec<u8>)> = Vec::new();
    let (mut matched, mut missed) = (0, 0);
    for step in 0..200 {
        let (inode, bytes) = &mut files[random.below(2) as usize];
        let at = random.below(SIZE_MAX / 2);
        match random.below(12) {
            0..=4 => {
                let data = vec![step as u8 + 1; random.below(300_000) as usize];
                let end = at as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&data);
                volume.write(*inode, at, &data, false).unwrap();
            }
            5 => {
                bytes.truncate(at as usize);
                let size = Some(bytes.len() as u64);
                let cut = SetAttributes { size, ..SetAttributes::default() };
                volume.set_attributes(*inode, &cut).unwrap();
            }
            6 => volume.transact().unwrap(),
            7 | 8 => volume.checkpoint().unwrap(),
            9 => drop(volume.background().unwrap()),
            _ => {
                let from = at.min(bytes.len() as u64);
                let length = random.below(bytes.len() as u64 - from + 1) as usize;
                let expected = bytes[from as usize..][..length].to_vec();
                if let Some(plan) = volume.plan_read(*inode, from, length, false).unwrap() {
                    let read = plan.read(volume.medium(), &TestPlatform::new()).unwrap();
                    assert_eq!(read.as_ref(), Some(&expected), "seed {seed}, step {step}");
                    kept.push((plan, expected));
                }
            }
        }
        for (plan, expected) in &kept {
            match plan.read(volume.medium(), &TestPlatform::new()).unwrap() {
                Some(read) => {
                    assert_eq!(read, *expected, "seed {seed}, step {step}");
                    matched += 1;
                }
                None => missed += 1,
            }
        }
    }
    (matched, missed)
}

#[test]
fn a_plan_gives_the_bytes_of_its_state_or_none() {
    for block_size in [512, 4096, 65_536] {
        let found: Vec<_> = (0..12).map(|seed| run(seed, block_size)).collect();
        let sum = |of: fn(&(usize, usize)) -> usize| found.iter().map(of).sum::<usize>();
        assert!(sum(|found| found.0) > 100, "{block_size}: {found:?}");
        // Blocks were written again, so that the test means something.
        assert!(sum(|found| found.1) > 100, "{block_size}: {found:?}");
    }
}

#[test]
fn what_needs_the_volume_has_no_plan() {
    let volume = plain();
    let plan = |inode, offset, length| volume.plan_read(inode, offset, length, false).unwrap();
    let small = volume.make("small", NewNode::Regular).inode;
    volume.write(small, 0, b"in the inode", false).unwrap();
    assert_eq!(plan(small, 0, 12), None);
    let file = volume.make("file", NewNode::Regular).inode;
    volume.write(file, 0, &vec![7; 3 << 20], false).unwrap();
    assert!(plan(file, 4096, 1 << 20).is_some());
    assert_eq!(plan(file, 0, (1 << 20) + 1), None, "too long");
    assert_eq!(plan(file, (3 << 20) - 4096, 4097), None, "past the end");
    assert_eq!(plan(file, u64::MAX, 4096), None, "past all numbers");
    let scattered = volume.make("scattered", NewNode::Regular).inode;
    for number in 0..257 {
        volume.write(scattered, number * 8192, &[1; 4096], false).unwrap();
    }
    assert!(plan(scattered, 0, 1 << 20).is_some());
    let directory = volume.make("directory", NewNode::Directory).inode;
    let found = volume.plan_read(directory, 0, 0, false);
    assert_eq!(found, Err(Error::IsADirectory));
}

#[test]
fn holes_read_as_zeros_without_the_medium() {
    let volume = plain();
    let file = volume.make("file", NewNode::Regular).inode;
    volume.write(file, 40_960, &[7; 8192], false).unwrap();
    let plan = volume.plan_read(file, 0, 49_152, false).unwrap().unwrap();
    assert_eq!(plan.extents.iter().map(|extent| extent.at).collect::<Vec<_>>(), [40_960]);
    let read = plan.read(volume.medium(), &TestPlatform::new()).unwrap().unwrap();
    assert!(read[..40_960].iter().all(|byte| *byte == 0) && read[40_960..] == [7; 8192]);
}

#[test]
fn what_is_no_plan_is_refused_without_memory_for_it() {
    let volume = plain();
    let refused = |plan: ReadPlan| {
        let read = plan.read(volume.medium(), &TestPlatform::new());
        assert!(matches!(read, Err(Error::InvalidArgument(_))), "{plan:?}");
    };
    let extent = |at, count| PlannedExtent { at, position: 0, checksums: vec![0; count] };
    let plan = |granule, extents| ReadPlan { skip: 0, length: 8192, granule, extents };
    refused(plan(0, vec![extent(0, 1)]));
    refused(plan(4096, vec![extent(4096, 1), extent(0, 1)]));
    refused(plan(4096, vec![extent(0, 2), extent(4096, 1)]));
    refused(plan(4096, vec![extent(8192, 1)]));
    refused(plan(u32::MAX, vec![extent(0, 1)]));
    refused(plan(4096, vec![extent(usize::MAX, 1)]));
    refused(ReadPlan { skip: 0, length: usize::MAX, granule: 4096, extents: Vec::new() });
    refused(ReadPlan { skip: 4096, length: usize::MAX, granule: 4096, extents: Vec::new() });
    let past = PlannedExtent { at: 0, position: 1 << 50, checksums: vec![0] };
    let read = plan(4096, vec![past]).read(volume.medium(), &TestPlatform::new());
    assert!(matches!(read, Err(Error::Medium(_))));
}
