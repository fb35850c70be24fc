//! Interfaces that administrators know from other file systems: `mkfs.steadfast`, `fsck.steadfast`
//! with the exit codes of e2fsck, `check --repair`, `tune`, remounts, `umount`, `df`.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, can_mount, failed, flip, is_mounted, is_root, signal, wait_for};

/// Runs the program under another name.
fn named(scratch: &Scratch, name: &str, line: &str) -> Output {
    let link = scratch.path(name);
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_steadfast"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(line.split_whitespace()).current_dir(scratch.path("")).stdin(Stdio::null());
    command.output().unwrap()
}

/// Exit code, and the text of both outputs.
fn fsck(scratch: &Scratch, line: &str) -> (i32, String) {
    let output = named(scratch, "fsck.steadfast", line);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

/// Damages the newest block that begins with `needle`.
fn rot(scratch: &Scratch, needle: &[u8]) {
    let path = scratch.path("disk.img");
    let bytes = fs::read(&path).unwrap();
    let block =
        bytes.chunks(4096).rposition(|block| block.starts_with(needle)).expect("a block like that");
    let image = File::options().write(true).open(path).unwrap();
    image.write_all_at(&[0x5a; 4000], block as u64 * 4096 + 60).unwrap();
}

#[test]
fn mkfs_by_its_name() {
    let scratch = Scratch::new();
    let made = named(
        &scratch,
        "mkfs.steadfast",
        "-L spool -U 6fa459ea-ee8a-3ca4-894e-db77e160355e disk.img 8192",
    );
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    assert_eq!(scratch.ok("info --get size disk.img").trim(), "8388608");
    assert_eq!(scratch.ok("info --get label disk.img").trim(), "spool");
    let again = named(&scratch, "mkfs.steadfast", "disk.img");
    assert_eq!(again.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("already holds a Steadfast volume"),
        "{again:?}"
    );
    let blocks = named(&scratch, "mkfs.steadfast", "-q -F -b 512 disk.img 20000");
    assert!(blocks.status.success() && blocks.stdout.is_empty(), "{blocks:?}");
    assert_eq!(scratch.ok("info --get size disk.img").trim(), "10240000");
    assert_eq!(named(&scratch, "mkfs.steadfast", "disk.img -F many").status.code(), Some(1));
    assert_eq!(named(&scratch, "mkfs.steadfast", "--no-such").status.code(), Some(1));
}

#[test]
fn fsck_has_the_exit_codes_of_fsck() {
    let scratch = Scratch::new();
    scratch.volume("8M").put("/good", &[1; 100_000]);
    for options in ["-n", "-p", "-a", "-y", "-af", ""] {
        let (code, said) = fsck(&scratch, &format!("{options} disk.img"));
        assert_eq!(code, 0, "{options}: {said}");
        assert!(said.contains("disk.img: clean"), "{said}");
    }
    // One damaged copy of a node: -n reports it, -p -f repairs it, and the volume is clean
    // afterwards.
    rot(&scratch, b"SFND");
    let before = fs::read(scratch.path("disk.img")).unwrap();
    let (code, said) = fsck(&scratch, "-n disk.img");
    assert_eq!((code, said.contains("degraded: copy of a node")), (4, true), "{said}");
    assert!(said.contains("'fsck.steadfast -y' repairs what is safe"), "{said}");
    assert_eq!(fs::read(scratch.path("disk.img")).unwrap(), before, "-n writes nothing");
    let (code, said) = fsck(&scratch, "-p -f disk.img");
    assert_eq!((code, said.contains("repaired: copy of a node")), (1, true), "{said}");
    assert_eq!(fsck(&scratch, "-n disk.img").0, 0);
    // A damaged superblock is found without -f.
    flip(&scratch.path("disk.img"), 20);
    let (code, said) = fsck(&scratch, "-a disk.img");
    assert_eq!(code, 1, "{said}");
    assert_eq!(scratch.ok("cat disk.img /good").len(), 100_000);
    // Lost data: nothing can be repaired, and nothing is written.
    rot(&scratch, &[1; 4096]);
    let before = fs::read(scratch.path("disk.img")).unwrap();
    for option in ["-n", "-y"] {
        let (code, said) = fsck(&scratch, &format!("{option} disk.img"));
        assert_eq!((code, said.contains("affects /good")), (4, true), "{said}");
        assert!(said.contains("cannot be repaired safely; it needs"), "{option}: {said}");
    }
    assert_eq!(fs::read(scratch.path("disk.img")).unwrap(), before);
    scratch.fails(4, "check --repair --quiet disk.img");
    assert_eq!(fs::read(scratch.path("disk.img")).unwrap(), before);
    // Wrong calls, and targets that are not volumes.
    assert_eq!(fsck(&scratch, "-n -y disk.img").0, 16);
    assert_eq!(fsck(&scratch, "-z disk.img").0, 16);
    assert_eq!(fsck(&scratch, "-n none.img").0, 8);
    scratch.write("zeros", &[0; 1 << 20]);
    assert_eq!(fsck(&scratch, "-y zeros").0, 8);
    assert_eq!(fsck(&scratch, "-V").0, 0);
}

#[test]
fn a_volume_in_use_is_refused_and_one_without_power_is_clean() {
    if !can_mount() {
        eprintln!("skipped: cannot mount here");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mount = scratch.mounted("");
    fs::write(mount.join("file"), [3; 50_000]).unwrap();
    scratch.ok("transact mnt");
    for options in ["-n", "-a", "-y"] {
        let (code, said) = fsck(&scratch, &format!("{options} disk.img"));
        assert_eq!((code, said.contains("in use")), (8, true), "{options}: {said}");
    }
    scratch.fails(5, "tune --label x disk.img");
    scratch.fails(5, "check --repair disk.img");
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    for options in ["-a", "-n", "-fy"] {
        let (code, said) = fsck(&scratch, &format!("{options} disk.img"));
        assert_eq!((code, said.contains("clean")), (0, true), "{options}: {said}");
    }
    assert_eq!(scratch.ok("cat disk.img /file").len(), 50_000);
}

#[test]
fn tune_changes_names_and_parameters() {
    let scratch = Scratch::new();
    scratch.ok("mkfs --size 8M --label old disk.img");
    scratch.put("/file", b"content");
    let first = scratch.ok("info --get uuid disk.img");
    let new = "6fa459ea-ee8a-3ca4-894e-db77e160355e";
    let said =
        scratch.ok(&format!("tune --label new --uuid {new} --mask +rename --timer 2s disk.img"));
    assert!(said.contains(new) && said.contains("label new"), "{said}");
    let export = scratch.ok("info --export disk.img");
    assert!(export.contains(&format!("UUID={new}")) && export.contains("LABEL=new"), "{export}");
    let mask = scratch.ok("mask get disk.img");
    assert!(mask.contains("rename") && mask.contains("2 s"), "{mask}");
    assert_eq!(scratch.ok("cat disk.img /file"), "content");
    scratch.ok("check --quiet disk.img");
    scratch.ok(&format!("tune --uuid {} disk.img", first.trim()));
    assert_eq!(scratch.ok("info --get uuid disk.img"), first);
    scratch.ok("tune --uuid random disk.img");
    assert_ne!(scratch.ok("info --get uuid disk.img"), first);
    let before = fs::read(scratch.path("disk.img")).unwrap();
    scratch.fails(2, "tune disk.img");
    scratch.fails(2, &format!("tune --label {} disk.img", "x".repeat(33)));
    scratch.fails(2, "tune --uuid 12 disk.img");
    scratch.fails(2, "tune --mask nonsense disk.img");
    assert_eq!(fs::read(scratch.path("disk.img")).unwrap(), before);
}

#[test]
fn free_space_goes_back_to_the_storage_and_what_is_used_stays() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    scratch.volume("32M");
    let contents: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8 | 1).collect();
    for name in ["/kept", "/gone", "/also"] {
        scratch.put(name, &contents);
    }
    scratch.ok("snapshot create disk.img before");
    scratch.ok("rm disk.img /also");
    scratch.ok("rm disk.img /gone");
    scratch.ok("snapshot delete disk.img before");
    let path = scratch.path("disk.img");
    let before = fs::metadata(&path).unwrap().blocks() * 512;
    let said = scratch.ok("trim disk.img");
    let after = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(said.contains("bytes) trimmed"), "{said}");
    assert!(before > 8_000_000 && (3_000_000..5_000_000).contains(&after), "{before} to {after}");
    scratch.ok("check --quiet disk.img");
    let kept = scratch.line("cat disk.img /kept");
    assert!(kept.status.success() && kept.stdout == contents);
    // Every run is shorter than that, so nothing is trimmed.
    assert!(scratch.ok("trim --minimum 1G disk.img").contains("(0 bytes) trimmed"));
    scratch.fails(2, "trim --minimum x disk.img");
}

#[test]
fn extents_say_where_data_lies() {
    let scratch = Scratch::new();
    scratch.volume("32M").put("/large", &[0x77; 3_000_000]);
    scratch.put("/small", b"few");
    let said = scratch.ok("extents --json disk.img /large /small");
    let files: serde_json::Value = serde_json::from_str(&said).unwrap();
    let extents = files[0]["extents"].as_array().unwrap();
    let blocks: u64 = extents.iter().map(|extent| extent["blocks"].as_u64().unwrap()).sum();
    assert_eq!(blocks, 3_000_000u64.div_ceil(4096));
    let image = fs::read(scratch.path("disk.img")).unwrap();
    for extent in extents {
        let at = extent["block"].as_u64().unwrap() as usize * 4096;
        assert!(image[at..at + 4096].iter().all(|byte| *byte == 0x77), "{extent}");
    }
    assert_eq!(files[1]["extents"].as_array().unwrap().len(), 0);
    assert!(scratch.ok("extents disk.img /large").starts_with("/large: "));
    scratch.fails(1, "extents disk.img /none");
    scratch.fails(1, "extents disk.img /");
}

/// The options of the mount point and those of its file system, as the kernel shows them.
fn shown(scratch: &Scratch) -> (Vec<String>, Vec<String>) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mnt = scratch.path("mnt");
    let line = table.lines().find(|line| line.split(' ').nth(4) == mnt.to_str()).unwrap();
    let words = |text: &str| text.split(',').map(str::to_owned).collect();
    (words(line.split(' ').nth(5).unwrap()), words(line.rsplit(' ').next().unwrap()))
}

/// Without an entry in fstab mount(8) passes every option that the kernel shows.
#[test]
fn remounts_change_what_they_name() {
    if !can_mount() || !is_root() {
        eprintln!("skipped: only root remounts");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mnt = scratch.mounted("-o noatime");
    let has = |option: &str| {
        let (mount, file_system) = shown(&scratch);
        mount.iter().chain(&file_system).any(|shown| shown == option)
    };
    assert!(has("noatime"), "a remount gets this option back");
    let remount = |list: &str| {
        let line =
            format!("disk.img mnt -o {list},remount,user_id=0,group_id=0,default_permissions");
        let output = named(&scratch, "mount.fuse.steadfast", &line);
        assert!(output.status.success(), "{list}: {output:?}");
    };
    fs::write(mnt.join("file"), "x").unwrap();
    let read = || {
        let before = fs::metadata(mnt.join("file")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::read(mnt.join("file")).unwrap();
        let after = fs::metadata(mnt.join("file")).unwrap();
        (before.atime(), before.atime_nsec()) != (after.atime(), after.atime_nsec())
    };
    assert!(!read(), "no access time with noatime");
    remount("rw,nosuid,nodev,relatime");
    assert!(has("relatime") && !has("noatime"));
    assert!(read(), "an access time with relatime");
    fs::write(mnt.join("file"), "y").unwrap();
    remount("rw,nosuid,nodev,noatime");
    assert!(has("noatime") && !has("relatime"));
    assert!(!read(), "none after the remount");
    remount("rw,nosuid,nodev,noatime,sync");
    assert!(has("sync") && has("noatime"));
    remount("rw,nosuid,nodev,noatime,nosymfollow");
    assert!(has("nosymfollow") && !has("sync"), "async is the absence of sync");
    symlink("file", mnt.join("link")).unwrap();
    assert_eq!(fs::read(mnt.join("link")).unwrap_err().raw_os_error(), Some(40), "ELOOP");
    remount("ro,nosuid,nodev,noatime");
    assert!(has("ro") && !has("nosymfollow"));
    assert_eq!(fs::read(mnt.join("link")).unwrap(), b"y");
    assert_eq!(fs::write(mnt.join("file"), "z").unwrap_err().raw_os_error(), Some(30), "EROFS");
    remount("rw,nosuid,nodev,noatime");
    fs::write(mnt.join("file"), "z").unwrap();
    // Without that list the others stay.
    scratch.ok("mount disk.img mnt -o remount,sync");
    scratch.ok("mount disk.img mnt -o remount,relatime");
    assert!(has("sync") && has("relatime") && has("nosuid"));
    scratch.ok("umount mnt");
}

/// The output of a process that must end by itself.
fn ended(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("the command does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn umount(scratch: &Scratch) -> Output {
    let mut command = scratch.command(&["umount", "mnt"]);
    ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// A new mount namespace begins with a copy of every mount.
#[test]
fn umount_ends_where_a_copy_of_the_mount_stays() {
    if !can_mount() || !is_root() {
        eprintln!("skipped: only root makes mount namespaces");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mnt = scratch.mounted("");
    fs::write(mnt.join("file"), "kept").unwrap();
    let mut copy = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let comm = format!("/proc/{}/comm", copy.id());
    wait_for("the namespace", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let output = umount(&scratch);
    let was_mounted = is_mounted(&mnt);
    signal("KILL", copy.id());
    copy.wait().unwrap();
    let line = failed(&output, 5, "umount");
    assert!(line.contains(&format!("process {} (sleep)", copy.id())), "{line}");
    assert!(line.contains("another mount namespace") && line.contains("is durable"), "{line}");
    assert!(!was_mounted, "it is gone from here");
    assert_eq!(scratch.ok("cat disk.img /file"), "kept", "the daemon has ended with the copy");

    scratch.mounted("");
    let bind = scratch.path("bind");
    fs::create_dir(&bind).unwrap();
    let mount = |arguments: &[&std::ffi::OsStr]| {
        assert!(Command::new("mount").args(arguments).status().unwrap().success());
    };
    mount(&["--bind".as_ref(), mnt.as_ref(), bind.as_ref()]);
    let output = umount(&scratch);
    let unbound = Command::new("umount").arg("-i").arg(&bind).status().unwrap();
    let line = failed(&output, 5, "umount");
    assert!(line.contains(&format!("also mounted on {}", bind.display())), "{line}");
    assert!(unbound.success());
    scratch.ok("check disk.img");
}

#[test]
fn df_names_a_mount_that_does_not_answer() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    scratch.ok("mkfs --size 16M other.img");
    scratch.mounted("");
    let daemon = scratch.daemon();
    // Also after a failed assertion: a stopped daemon cannot be unmounted.
    struct Resume(u32);
    impl Drop for Resume {
        fn drop(&mut self) {
            signal("CONT", self.0);
        }
    }
    let resume = Resume(daemon);
    signal("STOP", daemon);
    let run = |words: &[&str]| {
        let mut command = scratch.command(words);
        ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let some = run(&["df", "mnt", "other.img"]);
    let all = run(&["df"]);
    drop(resume);
    let line = failed(&some, 8, "df");
    assert!(line.contains("does not answer") && line.contains("mnt"), "{line}");
    assert!(String::from_utf8_lossy(&some.stdout).contains("other.img"), "{some:?}");
    let (said, place) = (String::from_utf8_lossy(&all.stderr), scratch.path("mnt"));
    assert!(said.contains(&format!("does not answer: {}", place.display())), "{said}");
    let again = scratch.ok("df mnt");
    assert!(again.contains("mnt"), "{again}");
    scratch.ok("umount mnt");
}

#[test]
fn the_daemon_of_root_keeps_few_capabilities() {
    if !can_mount() || !is_root() {
        eprintln!("skipped: only root has capabilities");
        return;
    }
    let scratch = Scratch::new();
    scratch.volume("16M");
    let mnt = scratch.mounted("-o allow_other,mask=manual");
    // DAC_OVERRIDE, DAC_READ_SEARCH, IPC_LOCK, SYS_ADMIN, SYS_RESOURCE.
    let kept: u64 = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 21 | 1 << 24;
    for task in fs::read_dir(format!("/proc/{}/task", scratch.daemon())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
            let line = status.lines().find(|line| line.starts_with(set)).unwrap();
            let found = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
            assert_eq!(found & !kept, 0, "{line} in {status}");
        }
    }
    // The daemon still fetches dirty pages of files that belong to others. If it may not open them,
    // the kernel writes them back and drops them, so that they are read again.
    let read_bytes = || {
        let report: serde_json::Value =
            serde_json::from_str(&scratch.ok("top --json mnt")).unwrap();
        report["read_bytes"].as_u64().unwrap()
    };
    let read_again = |name: &str, mode: u32, owner: u32| {
        let path = mnt.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        file.write_all_at(b"dirty", 0).unwrap();
        scratch.ok("transact mnt");
        let before = read_bytes();
        file.read_exact_at(&mut [0; 5], 0).unwrap();
        read_bytes() - before
    };
    assert_eq!(read_again("private", 0o000, 1000), read_again("own", 0o600, 0));
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    assert_eq!(scratch.ok("cat disk.img /private"), "dirty");
}
