//! Block devices as media, through a loop device; skipped without root or loop devices.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast_host::{FileMedium, FileOptions, OpenError};
use steadfast_media::{FailureModel, Medium};

const SIZE: u64 = 4 << 20;

/// A loop device over a file of its own; detached by its name when dropped.
struct Loop {
    device: PathBuf,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new(sector: u32) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = directory.path().join("loop.img");
        std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&file)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Loop { device, _directory: directory })
            }
            _ => {
                eprintln!("skipped: no loop device to be had");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn block_device_behaves_like_memory() {
    for (seed, sector) in [(1, 512), (2, 4096)] {
        let Some(device) = Loop::new(sector) else { return };
        for (direct, cached_above) in [(false, false), (false, true), (true, false)] {
            let options = FileOptions { direct, cached_above, ..FileOptions::default() };
            let medium = FileMedium::open(device.path(), &options).unwrap();
            let geometry = medium.geometry();
            assert!(medium.is_block_device());
            assert_eq!((geometry.size, geometry.failure_model), (SIZE, FailureModel::PowerSafe));
            assert!(geometry.atomic_unit >= sector);
            let zeros = vec![0; SIZE as usize];
            medium.write(0, &zeros).unwrap();
            // Loop devices punch holes into their file.
            common::compare(&medium, seed, 800, true);
            common::in_parallel(&medium);
        }
    }
}

#[test]
fn a_device_has_one_owner() {
    let Some(device) = Loop::new(512) else { return };
    let options = FileOptions::default();
    let medium = FileMedium::open(device.path(), &options).unwrap();
    let error = FileMedium::open(device.path(), &options).unwrap_err();
    assert!(matches!(error, OpenError::DeviceInUse(_)), "{error}");
    // Given up for the kernel to take over, I/O goes on.
    medium.release_claim();
    medium.write(0, &[1; 4096]).unwrap();
    medium.discard(0, 4096).unwrap();
    let other = FileMedium::open(device.path(), &options).unwrap();
    drop(medium);
    drop(other);
    FileMedium::open(device.path(), &options).unwrap();
}

#[test]
fn units_of_a_device_are_its_blocks() {
    let Some(device) = Loop::new(4096) else { return };
    for unit in [512, 1 << 17] {
        let options = FileOptions { atomic_unit: Some(unit), ..FileOptions::default() };
        assert!(matches!(FileMedium::open(device.path(), &options), Err(OpenError::AtomicUnit { .. })));
    }
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let medium = FileMedium::open(device.path(), &options).unwrap();
    assert_eq!(medium.geometry().atomic_unit, 4096);
    assert!(medium.write(0, &[0; 4096]).is_err());
}
