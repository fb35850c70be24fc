//! `steadfast scrub`, on images and on mounts.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use common::{Scratch, wait_for};
use serde_json::Value;

/// Destroys the first block of the image that begins with `needle`; returns whether there is one.
fn rot(scratch: &Scratch, needle: &[u8]) {
    let image = File::options().read(true).write(true).open(scratch.path("disk.img")).unwrap();
    let bytes = fs::read(scratch.path("disk.img")).unwrap();
    let block =
        bytes.chunks(4096).rposition(|block| block.starts_with(needle)).expect("a block like that");
    image.write_all_at(&[0x5a; 4000], block as u64 * 4096 + 60).unwrap();
}

fn status(scratch: &Scratch, target: &str) -> Value {
    serde_json::from_slice(&scratch.line(&format!("scrub --json --status {target}")).stdout)
        .unwrap()
}

#[test]
fn an_image_is_scrubbed_healed_and_its_bad_file_is_named() {
    let scratch = Scratch::new();
    scratch.volume("8M").put("/good", &[1; 100_000]);
    scratch.put("/bad", &[2; 50_000]);
    let said = scratch.ok("scrub --rate 0 disk.img");
    assert!(said.contains("scrub finished") && said.contains("0 copies healed, 0 bad"), "{said}");
    // The second copy of one of the nodes.
    rot(&scratch, b"SFND");
    let said = scratch.ok("scrub --rate 100MiB/s disk.img");
    assert!(
        said.contains("written again from a good copy") && said.contains("1 copies healed, 0 bad"),
        "{said}"
    );
    scratch.ok("check --quiet disk.img");
    rot(&scratch, &[2; 4096]);
    let output = scratch.line("scrub disk.img");
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("; affects /bad, bytes "), "{said}");
    scratch.fails(8, "scrub --status disk.img");
    scratch.fails(2, "scrub --rate fast disk.img");
}

#[test]
fn bad_files_are_named_beside_a_snapshot_too() {
    let scratch = Scratch::new();
    scratch.volume("8M").put("/kept", &[2; 50_000]);
    scratch.put("/gone", &[3; 50_000]);
    scratch.ok("snapshot create disk.img before");
    scratch.ok("rm disk.img /gone");
    rot(&scratch, &[2; 4096]);
    rot(&scratch, &[3; 4096]);
    let output = scratch.line("scrub disk.img");
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    let both = line("snapshot \"before\" and the live volume: ");
    assert!(both.contains("; affects /kept, bytes "), "{said}");
    assert!(line("snapshot \"before\": ").contains("; affects /gone, bytes "), "{said}");
}

#[test]
fn a_mount_is_scrubbed_in_the_background() {
    if !fs::exists("/dev/fuse").unwrap_or(false) {
        eprintln!("skipped: no /dev/fuse");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("64M").put("/data", &vec![3; 10 << 20]);
    let mount = scratch.mounted("");
    assert_eq!(status(&scratch, "mnt")["state"], "never");
    let said = scratch.ok("scrub --rate 0 --wait mnt");
    assert!(said.contains("scrub finished") && said.contains(", 0 bad"), "{said}");
    // A slow pass can be watched and stopped, and the mount works meanwhile.
    let said = scratch.ok("scrub --rate 100K mnt");
    assert_eq!(said, "mnt: scrub started, 100 KiB/s; see 'steadfast scrub --status mnt'\n");
    scratch.fails(5, "scrub mnt");
    fs::write(mount.join("more"), b"while it runs").unwrap();
    let now = status(&scratch, "mnt");
    assert_eq!(now["state"], "running", "{now}");
    assert!(now["bytes"].as_u64() < now["bytes_total"].as_u64(), "{now}");
    scratch.ok("scrub --stop mnt");
    wait_for("the pass to stop", || status(&scratch, "mnt")["state"] == "stopped");
    // A scrub of the mounted volume finds rot.
    rot(&scratch, &[3; 4096]);
    let output = scratch.line("scrub --rate 0 --wait mnt");
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("; affects /data, bytes "), "{said}");
    // A running pass does not prevent the unmount.
    scratch.ok("scrub --rate 1K mnt");
    scratch.ok("umount mnt");
    let log = fs::read_to_string(scratch.path("mount.log")).unwrap();
    assert!(log.contains("scrub finished: ") && log.contains("affects /data"), "{log}");
}
