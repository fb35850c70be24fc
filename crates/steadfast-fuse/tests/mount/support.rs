//! Volumes in image files, mounted in this process or by a separate daemon, and always unmounted at
//! the end.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast::{FormatOptions, OpenOptions, TransactionMask, Volume};
use steadfast_fuse::{IoUring, MountOptions, UnmountHandle, mount};
use steadfast_host::{BackgroundThread, FileMedium, FileOptions, HostPlatform, random_uuid};
use steadfast_media::Medium;
use steadfast_media::random::Random;
use tempfile::TempDir;

/// A mask without a timer: only the events that a test causes commit.
pub const QUIET: TransactionMask = TransactionMask(
    TransactionMask::FSYNC.0 | TransactionMask::SYNC_WRITE.0 | TransactionMask::VOLUME_FULL.0,
);

const IMAGE_ENV: &str = "STEADFAST_TEST_IMAGE";
const MOUNT_ENV: &str = "STEADFAST_TEST_MOUNT";
const THROUGH_ENV: &str = "STEADFAST_TEST_WRITE_THROUGH";
/// `on`, `off` or `auto`: the transport of the test mounts.
const TRANSPORT_ENV: &str = "STEADFAST_TEST_IO_URING";
/// Name of the ignored test that is the main function of the daemon.
const DAEMON_TEST: &str = "daemon_process";

/// All tests have volumes of this one type, so that the compiler makes the core and the mount once.
pub type HostVolume = Volume<Arc<dyn Medium>, HostPlatform>;

/// Whether mounts are possible here; prints the reason if not.
pub fn can_mount() -> bool {
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: no mounts here, /dev/fuse: {error}");
            false
        }
    }
}

/// An image and a mount point in a temporary directory.
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// Creates a formatted volume of `size` bytes.
    pub fn new(size: u64, mask: TransactionMask) -> Place {
        let place = Place { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.mount_point()).unwrap();
        let medium = FileMedium::create(place.image(), size, &FileOptions::default()).unwrap();
        let options = FormatOptions {
            uuid: random_uuid().unwrap(),
            mask,
            // If the mask has the timer, the test waits for it.
            timer_ms: 200,
            root_mode: 0o777,
            label: "test".into(),
            ..FormatOptions::default()
        };
        Volume::format(&medium, &options, &HostPlatform::new()).unwrap();
        place
    }

    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// Mounts in this process.
    pub fn mount(&self, options: &MountOptions) -> Mounted<'_> {
        self.try_mount(options).unwrap()
    }

    pub fn try_mount(&self, options: &MountOptions) -> io::Result<Mounted<'_>> {
        let options = &MountOptions { io_uring: transport(), ..options.clone() };
        let volume = open(&self.image(), options.read_only);
        let session = mount(volume.clone(), &self.mount_point(), options)?;
        let background = BackgroundThread::spawn(volume.clone(), |error| eprintln!("{error}"))?;
        let end = session.unmount_handle();
        let thread = std::thread::spawn(move || session.run());
        Ok(Mounted {
            place: self,
            volume: Some(volume),
            background: Some(background),
            end,
            thread: Some(thread),
        })
    }

    /// Mounts with a separate daemon, which can be killed. Tests that map files also need this: a
    /// process that serves its own page faults deadlocks.
    pub fn daemon(&self) -> Daemon<'_> {
        self.daemon_with(true)
    }

    /// The same, with or without the write-back cache.
    pub fn daemon_with(&self, write_back: bool) -> Daemon<'_> {
        let log = File::create(self.directory.path().join("log")).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([DAEMON_TEST, "--exact", "--ignored", "--nocapture"])
            .env(IMAGE_ENV, self.image())
            .env(MOUNT_ENV, self.mount_point())
            .envs((!write_back).then_some((THROUGH_ENV, "1")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Daemon { place: self, child };
        wait_for("the daemon to mount", || {
            assert!(
                daemon.child.try_wait().unwrap().is_none(),
                "the daemon ended: {}",
                daemon.log()
            );
            self.is_mounted()
        });
        daemon
    }

    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.mount_point().display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            unmount(&self.mount_point(), libc::MNT_DETACH).unwrap();
        }
    }
}

pub fn open(image: &Path, read_only: bool) -> Arc<HostVolume> {
    // A process that another test has just forked may briefly hold the lock on the image.
    let mut opened = None;
    wait_for("the lock on the image", || {
        opened = FileMedium::open(image, &FileOptions { read_only, ..FileOptions::default() }).ok();
        opened.is_some()
    });
    let medium: Arc<dyn Medium> = Arc::new(opened.unwrap());
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Arc::new(Volume::open(medium, options, HostPlatform::new()).unwrap())
}

/// A gate at which a test medium waits while it is shut. It must be opened before any assertion can
/// fail, because a hanging mount cannot be unmounted.
#[derive(Default)]
pub struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    pub fn is_shut(&self) -> bool {
        *self.shut.lock().unwrap()
    }

    /// Number of threads that wait at the gate.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub fn pass(&self) {
        let mut shut = self.shut.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *shut {
            shut = self.opened.wait(shut).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A test-specific medium with a formatted volume, mounted in this process by two workers that take
/// requests from `/dev/fuse`.
pub struct Own {
    pub volume: Arc<HostVolume>,
    /// Dropped before the directory of the mount point.
    end: UnmountAtEnd,
    directory: TempDir,
    serving: JoinHandle<io::Result<()>>,
}

impl Own {
    pub fn mount(medium: impl Medium + 'static, format: &FormatOptions) -> Own {
        let medium: Arc<dyn Medium> = Arc::new(medium);
        let directory = tempfile::tempdir().unwrap();
        let platform = HostPlatform::new();
        Volume::format(&medium, format, &platform).unwrap();
        let volume = Arc::new(Volume::open(medium, OpenOptions::default(), platform).unwrap());
        let options =
            MountOptions { threads: 2, io_uring: IoUring::Off, ..MountOptions::default() };
        let session = mount(volume.clone(), directory.path(), &options).unwrap();
        let end = UnmountAtEnd(session.unmount_handle());
        let serving = std::thread::spawn(move || session.run());
        Own { volume, end, directory, serving }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unmounts and closes the volume.
    pub fn unmount(self) {
        self.end.0.unmount().unwrap();
        wait_for("the session to end", || self.serving.is_finished());
        self.serving.join().unwrap().unwrap();
        self.volume.close().unwrap();
    }
}

/// Unmounts at the end of a test, even if the test fails.
pub struct UnmountAtEnd(pub UnmountHandle);

impl Drop for UnmountAtEnd {
    fn drop(&mut self) {
        let _ = self.0.unmount();
    }
}

/// A mount served by this process.
pub struct Mounted<'a> {
    place: &'a Place,
    volume: Option<Arc<HostVolume>>,
    background: Option<BackgroundThread>,
    end: UnmountHandle,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted<'_> {
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mount_point().join(name)
    }

    /// Opens the mount point for commands.
    pub fn root(&self) -> File {
        File::open(self.place.mount_point()).unwrap()
    }

    pub fn volume(&self) -> &HostVolume {
        self.volume.as_ref().unwrap()
    }

    pub fn handle(&self) -> UnmountHandle {
        self.end.clone()
    }

    /// Unmounts and closes the volume.
    pub fn unmount(mut self) {
        self.end.unmount().unwrap();
        self.finish().unwrap();
    }

    /// Waits until the session ends by itself.
    pub fn wait(mut self) {
        self.finish().unwrap();
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let result = thread.join().unwrap();
        self.background = None;
        let volume = self.volume.take().unwrap();
        volume.close().map_err(|error| io::Error::other(error.to_string()))?;
        result
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        // After a failed test files may still be open; the second call cuts them off.
        for _ in 0..2 {
            if let Err(error) = self.end.unmount() {
                eprintln!("unmount: {error}");
            }
        }
        if let Err(error) = self.finish() {
            eprintln!("end of the session: {error}");
        }
    }
}

/// A mount served by a separate process.
pub struct Daemon<'a> {
    place: &'a Place,
    child: Child,
}

impl Daemon<'_> {
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mount_point().join(name)
    }

    pub fn root(&self) -> File {
        File::open(self.place.mount_point()).unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.directory.path().join("log")).unwrap_or_default()
    }

    /// kill -9 of the helper process that pulls dirty pages.
    pub fn kill_helper(&self) {
        let mut helpers = Vec::new();
        wait_for("the helper to start", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            let children = tasks.filter_map(|task| {
                std::fs::read_to_string(task.ok()?.path().join("children")).ok()
            });
            let pids: String = children.collect();
            helpers = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            helpers.len() == 1
        });
        crate::sys::kill(helpers[0]);
    }

    /// Unmounts; the daemon then closes the volume and ends.
    pub fn unmount(mut self) {
        // A process that another test has just forked may briefly hold files of this test.
        wait_for("the mount to be free", || unmount(&self.place.mount_point(), 0).is_ok());
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }

    /// kill -9, followed by clearing the dead mount.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(30), "the killed daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        unmount(&self.place.mount_point(), libc::MNT_DETACH).unwrap();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The transport that the environment selects; `/dev/fuse` by default.
pub fn transport() -> IoUring {
    match std::env::var(TRANSPORT_ENV).as_deref() {
        Ok("on") => IoUring::On,
        Ok("auto") => IoUring::Auto,
        Ok("off") | Err(_) => IoUring::Off,
        Ok(other) => panic!("{TRANSPORT_ENV} is '{other}': use on, off or auto"),
    }
}

/// Main function of the daemon process. Does nothing if called as an ordinary test.
pub fn daemon_main() {
    let (Some(image), Some(directory)) = (std::env::var_os(IMAGE_ENV), std::env::var_os(MOUNT_ENV))
    else {
        return;
    };
    let volume = open(image.as_ref(), false);
    let write_back = std::env::var_os(THROUGH_ENV).is_none();
    let options = MountOptions {
        allow_other: true,
        write_back,
        io_uring: transport(),
        ..MountOptions::default()
    };
    let session = mount(volume.clone(), directory.as_ref(), &options).unwrap();
    let _background =
        BackgroundThread::spawn(volume.clone(), |error| eprintln!("{error}")).unwrap();
    session.run().unwrap();
    volume.close().unwrap();
}

#[allow(unsafe_code)]
pub fn unmount(directory: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = c_path(directory);
    // SAFETY: the path is a NUL-terminated string.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The error number of a failed call.
#[track_caller]
pub fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).expect("the call should have failed")
}

/// Bytes that differ from block to block.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}
