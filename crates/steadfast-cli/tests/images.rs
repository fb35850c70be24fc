//! Commands on images that are not mounted.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use common::{Scratch, failed, succeeded};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

fn json(scratch: &Scratch, line: &str) -> Value {
    serde_json::from_str(&scratch.ok(line)).expect("JSON")
}

#[test]
fn mkfs_makes_what_it_was_asked_for() {
    let scratch = Scratch::new();
    let said = scratch.ok(
        "mkfs --size 8MiB --block-size 1K --node-size 4K --metadata-copies 1 --log-size 64K --label data \
         --uuid 6fa459ea-ee8a-3ca4-894e-db77e160355e --mask fsync,close --timer 250ms disk.img",
    );
    assert!(
        said.contains("8 MiB") && said.contains("6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        "{said}"
    );
    let info = json(&scratch, "info --json disk.img");
    for (field, value) in [
        ("size", Value::from(8 << 20)),
        ("block_size", 1024.into()),
        ("node_size", 4096.into()),
        ("metadata_copies", 1.into()),
        ("log_size", 65536.into()),
        ("label", "data".into()),
        ("uuid", "6fa459ea-ee8a-3ca4-894e-db77e160355e".into()),
        ("mask", vec!["close", "fsync"].into()),
        ("timer_ms", 250.into()),
        ("mount_point", Value::Null),
        ("daemon_pid", Value::Null),
    ] {
        assert_eq!(info[field], value, "{field}");
    }
    assert_eq!(scratch.ok("info --get block_size disk.img"), "1024\n");
    // As much as the superblock and the state tell.
    assert_eq!((&info["blocks"], &info["inodes"]), (&8192.into(), &1.into()), "{info}");
    let free = info["blocks_free"].as_u64().unwrap();
    assert!((7000..8192).contains(&free) && info["blocks_available"].as_u64().unwrap() < free);
    let created = info["created"].as_i64().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_secs() as i64 - created).abs() < 600, "{info}");
    let year = info["created_utc"].as_str().unwrap();
    assert!(year.ends_with('Z') && year.len() == 30, "{info}");
    let told = scratch.ok("info disk.img");
    for row in
        ["label               data", "features            none", "blocks              8192, "]
    {
        assert!(told.contains(row), "{told}");
    }
    // Sparse: an empty volume takes next to nothing.
    assert!(fs::metadata(scratch.path("disk.img")).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn block_sizes_from_128_bytes_to_64_kib() {
    for size in ["128", "512", "4K", "64K"] {
        let scratch = Scratch::new();
        scratch.ok(&format!("mkfs --size 16M --block-size {size} disk.img"));
        scratch.put("/file", &vec![7; 300_000]);
        assert_eq!(scratch.line("cat disk.img /file").stdout, vec![7; 300_000]);
        scratch.ok("check --quiet disk.img");
    }
}

#[test]
fn mkfs_overwrites_only_by_force() {
    let scratch = Scratch::new();
    scratch.volume("4M").put("/precious", b"x");
    let line = scratch.fails(5, "mkfs disk.img");
    assert!(
        line.contains("already holds a Steadfast volume") && line.contains("--force"),
        "{line}"
    );
    // Wrong parameters do not destroy the volume either.
    scratch.fails(2, "mkfs --force --block-size 100 disk.img");
    assert_eq!(scratch.ok("cat disk.img /precious"), "x");
    scratch.ok("mkfs --force disk.img");
    assert_eq!(scratch.ok("ls disk.img"), "");

    scratch.write("other.img", &[&[0; 5000][..], b"something", &[0; 1 << 20][..]].concat());
    let line = scratch.fails(5, "mkfs other.img");
    assert!(line.contains("not empty"), "{line}");
    scratch.write("zeros.img", &[0; 1 << 20]);
    scratch.ok("mkfs zeros.img");
}

#[test]
fn a_smaller_volume_over_a_larger_one_leaves_nothing_of_it() {
    let scratch = Scratch::new();
    scratch.ok("mkfs --size 8M --block-size 64K disk.img");
    scratch.put("/old", b"old");
    scratch.ok("mkfs --force --size 2M --block-size 512 disk.img");
    assert_eq!(fs::metadata(scratch.path("disk.img")).unwrap().len(), 2 << 20);
    common::flip(&scratch.path("disk.img"), 20);
    let output = scratch.line("ls disk.img");
    assert_eq!(succeeded(&output, "ls"), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("one superblock copy is damaged"));
}

#[test]
fn put_get_cat_ls_rm_round() {
    let scratch = Scratch::new();
    scratch.volume("64M");
    let contents: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let source = scratch.write("source.bin", &contents);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    scratch.ok("put disk.img source.bin /copy.bin");
    assert_eq!(scratch.line("cat disk.img /copy.bin").stdout, contents);
    scratch.ok("get disk.img copy.bin back.bin");
    assert_eq!(fs::read(scratch.path("back.bin")).unwrap(), contents);
    let (before, after) =
        (fs::metadata(&source).unwrap(), fs::metadata(scratch.path("back.bin")).unwrap());
    assert_eq!(
        (before.mode(), before.mtime(), before.mtime_nsec()),
        (after.mode(), after.mtime(), after.mtime_nsec())
    );

    let long = scratch.ok("ls -l disk.img /copy.bin");
    assert!(long.starts_with("-rw-r-----   1 ") && long.contains(" 12000000 "), "{long}");
    // A shorter file replaces a longer one.
    scratch.put("/copy.bin", b"short");
    assert_eq!(scratch.ok("cat disk.img /copy.bin"), "short");
    assert_eq!(json(&scratch, "ls --json disk.img")[0]["size"], 5);

    scratch.ok("rm disk.img /copy.bin");
    assert_eq!(scratch.ok("ls disk.img"), "");
    scratch.fails(1, "rm disk.img /copy.bin");
    scratch.ok("rm -f disk.img /copy.bin");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn trees_go_in_and_out() {
    let scratch = Scratch::new();
    scratch.volume("64M");
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/one"), "1").unwrap();
    fs::write(tree.join("a/b/c/two"), vec![2; 100_000]).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    symlink("a/one", tree.join("link")).unwrap();
    symlink("/nowhere", tree.join("dangling")).unwrap();
    fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
    // A hole of 10 MB between two bytes.
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 10_000_000).unwrap();
    sparse.set_len(20_000_000).unwrap();

    scratch.fails(1, "put disk.img tree");
    scratch.ok("put -r disk.img tree");
    scratch.ok("get -r disk.img /tree back");
    let diff = std::process::Command::new("diff")
        .args(["-r", "--no-dereference", "tree", "back"])
        .current_dir(scratch.path("."))
        .output()
        .unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    assert_eq!(fs::metadata(scratch.path("back/a/b")).unwrap().mode() & 0o7777, 0o555);
    assert!(fs::metadata(scratch.path("back/sparse")).unwrap().blocks() * 512 < 1 << 20);
    let listed = json(&scratch, "ls --json disk.img /tree");
    let sparse = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "sparse").unwrap();
    assert_eq!(sparse["size"], 20_000_000);
    assert!(sparse["allocated"].as_u64().unwrap() < 1 << 20);

    // The same copy again, over existing files.
    scratch.ok("put -r disk.img tree");
    assert_eq!(scratch.ok("cat disk.img /tree/link"), "1");
    let text = scratch.ok("tree disk.img");
    assert!(text.contains("│   │   └── c/\n") && text.contains("link -> a/one"), "{text}");
    assert!(text.ends_with("4 directories, 6 files\n"), "{text}");
    assert_eq!(scratch.ok("tree -L 1 disk.img").lines().count(), 4);
    let flat = json(&scratch, "tree --json disk.img");
    assert!(flat.as_array().unwrap().iter().any(|entry| entry["name"] == "tree/a/b/c/two"));

    scratch.fails(1, "rm disk.img /tree");
    scratch.ok("rm -r disk.img /tree");
    assert_eq!(scratch.ok("ls disk.img"), "");
    let report = json(&scratch, "check --json disk.img");
    assert_eq!((&report["clean"], &report["inodes"]), (&true.into(), &1.into()));
    // Read-only directories would prevent the removal of the scratch directory.
    for made in ["tree", "back"] {
        fs::set_permissions(scratch.path(made).join("a/b"), fs::Permissions::from_mode(0o755))
            .unwrap();
    }
}

#[test]
fn put_makes_parents_and_sets_owners() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    scratch.fails(1, "put disk.img - /a/b/file");
    let line = "put --parents --owner 12:34 disk.img - /a/b/file";
    succeeded(&scratch.with_input(line, b"x"), line);
    let listed = json(&scratch, "ls --json disk.img /a/b");
    assert_eq!((&listed[0]["uid"], &listed[0]["gid"]), (&12.into(), &34.into()));
    // Into a directory, under the file's own name.
    scratch.write("named", b"y");
    scratch.ok("put disk.img named /a");
    assert_eq!(scratch.ok("cat disk.img /a/named"), "y");
}

#[test]
fn put_is_all_or_nothing() {
    let scratch = Scratch::new();
    scratch.volume("4M").put("/kept", b"kept");
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for index in 0..10 {
        fs::write(tree.join(format!("{index}")), vec![index; 1 << 20]).unwrap();
    }
    let before = scratch.ok("tree disk.img");
    let line = scratch.fails(6, "put -r disk.img tree");
    assert!(line.contains("no space left") && line.contains("disk.img:/tree/"), "{line}");
    assert_eq!(scratch.ok("tree disk.img"), before);
    assert_eq!(scratch.ok("cat disk.img /kept"), "kept");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn a_full_volume_can_be_cleared() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let mut count = 0;
    while scratch
        .with_input(&format!("put disk.img - /{count}"), &[count as u8; 200_000])
        .status
        .success()
    {
        count += 1;
        assert!(count < 100);
    }
    assert!(count > 10, "only {count} files fitted");
    for index in 0..count {
        scratch.ok(&format!("rm disk.img /{index}"));
    }
    let space = json(&scratch, "df --json disk.img");
    assert!(space[0]["used"].as_u64().unwrap() < 300_000, "{space}");
    scratch.put("/again", &vec![1; 2 << 20]);
    scratch.ok("check --quiet disk.img");
}

#[test]
fn masks_are_kept() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let default = scratch.ok("mask get disk.img");
    assert!(
        default.contains("timer,sync-write,fsync,sync,unmount,volume-full")
            && default.contains("5 s")
    );
    scratch.ok("mask set disk.img manual");
    assert!(scratch.ok("mask get disk.img").contains("manual"));
    scratch.ok("mask set disk.img +close no-timer --timer 100ms");
    let mask = json(&scratch, "mask get --json disk.img");
    assert_eq!((&mask["mask"], &mask["timer_ms"]), (&vec!["close"].into(), &100.into()));
    let line = scratch.fails(2, "mask set disk.img fsink");
    assert!(line.contains("'fsink'") && line.contains("volume-full"), "{line}");
    scratch.fails(2, "mask set disk.img");
    scratch.fails(2, "mask set disk.img --timer 0");
    // With the mask `manual`, a command still makes its changes durable.
    scratch.ok("mask set disk.img manual");
    scratch.put("/x", b"x");
    scratch.ok("rm disk.img /x");
    assert_eq!(scratch.ok("ls disk.img"), "");
    assert!(scratch.ok("mask get disk.img").contains("manual"));
}

#[test]
fn df_says_how_full() {
    let scratch = Scratch::new();
    scratch.volume("16M").put("/file", &vec![1; 4 << 20]);
    let space = json(&scratch, "df --json disk.img");
    let used = space[0]["used"].as_u64().unwrap();
    assert!((4 << 20..5 << 20).contains(&used), "{space}");
    assert!(space[0]["available"].as_u64().unwrap() < 12 << 20);
    assert_eq!((&space[0]["inodes"], &space[0]["name_max"]), (&2.into(), &255.into()));
    let text = scratch.ok("df disk.img");
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains("disk.img"));
}

#[test]
fn names_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    scratch.volume("4M");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let path = scratch.path("x").with_file_name(name);
    fs::write(&path, "x").unwrap();
    let output = scratch.run(&["put".as_ref(), "disk.img".as_ref(), path.as_os_str()]);
    succeeded(&output, "put");
    assert_eq!(scratch.line("ls disk.img").stdout, b"caf\xe9\n");
    assert_eq!(json(&scratch, "ls --json disk.img")[0]["name_hex"], "636166e9");
}

#[test]
fn readers_share_an_image() {
    let scratch = Scratch::new();
    scratch.volume("4M").put("/f", b"x");
    let holder = fs::File::open(scratch.path("disk.img")).unwrap();
    holder.try_lock_shared().unwrap();
    scratch.ok("ls disk.img");
    scratch.ok("check --quiet disk.img");
    let output = scratch.with_input("put disk.img - /f", b"y");
    let line = failed(&output, 5, "put");
    assert!(line.contains("in use"), "{line}");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    use std::os::unix::process::ExitStatusExt;
    let scratch = Scratch::new();
    scratch.volume("64M").put("/big", &vec![b'x'; 8 << 20]);
    for line in ["cat disk.img /big", "ls disk.img", "info disk.img", "tree --json disk.img"] {
        let run = || {
            // The reader is gone before the program starts. Another test may fork at this moment,
            // and its child then holds the reading end briefly. In that case the next try works.
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let arguments: Vec<&str> = line.split(' ').collect();
            scratch.command(&arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap()
        };
        let mut outputs = std::iter::repeat_with(run).take(10);
        let output = outputs.find(|output| !output.status.success()).expect("it notices");
        assert_eq!(output.status.signal(), Some(13), "{line}: {}", output.status);
        assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_full_standard_output_is_an_error() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = scratch
        .command(&["info", "disk.img"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let line = failed(&output, 6, "info");
    assert!(line.contains("standard output"), "{line}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let scratch = Scratch::new();
    assert!(scratch.ok("--version").starts_with("steadfast 0."));
    let help = scratch.ok("--help");
    for command in [
        "mkfs", "mount", "umount", "info", "df", "check", "transact", "rollback", "mask", "ls",
        "cat", "put", "get", "rm", "tree",
    ] {
        assert!(help.contains(command), "{command}");
        assert!(scratch.ok(&format!("{command} --help")).contains("Usage: steadfast"));
    }
    assert!(help.contains("Exit codes"));
    assert_eq!(scratch.run::<&str>(&[]).status.code(), Some(2));
}

#[test]
fn who_a_volume_is_for_scripts_and_udev() {
    let scratch = Scratch::new();
    scratch
        .ok("mkfs --size 4M --label a$b(c) --uuid 6fa459ea-ee8a-3ca4-894e-db77e160355e disk.img");
    let lines = scratch.ok("info --export disk.img");
    let expected = "DEVNAME=disk.img\nTYPE=steadfast\nUSAGE=filesystem\nVERSION=1\n\
        UUID=6fa459ea-ee8a-3ca4-894e-db77e160355e\nBLOCK_SIZE=4096\nFSSIZE=4194304\nLABEL=a\\$b\\(c\\)\n";
    assert_eq!(lines, expected);
    let lines = scratch.ok("info --export=udev disk.img");
    assert!(lines.contains("ID_FS_TYPE=steadfast\nID_FS_USAGE=filesystem\n"), "{lines}");
    assert!(lines.contains("ID_FS_LABEL=a_b_c_\nID_FS_LABEL_ENC=a\\x24b\\x28c\\x29\n"), "{lines}");
    // A lock of another process and the block size make no difference.
    let _locked =
        fs::File::open(scratch.path("disk.img")).map(|file| file.lock().map(|()| file)).unwrap();
    assert_eq!(scratch.ok("info --export=udev disk.img"), lines);
    scratch.ok("mkfs --size 1M --block-size 128 --node-size 512 small.img");
    assert!(scratch.ok("info --export small.img").contains("\nBLOCK_SIZE=128\n"));
    // Files without a volume give the answer of blkid.
    fs::write(scratch.path("other.img"), vec![7; 1 << 20]).unwrap();
    fs::write(scratch.path("empty.img"), b"").unwrap();
    scratch.fails(2, "info --export other.img");
    scratch.fails(2, "info --export empty.img");
    scratch.fails(1, "info --export missing.img");
}

#[test]
fn completions_know_every_command() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.ok(&format!("completions {shell}"));
        assert!(script.contains("rollback") && script.contains("metadata-copies"), "{shell}");
    }
    scratch.fails(2, "completions tcsh");
}

/// A special file that is named is the only thing to copy; one in a directory is left out.
#[test]
fn a_named_special_file_is_a_failure() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("source")).unwrap();
    for name in ["fifo", "source/fifo"] {
        mknodat(CWD, scratch.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    scratch.ok("image build --quiet disk.img source --size 4M");
    for command in ["put disk.img fifo /x", "put -r disk.img fifo /", "get disk.img /fifo out"] {
        let line = scratch.fails(1, command);
        assert!(line.contains("a special file is not copied"), "{command}: {line}");
        assert!(line.contains("mount the volume to copy it"), "{command}: {line}");
    }
    assert_eq!(scratch.ok("ls disk.img"), "fifo\n", "nothing was put");
    assert!(!scratch.path("out").exists());
    for command in ["put -r disk.img source /", "get -r disk.img / out"] {
        let output = scratch.line(command);
        succeeded(&output, command);
        let warned = String::from_utf8(output.stderr).unwrap();
        assert!(warned.contains("warning: a special file is not copied"), "{command}: {warned}");
    }
    assert!(scratch.path("out/source").is_dir());
}
