//! Resizing: every file stays unchanged, and every block is accounted for. A power cut at any
//! request leaves the old volume or the new one.

use std::sync::Arc;

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_media::{Geometry, MemoryMedium, SimMedium, SimOptions};

type TestVolume<M> = Volume<Arc<M>, TestPlatform>;

const KIB: u64 = 1 << 10;

fn open<M: steadfast_media::Medium>(medium: &Arc<M>) -> TestVolume<M> {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

/// The bytes of file `number`; every fourth file is sparse in the middle.
fn contents(number: u64) -> Vec<u8> {
    let length = 700 * number as usize % 40_000 + number as usize;
    (0..length).map(|at| (at as u64 * 31 + number * 7 + at as u64 / 251) as u8).collect()
}

/// A volume of `size` bytes at the start of a medium of `medium` bytes. Files were made and
/// removed, so the remaining ones are scattered.
fn volume(options: &FormatOptions, medium: u64, size: u64, files: u64) -> Arc<MemoryMedium> {
    let image = Arc::new(MemoryMedium::new(medium, options.block_size.min(512)).unwrap());
    let options = FormatOptions { size: Some(size), ..options.clone() };
    TestVolume::<MemoryMedium>::format(&image, &options, &TestPlatform::new()).unwrap();
    let volume = open(&image);
    let caller = Caller::default();
    for number in 0..files {
        let name = format!("file {number}");
        let made = volume
            .create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller)
            .unwrap();
        volume.write(made.inode, 0, &contents(number), false).unwrap();
        if number % 16 == 3 {
            let mode = steadfast::fs::AllocateMode::Allocate { keep_size: true };
            volume.allocate(made.inode, 100_000, 20_000, mode).unwrap();
        }
        if number % 20 == 7 {
            volume.checkpoint().unwrap();
        }
    }
    for number in (0..files).filter(|number| number % 3 == 0) {
        volume.unlink(InodeNumber::ROOT, format!("file {number}").as_bytes()).unwrap();
    }
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    volume.close().unwrap();
    image
}

/// Checks that every file is unchanged and the volume is sound. Returns its size.
fn verify<M: steadfast_media::Medium>(medium: &Arc<M>, files: u64, what: &str) -> u64 {
    let report =
        check(medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(
        report
            .findings
            .iter()
            .all(|finding| finding.severity < steadfast::check::Severity::Damaged),
        "{what}: {report:?}"
    );
    let volume = open(medium);
    for number in 0..files {
        let found = volume.lookup(InodeNumber::ROOT, format!("file {number}").as_bytes());
        if number % 3 == 0 {
            assert_eq!(found.unwrap_err(), Error::NotFound, "{what}");
            continue;
        }
        let found = found.unwrap();
        let mut bytes = vec![0; found.size as usize];
        volume.read(found.inode, 0, &mut bytes).unwrap();
        assert!(bytes == contents(number), "{what}: file {number}");
    }
    // The volume remains usable.
    // A volume of the least possible size may have no room for more.
    match volume.file_write_all("/later", &[9; 5000]) {
        Ok(()) | Err(Error::NoSpace) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    volume.transact().unwrap();
    let size = volume.info().size;
    volume.close().unwrap();
    size
}

fn formats() -> Vec<FormatOptions> {
    let with = |block_size, node_size, copies, log_size| FormatOptions {
        block_size,
        node_size: Some(node_size),
        metadata_copies: Some(copies),
        log_size: Some(log_size),
        ..FormatOptions::default()
    };
    vec![with(512, 512, 2, 16 * KIB), with(512, 4096, 2, 0), with(4096, 4096, 2, 64 * KIB)]
}

/// The metaroot before the newest one counted more blocks than the smaller volume has, and `check`
/// called it damaged.
#[test]
fn a_volume_that_was_full_a_checkpoint_ago_is_clean_when_it_is_smaller() {
    for options in formats() {
        // One copy. Otherwise there are nodes to move: that takes checkpoints, after which no
        // metaroot is of the full volume.
        let options = FormatOptions { metadata_copies: Some(1), ..options };
        let image = volume(&options, 2048 * KIB, 2048 * KIB, 0);
        let volume = open(&image);
        let caller = Caller::default();
        let big = volume
            .create(InodeNumber::ROOT, b"big", NewNode::Regular, 0o644, &caller)
            .unwrap()
            .inode;
        for piece in 0..15u64 {
            volume.write(big, piece * 100_000, &vec![piece as u8; 100_000], false).unwrap();
        }
        volume.checkpoint().unwrap();
        volume.unlink(InodeNumber::ROOT, b"big").unwrap();
        while volume.background().unwrap() {}
        volume.checkpoint().unwrap();
        drop(volume);
        let volume = open(&image);
        volume.shrink(1024 * KIB, &mut |_| {}).unwrap();
        drop(volume);
        verify(&image, 0, "smaller");
    }
}

/// After it is filled to the last block, everything can be removed.
#[test]
fn a_volume_made_as_small_as_can_be_can_be_filled_and_emptied() {
    for options in formats() {
        let what = format!("{options:?}");
        let image = volume(&options, 2048 * KIB, 2048 * KIB, 40);
        let least = {
            let volume = open(&image);
            (volume.size_least() / KIB / 8..2048 / 8).map(|step| step * 8 * KIB).find(|size| {
                let volume = open(&image);
                volume.shrink(*size, &mut |_| {}).is_ok()
            })
        };
        assert!(least.is_some(), "{what}");
        let volume = open(&image);
        let caller = Caller::default();
        let mut names = Vec::new();
        loop {
            let name = format!("more {}", names.len());
            match volume.create(
                InodeNumber::ROOT,
                name.as_bytes(),
                NewNode::Regular,
                0o644,
                &caller,
            ) {
                Ok(made) => {
                    let written = volume.write(made.inode, 0, &[3; 2500], false);
                    assert!(matches!(written, Ok(()) | Err(Error::NoSpace)), "{what}: {written:?}");
                    names.push(name);
                }
                Err(error) => {
                    assert_eq!(error, Error::NoSpace, "{what}");
                    break;
                }
            }
        }
        names.extend(
            (0..40).filter(|number| number % 3 != 0).map(|number| format!("file {number}")),
        );
        for name in &names {
            assert_eq!(volume.unlink(InodeNumber::ROOT, name.as_bytes()), Ok(()), "{what}: {name}");
        }
        volume.close().unwrap();
    }
}

#[test]
fn smaller_to_the_least_and_larger_again() {
    for options in formats() {
        let what = format!("{options:?}");
        let old = 3072 * KIB;
        let image = volume(&options, 4096 * KIB, old, 60);
        let (mut last, mut size) = (old, 2000 * KIB);
        loop {
            let volume = open(&image);
            if volume.size_least() < size {
                size = volume.size_least();
            }
            match volume.shrink(size, &mut |_| {}) {
                Ok(()) => last = size,
                Err(Error::NoSpace | Error::VolumeTooSmall { .. }) => break,
                Err(error) => panic!("{what}: {error}"),
            }
            assert_eq!(volume.transact(), Err(Error::Poisoned("it has been closed")));
            drop(volume);
            let found = verify(&image, 60, &what);
            assert!(found <= size && found + 4096 > size, "{what}: {found} {size}");
            size -= size / 16;
        }
        assert!(last < 1600 * KIB, "{what}: not smaller than {last}");
        // A refused attempt has changed nothing.
        verify(&image, 60, &what);
        let volume = open(&image);
        assert!(matches!(volume.grow(5000 * KIB), Err(Error::Truncated { .. })), "{what}");
        assert!(
            matches!(
                volume.grow(100 * KIB),
                Err(Error::InvalidArgument(_) | Error::VolumeTooSmall { .. })
            ),
            "{what}"
        );
        volume.grow(4096 * KIB).unwrap();
        // The live volume can use the new space at once.
        let caller = Caller::default();
        let made =
            volume.create(InodeNumber::ROOT, b"big", NewNode::Regular, 0o644, &caller).unwrap();
        for piece in 0..16u64 {
            volume.write(made.inode, piece * 100_000, &vec![piece as u8; 100_000], false).unwrap();
        }
        assert_eq!(volume.info().size, 4096 * KIB);
        volume.close().unwrap();
        verify(&image, 60, &what);
    }
}

/// Runs `change` on copies of `image`, with the power cut at each of its requests.
fn cut_everywhere(
    image: &MemoryMedium,
    sizes: [u64; 2],
    what: &str,
    change: &dyn Fn(&TestVolume<SimMedium>),
) {
    let mut cuts = 0;
    let mut seen = [0; 2];
    for requests in 0.. {
        let sim = Arc::new(SimMedium::on(image, SimOptions::disk(0)));
        let volume = open(&sim);
        sim.arm_power_cut(requests);
        change(&volume);
        let over = !sim.is_off();
        for survival in sim.corner_cases() {
            let after = Arc::new(sim.power_cut_with(survival));
            let found = verify(&after, 24, &format!("{what}, cut at {requests}, {survival:?}"));
            let which = sizes.iter().position(|size| *size == found);
            seen[which.unwrap_or_else(|| panic!("{what}: size {found}"))] += 1;
            cuts += 1;
        }
        if over {
            break;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0 && cuts > 40, "{what}: {seen:?} of {cuts}");
}

#[test]
fn power_cuts_leave_the_old_size_or_the_new_one() {
    let options = FormatOptions {
        block_size: 512,
        metadata_copies: Some(2),
        log_size: Some(8 * KIB),
        ..FormatOptions::default()
    };
    let image = volume(&options, 640 * KIB, 512 * KIB, 24);
    cut_everywhere(&image, [512 * KIB, 300 * KIB], "smaller", &|volume| {
        let _ = volume.shrink(300 * KIB, &mut |_| {});
    });
    cut_everywhere(&image, [512 * KIB, 640 * KIB], "larger", &|volume| {
        let _ = volume.grow(640 * KIB);
    });
    // If the superblock can be torn, the copy at the end of the medium leads to the volume.
    let options = FormatOptions {
        block_size: 128,
        node_size: Some(1024),
        metadata_copies: Some(1),
        ..options
    };
    let image = volume(&options, 400 * KIB, 400 * KIB, 24);
    cut_everywhere(&image, [400 * KIB, 300 * KIB], "smaller, torn", &|volume| {
        let _ = volume.shrink(300 * KIB, &mut |_| {});
    });
    let image = volume(&options, 400 * KIB, 320 * KIB, 24);
    cut_everywhere(&image, [320 * KIB, 400 * KIB], "larger, torn", &|volume| {
        let _ = volume.grow(400 * KIB);
    });
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let options =
        FormatOptions { block_size: 128, node_size: Some(512), ..FormatOptions::default() };
    let image = volume(&options, 640 * KIB, 512 * KIB, 12);
    let torn = Arc::new(MemoryMedium::new(640 * KIB, 128).unwrap());
    let mut bytes = vec![0; 640 << 10];
    steadfast_media::Medium::read(&image, 0, &mut bytes).unwrap();
    steadfast_media::Medium::write(&torn, 0, &bytes).unwrap();
    let _: Geometry = steadfast_media::Medium::geometry(&torn);
    let volume = open(&torn);
    // The superblock could be torn, and nothing else would lead to the volume.
    assert!(matches!(volume.shrink(400 * KIB, &mut |_| {}), Err(Error::Unsupported(_))));
    assert!(matches!(volume.grow(600 * KIB), Err(Error::Unsupported(_))));
    assert!(matches!(volume.shrink(512 * KIB, &mut |_| {}), Err(Error::InvalidArgument(_))));
    assert!(matches!(volume.shrink(1000, &mut |_| {}), Err(Error::VolumeTooSmall { .. })));
    volume.grow(640 * KIB).unwrap();
    volume.close().unwrap();
    verify(&torn, 12, "torn");
}
