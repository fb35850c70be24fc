//! Images with valid checksums that no correct program makes: commands end, and write nothing in
//! the wrong place.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{STEADFAST, Scratch, failed};
use steadfast_torture::hostile::anatomy::{Anatomy, NODE_HEADER, RECORD_HEADER, SLOT, set};
use steadfast_torture::hostile::base_image;

/// Key kind of a directory entry.
const DIRENT: u8 = 2;
/// Key kind of an allocation group.
const GROUP: u8 = 16;
/// Bytes of an entry before its name: inode and type.
const HEADER: usize = 9;

/// Changes the entry of this name, and corrects every checksum above it.
fn edit_entry(image: &Path, name: &str, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(image).unwrap();
    let anatomy = Anatomy::of(&bytes);
    let mut found = None;
    for node in anatomy.nodes(&bytes).into_iter().filter(|node| node.level == 0) {
        for index in 0..anatomy.count(&bytes, node.copies[0]) {
            let kind = bytes[node.copies[0] + NODE_HEADER + index * SLOT + 8];
            let Some((at, length)) = anatomy.value(&bytes, node.copies[0], index) else { continue };
            if kind == DIRENT && bytes[at..at + length][HEADER..] == *name.as_bytes() {
                found = Some((node.path.clone(), at, length));
            }
        }
    }
    let (path, at, length) = found.expect("the entry");
    change(&mut bytes[at..at + length]);
    anatomy.seal(&mut bytes, &path);
    fs::write(image, bytes).unwrap();
}

/// `disk.img` with `/a/b/loop`, which is `/a`, and a file.
fn circle() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("source/a/b")).unwrap();
    fs::write(scratch.path("source/a/b/loop"), "x").unwrap();
    fs::write(scratch.path("source/file"), "y").unwrap();
    scratch.ok("image build disk.img source");
    scratch.ok("image build sound.img source");
    let tree: serde_json::Value =
        serde_json::from_str(&scratch.ok("tree --json disk.img")).unwrap();
    let a = tree.as_array().unwrap().iter().find(|entry| entry["name"] == "a").unwrap();
    let inode = a["inode"].as_u64().unwrap();
    edit_entry(&scratch.path("disk.img"), "loop", |entry| {
        entry[..8].copy_from_slice(&inode.to_le_bytes());
        entry[8] = 4;
    });
    fs::remove_dir_all(scratch.path("source")).unwrap();
    scratch
}

/// As [`Scratch::line`], for a command that might never end.
fn bounded(scratch: &Scratch, line: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", STEADFAST]).args(line.split_whitespace());
    command
        .current_dir(scratch.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap()
}

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_that_is_its_own_ancestor_ends_every_walk() {
    let scratch = circle();
    let before = names(&scratch);
    for line in [
        "tree disk.img",
        "tree --json disk.img",
        "tree disk.img /a/b",
        "image extract --tar disk.img out.tar",
        "image extract --tar disk.img -",
        "image extract disk.img out",
        "image diff disk.img sound.img",
        "image diff disk.img disk.img",
        "defrag --dry-run disk.img",
        "rm -r disk.img /a",
    ] {
        let said = failed(&bounded(&scratch, line), 4, line);
        assert!(
            said.contains("its own ancestor") && said.contains("steadfast check"),
            "{line}: {said}"
        );
        assert_eq!(names(&scratch), before, "{line}");
    }
    // `get` copies whole files one by one, so the files before the failure exist.
    let said = failed(&bounded(&scratch, "get -r disk.img / out"), 4, "get");
    assert!(said.contains("its own ancestor"), "{said}");
    assert!(!scratch.path("out/a/b/loop/b").exists());
    let check = scratch.line("check disk.img");
    let found = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(found.contains("is its own ancestor") && found.contains("; affects /a/b"), "{found}");
    // The rest can be copied out.
    scratch.line("check --salvage rescued disk.img");
    assert_eq!(fs::read(scratch.path("rescued/file")).unwrap(), b"y");
}

#[test]
fn a_name_that_is_a_path_goes_nowhere() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("source")).unwrap();
    fs::write(scratch.path("source/aaaaaaa"), "x").unwrap();
    fs::write(scratch.path("source/other"), "y").unwrap();
    for name in [&b"../../x"[..], b"/tmp/xx", b"a/../b/", b"a\0b\0c\0d"] {
        scratch.ok("image build --force disk.img source");
        edit_entry(&scratch.path("disk.img"), "aaaaaaa", |entry| {
            entry[HEADER..].copy_from_slice(name)
        });
        let before = names(&scratch);
        for line in [
            "ls disk.img",
            "tree disk.img",
            "image extract --tar disk.img out.tar",
            "image extract disk.img out",
            "get -r disk.img / out",
        ] {
            let said = failed(&bounded(&scratch, line), 4, line);
            assert!(said.contains("its name is no name"), "{line}: {said}");
            let _ = fs::remove_dir(scratch.path("out"));
            assert_eq!(names(&scratch), before, "{line}");
        }
        let check = scratch.line("check disk.img");
        assert!(String::from_utf8_lossy(&check.stdout).contains("its name is no name"));
        scratch.line("check --salvage rescued disk.img");
        assert_eq!(fs::read(scratch.path("rescued/other")).unwrap(), b"y");
        fs::remove_dir_all(scratch.path("rescued")).unwrap();
    }
}

/// A record with a key that no record may hold: the volume does not open, and no message says that
/// the rest of it works.
#[test]
fn a_bad_key_in_the_log_is_told_as_what_it_is() {
    let scratch = Scratch::new();
    let mut image = base_image(0).to_vec();
    let anatomy = Anatomy::of(&image);
    let mut records = anatomy.records(&image);
    let last = records.len() - 1;
    let (at, payload) = records[last];
    // The removal of allocation group 0, not packed: key, tag.
    let removal = [&[0; 7][..], &[1, GROUP], &[0; 8], &[0]].concat();
    assert!(removal.len() <= anatomy.record_room(payload));
    set(&mut image, at + 4, 4, 0);
    set(&mut image, at + 48, 4, removal.len() as u64);
    image[at + RECORD_HEADER..][..removal.len()].copy_from_slice(&removal);
    records[last].1 = removal.len();
    anatomy.seal_records(&mut image, &records, last);
    scratch.write("disk.img", &image);
    scratch.write("source", b"new");

    for line in ["ls disk.img", "get disk.img /file-0 out", "put disk.img source /new"] {
        let said = scratch.fails(4, line);
        assert!(said.contains("damaged intent log at block"), "{line}: {said}");
        assert!(said.contains("check --salvage DIR") && !said.contains("works"), "{line}: {said}");
    }
    assert_eq!(fs::read(scratch.path("disk.img")).unwrap(), image, "nothing was written");
    let check = scratch.line("check disk.img");
    let found = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(found.contains("the volume does not open"), "{found}");
    scratch.line("check --salvage rescued disk.img");
    assert!(scratch.path("rescued/file-0").exists());
}
