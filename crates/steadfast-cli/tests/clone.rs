//! `steadfast clone` on a mount.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use common::{Scratch, can_mount};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

/// Bytes of data that the volume uses.
fn used(scratch: &Scratch) -> u64 {
    scratch.ok("transact mnt");
    let document: Value = serde_json::from_str(&scratch.ok("df --json mnt")).unwrap();
    document[0]["used"].as_u64().unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + at / 4096) as u8).collect()
}

#[test]
fn whole_files_and_parts() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mounted = scratch.mounted("");
    let data = pattern((8 << 20) + 100);
    fs::write(mounted.join("source"), &data).unwrap();
    fs::set_permissions(mounted.join("source"), fs::Permissions::from_mode(0o4750)).unwrap();
    let before = used(&scratch);
    scratch.ok("clone mnt/source mnt/copy");
    let metadata = fs::metadata(mounted.join("copy")).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o750, "as cp: no set-id bits");
    assert!(fs::read(mounted.join("copy")).unwrap() == data);

    scratch.ok("clone --range 1MiB:1MiB:0 mnt/source mnt/copy");
    let mut expected = data.clone();
    expected.copy_within(1 << 20..2 << 20, 0);
    assert!(fs::read(mounted.join("copy")).unwrap() == expected);
    // From an offset to the end of the source, into the target beyond its end.
    scratch.ok("clone --range 8MiB:100:16MiB mnt/source mnt/copy");
    expected.resize(16 << 20, 0);
    expected.extend_from_slice(&data[8 << 20..]);
    assert!(fs::read(mounted.join("copy")).unwrap() == expected);
    scratch.ok("clone --range 0:4K:8K mnt/copy mnt/copy");
    scratch.ok("clone --force mnt/source mnt/copy");
    assert!(fs::read(mounted.join("copy")).unwrap() == data);
    fs::write(mounted.join("small"), "small").unwrap();
    scratch.ok("clone mnt/small mnt/empty-or-small");
    assert_eq!(fs::read(mounted.join("empty-or-small")).unwrap(), b"small");
    let after = used(&scratch);
    assert!(after < before + (1 << 20), "{before} bytes, then {after}");
    let left: Vec<_> =
        fs::read_dir(&mounted).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
    scratch.ok("umount mnt");
    scratch.ok("check disk.img");
}

#[test]
fn bad_input_changes_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mounted = scratch.mounted("");
    let data = pattern(100_000);
    for name in ["a", "b"] {
        fs::write(mounted.join(name), &data).unwrap();
    }
    fs::create_dir(mounted.join("dir")).unwrap();
    symlink("/dev/null", mounted.join("device")).unwrap();
    scratch.write("elsewhere", &data);
    scratch.ok("snapshot create mnt then");
    for (line, exit, part) in [
        ("clone mnt/none mnt/c", 1, "check the path"),
        ("clone mnt/dir mnt/c", 1, "this is a directory"),
        ("clone mnt/device mnt/c", 1, "not a regular file"),
        ("clone mnt/a mnt/b", 1, "use --force"),
        ("clone mnt/a mnt/dir", 1, "name a file in it"),
        ("clone --force mnt/a mnt/dir", 1, "name a file in it"),
        ("clone mnt/a mnt/none/c", 1, "check the path"),
        ("clone elsewhere mnt/c", 3, "no Steadfast volume is mounted here"),
        ("clone mnt/a elsewhere2", 3, "no Steadfast volume is mounted here"),
        ("clone mnt/.snapshots/then/a mnt/c", 1, "blocks of a snapshot"),
        ("clone mnt/a mnt/.snapshots/then/c", 1, "read-only"),
        ("clone --range 1:4096 mnt/a mnt/b", 2, "whole blocks of 4096 bytes"),
        ("clone --range 0:100 mnt/a mnt/b", 2, "whole blocks of 4096 bytes"),
        ("clone --range 98304:1696:0 mnt/a mnt/b", 2, "whole blocks of 4096 bytes"),
        ("clone --range 0:1MiB mnt/a mnt/b", 2, "the file at 100000"),
        ("clone --range 0:8K:4K mnt/a mnt/a", 2, "overlap"),
        ("clone --range 0:4K mnt/a mnt/c", 1, "check the path"),
        ("clone --range nonsense mnt/a mnt/b", 2, "nonsense"),
        ("clone --range 0:4K --force mnt/a mnt/b", 2, "cannot be used with"),
    ] {
        let said = scratch.fails(exit, line);
        assert!(said.contains(part), "{line}: {said}");
    }
    for name in ["a", "b"] {
        assert!(fs::read(mounted.join(name)).unwrap() == data, "{name}");
    }
    let mut left: Vec<_> =
        fs::read_dir(&mounted).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "b", "device", "dir"]);
    scratch.ok("umount mnt");
}

/// The open of a FIFO waits for its other end, and a clone must not wait for ever.
#[test]
fn a_fifo_is_refused_at_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mounted = scratch.mounted("");
    fs::write(mounted.join("file"), pattern(8192)).unwrap();
    for place in ["fifo", "mnt/fifo"] {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, scratch.path(place), FileType::Fifo, mode, 0).unwrap();
    }
    for command in [
        "clone fifo mnt/copy",
        "clone mnt/fifo mnt/copy",
        "clone --range 0:4K mnt/fifo mnt/file",
        "clone --range 0:4K mnt/file mnt/fifo",
    ] {
        let line = scratch.fails(1, command);
        assert!(line.contains("this is not a regular file"), "{command}: {line}");
    }
    let line = scratch.fails(1, "clone --force mnt/file mnt/fifo");
    assert!(line.contains("a device, FIFO or socket is in the way"), "{line}");
    assert!(!mounted.join("copy").exists());
    scratch.ok("umount mnt");
}

/// A daemon whose log nothing reads would stop, so the log is a file.
#[test]
fn a_log_is_no_fifo() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    fs::create_dir_all(scratch.path("mnt")).unwrap();
    mknodat(CWD, scratch.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for options in ["", "-f "] {
        let line = scratch.fails(2, &format!("mount {options}--log fifo disk.img mnt"));
        assert!(line.contains("the log is no regular file"), "{line}");
    }
    scratch.ok("mount --log /dev/null disk.img mnt");
    scratch.ok("umount mnt");
    scratch.ok("mount --log log disk.img mnt");
    scratch.ok("umount mnt");
    assert!(!fs::read_to_string(scratch.path("log")).unwrap().is_empty());
}
