//! An image whose newest state is damaged: the messages of every command that opens it, and which
//! of them may write.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use common::{Scratch, can_mount};

const CELL: u64 = 4096;
const SIZE: u64 = 8 << 20;

/// A volume with `/old`, and with `/new` in its newest state, whose two metaroots are damaged.
fn damaged() -> Scratch {
    let scratch = Scratch::new();
    scratch.volume("8M").put("/old", b"old");
    scratch.put("/new", b"new");
    let path = scratch.path("disk.img");
    let image = File::options().read(true).write(true).open(&path).expect("the image");
    let slots = [[CELL, SIZE - 3 * CELL], [2 * CELL, SIZE - 2 * CELL]];
    let generation = |slot: &[u64; 2]| {
        let mut bytes = [0; 8];
        image.read_exact_at(&mut bytes, slot[0] + 24).expect("a metaroot");
        u64::from_le_bytes(bytes)
    };
    for offset in slots.iter().max_by_key(|slot| generation(slot)).expect("two slots") {
        image.write_all_at(&[0x5a; 8], offset + 100).expect("written");
    }
    scratch
}

#[test]
fn commands_read_with_a_warning_and_write_when_asked() {
    let scratch = damaged();
    let before = fs::read(scratch.path("disk.img")).expect("the image");
    let check = scratch.line("check disk.img");
    assert_eq!(check.status.code(), Some(4), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stderr).contains("mount -o recover"), "{check:?}");
    // fsck knows itself by its name.
    std::os::unix::fs::symlink(common::STEADFAST, scratch.path("fsck.steadfast")).expect("a link");
    for option in ["-n", "-y"] {
        let fsck = std::process::Command::new(scratch.path("fsck.steadfast"))
            .args([option, "disk.img"])
            .current_dir(scratch.path(""))
            .output()
            .expect("fsck");
        assert_eq!(fsck.status.code(), Some(4), "{fsck:?}");
        let said = String::from_utf8_lossy(&fsck.stdout);
        // Both say the same: the one that changes nothing knows what the other would do.
        assert!(said.contains("cannot be repaired safely, and -y changes nothing"), "{said}");
        assert!(said.contains("mount -o recover") && !said.contains("repairs what"), "{said}");
    }
    let listed = scratch.line("ls disk.img");
    let (said, warned) =
        (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(listed.status.success() && said.contains("old"), "{said}");
    assert!(
        warned.contains("both copies of a metaroot are damaged") && warned.lines().count() == 1,
        "{warned}"
    );
    for command in ["rm disk.img /old", "tune -L name disk.img", "tune --timer 9s disk.img"] {
        let line = scratch.fails(4, command);
        assert!(line.contains("may be lost") && line.contains("--recover"), "{command}: {line}");
    }
    assert!(
        fs::read(scratch.path("disk.img")).expect("the image") == before,
        "nothing was written"
    );
    // A label alone does not give the newest state up.
    assert!(scratch.ok("--recover tune -L name disk.img").contains("label name"));
    let done = scratch.line("--recover rm disk.img /old");
    let warned = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && warned.contains("given up as asked"), "{done:?}");
    scratch.ok("check --quiet disk.img");
    scratch.put("/later", b"later");
    assert!(!scratch.ok("ls disk.img").contains("old"));
}

#[test]
fn a_mount_reads_with_a_warning_and_writes_when_asked() {
    if !can_mount() {
        eprintln!("skipped: no /dev/fuse");
        return;
    }
    let scratch = damaged();
    fs::create_dir_all(scratch.path("mnt")).expect("a directory");
    let line = scratch.fails(4, "mount disk.img mnt");
    assert!(line.contains("may be lost") && line.contains("-o recover"), "{line}");
    let mounted = scratch.line("mount -o ro disk.img mnt");
    let warned = String::from_utf8_lossy(&mounted.stderr);
    assert!(mounted.status.success() && warned.contains("may be lost"), "{mounted:?}");
    assert_eq!(fs::read(scratch.path("mnt/old")).expect("an old file"), b"old");
    assert!(fs::write(scratch.path("mnt/more"), b"more").is_err());
    scratch.ok("umount mnt");
    let mounted = scratch.line("mount -o recover disk.img mnt");
    let warned = String::from_utf8_lossy(&mounted.stderr);
    assert!(mounted.status.success() && warned.contains("given up as asked"), "{mounted:?}");
    fs::write(scratch.path("mnt/more"), b"more").expect("written");
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
    scratch.ok("mount disk.img mnt");
    assert_eq!(fs::read(scratch.path("mnt/more")).expect("the new file"), b"more");
    scratch.ok("umount mnt");
}
