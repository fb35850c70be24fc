//! Growing, defragmenting and trimming a volume that is mounted and in use.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use common::{Scratch, can_mount, wait_for};

#[test]
fn larger_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("8M");
    let mnt = scratch.mounted("");
    let contents: Vec<u8> = (0..6_000_000u32).map(|at| (at / 5) as u8).collect();
    let mut open = File::create(mnt.join("open")).unwrap();
    open.write_all(&contents[..1_000_000]).unwrap();
    let said = scratch.ok("image resize mnt 24M");
    assert!(said.contains("24 MiB") && said.contains("8 MiB"), "{said}");
    open.write_all(&contents[1_000_000..]).unwrap();
    fs::write(mnt.join("more"), &contents).unwrap();
    drop(open);
    scratch.ok("transact mnt");
    assert_eq!(scratch.ok("info --get size mnt"), "25165824\n");
    assert_eq!(fs::metadata(scratch.path("disk.img")).unwrap().len(), 24 << 20);
    for line in ["image resize mnt 8M", "image resize mnt --least"] {
        let line = scratch.fails(5, line);
        assert!(line.contains("can only become larger"), "{line}");
    }
    scratch.fails(2, "image resize mnt enormous");
    scratch.ok("image resize mnt 24M");
    // The volume is named by its image this time, and a power cut follows.
    scratch.ok("image resize disk.img +8M");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
    scratch.mounted("");
    assert_eq!(scratch.ok("info --get size mnt"), "33554432\n");
    assert!(
        fs::read(mnt.join("open")).unwrap() == contents
            && fs::read(mnt.join("more")).unwrap() == contents
    );
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn defragments_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mnt = scratch.mounted("-o writethrough");
    fs::create_dir(mnt.join("d")).unwrap();
    let names = [mnt.join("d/a"), mnt.join("b")];
    let mut files = names.each_ref().map(|name| File::create(name).unwrap());
    for piece in 0..80u8 {
        for file in &mut files {
            file.write_all(&[piece; 20_000]).unwrap();
        }
    }
    drop(files);
    let json =
        |line: &str| -> serde_json::Value { serde_json::from_str(&scratch.ok(line)).unwrap() };
    let before = json("defrag -n --json mnt");
    assert!(before["runs_before"].as_u64().unwrap() > 20, "{before}");
    let times = |name| {
        fs::metadata(name).map(|found| (found.mtime(), found.ctime(), found.ctime_nsec())).unwrap()
    };
    let (stamps, bytes) = (names.each_ref().map(times), fs::read(&names[0]).unwrap());
    // The files stay open, so that the pages stay in the kernel's cache.
    let held = File::open(&names[0]).unwrap();
    let one = scratch.ok("defrag mnt/d/a");
    assert!(one.contains("1 files, 1 of them were in pieces"), "{one}");
    let all = json("defrag --json mnt");
    assert!(all["runs_after"].as_u64().unwrap() <= 6, "{all}");
    assert_eq!(stamps, names.each_ref().map(times));
    drop(held);
    // A program that another test starts has the file, too, until it has begun.
    wait_for("the end of the mount", || scratch.run(&["umount", "mnt"]).status.success());
    scratch.ok("check --quiet disk.img");
    assert!(scratch.run(&["cat", "disk.img", "/d/a"]).stdout == bytes);
}

#[test]
fn trimmed_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M");
    let mnt = scratch.mounted("");
    let contents: Vec<u8> = (0..6_000_000u32).map(|at| (at / 7) as u8 | 1).collect();
    fs::write(mnt.join("kept"), &contents).unwrap();
    fs::write(mnt.join("gone"), &contents).unwrap();
    scratch.ok("transact mnt");
    fs::remove_file(mnt.join("gone")).unwrap();
    let resident = || fs::metadata(scratch.path("disk.img")).unwrap().blocks() * 512;
    let before = resident();
    // Trims beside a writer that replaces a file again and again.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..40 {
                let new = mnt.join("new");
                let mut file = File::create(&new).unwrap();
                file.write_all(&contents[round..1_000_000]).unwrap();
                file.sync_data().unwrap();
                fs::rename(new, mnt.join("replaced")).unwrap();
            }
        });
        while !writer.is_finished() {
            scratch.ok("trim mnt");
        }
    });
    // Removed files are reclaimed in the background.
    for tries in 0.. {
        let said = scratch.ok("trim mnt");
        assert!(said.contains("bytes) trimmed"), "{said}");
        if resident() < 9_000_000 {
            break;
        }
        assert!(tries < 100, "{before} to {}", resident());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(before > 12_000_000, "{before}");
    assert!(scratch.ok("trim --minimum 1G mnt").contains("(0 bytes) trimmed"));
    // With a mask without the timer nothing becomes durable by it, and what is durable stays.
    scratch.ok("mask set mnt manual");
    fs::remove_file(mnt.join("kept")).unwrap();
    scratch.ok("trim mnt");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
    scratch.mounted("");
    assert!(fs::read(mnt.join("kept")).unwrap() == contents);
    assert!(fs::read(mnt.join("replaced")).unwrap() == contents[39..1_000_000]);
    scratch.ok("umount mnt");
    scratch.mounted("-o ro");
    let line = scratch.fails(1, "trim mnt");
    assert!(line.contains("read-only"), "{line}");
    scratch.ok("umount mnt");
}
