//! `steadfast clone` on a mount.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use common::{Scratch, can_mount};
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
