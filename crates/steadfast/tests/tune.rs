//! Label and uuid: a power cut at any request leaves the old names or the new ones, and a sound
//! volume.

use steadfast::check::{CheckOptions, Severity, check, repair};
use steadfast::fs::{Caller, NewNode};
use steadfast::scrub::Scrub;
use steadfast::testing::TestPlatform;
use steadfast::tools::{Identity, Tune, identify, tune};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_media::{Medium, MemoryMedium, SimMedium, SimOptions};

fn volume(block_size: u32, atomic_unit: u32) -> MemoryMedium {
    let image = MemoryMedium::new(1 << 20, atomic_unit).unwrap();
    let options = FormatOptions {
        block_size,
        label: "old".into(),
        uuid: [5; 16],
        ..FormatOptions::default()
    };
    let platform = TestPlatform::new();
    Volume::format(&image, &options, &platform).unwrap();
    let volume = Volume::open(&image, OpenOptions::default(), &platform).unwrap();
    let made = volume
        .create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &Caller::default())
        .unwrap();
    volume.write(made.inode, 0, &[7; 5000], false).unwrap();
    // Records stay in the log: they carry the uuid of format.
    volume.transact().unwrap();
    drop(volume);
    image
}

fn names(medium: &impl Medium) -> (String, [u8; 16]) {
    let Identity { label, uuid, .. } = identify(medium, &TestPlatform::new()).unwrap();
    (label, uuid)
}

fn read(medium: &impl Medium) -> Vec<u8> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let platform = TestPlatform::new();
    let volume = Volume::open(medium, options, &platform).unwrap();
    let file = volume.lookup(InodeNumber::ROOT, b"file").unwrap();
    let mut bytes = vec![0; file.size as usize];
    volume.read(file.inode, 0, &mut bytes).unwrap();
    bytes
}

fn change() -> Tune {
    Tune { label: Some("new".into()), uuid: Some([9; 16]), ..Tune::default() }
}

#[test]
fn power_cuts_leave_the_old_names_or_the_new_ones() {
    let platform = TestPlatform::new();
    for (block_size, unit) in [(4096, 512), (512, 512), (128, 128)] {
        let image = volume(block_size, unit);
        let (old, new) = (names(&image), ("new".to_owned(), [9; 16]));
        let mut seen = [0, 0];
        for requests in 0.. {
            let sim = SimMedium::on(&image, SimOptions::new(0, unit));
            sim.arm_power_cut(requests);
            let done = tune(&sim, &platform, &change()).is_ok();
            for survival in sim.corner_cases() {
                let after = sim.power_cut_with(survival);
                let found = names(&after);
                assert!(found == new || found == old && !done, "cut at {requests}: {found:?}");
                seen[usize::from(found == new)] += 1;
                assert_eq!(read(&after), [7; 5000]);
                let report =
                    check(&after, &platform, &CheckOptions::default(), &mut |_| {}).unwrap();
                assert!(report.findings.iter().all(|found| found.severity == Severity::Degraded));
                let repaired =
                    repair(&after, &platform, &CheckOptions::default(), &mut |_| {}).unwrap();
                assert!(repaired.after.is_clean(), "{:?}", repaired.after.findings);
                assert_eq!(names(&after), found, "a repair keeps the names");
            }
            if !sim.is_off() {
                break;
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

#[test]
fn names_outlast_a_change_of_size_and_a_damaged_first_copy() {
    let platform = TestPlatform::new();
    let image = volume(4096, 512);
    let original = names(&image).1;
    // The first copy is damaged. It is written first, because the second one is the only good copy.
    image.write(0, &[0x5a; 512]).unwrap();
    tune(&image, &platform, &change()).unwrap();
    assert!(check(&image, &platform, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
    let volume = Volume::open(&image, OpenOptions::default(), &platform).unwrap();
    assert_eq!((volume.info().label.as_str(), volume.info().uuid), ("new", [9; 16]));
    volume.shrink(900 << 10, &mut |_| {}).unwrap();
    drop(volume);
    assert_eq!(names(&image), ("new".to_owned(), [9; 16]));
    // Back to the uuid of format.
    tune(
        &image,
        &platform,
        &Tune { uuid: Some(original), label: Some(String::new()), ..Tune::default() },
    )
    .unwrap();
    assert_eq!(names(&image), (String::new(), original));
    assert_eq!(read(&image), [7; 5000]);
}

#[test]
fn an_open_volume_changes_its_label() {
    let platform = TestPlatform::new();
    for (block_size, unit) in [(4096, 512), (128, 128)] {
        let image = volume(block_size, unit);
        let open = |image: MemoryMedium| {
            Volume::open(image, OpenOptions::default(), TestPlatform::new()).unwrap()
        };
        let mut seen = [0, 0];
        for requests in 0.. {
            let sim = SimMedium::on(&image, SimOptions::new(0, unit));
            let volume = Volume::open(&sim, OpenOptions::default(), &platform).unwrap();
            sim.arm_power_cut(requests);
            let done = volume.set_label("new").is_ok();
            for survival in sim.corner_cases() {
                let after = sim.power_cut_with(survival);
                let label = names(&after).0;
                assert!(label == "new" || !done, "cut at {requests}: {label}");
                seen[usize::from(label == "new")] += 1;
                assert_eq!(read(&after), [7; 5000]);
            }
            if !sim.is_off() {
                assert_eq!(volume.info().label, "new");
                break;
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");

        let volume = open(image);
        let points = volume.info().transaction_points;
        for bad in ["x".repeat(33), "a\0b".into()] {
            assert!(matches!(volume.set_label(&bad), Err(Error::InvalidArgument(_))));
        }
        let held = volume.begin().unwrap();
        assert_eq!(volume.set_label("held"), Err(Error::Held));
        drop(held);
        volume.set_label(&"ü".repeat(16)).unwrap();
        volume.rollback().unwrap();
        assert_eq!(volume.info().label, "ü".repeat(16));
        assert_eq!(volume.info().transaction_points, points);
        // A scrub compares the copies with the label of now.
        volume.set_label("").unwrap();
        let mut scrub = Scrub::default();
        while !scrub.report().finished {
            volume.scrub_step(&mut scrub).unwrap();
        }
        assert!(scrub.report().findings.is_empty(), "{:?}", scrub.report().findings);
        assert_eq!(names(volume.medium()).0, "");
    }
}

#[test]
fn a_volume_for_reading_keeps_its_label() {
    let image = volume(4096, 512);
    let before = image.to_bytes();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let reader = Volume::open(&image, options, TestPlatform::new()).unwrap();
    assert_eq!(reader.set_label("new"), Err(Error::ReadOnly));
    assert_eq!(image.to_bytes(), before);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let image = volume(4096, 512);
    let before = image.to_bytes();
    for bad in [
        Tune { label: Some("x".repeat(33)), uuid: None, ..Tune::default() },
        Tune { label: Some("a\0b".into()), uuid: None, ..Tune::default() },
        Tune { label: None, uuid: Some([0; 16]), ..Tune::default() },
    ] {
        assert!(matches!(tune(&image, &TestPlatform::new(), &bad), Err(Error::InvalidArgument(_))));
    }
    assert_eq!(image.to_bytes(), before);
}
