//! Shared by the tests of the command: a scratch directory, the program, and mounts that are
//! removed again.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test; for tests of `steadfast-lab` the one beside it, which runs it.
pub const STEADFAST: &str = match option_env!("CARGO_BIN_EXE_steadfast") {
    Some(program) => program,
    None => beside_lab(option_env!("CARGO_BIN_EXE_steadfast-lab")),
};

const fn beside_lab(lab: Option<&'static str>) -> &'static str {
    match lab {
        Some(lab) => lab.split_at(lab.len() - "-lab".len()).0,
        None => panic!("a test of this package has no program"),
    }
}

/// A separate directory for each test. At the end, everything mounted in it is unmounted.
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Scratch {
        let directory =
            tempfile::Builder::new().prefix("steadfast-cli").tempdir().expect("scratch directory");
        Scratch { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the program in the scratch directory.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command(arguments).output().expect("steadfast runs")
    }

    /// Runs a command line without quoting in it.
    pub fn line(&self, line: &str) -> Output {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(STEADFAST);
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command line that must succeed; returns its output.
    pub fn ok(&self, line: &str) -> String {
        succeeded(&self.line(line), line)
    }

    /// Runs a command line that must fail with one proper message; returns that line.
    pub fn fails(&self, exit: i32, line: &str) -> String {
        failed(&self.line(line), exit, line)
    }

    /// Runs a command line with bytes on its standard input.
    pub fn with_input(&self, line: &str, input: &[u8]) -> Output {
        let mut child = self
            .command(&line.split_whitespace().collect::<Vec<_>>())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("steadfast runs");
        // A program that fails early does not read its input; the exit code shows the failure.
        let _ = child.stdin.take().expect("a pipe").write_all(input);
        child.wait_with_output().expect("steadfast ends")
    }

    /// A volume in `disk.img`.
    pub fn volume(&self, size: &str) -> &Self {
        self.ok(&format!("mkfs --size {size} disk.img"));
        self
    }

    /// Puts bytes into a file on `disk.img`.
    pub fn put(&self, path: &str, contents: &[u8]) {
        self.put_in("disk.img", path, contents);
    }

    /// Puts bytes into a file on an image.
    pub fn put_in(&self, image: &str, path: &str, contents: &[u8]) {
        let line = format!("put {image} - {path}");
        succeeded(&self.with_input(&line, contents), &line);
    }

    pub fn write(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).expect("file written");
        path
    }

    /// Makes `mnt` and mounts `disk.img` on it with these additional arguments.
    pub fn mounted(&self, arguments: &str) -> PathBuf {
        let directory = self.path("mnt");
        fs::create_dir_all(&directory).expect("mount point");
        self.ok(&format!("mount --log mount.log disk.img mnt {arguments}"));
        directory
    }

    /// The process that serves `mnt`.
    pub fn daemon(&self) -> u32 {
        self.ok("info --get daemon_pid mnt").trim().parse().expect("a process number")
    }

    /// Kills the daemon of `mnt` and waits until it has ended.
    pub fn kill_daemon(&self) {
        let pid = self.daemon();
        signal("KILL", pid);
        wait_for("the daemon to die", || !process_exists(pid));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mnt = self.path("mnt");
        for _ in 0..4 {
            if !is_mounted(&mnt) {
                return;
            }
            let _ = Command::new(STEADFAST).args(["umount", "--quiet"]).arg(&mnt).output();
            if is_mounted(&mnt) {
                let _ = Command::new("umount").arg("-l").arg(&mnt).output();
                let _ = Command::new("fusermount3").arg("-uz").arg(&mnt).output();
            }
        }
    }
}

/// Whether this machine can mount; prints a message if not.
pub fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("skipped: /dev/fuse cannot be opened");
    }
    can
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn is_mounted(directory: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mount table");
    table.lines().any(|line| line.split(' ').nth(4) == directory.to_str())
}

pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.expect("kill runs").success());
}

pub fn process_exists(pid: u32) -> bool {
    // A zombie has ended; its parent has not collected its status yet.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn succeeded(output: &Output, what: &str) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Checks a failure: the exit code, and one line `steadfast: WHAT: WHERE: WHAT TO DO` without a
/// trace of a panic.
pub fn failed(output: &Output, exit: i32, what: &str) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(exit), "{what}: {stderr}");
    let line = stderr.strip_suffix('\n').expect("a whole line");
    assert!(!line.contains('\n'), "{what}: more than one line: {stderr}");
    assert!(line.starts_with("steadfast: "), "{what}: {line}");
    assert!(line.matches(": ").count() >= 3, "{what}: not WHAT: WHERE: WHAT TO DO: {line}");
    assert!(!line.contains("panic") && !line.contains("internal error"), "{what}: {line}");
    line.to_owned()
}

/// Size of the cells of the fixed structures, for a volume with 4 KiB blocks.
pub const CELL: u64 = 4096;
const STRUCTURE_DIGEST: usize = 496;

/// Changes a superblock copy and corrects its checksum.
pub fn edit_superblock(image: &Path, offset: u64, edit: impl FnOnce(&mut [u8])) {
    let file = fs::OpenOptions::new().read(true).write(true).open(image).expect("image");
    let mut bytes = [0; 512];
    file.read_exact_at(&mut bytes, offset).expect("superblock");
    edit(&mut bytes);
    let crc = steadfast::checksum::crc32c_portable(0, &bytes[..STRUCTURE_DIGEST]);
    bytes[STRUCTURE_DIGEST..STRUCTURE_DIGEST + 4].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&bytes, offset).expect("superblock");
}

/// Changes one byte.
pub fn flip(image: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(image).expect("image");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("byte");
    file.write_all_at(&[byte[0] ^ 0x40], offset).expect("byte");
}

/// The positions of `needle` in the image.
pub fn find(image: &Path, needle: &[u8]) -> Vec<u64> {
    let bytes = fs::read(image).expect("image");
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(needle.len()).position(|window| window == needle) {
        found.push((from + at) as u64);
        from += at + 1;
    }
    found
}
