//! The mount options `asynchronous`, `background` and `synchronous`. If nothing can be mounted, the
//! tests are skipped with a message.

mod common;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use common::{Scratch, can_mount, wait_for};
use serde_json::Value;

fn mask(scratch: &Scratch, target: &str) -> (Vec<String>, u64) {
    let mask: Value =
        serde_json::from_str(&scratch.ok(&format!("mask get --json {target}"))).expect("JSON");
    let events = mask["mask"].as_array().expect("a list").iter();
    (
        events.map(|event| event.as_str().expect("a name").to_owned()).collect(),
        mask["timer_ms"].as_u64().expect("a number"),
    )
}

/// A name, a call that makes a change, and a check for that change.
type Call = (&'static str, fn(&Path), fn(&Path) -> bool);

const CALLS: [Call; 13] = [
    ("create", |at| drop(File::create(at.join("file")).unwrap()), |at| at.join("file").exists()),
    (
        "write",
        |at| {
            OpenOptions::new()
                .write(true)
                .open(at.join("file"))
                .unwrap()
                .write_all(b"abcdef")
                .unwrap()
        },
        |at| fs::read(at.join("file")).unwrap() == b"abcdef",
    ),
    (
        "write of several blocks at an offset",
        |at| {
            let file = OpenOptions::new().write(true).open(at.join("file")).unwrap();
            file.write_all_at(&[7; 20_000], 4000).unwrap();
        },
        |at| fs::read(at.join("file")).unwrap()[4000..] == [7; 20_000],
    ),
    (
        "truncate",
        |at| OpenOptions::new().write(true).open(at.join("file")).unwrap().set_len(3).unwrap(),
        |at| fs::read(at.join("file")).unwrap() == b"abc",
    ),
    (
        "chmod",
        |at| fs::set_permissions(at.join("file"), Permissions::from_mode(0o641)).unwrap(),
        |at| fs::metadata(at.join("file")).unwrap().permissions().mode() & 0o777 == 0o641,
    ),
    (
        "mkdir",
        |at| fs::create_dir(at.join("directory")).unwrap(),
        |at| at.join("directory").is_dir(),
    ),
    (
        "link",
        |at| fs::hard_link(at.join("file"), at.join("directory/link")).unwrap(),
        |at| fs::read(at.join("directory/link")).unwrap() == b"abc",
    ),
    (
        "rename",
        |at| fs::rename(at.join("directory/link"), at.join("moved")).unwrap(),
        |at| at.join("moved").exists() && !at.join("directory/link").exists(),
    ),
    (
        "symlink",
        |at| symlink("file", at.join("symlink")).unwrap(),
        |at| fs::read_link(at.join("symlink")).unwrap() == Path::new("file"),
    ),
    ("unlink", |at| fs::remove_file(at.join("moved")).unwrap(), |at| !at.join("moved").exists()),
    (
        "rmdir",
        |at| fs::remove_dir(at.join("directory")).unwrap(),
        |at| !at.join("directory").exists(),
    ),
    (
        "times",
        |at| {
            let file = File::open(at.join("file")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(77)).unwrap();
        },
        |at| {
            let modified = fs::metadata(at.join("file")).unwrap().modified().unwrap();
            modified == std::time::UNIX_EPOCH + std::time::Duration::from_secs(77)
        },
    ),
    (
        "attribute",
        |at| {
            let path = at.join("file");
            rustix::fs::setxattr(&path, "user.x", b"y", rustix::fs::XattrFlags::CREATE).unwrap();
        },
        |at| {
            let mut value = [0; 8];
            rustix::fs::getxattr(at.join("file"), "user.x", &mut value[..]) == Ok(1)
                && value[0] == b'y'
        },
    ),
];

#[test]
fn synchronous_calls_are_durable_when_they_return() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mnt = scratch.mounted("-o synchronous");
    for (name, call, seen) in CALLS {
        call(&mnt);
        // Nothing is synced and nothing waits: changes that are not durable now are lost.
        scratch.kill_daemon();
        scratch.ok("umount mnt");
        scratch.mounted("-o synchronous");
        assert!(seen(&mnt), "{name}: gone after kill -9");
    }
    let (events, _) = mask(&scratch, "mnt");
    assert!(events.iter().any(|event| event == "write"), "{events:?}");
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn background_makes_durable_without_being_asked() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    // The timer of the volume must not fire within this test.
    scratch.ok("mask set disk.img --timer 1h");
    let mnt = scratch.mounted("-o background=100ms");
    assert_eq!(mask(&scratch, "mnt").1, 100);
    fs::create_dir(mnt.join("d")).unwrap();
    let mut file = File::create(mnt.join("d/f")).unwrap();
    file.write_all(&vec![3; 300_000]).unwrap();
    wait_for("the timer to make it durable", || scratch.ok("info --get uncommitted mnt") == "0\n");
    scratch.kill_daemon();
    drop(file);
    scratch.ok("umount mnt");
    // The file was open, never synced, and is not in the kernel's cache.
    scratch.mounted("");
    assert!(fs::read(mnt.join("d/f")).unwrap() == vec![3; 300_000]);
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn a_behaviour_stays_until_another_is_asked_for() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let (default, timer) = mask(&scratch, "disk.img");
    scratch.mounted("-o synchronous,mask=no-close,timer=7s");
    scratch.ok("umount mnt");
    let (events, _) = mask(&scratch, "disk.img");
    assert!(
        events.iter().any(|event| event == "mkdir") && !events.iter().any(|event| event == "close")
    );
    scratch.mounted("-o ro,asynchronous");
    assert_eq!(mask(&scratch, "mnt").0, events, "a read-only mount changes nothing");
    scratch.ok("umount mnt");
    scratch.mounted(&format!("-o asynchronous,timer={timer}ms"));
    assert_eq!(mask(&scratch, "mnt"), (default, timer));
    scratch.ok("umount mnt");
    let line = scratch.fails(2, "mount disk.img mnt -o background=never");
    assert!(line.contains("interval"), "{line}");
}
