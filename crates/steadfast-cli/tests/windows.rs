//! Volumes in parts of an image: `disk.img?offset=1M&size=16M` wherever an image is named.

mod common;

use std::fs;

use common::{Scratch, can_mount};

const FIRST: &str = "disk.img?offset=1M&size=16M";
const SECOND: &str = "disk.img?offset=17M&size=8M";
/// The same as [`SECOND`].
const SECOND_TOO: &str = "disk.img?offset=17408K";

/// A file with a volume in two parts of it, and something else in all the rest.
fn disk() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("disk.img", &[0xa5; 25 << 20]);
    for (part, label) in [(FIRST, "first"), (SECOND, "second")] {
        scratch.fails(5, &format!("mkfs {part}"));
        scratch.ok(&format!("mkfs --force --label {label} {part}"));
    }
    scratch
}

/// Nothing outside the two parts was written.
fn rest_is_untouched(scratch: &Scratch) {
    let bytes = fs::read(scratch.path("disk.img")).unwrap();
    assert_eq!(bytes.len(), 25 << 20);
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0xa5));
}

#[test]
fn every_command_takes_a_part() {
    let scratch = disk();
    assert_eq!(scratch.ok(&format!("info --get size {FIRST}")).trim(), "16777216");
    assert_eq!(scratch.ok(&format!("info --get size {SECOND_TOO}")).trim(), "8388608");
    scratch.write("file", b"contents");
    for part in [FIRST, SECOND] {
        scratch.ok(&format!("put {part} file /file"));
        assert_eq!(scratch.ok(&format!("cat {part} /file")), "contents");
        scratch.ok(&format!("get {part} /file got"));
        assert_eq!(fs::read(scratch.path("got")).unwrap(), b"contents");
        fs::remove_file(scratch.path("got")).unwrap();
        assert!(scratch.ok(&format!("ls {part}")).contains("file"));
        scratch.ok(&format!("snapshot create {part} one"));
        scratch.ok(&format!("tune --mask +rename {part}"));
        assert!(scratch.ok(&format!("mask get {part}")).contains("rename"));
        scratch.ok(&format!("rm {part} /file"));
        scratch.ok(&format!("snapshot delete {part} one"));
        for command in ["check", "scrub", "tree", "df", "trim", "map"] {
            scratch.ok(&format!("{command} {part}"));
        }
        scratch.ok(&format!("dump {part} superblock"));
    }
    assert!(scratch.ok(&format!("info --export {FIRST}")).contains("LABEL=first"));
    assert!(scratch.ok(&format!("info --export {SECOND_TOO}")).contains("LABEL=second"));
    rest_is_untouched(&scratch);
    // It shrinks and grows inside of its part, and the file stays as long as it is.
    scratch.ok(&format!("image resize {FIRST} 8M"));
    scratch.ok(&format!("image resize {FIRST} 12M"));
    scratch.fails(6, &format!("image resize {FIRST} 20M"));
    scratch.ok(&format!("check {FIRST}"));
    scratch.ok(&format!("check {SECOND}"));
    rest_is_untouched(&scratch);
    // A volume that is larger than its part is none.
    scratch.fails(4, "check disk.img?offset=17M&size=4M");
}

#[test]
fn two_parts_are_mounted_at_once_and_each_is_locked() {
    if !can_mount() {
        return;
    }
    let scratch = disk();
    fs::create_dir(scratch.path("mnt")).unwrap();
    scratch.ok(&format!("mount {FIRST} mnt"));
    fs::write(scratch.path("mnt/inside"), "of the first").unwrap();
    // The other one can be used meanwhile, alone and by its own name only.
    scratch.write("file", b"contents");
    scratch.ok(&format!("put {SECOND} file /file"));
    for other in [
        "check disk.img?offset=1M",
        "check disk.img?offset=4M&size=1M",
        "mkfs --force disk.img?offset=512K",
        "mkfs --force disk.img",
        "put disk.img?offset=1M&size=16M file /x",
    ] {
        scratch.fails(5, other);
    }
    // Whatever the size is written like, it is the volume that is mounted.
    assert_eq!(scratch.ok("info --get label disk.img?offset=1024K").trim(), "first");
    scratch.ok("transact mnt");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok(&format!("cat {FIRST} /inside")), "of the first");
    scratch.ok(&format!("mount {FIRST} mnt"));
    scratch.ok("umount disk.img?offset=1M");
    scratch.ok(&format!("check {FIRST}"));
    rest_is_untouched(&scratch);
}

#[test]
fn a_part_that_is_none_is_refused_in_one_line() {
    let scratch = disk();
    let before = fs::read(scratch.path("disk.img")).unwrap();
    fs::create_dir(scratch.path("directory")).unwrap();
    for part in [
        "disk.img?offset=x",
        "disk.img?offset=-1",
        "disk.img?offset=1M&offset=2M",
        "disk.img?ofset=1M",
        "disk.img?offset=1M&size=0",
        "disk.img?offset=100",
        "disk.img?offset=1M&size=1000",
        "disk.img?offset=25M",
        "disk.img?offset=20M&size=8M",
        "disk.img?offset=16E",
    ] {
        for command in ["info", "ls", "check", "mkfs --force", "info --export", "scrub"] {
            let line = scratch.fails(2, &format!("{command} {part}"));
            assert!(line.contains(&format!(": {part}: ")), "{line}");
        }
        fs::create_dir_all(scratch.path("mnt")).unwrap();
        scratch.fails(2, &format!("mount {part} mnt"));
    }
    scratch.fails(1, "mkfs none.img?offset=1M");
    scratch.fails(1, "info none.img?offset=1M");
    scratch.fails(2, "info directory?offset=1M");
    scratch.fails(2, "image build new.img?offset=1M directory");
    scratch.fails(6, "mkfs --force --size 16M disk.img?offset=20M");
    scratch.fails(3, "info disk.img?offset=512");
    assert!(fs::read(scratch.path("disk.img")).unwrap() == before);
    // A file that has such a name is that file.
    scratch.ok("mkfs --size 8M plain.img");
    fs::rename(scratch.path("plain.img"), scratch.path("odd.img?offset=1M")).unwrap();
    scratch.ok("check odd.img?offset=1M");
}
