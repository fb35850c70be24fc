//! `steadfast snapshot`, on images and on mounts.

mod common;

use std::fs;

use common::{Scratch, can_mount};
use serde_json::Value;

fn names(scratch: &Scratch, target: &str) -> Vec<String> {
    let text = scratch.ok(&format!("snapshot list --json {target}"));
    let list: Value = serde_json::from_str(&text).unwrap();
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// The time of a snapshot, as the list shows it.
fn taken_at(scratch: &Scratch, target: &str, name: &str) -> String {
    let list = scratch.ok(&format!("snapshot list {target}"));
    let line = list.lines().find(|line| line.ends_with(&format!("  {name}"))).expect("its line");
    line.split("  ").next().unwrap().to_owned()
}

#[test]
fn on_an_image() {
    let scratch = Scratch::new();
    scratch.volume("64M");
    scratch.put("/file", b"first");
    let said = scratch.ok("snapshot create disk.img one");
    assert_eq!(said, "one: snapshot of 2 inodes\n");
    scratch.put("/file", b"second");
    scratch.put("/other", &[7; 1 << 20]);
    scratch.ok("snapshot create disk.img two");
    scratch.ok("rm disk.img /other");
    let list = scratch.ok("snapshot list disk.img");
    assert!(list.lines().count() == 3 && list.contains("one") && list.contains("two"), "{list}");

    let line = scratch.fails(1, "snapshot rollback disk.img one");
    assert!(line.contains("newer snapshots") && line.contains("--force"), "{line}");
    let time = taken_at(&scratch, "disk.img", "two");
    let said = scratch.ok("snapshot rollback disk.img two");
    assert_eq!(said, format!("two: the volume is as it was {time}, 3 inodes\n"));
    assert_eq!(scratch.ok("cat disk.img /file"), "second");
    assert_eq!(scratch.ok("ls disk.img /").lines().count(), 2);
    let time = taken_at(&scratch, "disk.img", "one");
    let said = scratch.ok("snapshot rollback --force disk.img one");
    let expected = format!(
        "one: the volume is as it was {time}, 2 inodes; the newer snapshot two is destroyed\n"
    );
    assert_eq!(said, expected);
    assert_eq!(scratch.ok("cat disk.img /file"), "first");
    assert_eq!(names(&scratch, "disk.img"), ["one"]);
    scratch.ok("check disk.img");

    // Without a name, the snapshot is named after the time.
    scratch.ok("snapshot create disk.img");
    let by_time = names(&scratch, "disk.img").pop().unwrap();
    assert!(by_time.starts_with("20") && by_time.ends_with('Z'), "{by_time}");
    scratch.ok("snapshot create disk.img last");
    let said = scratch.ok("snapshot rollback --force disk.img one");
    let destroyed = format!("; 2 newer snapshots are destroyed: {by_time}, last\n");
    assert!(said.ends_with(&destroyed), "{said}");
    scratch.ok("snapshot delete disk.img one");
    assert!(names(&scratch, "disk.img").is_empty());
    scratch.ok("check disk.img");
}

#[test]
fn bad_input_changes_nothing() {
    let scratch = Scratch::new();
    scratch.volume("16M");
    scratch.ok("snapshot create disk.img one");
    let before = fs::read(scratch.path("disk.img")).unwrap();
    for (line, exit, part) in [
        ("snapshot create disk.img one", 1, "already"),
        ("snapshot create disk.img ..", 1, "no name for a snapshot"),
        ("snapshot create disk.img a/b", 1, "no name for a snapshot"),
        ("snapshot delete disk.img none", 1, "no snapshot of this name"),
        ("snapshot rollback disk.img none", 1, "no snapshot of this name"),
        ("snapshot delete disk.img", 2, "NAME"),
        ("snapshot create missing.img one", 1, "check the path"),
        ("mount -o snapshots=hourly=0 disk.img mnt", 2, "keep 1 to"),
        ("mount --snapshots never=1 disk.img mnt", 2, "no period"),
    ] {
        let said = scratch.fails(exit, line);
        assert!(said.contains(part), "{line}: {said}");
    }
    assert_eq!(names(&scratch, "disk.img"), ["one"]);
    assert!(before == fs::read(scratch.path("disk.img")).unwrap(), "not a byte has changed");
}

#[test]
fn on_a_mount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mnt = scratch.mounted("");
    fs::write(mnt.join("file"), "first").unwrap();
    let said = scratch.ok("snapshot create mnt one");
    assert!(said.contains("one"), "{said}");
    fs::write(mnt.join("file"), "second").unwrap();
    assert_eq!(fs::read(mnt.join(".snapshots/one/file")).unwrap(), b"first");
    let line = scratch.fails(1, "snapshot create mnt one");
    assert!(line.contains("already"), "{line}");
    let time = taken_at(&scratch, "mnt", "one");
    let said = scratch.ok("snapshot rollback mnt one");
    assert_eq!(said, format!("one: the volume is as it was {time}, 2 inodes\n"));
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"first");
    scratch.ok("umount mnt");

    // Only the snapshot is mounted, and it cannot be changed.
    scratch.put("/file", b"third");
    let line = scratch.fails(1, "mount -o snapshot=none disk.img mnt");
    assert!(line.contains("no snapshot 'none'"), "{line}");
    let mnt = scratch.mounted("-o snapshot=one");
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"first");
    assert!(fs::write(mnt.join("file"), "x").is_err());
    scratch.ok("umount mnt");
    scratch.ok("check disk.img");
}

#[test]
fn differences() {
    let scratch = Scratch::new();
    scratch.volume("64M");
    for name in ["same", "changed", "moved", "gone"] {
        scratch.put(&format!("/{name}"), name.as_bytes());
    }
    scratch.ok("snapshot create disk.img one");
    scratch.put("/changed", b"other content");
    scratch.ok("rm disk.img /gone");
    scratch.put("/new", b"new");
    scratch.ok("snapshot create disk.img two");
    let expected = "* /changed  (content)\n- /gone\n+ /new\n";
    let image = scratch.ok("snapshot diff disk.img one two");
    // `put` makes a new file, so the diff may also show one removed and one added file.
    let replaced = expected.replace("* /changed  (content)\n", "- /changed\n+ /changed\n");
    assert!(image == expected || image == replaced, "{image}");
    assert_eq!(scratch.ok("snapshot diff disk.img two"), "");
    let line = scratch.fails(1, "snapshot diff disk.img one three");
    assert!(line.contains("no snapshot of this name"), "{line}");
    if !can_mount() {
        return;
    }
    let mnt = scratch.mounted("");
    assert_eq!(scratch.ok("snapshot diff mnt one two"), image);
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::rename(mnt.join("moved"), mnt.join("dir/there")).unwrap();
    fs::write(mnt.join("same"), "not the same").unwrap();
    let live = scratch.ok("snapshot diff mnt two");
    assert_eq!(live, "+ /dir\n> /moved -> /dir/there\n* /same  (content)\n");
    let list: Value = serde_json::from_str(&scratch.ok("snapshot diff --json mnt two")).unwrap();
    assert_eq!(list[1]["from"]["name"], "/moved");
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("snapshot diff disk.img two"), live);
}

#[test]
fn by_a_schedule() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    scratch.mounted("--snapshots hourly=2,daily=1");
    common::wait_for("the snapshots that are due", || names(&scratch, "mnt").len() >= 2);
    let taken = names(&scratch, "mnt");
    assert!(taken.iter().any(|name| name.starts_with("hourly-20")), "{taken:?}");
    assert!(taken.iter().any(|name| name.starts_with("daily-20")), "{taken:?}");
    scratch.ok("umount mnt");
    scratch.ok("check disk.img");
}
