//! Mounts and the commands on them. If nothing can be mounted, the tests are skipped with a
//! message.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use common::{
    STEADFAST, Scratch, can_mount, failed, is_mounted, is_root, process_exists, signal, wait_for,
};
use serde_json::Value;

fn json(scratch: &Scratch, line: &str) -> Value {
    serde_json::from_str(&scratch.ok(line)).expect("JSON")
}

/// A scratch directory with an empty volume in `disk.img`; `None` if mounting is not possible.
fn start() -> Option<Scratch> {
    can_mount().then(|| {
        let scratch = Scratch::new();
        scratch.volume("64M");
        scratch
    })
}

#[test]
fn mount_use_umount() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("");
    assert!(is_mounted(&mnt));
    fs::create_dir(mnt.join("d")).unwrap();
    fs::write(mnt.join("d/f"), "hello").unwrap();
    let pid = scratch.daemon();
    let said = scratch.ok("umount mnt");
    assert!(said.contains("unmounted") && said.contains("everything is durable"), "{said}");
    assert!(!is_mounted(&mnt));
    assert!(!process_exists(pid), "umount waits for the daemon");
    // The lock is free at once, and no records remain to be replayed.
    assert_eq!(scratch.ok("info --get replayed_records disk.img"), "0\n");
    assert_eq!(scratch.ok("cat disk.img /d/f"), "hello");
    scratch.ok("check --quiet disk.img");
    let log = fs::read_to_string(scratch.path("mount.log")).unwrap();
    assert!(log.contains("mounted") && log.contains("unmounted"), "{log}");
    assert!(log.lines().all(|line| line.starts_with("20")), "a time on each line: {log}");
}

#[test]
fn a_full_small_volume_refuses_long_writes_at_once() {
    if !can_mount() {
        return;
    }
    for size in [4, 16, 48] {
        let scratch = Scratch::new();
        let mnt = scratch.volume(&format!("{size}M")).mounted("");
        fs::write(mnt.join("conf"), "before").unwrap();
        let mut file = fs::File::create(mnt.join("large")).unwrap();
        let written = (0..2 * size).take_while(|_| file.write_all(&[7; 1 << 20]).is_ok()).count();
        assert!(written < size, "{written} MiB are accepted by a volume of {size}");
        drop(file);
        // What a shell does with `>`.
        for round in 0..5 {
            fs::write(mnt.join("conf"), format!("round {round}")).unwrap();
        }
        let said = scratch.ok("umount mnt");
        assert!(said.contains("everything is durable"), "{said}");
        assert!(written >= size / 2, "{written} of {size} MiB");
        assert_eq!(scratch.ok("cat disk.img /conf"), "round 4");
        let large = scratch.ok("cat disk.img /large").into_bytes();
        assert!(large.len() >= written << 20 && large.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn fsync_succeeds_where_nothing_can_be_written() {
    let Some(scratch) = start() else { return };
    scratch.put("/file", b"contents");
    let mnt = scratch.mounted("-o ro");
    for path in [mnt.join("file"), mnt.clone()] {
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        rustix::fs::syncfs(&file).unwrap();
    }
    scratch.ok("umount mnt");
}

#[test]
fn one_mount_a_volume() {
    let Some(scratch) = start() else { return };
    scratch.mounted("");
    fs::create_dir(scratch.path("other")).unwrap();
    for line in [
        "mount disk.img other",
        "ls disk.img",
        "check disk.img",
        "mkfs --force disk.img",
        "rm disk.img /x",
    ] {
        let line = scratch.fails(5, line);
        assert!(line.contains("in use by process") && line.contains("steadfast umount"), "{line}");
    }
    // The mount point is busy too.
    scratch.ok("mkfs --size 4M second.img");
    let line = scratch.fails(5, "mount second.img mnt");
    assert!(line.contains("mounted here already"), "{line}");
    scratch.ok("umount disk.img");
}

#[test]
fn information_about_a_mount() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("--cache 4MiB -o noatime,timer=1h");
    fs::write(mnt.join("f"), vec![1; 1 << 20]).unwrap();
    for target in ["mnt", "disk.img"] {
        let info = json(&scratch, &format!("info --json {target}"));
        assert_eq!(info["mount_point"], mnt.to_str().unwrap());
        assert_eq!(info["timer_ms"], 3_600_000);
        assert_eq!(info["read_only"], false);
        assert!(process_exists(info["daemon_pid"].as_u64().unwrap() as u32));
        let space = json(&scratch, &format!("df --json {target}"));
        assert!(space[0]["used"].as_u64().unwrap() >= 1 << 20, "{space}");
        assert_eq!(space[0]["name_max"], 255);
    }
    // All mounts of this machine are listed, even if some have no daemon.
    assert!(String::from_utf8_lossy(&scratch.line("df").stdout).contains(mnt.to_str().unwrap()));
    assert!(scratch.ok("info mnt").contains("mounted on"));
    // A directory below the mount point is accepted.
    fs::create_dir(mnt.join("below")).unwrap();
    assert_eq!(json(&scratch, "info --json mnt/below")["mount_point"], mnt.to_str().unwrap());
}

#[test]
fn transact_survives_a_kill() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("-o mask=manual");
    let mut file = fs::File::create(mnt.join("f")).unwrap();
    file.write_all(b"durable").unwrap();
    // The file is still open and not synced: the command gets its data from the kernel's cache.
    scratch.ok("transact mnt");
    file.write_all(b", and lost").unwrap();
    fs::write(mnt.join("lost"), "lost").unwrap();
    scratch.kill_daemon();
    drop(file);

    let line = scratch.fails(8, "info mnt");
    assert!(
        line.contains("the daemon of this mount is gone") && line.contains("steadfast umount"),
        "{line}"
    );
    scratch.fails(8, "transact mnt");
    scratch.fails(8, "mount disk.img mnt");
    let said = scratch.ok("umount mnt");
    assert!(said.contains("had lost its daemon"), "{said}");
    assert_eq!(scratch.ok("ls disk.img"), "f\n");
    assert_eq!(scratch.ok("cat disk.img /f"), "durable");
    scratch.ok("check --quiet disk.img");
    scratch.mounted("");
    assert_eq!(fs::read_to_string(mnt.join("f")).unwrap(), "durable");
}

#[test]
fn rollback_returns_to_the_last_point() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("-o mask=manual");
    fs::write(mnt.join("f"), "one").unwrap();
    scratch.ok("transact mnt");
    fs::write(mnt.join("f"), "two, longer").unwrap();
    fs::write(mnt.join("g"), "new").unwrap();
    let open = fs::OpenOptions::new().append(true).open(mnt.join("f")).unwrap();
    let line = scratch.fails(5, "rollback mnt");
    assert!(line.contains("open for writing") && line.contains("--force"), "{line}");
    assert_eq!(fs::read_to_string(mnt.join("f")).unwrap(), "two, longer");
    scratch.ok("rollback --force mnt");
    drop(open);
    assert_eq!(fs::read_to_string(mnt.join("f")).unwrap(), "one");
    assert!(!mnt.join("g").exists());
    scratch.ok("rollback mnt");
    let said = scratch.ok("umount mnt");
    assert!(said.contains("'unmount' is not in the mask"), "{said}");
    assert_eq!(scratch.ok("cat disk.img /f"), "one");
}

#[test]
fn masks_of_a_mount() {
    let Some(scratch) = start() else { return };
    scratch.mounted("");
    scratch.ok("mask set mnt +close no-timer --timer 250ms");
    let mask = json(&scratch, "mask get --json mnt");
    assert!(mask["mask"].as_array().unwrap().contains(&"close".into()), "{mask}");
    assert_eq!(mask["timer_ms"], 250);
    // `write` needs a transaction point at each write, which a write-back cache cannot give.
    let line = scratch.fails(1, "mask set mnt +write");
    assert!(line.contains("write-through mount") && line.contains("-o writethrough"), "{line}");
    scratch.fails(2, "mask set mnt +wirte");
    // The mask has `close` at the first close, so `close` can be removed and added again.
    fs::write(scratch.path("mnt/e"), "e").unwrap();
    scratch.ok("mask set mnt no-close");
    fs::write(scratch.path("mnt/e"), "f").unwrap();
    scratch.ok("mask set mnt +close");
    fs::write(scratch.path("mnt/e"), "g").unwrap();
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /e"), "g");
    assert_eq!(json(&scratch, "mask get --json disk.img")["timer_ms"], 250);

    // A mount that starts without `close` cannot get it later, and says so in one clear line.
    scratch.ok("mask set disk.img no-close");
    scratch.mounted("");
    fs::write(scratch.path("mnt/e"), "h").unwrap();
    let line = scratch.fails(5, "mask set mnt +close --timer 300ms");
    assert!(line.contains("too late for 'close'") && line.contains("mask=+close"), "{line}");
    let mask = json(&scratch, "mask get --json mnt");
    assert!(!mask["mask"].as_array().unwrap().contains(&"close".into()), "{mask}");
    assert_eq!(mask["timer_ms"], 250, "nothing is changed");
    scratch.ok("mask set mnt +rename");
    scratch.ok("umount --quiet mnt");
    scratch.mounted("-o mask=+close");
    fs::write(scratch.path("mnt/e"), "i").unwrap();
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /e"), "i");
    scratch.ok("mask set disk.img no-close");

    scratch.mounted("-o writethrough");
    scratch.ok("mask set mnt +write");
    fs::write(scratch.path("mnt/f"), "x").unwrap();
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /f"), "x");
    // A volume whose mask has `write` is mounted write-through by default.
    scratch.mounted("");
    fs::write(scratch.path("mnt/g"), "y").unwrap();
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /g"), "y");
}

#[test]
fn commands_that_need_a_mount_say_so() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    fs::create_dir(scratch.path("mnt")).unwrap();
    for command in ["transact", "rollback"] {
        let line = scratch.fails(8, &format!("{command} disk.img"));
        assert!(line.contains("not mounted"), "{line}");
        scratch.fails(3, &format!("{command} mnt"));
        scratch.fails(1, &format!("{command} missing"));
    }
    let line = scratch.fails(1, "umount mnt");
    assert!(line.contains("no Steadfast volume is mounted here"), "{line}");
    scratch.fails(1, "umount missing");
    scratch.fails(1, "umount disk.img");
}

#[test]
fn mount_points_that_will_not_do() {
    let Some(scratch) = start() else { return };
    let line = scratch.fails(8, "mount disk.img missing");
    assert!(line.contains("does not exist") && line.contains("mkdir"), "{line}");
    let line = scratch.fails(8, "mount disk.img disk.img");
    assert!(line.contains("not a directory"), "{line}");
    fs::create_dir(scratch.path("mnt")).unwrap();
    scratch.fails(1, "mount missing.img mnt");
    scratch.write("text.img", &[b'x'; 10_000]);
    scratch.fails(3, "mount text.img mnt");
    scratch.fails(3, "mount -f text.img mnt");
    assert!(!is_mounted(&scratch.path("mnt")));
    // After a failed mount the image is free.
    scratch.ok("check --quiet disk.img");
}

#[test]
fn a_mount_that_is_refused_keeps_the_mask() {
    let Some(scratch) = start() else { return };
    fs::create_dir(scratch.path("mnt")).unwrap();
    let before = json(&scratch, "mask get --json disk.img");
    let generation = scratch.ok("info --get generation disk.img");
    let options = "synchronous,mask=no-close,timer=7s";
    // Only root may mount over the first directory, and root not without the capability.
    let program = if is_root() { "setpriv" } else { STEADFAST };
    let mut command = Command::new(program);
    if is_root() {
        command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", STEADFAST]);
    }
    let directory = if is_root() { "mnt" } else { "/usr" };
    command.args(["mount", "-o", options, "disk.img", directory]);
    let refused = command.current_dir(scratch.path("")).output().expect("it runs");
    let line = failed(&refused, 7, "a refused mount");
    assert!(line.contains("no permission to mount"), "{line}");
    assert_eq!(json(&scratch, "mask get --json disk.img"), before);
    assert_eq!(scratch.ok("info --get generation disk.img"), generation, "nothing is written");
}

#[test]
fn read_only() {
    let Some(scratch) = start() else { return };
    scratch.put("/f", b"x");
    let before = fs::read(scratch.path("disk.img")).unwrap();
    let mnt = scratch.mounted("-o ro");
    assert_eq!(fs::read_to_string(mnt.join("f")).unwrap(), "x");
    let error = fs::write(mnt.join("g"), "y").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(json(&scratch, "info --json mnt")["read_only"], true);
    // A read-only mount changes nothing on the image.
    scratch.ok("umount mnt");
    assert!(
        fs::read(scratch.path("disk.img")).unwrap() == before,
        "a read-only mount changed the image"
    );
}

#[test]
fn busy_mounts_stay() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("");
    let mut file = fs::File::create(mnt.join("f")).unwrap();
    file.write_all(b"x").unwrap();
    let line = scratch.fails(5, "umount mnt");
    assert!(line.contains("in use") && line.contains("fuser"), "{line}");
    assert!(is_mounted(&mnt));
    drop(file);
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /f"), "x");
}

#[test]
fn signals_unmount_cleanly() {
    for name in ["TERM", "INT", "HUP"] {
        let Some(scratch) = start() else { return };
        let mnt = scratch.mounted("");
        fs::write(mnt.join("f"), "x").unwrap();
        let pid = scratch.daemon();
        signal(name, pid);
        wait_for("the daemon to end", || !process_exists(pid));
        assert!(!is_mounted(&mnt), "{name}");
        assert_eq!(scratch.ok("cat disk.img /f"), "x");
        assert_eq!(scratch.ok("info --get replayed_records disk.img"), "0\n");
    }
}

#[test]
fn in_the_foreground() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let child = scratch
        .command(&["mount", "-f", "disk.img", "mnt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("JOURNAL_STREAM")
        .spawn()
        .unwrap();
    wait_for("the mount", || is_mounted(&mnt));
    fs::write(mnt.join("f"), "x").unwrap();
    signal("TERM", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.lines().all(|line| line.starts_with("steadfast: ")) && log.contains("unmounted"),
        "{log}"
    );
    assert_eq!(scratch.ok("cat disk.img /f"), "x");
}

#[test]
fn a_journal_gets_priorities() {
    let Some(scratch) = start() else { return };
    fs::create_dir(scratch.path("mnt")).unwrap();
    let child = scratch
        .command(&["mount", "-f", "disk.img", "mnt"])
        .stderr(Stdio::piped())
        .env("JOURNAL_STREAM", "8:1")
        .spawn()
        .unwrap();
    wait_for("the mount", || is_mounted(&scratch.path("mnt")));
    signal("TERM", child.id());
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(log.starts_with("<6>steadfast: mounted"), "{log}");
}

/// The call of `mount.fuse3` for `mount -t fuse.steadfast` and fstab.
#[test]
fn called_by_mount() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let (image, directory) = (scratch.path("disk.img"), mnt.display().to_string());
    let image = image.display().to_string();
    scratch.ok(&format!("{image} {directory} -o rw,noatime"));
    assert!(is_mounted(&mnt));
    fs::write(mnt.join("f"), "x").unwrap();
    // The exit codes are those of mount(8), not of Steadfast.
    failed(&scratch.line(&format!("{image} {directory} -o rw")), 32, "mounted twice");
    scratch.ok("umount mnt");

    let helper = scratch.path("mount.steadfast");
    symlink(STEADFAST, &helper).unwrap();
    let call = |arguments: &[&str]| {
        Command::new(&helper).args([&image, &directory]).args(arguments).output().unwrap()
    };
    assert!(call(&["-f", "-o", "ro"]).status.success());
    assert!(!is_mounted(&mnt), "-f of a mount helper mounts nothing");
    assert!(call(&["-n", "-s", "-v", "-o", "ro,nosuid,nodev", "-t", "steadfast"]).status.success());
    assert!(is_mounted(&mnt));
    assert!(fs::write(mnt.join("g"), "y").is_err());
    scratch.ok("umount mnt");
    assert_eq!(call(&["--bogus"]).status.code(), Some(1));
    failed(&call(&["-o", "bogus"]), 32, "bogus option");
}

#[test]
fn nobody_waits_for_a_daemon() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.path("mnt");
    fs::create_dir(&mnt).unwrap();
    // The daemon must close every descriptor of the shell, including descriptor 3.
    let script = format!("exec 3>&1; {STEADFAST} mount disk.img mnt");
    let output =
        Command::new("bash").args(["-c", &script]).current_dir(scratch.path(".")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_mounted(&mnt));
}

#[test]
fn a_full_volume_through_the_mount() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("");
    fs::write(mnt.join("kept"), "kept").unwrap();
    let mut filler = fs::File::create(mnt.join("filler")).unwrap();
    let block = vec![7; 1 << 20];
    let full =
        (0..100).find_map(|_| filler.write_all(&block).and_then(|()| filler.sync_data()).err());
    assert_eq!(full.expect("it fills up").kind(), std::io::ErrorKind::StorageFull);
    drop(filler);
    scratch.ok("transact mnt");
    fs::remove_file(mnt.join("filler")).unwrap();
    scratch.ok("transact mnt");
    fs::write(mnt.join("again"), &block).unwrap();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /kept"), "kept");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn damage_through_the_mount() {
    let Some(scratch) = start() else { return };
    scratch.put("/hurt", &[b'h'; 20_000]);
    scratch.put("/whole", &[b'w'; 20_000]);
    let image = scratch.path("disk.img");
    common::flip(&image, common::find(&image, &[b'h'; 4096])[0]);
    common::flip(&image, 100);
    let mnt = scratch.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let output = scratch.line("mount disk.img mnt");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("steadfast: warning: one superblock copy is damaged: "), "{said}");
    let error = fs::read(mnt.join("hurt")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(fs::read(mnt.join("whole")).unwrap(), [b'w'; 20_000]);
}

#[test]
fn a_root_that_cannot_be_read_is_not_mounted() {
    let Some(scratch) = start() else { return };
    let image = scratch.path("disk.img");
    for node in common::find(&image, b"SFND") {
        common::flip(&image, node + 16);
    }
    fs::create_dir(scratch.path("mnt")).unwrap();
    for _ in 0..2 {
        // A second try shows that the first one left nothing behind.
        failed(&scratch.line("mount disk.img mnt"), 4, "mount of a damaged root");
    }
    assert!(!common::is_mounted(&scratch.path("mnt")));
}

/// Without /dev/fuse the command gives a clear error. Needs root, for a mount namespace with
/// another /dev.
#[test]
fn no_fuse() {
    if !is_root()
        || !Command::new("unshare")
            .args(["-m", "true"])
            .status()
            .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: no mount namespaces here");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("4M");
    fs::create_dir(scratch.path("mnt")).unwrap();
    let script = format!("mount -t tmpfs none /dev && {STEADFAST} mount disk.img mnt");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .current_dir(scratch.path("."))
        .output()
        .unwrap();
    let line = failed(&output, 8, "mount without /dev/fuse");
    assert!(line.contains("/dev/fuse") && line.contains("modprobe fuse"), "{line}");
}

/// A signal while files are open: the mount leaves the directory tree at once and is served until
/// they are closed. A second signal ends it. Everything written is kept.
#[test]
fn signals_with_open_files() {
    for signals in [1, 2] {
        let Some(scratch) = start() else { return };
        let mnt = scratch.mounted("");
        let mut file = fs::File::create(mnt.join("f")).unwrap();
        file.write_all(b"written").unwrap();
        let pid = scratch.daemon();
        signal("TERM", pid);
        wait_for("the mount to leave", || !is_mounted(&mnt));
        assert!(process_exists(pid), "files are open");
        scratch.fails(5, "ls disk.img");
        if signals == 1 {
            file.write_all(b" on").unwrap();
            drop(file);
            wait_for("the daemon to end", || !process_exists(pid));
            assert_eq!(scratch.ok("cat disk.img /f"), "written on");
        } else {
            signal("TERM", pid);
            wait_for("the daemon to end", || !process_exists(pid));
            assert_eq!(scratch.ok("cat disk.img /f"), "written");
        }
        scratch.ok("check --quiet disk.img");
    }
}

/// A loop device, detached at the end.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &std::path::Path) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--show", "-f"]).arg(file).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !name.is_empty()).then_some(LoopDevice(name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn block_devices() {
    let Some(scratch) = start() else { return };
    let Some(device) = LoopDevice::new(&scratch.path("disk.img")).filter(|_| is_root()) else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    let name = &device.0;
    let mnt = scratch.path("mnt");
    fs::create_dir(&mnt).unwrap();
    scratch.fails(5, &format!("mkfs {name}"));
    scratch.fails(6, &format!("mkfs --force --size 65M {name}"));
    scratch.ok(&format!("mkfs --force {name}"));
    for options in ["", "-o direct"] {
        scratch.ok(&format!("mount {name} mnt {options}"));
        fs::write(mnt.join("f"), vec![b'x'; 3_000_000]).unwrap();
        let line = scratch.fails(5, &format!("check {name}"));
        assert!(line.contains("in use") && line.contains(mnt.to_str().unwrap()), "{line}");
        assert_eq!(
            json(&scratch, &format!("info --json {name}"))["mount_point"],
            mnt.to_str().unwrap()
        );
        scratch.ok("umount mnt");
        scratch.ok(&format!("check --quiet {name}"));
        assert_eq!(scratch.line(&format!("cat {name} /f")).stdout, vec![b'x'; 3_000_000]);
    }
}
