//! Every kind of wrong input to the command: one clear line, the documented exit code, and no data
//! loss.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use common::{CELL, Scratch, edit_superblock, failed, find, flip, is_root, succeeded};

#[test]
fn not_a_steadfast_image() {
    let scratch = Scratch::new();
    scratch.write("text.img", &[b'x'; 100_000]);
    scratch.write("zeros.img", &[0; 100_000]);
    scratch.write("tiny.img", b"tiny");
    scratch.write("empty.img", b"");
    for image in ["text.img", "zeros.img", "tiny.img", "empty.img"] {
        for command in ["info", "df", "ls", "tree", "check", "mask get"] {
            let line = scratch.fails(3, &format!("{command} {image}"));
            assert!(
                line.starts_with(&format!("steadfast: not a Steadfast volume: {image}: ")),
                "{line}"
            );
        }
    }
    assert_eq!(fs::read(scratch.path("text.img")).unwrap(), [b'x'; 100_000]);
}

#[test]
fn not_an_image_at_all() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("dir")).unwrap();
    scratch.fails(1, "info missing.img");
    scratch.fails(1, "ls missing.img");
    scratch.fails(3, "ls dir");
    scratch.fails(3, "info dir");
    scratch.fails(3, "info /dev/null");
    scratch.fails(3, "ls /dev/null");
    scratch.fails(2, "mkfs --size 1M dir");
    scratch.fails(2, "mkfs missing.img");
    // Whether a size is given or not, the missing directory is what has to be made first.
    for command in ["mkfs --size 1M missing/disk.img", "mkfs missing/disk.img"] {
        let line = scratch.fails(1, command);
        assert!(line.contains("there is no directory for it: missing/disk.img: "), "{line}");
        assert!(line.contains("'mkdir -p missing'"), "{line}");
    }
    assert!(!scratch.path("missing").exists());
}

/// The file systems of the kernel refuse new files even to root.
#[test]
fn a_directory_that_takes_no_files_is_named() {
    if !is_root() {
        eprintln!("skipped: others have no permission there");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("4M");
    for path in ["/proc/a.img", "/sys/kernel/a.img"] {
        let line = scratch.fails(1, &format!("mkfs -s 16M {path}"));
        assert!(line.contains("its directory takes no new files"), "{line}");
        assert!(line.ends_with("use another directory"), "{line}");
    }
    let line = scratch.fails(7, "get disk.img / -r /sys/kernel/out");
    assert!(line.contains("even to root") && !line.contains("as root"), "{line}");
}

#[test]
fn hints_work_when_they_are_followed() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let line = scratch.fails(8, "mount disk.img mnt");
    assert!(line.ends_with("make it with 'mkdir mnt'"), "{line}");
    // A mount point below a directory that is missing, too.
    let line = scratch.fails(8, "mount disk.img new/mnt");
    assert!(line.ends_with("make it with 'mkdir -p new/mnt'"), "{line}");
    // What clap suggests is apart from the mistake.
    let line = scratch.fails(2, "snapsho list disk.img");
    assert!(
        line.contains("subcommand 'snapsho'; a similar subcommand exists: 'snapshot': "),
        "{line}"
    );
    assert!(line.ends_with("see 'steadfast --help'"), "{line}");
}

#[test]
fn newer_version() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let image = scratch.path("disk.img");
    let before = fs::read(&image).unwrap();
    for offset in [0, before.len() as u64 - CELL] {
        edit_superblock(&image, offset, |bytes| bytes[8] = 9);
    }
    let line = scratch.fails(3, "ls disk.img");
    assert!(
        line.contains("version 9 is newer") && line.contains("use a steadfast that knows it"),
        "{line}"
    );
    let line = scratch.fails(5, "mkfs disk.img");
    assert!(line.contains("already holds a Steadfast volume"), "{line}");
}

#[test]
fn unknown_features() {
    let scratch = Scratch::new();
    scratch.volume("4M").put("/f", b"x");
    let image = scratch.path("disk.img");
    let last = fs::metadata(&image).unwrap().len() - CELL;
    // Read-only-compatible feature: reading works, writing does not.
    for offset in [0, last] {
        edit_superblock(&image, offset, |bytes| bytes[40] = 8);
    }
    assert_eq!(scratch.ok("cat disk.img /f"), "x");
    let line = failed(&scratch.with_input("put disk.img - /f", b"y"), 3, "put");
    assert!(line.contains("unknown features 0x8") && line.contains("-o ro"), "{line}");
    // Incompatible feature: neither works.
    for offset in [0, last] {
        edit_superblock(&image, offset, |bytes| bytes[48] = 4);
    }
    let line = scratch.fails(3, "cat disk.img /f");
    assert!(line.contains("unknown incompatible features 0x4"), "{line}");
}

#[test]
fn truncated_image() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let image = fs::OpenOptions::new().write(true).open(scratch.path("disk.img")).unwrap();
    image.set_len(3 << 20).unwrap();
    let line = scratch.fails(4, "ls disk.img");
    assert!(
        line.contains("truncated") && line.contains("4194304") && line.contains("3145728"),
        "{line}"
    );
}

#[test]
fn image_in_use() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let holder = fs::File::open(scratch.path("disk.img")).unwrap();
    holder.lock().unwrap();
    for command in ["ls disk.img", "rm disk.img /x", "check disk.img", "mkfs --force disk.img"] {
        let line = scratch.fails(5, command);
        assert!(line.contains(&format!("in use by process {}", std::process::id())), "{line}");
    }
}

#[test]
fn sizes_out_of_range() {
    let scratch = Scratch::new();
    let line = scratch.fails(6, "mkfs --size 16K disk.img");
    assert!(line.contains("volume too small: 16384 bytes, at least "), "{line}");
    for size in ["100", "64", "128K", "3K", "0"] {
        let line = scratch.fails(2, &format!("mkfs --size 4M --block-size {size} disk.img"));
        assert!(line.contains("block size") && line.contains("from 128 to 65536"), "{line}");
    }
    scratch.fails(2, "mkfs --size 4M --block-size 8K --node-size 4K disk.img");
    scratch.fails(2, "mkfs --size 4M --metadata-copies 3 disk.img");
    scratch.fails(2, "mkfs --size 4M --label 012345678901234567890123456789012 disk.img");
    scratch.fails(2, "mkfs --size 4M --timer 0 disk.img");
    scratch.fails(2, "mkfs --size elephant disk.img");
    scratch.fails(6, "mkfs --size 15E disk.img");
    // A size that looks like an option is still the size.
    for command in ["mkfs --size -5M disk.img", "mkfs --size=-5M disk.img", "mkfs -s -5M disk.img"]
    {
        let line = scratch.fails(2, command);
        assert!(line.contains("'--size <SIZE>': '-5M' is below zero"), "{command}: {line}");
        assert!(!line.contains("unexpected argument"), "{command}: {line}");
    }
    for command in [
        "mkfs --block-size -5M disk.img",
        "mkfs --node-size -5M disk.img",
        "mount --cache -5M disk.img mnt",
        "check --cache -5M disk.img",
        "trim --minimum -5M mnt",
        "serve memory --size -5M",
        "serve nbd --file disk.img --create -5M",
    ] {
        let line = scratch.fails(2, command);
        assert!(line.contains("'-5M' is below zero"), "{command}: {line}");
    }
    assert!(!scratch.path("disk.img").exists(), "a failed mkfs leaves nothing behind");
}

#[test]
fn one_damaged_superblock_copy() {
    for copy in 0..2 {
        let scratch = Scratch::new();
        scratch.volume("4M").put("/f", b"x");
        let image = scratch.path("disk.img");
        let offset = if copy == 0 { 0 } else { fs::metadata(&image).unwrap().len() - CELL };
        flip(&image, offset + 100);
        let output = scratch.line("cat disk.img /f");
        assert_eq!(succeeded(&output, "cat"), "x");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("steadfast: warning: one superblock copy is damaged: disk.img: "),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
        let line = scratch.fails(9, "check disk.img");
        assert!(line.contains("nothing is lost"), "{line}");
    }
}

#[test]
fn both_superblock_copies_damaged() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let image = scratch.path("disk.img");
    flip(&image, 100);
    flip(&image, fs::metadata(&image).unwrap().len() - CELL + 100);
    for command in ["ls", "check", "info"] {
        let line = scratch.fails(4, &format!("{command} disk.img"));
        assert!(line.contains("both superblock copies are damaged"), "{line}");
    }
}

#[test]
fn damaged_data_is_an_error_and_never_wrong_bytes() {
    let scratch = Scratch::new();
    scratch.volume("16M");
    let contents = [[b'a'; 8192], [b'b'; 8192], [b'c'; 8192]].concat();
    scratch.put("/hurt", &contents);
    scratch.put("/whole", &[b'w'; 50_000]);
    let image = scratch.path("disk.img");
    flip(&image, find(&image, &[b'b'; 4096])[0] + 17);

    let output = scratch.line("cat disk.img /hurt");
    let line = failed(&output, 4, "cat");
    assert!(line.contains("damaged data of inode") && line.contains("disk.img:/hurt"), "{line}");
    assert!(contents.starts_with(&output.stdout), "only good bytes came out");
    scratch.fails(4, "get disk.img /hurt out");
    assert!(!scratch.path("out").exists(), "no file that is not whole");
    assert_eq!(scratch.line("cat disk.img /whole").stdout, [b'w'; 50_000]);
    let line = scratch.fails(4, "check disk.img");
    assert!(line.contains("damaged in 1 places"), "{line}");
    scratch.ok("check --no-data disk.img");
}

#[test]
fn damaged_nodes() {
    let scratch = Scratch::new();
    scratch.volume("16M").put("/kept", b"kept");
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for index in 0..400 {
        fs::write(tree.join(format!("file-with-a-long-name-{index}")), [index as u8; 300]).unwrap();
    }
    scratch.ok("put -r disk.img tree");
    let image = scratch.path("disk.img");
    // Finds a name whose leaf does not hold /kept. Which name that is depends on the volume's hash
    // key.
    let blocks = |name: &str| -> Vec<u64> {
        find(&image, name.as_bytes()).into_iter().map(|place| place / CELL).collect()
    };
    let kept = blocks("kept");
    let name = (100..400)
        .map(|index| format!("file-with-a-long-name-{index}"))
        .find(|name| blocks(name).iter().all(|block| !kept.contains(block)))
        .expect("more than one leaf");
    let places = find(&image, name.as_bytes());
    assert!(places.len() >= 2, "two copies at least");

    // One damaged copy: the other one serves the read.
    flip(&image, places[0]);
    scratch.ok("ls disk.img /tree");
    let line = scratch.fails(9, "check disk.img");
    assert!(line.contains("nothing is lost"), "{line}");

    // All copies damaged: what is below is lost, the rest is not.
    places[1..].iter().for_each(|place| flip(&image, *place));
    let line = scratch.fails(4, "ls disk.img /tree");
    assert!(line.contains("damaged metadata at block"), "{line}");
    assert_eq!(scratch.ok("cat disk.img /kept"), "kept");
    scratch.fails(4, "check disk.img");
}

#[test]
fn names_and_paths() {
    let scratch = Scratch::new();
    scratch.volume("4M").put("/file", b"x");
    let long = "n".repeat(256);
    let line = failed(&scratch.with_input(&format!("put disk.img - /{long}"), b"x"), 1, "put");
    assert!(line.contains("name too long") && line.contains(&long), "{line}");
    scratch.put(&format!("/{}", "n".repeat(255)), b"x");
    for (exit, command) in [
        (1, "cat disk.img /missing"),
        (1, "cat disk.img /file/below"),
        (1, "cat disk.img /"),
        (1, "ls disk.img /missing"),
        (1, "get disk.img /missing"),
        (1, "get disk.img /"),
        (1, "put disk.img missing"),
        (1, "rm disk.img /"),
        (1, "rm disk.img /.."),
        (1, "rm disk.img /file/"),
    ] {
        let line = scratch.fails(exit, command);
        assert!(!line.contains("see the message"), "{command}: no advice: {line}");
    }
    assert_eq!(scratch.ok("cat disk.img /file"), "x");
}

#[test]
fn wrong_calls() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    fs::create_dir(scratch.path("mnt")).unwrap();
    for command in [
        "mkfs",
        "ls",
        "cat disk.img",
        "frobnicate disk.img",
        "mount disk.img",
        "mount disk.img mnt -o bogus",
        "mount disk.img mnt -o cache=elephant",
        "mount disk.img mnt -o mask=sometimes",
        "mount disk.img mnt --cache 12",
        "info --bogus disk.img",
        "info --get bogus disk.img",
        "mask disk.img",
    ] {
        scratch.fails(2, command);
    }
}

#[test]
fn no_permission() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let image = scratch.path("disk.img");
    let as_nobody = |line: &str| {
        let mut command = scratch.command(&line.split(' ').collect::<Vec<_>>());
        // Root may read everything, so the command runs as another user.
        if is_root() {
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    };
    fs::set_permissions(scratch.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    if as_nobody("--version").status.code() != Some(0) {
        eprintln!("skipped: another user cannot run the program here");
        return;
    }
    fs::set_permissions(&image, fs::Permissions::from_mode(0o000)).unwrap();
    for command in ["ls disk.img", "info disk.img", "check disk.img", "rm disk.img /x"] {
        let line = failed(&as_nobody(command), 7, command);
        assert!(line.contains("no permission") && line.contains("as root"), "{line}");
    }
    fs::set_permissions(&image, fs::Permissions::from_mode(0o444)).unwrap();
    succeeded(&as_nobody("ls disk.img"), "ls");
    failed(&as_nobody("rm disk.img /x"), 7, "rm");
}
