//! Which process holds a volume, which processes wait, and what commands report about changes that
//! are not durable. If nothing can be mounted, the tests are skipped with a message.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{
    STEADFAST, Scratch, can_mount, failed, is_mounted, is_root, process_exists, signal, succeeded,
    wait_for,
};

/// A scratch directory with an empty volume in `disk.img`; `None` if mounting is not possible.
fn start() -> Option<Scratch> {
    can_mount().then(|| {
        let scratch = Scratch::new();
        scratch.volume("64M");
        scratch
    })
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn over(image: &Path, options: &[&str]) -> Option<Loop> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(image)
            .output()
            .ok()?;
        let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        if !output.status.success() || !is_root() {
            eprintln!("skipped: no loop devices here");
            return None;
        }
        Some(Loop(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// The same image under two names: the second mount is refused, in either order.
#[test]
fn an_image_and_its_loop_device_are_one() {
    let Some(scratch) = start() else { return };
    let image = scratch.path("disk.img");
    let Some(device) = Loop::over(&image, &[]) else { return };
    fs::create_dir(scratch.path("other")).unwrap();
    let mnt = scratch.mounted("");
    for command in ["mount {} other", "mount -o ro {} other", "check {}", "mkfs --force {}"] {
        let line = scratch.fails(5, &command.replace("{}", &device.0));
        assert!(line.contains("disk.img, which is in use by process"), "{line}");
        assert!(line.contains(&format!("mounted on {}", mnt.display())), "{line}");
    }
    // A command that writes a file or an archive into a device is no second writer either.
    scratch.write("source.txt", b"x");
    scratch.ok("mkfs --size 4M source.img");
    scratch.ok("put source.img source.txt /file");
    let writers = [
        format!("get source.img /file {}", device.0),
        format!("image extract --tar source.img {}", device.0),
    ];
    for command in &writers {
        let line = scratch.fails(5, command);
        assert!(line.contains("disk.img, which is in use by process"), "{command}: {line}");
    }
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
    scratch.ok(&format!("mount {} mnt", device.0));
    for command in [
        "mount disk.img other",
        "check disk.img",
        "put disk.img mount.log /x",
        "mkfs --force disk.img",
    ] {
        let line = scratch.fails(5, command);
        assert!(line.contains(&format!("mounted on {}", mnt.display())), "{command}: {line}");
    }
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

/// A loop device over the loop device of an image is the image under a third name.
#[test]
fn a_loop_device_over_a_loop_device_is_the_image() {
    let Some(scratch) = start() else { return };
    let image = scratch.path("disk.img");
    let Some(first) = Loop::over(&image, &[]) else { return };
    let Some(second) = Loop::over(Path::new(&first.0), &[]) else { return };
    fs::create_dir(scratch.path("other")).unwrap();
    let mnt = scratch.mounted("");
    for command in [
        "mount {} other",
        "mount -o ro {} other",
        "check {}",
        "check --repair {}",
        "put {} mount.log /x",
        "mkfs --force {}",
    ] {
        let line = scratch.fails(5, &command.replace("{}", &second.0));
        assert!(line.contains("disk.img, which is in use by process"), "{line}");
        assert!(line.contains(&format!("mounted on {}", mnt.display())), "{line}");
    }
    scratch.ok("umount mnt");
    scratch.ok(&format!("mount {} mnt", second.0));
    for name in ["disk.img", &first.0] {
        for command in ["mount {} other", "check {}", "put {} mount.log /x", "mkfs --force {}"] {
            scratch.fails(5, &command.replace("{}", name));
        }
    }
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
    drop(second);
}

/// Volumes in two parts of one image do not disturb each other.
#[test]
fn parts_of_an_image_have_owners_of_their_own() {
    let Some(scratch) = can_mount().then(Scratch::new) else { return };
    let image = scratch.write("whole.img", &[]);
    fs::File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    let half = (16_u32 << 20).to_string();
    let Some(first) = Loop::over(&image, &["--sizelimit", &half]) else { return };
    let Some(second) = Loop::over(&image, &["--offset", &half]) else { return };
    scratch.ok(&format!("mkfs {}", first.0));
    fs::create_dir(scratch.path("mnt")).unwrap();
    scratch.ok(&format!("mount {} mnt", first.0));
    scratch.ok(&format!("mkfs {}", second.0));
    scratch.ok(&format!("check --quiet {}", second.0));
    scratch.fails(5, "mkfs --force whole.img");
    scratch.ok("umount mnt");
    scratch.ok(&format!("check --quiet {}", first.0));
}

fn umount8(directory: &Path, options: &[&str]) -> Output {
    Command::new("umount").args(options).arg(directory).output().expect("umount runs")
}

/// umount(8) without the helper returns before the daemon has ended. A command that then opens the
/// volume waits for the daemon.
#[test]
fn who_opens_the_volume_waits_for_a_daemon_that_ends() {
    let Some(scratch) = start().filter(|_| is_root()) else { return };
    for round in 0..6 {
        let mnt = scratch.mounted("");
        let pid = scratch.daemon();
        fs::write(mnt.join("f"), vec![round; 4 << 20]).unwrap();
        // The daemon stops early, before the next command comes.
        signal("STOP", pid);
        let unmounting = std::thread::spawn(move || umount8(&mnt, &["-l", "-i"]));
        wait_for("the mount to go", || !is_mounted(&scratch.path("mnt")));
        let opening = std::thread::scope(|scope| {
            let opening = scope.spawn(|| match round % 3 {
                0 => scratch.line("check --quiet disk.img"),
                1 => scratch.line("cat disk.img /f"),
                _ => scratch.line("mount disk.img mnt"),
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
            signal("CONT", pid);
            opening.join().unwrap()
        });
        assert!(unmounting.join().unwrap().status.success());
        let printed = opening.stdout.clone();
        assert!(opening.status.success(), "{}", String::from_utf8_lossy(&opening.stderr));
        match round % 3 {
            1 => assert!(printed == vec![round; 4 << 20]),
            2 => scratch.ok("umount mnt").clear(),
            _ => {}
        }
    }
}

fn linked(scratch: &Scratch, name: &str) -> PathBuf {
    let helper = scratch.path(name);
    if fs::symlink_metadata(&helper).is_err() {
        symlink(STEADFAST, &helper).unwrap();
    }
    helper
}

/// The helper as umount(8) runs it: when it returns, the daemon has ended.
#[test]
fn the_helper_of_umount_returns_after_the_last_point() {
    let Some(scratch) = start() else { return };
    let helper = linked(&scratch, "umount.fuse.steadfast");
    let call = |arguments: &[&str]| Command::new(&helper).args(arguments).output().unwrap();
    let mnt = scratch.mounted("");
    let directory = mnt.to_str().unwrap();
    fs::write(mnt.join("f"), "x").unwrap();
    let pid = scratch.daemon();
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(comm, "steadfast\n", "the name in ps");
    let open = fs::File::open(mnt.join("f")).unwrap();
    let line = failed(&call(&[directory, "-t", "fuse.steadfast"]), 32, "busy");
    assert!(line.contains("in use") && line.contains("everything up to now is durable"), "{line}");
    drop(open);
    let output = call(&[directory, "-t", "fuse.steadfast"]);
    assert_eq!(succeeded(&output, "umount helper"), "");
    assert!(!is_mounted(&mnt) && !process_exists(pid));
    scratch.ok("check --quiet disk.img");
    failed(&call(&[directory]), 32, "nothing there");
    assert_eq!(call(&["--bogus", directory]).status.code(), Some(1));
}

/// `mount -o remount` in the form in which mount(8) passes it on.
#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let Some(scratch) = start().filter(|_| is_root()) else { return };
    let helper = linked(&scratch, "mount.fuse.steadfast");
    let mnt = scratch.mounted("-o nosuid,timer=1h");
    let remount = |options: &str| {
        let image = scratch.path("disk.img");
        Command::new(&helper).arg(image).arg(&mnt).args(["-o", options]).output().unwrap()
    };
    let mut file = fs::File::create(mnt.join("f")).unwrap();
    file.write_all(b"written").unwrap();
    let line = failed(&remount("remount,ro"), 32, "a file is open for writing");
    assert!(line.contains("files are open for writing"), "{line}");
    drop(file);
    succeeded(&remount("remount,ro,timer=1h"), "remount,ro");
    assert_eq!(
        fs::write(mnt.join("g"), "x").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    assert_eq!(scratch.ok("info --get uncommitted mnt"), "0\n", "durable when it is read-only");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(mnt.to_str().unwrap())).unwrap();
    assert!(line.contains("nosuid"), "what was not asked for stays: {line}");
    for option in ["timer=2h", "writethrough", "cache=8M"] {
        let line = failed(&remount(&format!("remount,rw,{option}")), 32, option);
        assert!(line.contains(&format!("a remount cannot change '{option}'")), "{line}");
    }
    assert!(fs::write(mnt.join("g"), "x").is_err(), "a refusal changes nothing");
    succeeded(&remount("remount,rw"), "remount,rw");
    fs::write(mnt.join("g"), "x").unwrap();
    failed(&remount("remount,ro,rw"), 32, "a contradiction");
    scratch.ok("umount mnt");

    scratch.mounted("-o ro");
    let line = failed(&remount("remount,rw"), 32, "opened read-only");
    assert!(line.contains("opened read-only"), "{line}");
    scratch.ok("umount mnt");
    failed(&remount("remount,ro"), 32, "not mounted");
}

/// `mask set` on a mount is durable when it returns, or says that it is not. It makes no other
/// change durable.
#[test]
fn a_mask_that_was_set_is_kept() {
    let Some(scratch) = start() else { return };
    let mask = |line: &str| {
        scratch.ok(&format!("mask get {line}")).lines().next().unwrap_or_default().to_owned()
    };
    let mnt = scratch.mounted("-o timer=1h");
    fs::write(mnt.join("before"), "x").unwrap();
    assert_eq!(scratch.ok("mask set mnt manual"), "");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert!(mask("disk.img").contains("manual"), "set, and kept");

    let mnt = scratch.mounted("");
    assert_eq!(scratch.ok("mask set mnt fsync"), "", "nothing else has changed");
    fs::write(mnt.join("half"), "x").unwrap();
    let said = scratch.ok("mask set mnt manual");
    assert!(said.contains("from the next transaction point on"), "{said}");
    assert!(mask("mnt").contains("manual"));
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert!(mask("disk.img").contains("fsync"), "as it said");
    scratch.fails(1, "cat disk.img /half");

    // A mask given as a mount option is kept too.
    scratch.mounted("-o mask=sync");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert!(mask("disk.img").contains("sync") && !mask("disk.img").contains("fsync"));
}

/// A busy mount stays, and the message says what is durable and what is not.
#[test]
fn a_busy_mount_says_what_is_durable() {
    let Some(scratch) = start() else { return };
    let mnt = scratch.mounted("-o mask=manual");
    fs::write(mnt.join("f"), "x").unwrap();
    let open = fs::File::open(mnt.join("f")).unwrap();
    let line = scratch.fails(5, "umount mnt");
    assert!(line.contains("not durable, 'steadfast transact") && !line.contains("safe"), "{line}");
    drop(open);

    let mut running = scratch
        .command(&["atomically", "mnt", "--", "sh", "-c", "touch mnt/y running; sleep 60"])
        .spawn()
        .unwrap();
    wait_for("the command", || scratch.path("running").exists());
    for mask in ["manual", "held"] {
        let line = scratch.fails(5, "umount mnt");
        assert!(line.contains("not durable"), "{mask}: {line}");
    }
    signal("INT", running.id());
    running.wait().unwrap();
    scratch.ok("mask set mnt default");

    let open = fs::File::open(mnt.join("f")).unwrap();
    let line = scratch.fails(5, "umount mnt");
    assert!(line.contains("everything up to now is durable"), "{line}");
    scratch.kill_daemon();
    let line = scratch.fails(5, "umount mnt");
    assert!(line.contains("the daemon is gone, and with it what was changed"), "{line}");
    drop(open);
    scratch.ok("umount mnt");
}

/// A file system of a fixed size that holds an image, unmounted when dropped.
struct SmallHost(PathBuf);

impl SmallHost {
    fn new(scratch: &Scratch) -> Option<SmallHost> {
        let directory = scratch.path("host");
        fs::create_dir(&directory).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6M", "tmpfs"])
            .arg(&directory)
            .output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        Some(SmallHost(directory))
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The host has less room than the sparse image claims: every command that shows the state reports
/// it.
#[test]
fn a_full_host_below_a_sparse_image_is_told() {
    let Some(scratch) = can_mount().then(Scratch::new) else { return };
    let Some(host) = SmallHost::new(&scratch) else { return };
    scratch.ok("mkfs --size 64M host/disk.img");
    fs::create_dir(scratch.path("mnt")).unwrap();
    scratch.ok("mount --log mount.log -o timer=1h host/disk.img mnt");
    let mnt = scratch.path("mnt");
    fs::write(mnt.join("kept"), "x").unwrap();
    scratch.ok("transact mnt");
    fs::write(host.0.join("filler"), vec![1; 64 << 10]).ok();
    let fill = fs::write(host.0.join("filler"), vec![1; 8 << 20]);
    assert!(fill.is_err(), "the host is full");
    // Long names do not fit the block of the log that the point above has used.
    for index in 0..2000 {
        let _ = fs::write(mnt.join(format!("{index:0>200}")), "x");
    }
    let line = scratch.fails(6, "transact mnt");
    assert!(line.contains("full") || line.contains("no space"), "{line}");
    let info = scratch.ok("info mnt");
    assert!(
        info.contains("read-only, by itself") && info.contains("the storage below it is full"),
        "{info}"
    );
    assert!(!info.contains("read-write"), "{info}");
    wait_for("a line in the log", || {
        let log = fs::read_to_string(scratch.path("mount.log")).unwrap();
        log.contains("went read-only: the storage below it is full")
    });
    let output = scratch.line("umount mnt");
    let line = failed(&output, output.status.code().unwrap(), "umount");
    assert!(line.contains("unmounted, but the last transaction point failed"), "{line}");
    assert!(line.contains("the storage below it is full") && line.contains("lost"), "{line}");
    fs::remove_file(host.0.join("filler")).unwrap();
    scratch.ok("check --quiet host/disk.img");
    assert_eq!(scratch.ok("cat host/disk.img /kept"), "x");

    // A new volume on the full host fails with advice too.
    fs::write(host.0.join("filler"), vec![1; 8 << 20]).unwrap_err();
    let line = scratch.fails(6, "mkfs --size 64M host/second.img");
    assert!(line.contains("make room"), "{line}");
}

/// Servers that do not answer may hold an array, so no message suggests making one.
#[test]
fn silent_servers_are_not_an_empty_array() {
    let scratch = Scratch::new();
    // Ports without a listener.
    let ports: Vec<u16> = (0..2)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
        .collect();
    let address = format!("remote://127.0.0.1:{},127.0.0.1:{}?policy=mirror", ports[0], ports[1]);
    fs::create_dir(scratch.path("mnt")).unwrap();
    for command in ["mount {} mnt", "check {}", "info {}"] {
        let line = scratch.fails(1, &command.replace("{}", &address));
        assert!(line.contains("none of the 2 servers answers") && !line.contains("mkfs"), "{line}");
    }
    let output = scratch.line(&format!("remote status {address}"));
    let line = failed(&output, 1, "remote status");
    assert!(line.contains("none of the 2 servers answers"), "{line}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with("no server answers\n") && shown.contains("unreachable"), "{shown}");
    assert_eq!(scratch.line(&format!("remote status --json {address}")).status.code(), Some(1));
}
