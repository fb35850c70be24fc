//! One file, several processes, and a mixture of all ways of I/O on Linux: buffered, direct,
//! mapped, libaio and io_uring. No reader may see an older state than at the time of its request,
//! and the volume must have the last written data.
//!
//! Each 512 bytes of the file (a *sector*) hold a number and a version, repeated. A page has one
//! writer, so its sectors change one after the other. In each word a reader finds a version between
//! two bounds. One is the last version finished before the read, the other the last one begun by
//! its end. At the end one byte of each page is stored again, buffered. This writes the cached page
//! to the volume, so that a stale page in the cache becomes visible.
//!
//! The program knows nothing of Steadfast. It also runs on ext4, and passes there.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use steadfast_media::random::Random;

use crate::engines::{self, Aio, Buffer, Ring, Transfers};
use crate::support::{Place, QUIET, can_mount, wait_for};
use crate::sys::{self, Mapping};

const SECTOR: usize = 512;
const PAGE: usize = 4096;
const SECTORS_PER_PAGE: usize = PAGE / SECTOR;
const PAGES: usize = 160;
const LENGTH: usize = PAGES * PAGE;
const SECTORS: usize = LENGTH / SECTOR;
const PROCESSES: usize = 4;
const STEPS: usize = 1500;
/// Largest number of pages in one read, or in one write.
const PAGES_MAX: usize = 8;

const FILE_ENV: &str = "STEADFAST_TEST_MIXED_FILE";
const NOTES_ENV: &str = "STEADFAST_TEST_MIXED_NOTES";
const INDEX_ENV: &str = "STEADFAST_TEST_MIXED_INDEX";
const SEED_ENV: &str = "STEADFAST_TEST_MIXED_SEED";

/// The versions of each sector, shared by all processes: a file outside the volume that all of them
/// map.
struct Notes(Mapping);

impl Notes {
    fn create(path: &Path) -> Notes {
        File::create(path).unwrap().set_len((2 * SECTORS * 4) as u64).unwrap();
        Notes::open(path)
    }

    fn open(path: &Path) -> Notes {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Notes(Mapping::new(&file, 2 * SECTORS * 4).unwrap())
    }

    fn begun(&self, sector: usize) -> &AtomicU32 {
        self.0.counter(sector)
    }

    fn finished(&self, sector: usize) -> &AtomicU32 {
        self.0.counter(SECTORS + sector)
    }
}

fn word(sector: usize, version: u32) -> [u8; 8] {
    ((sector as u64) << 32 | u64::from(version)).to_le_bytes()
}

fn fill(bytes: &mut [u8], first_sector: usize, version: impl Fn(usize) -> u32) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let value = word(first_sector + index, version(first_sector + index));
        sector.chunks_exact_mut(8).for_each(|place| place.copy_from_slice(&value));
    }
}

/// One process of the test.
struct Worker {
    index: usize,
    random: Random,
    notes: Notes,
    buffered: File,
    direct: File,
    mapping: Mapping,
    aio: Aio,
    ring: Ring,
}

/// Main function of a process. Does nothing if called as an ordinary test.
pub fn worker_main() {
    let Some(file) = std::env::var_os(FILE_ENV) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let index = number(INDEX_ENV);
    let open =
        |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&file).unwrap();
    let buffered = open(0);
    let mut worker = Worker {
        index,
        random: Random::new(number(SEED_ENV) as u64 * PROCESSES as u64 + index as u64),
        notes: Notes::open(std::env::var_os(NOTES_ENV).unwrap().as_ref()),
        mapping: Mapping::new(&buffered, LENGTH).unwrap(),
        buffered,
        direct: open(libc::O_DIRECT),
        aio: Aio::new().unwrap(),
        ring: Ring::new().unwrap(),
    };
    for step in 0..STEPS {
        match worker.below(16) {
            0..6 => worker.write(step),
            6 => worker.settle(),
            _ => worker.read(step),
        }
    }
}

impl Worker {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// Runs of pages of this process: each process owns every fourth run of `PAGES_MAX` pages.
    fn own_pages(&mut self) -> (usize, usize) {
        let run = self.below(PAGES / PAGES_MAX / PROCESSES) * PROCESSES + self.index;
        let count = 1 + self.below(PAGES_MAX);
        (run * PAGES_MAX + self.below(PAGES_MAX + 1 - count), count)
    }

    fn write(&mut self, step: usize) {
        let (page, count) = self.own_pages();
        // Whole pages, or some of their sectors.
        let all = count * SECTORS_PER_PAGE;
        let (skip, sectors) = match self.below(3) {
            0 => {
                let sectors = 1 + self.below(all);
                (self.below(all + 1 - sectors), sectors)
            }
            _ => (0, all),
        };
        let first = page * SECTORS_PER_PAGE + skip;
        let range = first..first + sectors;
        for sector in range.clone() {
            self.notes.begun(sector).fetch_add(1, Ordering::SeqCst);
        }
        let mut data = Buffer::new(sectors * SECTOR);
        fill(&mut data, first, |sector| self.notes.begun(sector).load(Ordering::SeqCst));
        let offset = first * SECTOR;
        let way = self.below(8);
        let written = match way {
            0 => self.buffered.write_all_at(&data, offset as u64),
            1 => self.direct.write_all_at(&data, offset as u64),
            2 => self.aio.write(&self.buffered, &data, offset, PAGE),
            // Several concurrent requests.
            3 | 4 => self.aio.write(&self.direct, &data, offset, PAGE),
            5 => self.ring.write(&self.buffered, &data, offset, PAGE),
            6 => self.ring.write(&self.direct, &data, offset, PAGE),
            _ => {
                self.mapping.write(offset, &data);
                Ok(())
            }
        };
        if let Err(error) = written {
            panic!("step {step}: write of way {way} at {offset}: {error}");
        }
        for sector in range {
            let version = self.notes.begun(sector).load(Ordering::SeqCst);
            self.notes.finished(sector).store(version, Ordering::SeqCst);
        }
    }

    fn read(&mut self, step: usize) {
        // Pages of all processes. The most recently written pages are read again and again.
        let count = 1 + self.below(PAGES_MAX);
        let page = self.below(PAGES + 1 - count);
        let first = page * SECTORS_PER_PAGE;
        let sectors = count * SECTORS_PER_PAGE;
        let offset = page * PAGE;
        let least: Vec<u32> = (first..first + sectors)
            .map(|sector| self.notes.finished(sector).load(Ordering::SeqCst))
            .collect();
        let mut data = Buffer::new(sectors * SECTOR);
        let way = self.below(10);
        let read = match way {
            0..4 => self.buffered.read_exact_at(&mut data, offset as u64),
            4 => self.direct.read_exact_at(&mut data, offset as u64),
            5 => self.aio.read(&self.buffered, &mut data, offset, PAGE),
            6 => self.aio.read(&self.direct, &mut data, offset, PAGE),
            7 => self.ring.read(&self.buffered, &mut data, offset, PAGE),
            8 => self.ring.read(&self.direct, &mut data, offset, PAGE),
            _ => {
                self.mapping.read(offset, &mut data);
                Ok(())
            }
        };
        if let Err(error) = read {
            panic!("step {step}: read of way {way} at {offset}: {error}");
        }
        for (index, least) in least.into_iter().enumerate() {
            let sector = first + index;
            let most = self.notes.begun(sector).load(Ordering::SeqCst);
            let found = &data[index * SECTOR..][..SECTOR];
            if let Some(wrong) = wrong_word(found, sector, least, most) {
                panic!(
                    "step {step}: sector {sector} read in way {way} has the word {wrong:#x}, not a version from {least} to {most}"
                );
            }
        }
    }

    fn settle(&mut self) {
        match self.below(5) {
            0 => self.buffered.sync_data(),
            1 => self.mapping.sync(),
            2 => sys::forget_pages(&self.buffered),
            3 => sys::write_pages(&self.buffered),
            _ => self.direct.sync_all(),
        }
        .unwrap();
    }
}

/// The first word with none of the versions `least..=most`. During the write of a sector a reader
/// may find bytes of two versions in one word.
fn wrong_word(found: &[u8], sector: usize, least: u32, most: u32) -> Option<u64> {
    let fits = |bytes: &[u8]| {
        (0..8)
            .all(|place| (least..=most).any(|version| bytes[place] == word(sector, version)[place]))
    };
    let wrong = found.chunks_exact(8).find(|bytes| !fits(bytes))?;
    Some(u64::from_le_bytes(wrong.try_into().unwrap()))
}

/// Ends remaining processes if a test fails.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the processes on a new file of `directory`. Their shared versions are at `notes`.
fn run(file: &Path, notes: &Path, seed: usize) {
    let versions = Notes::create(notes);
    let mut content = vec![0; LENGTH];
    fill(&mut content, 0, |_| 0);
    fs::write(file, &content).unwrap();
    let start = |index: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["mixed_process", "--exact", "--ignored", "--nocapture"])
            .env(FILE_ENV, file)
            .env(NOTES_ENV, notes)
            .env(INDEX_ENV, index.to_string())
            .env(SEED_ENV, seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut processes = Processes((0..PROCESSES).map(start).collect());
    for child in &mut processes.0 {
        let status = child.wait().unwrap();
        assert!(
            status.success(),
            "a process found something wrong ({status}, seed {seed}); it says so above"
        );
    }
    // Stores the existing byte again, so that its whole page is written to the volume.
    let handle = OpenOptions::new().read(true).write(true).open(file).unwrap();
    for page in 0..PAGES {
        let sector = page * SECTORS_PER_PAGE;
        let version = versions.finished(sector).load(Ordering::SeqCst);
        handle.write_all_at(&word(sector, version)[..1], (page * PAGE) as u64).unwrap();
    }
    handle.sync_all().unwrap();
}

/// After a remount the volume must have the written data.
fn check(file: &Path, notes: &Path) {
    let versions = Notes::open(notes);
    let found = fs::read(file).unwrap();
    assert_eq!(found.len(), LENGTH);
    let wrong = |page: &usize| {
        (0..SECTORS_PER_PAGE).any(|index| {
            let sector = page * SECTORS_PER_PAGE + index;
            let version = versions.finished(sector).load(Ordering::SeqCst);
            assert_eq!(version, versions.begun(sector).load(Ordering::SeqCst));
            wrong_word(&found[sector * SECTOR..][..SECTOR], sector, version, version).is_some()
        })
    };
    let wrong: Vec<usize> = (0..PAGES).filter(wrong).collect();
    assert!(
        wrong.is_empty(),
        "{} of {PAGES} pages are wrong on the volume: {wrong:?}",
        wrong.len()
    );
}

#[test]
fn all_ways_of_reading_and_writing_agree() {
    if !can_mount() || !engines::can_ring() {
        return;
    }
    for (seed, write_back) in [(1, true), (2, false)] {
        let place = Place::new(64 << 20, QUIET);
        let notes = place.image().with_extension("notes");
        let daemon = place.daemon_with(write_back);
        run(&daemon.path("mixed"), &notes, seed);
        daemon.unmount();
        let daemon = place.daemon_with(write_back);
        check(&daemon.path("mixed"), &notes);
        daemon.unmount();
    }
}

/// The same program on a file system that is known to be correct.
#[test]
fn ext4_passes_the_same_program() {
    let Some(ext4) = Ext4::make() else { return };
    if !engines::can_ring() {
        return;
    }
    let notes = ext4.directory.path().join("notes");
    ext4.mount();
    run(&ext4.mount_point().join("mixed"), &notes, 1);
    ext4.unmount();
    ext4.mount();
    check(&ext4.mount_point().join("mixed"), &notes);
    ext4.unmount();
}

/// An ext4 volume in a file, on a loop device that mount(8) allocates and umount(8) releases.
struct Ext4 {
    directory: tempfile::TempDir,
}

impl Ext4 {
    fn make() -> Option<Ext4> {
        let ext4 = Ext4 { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(ext4.mount_point()).unwrap();
        File::create(ext4.image()).unwrap().set_len(64 << 20).unwrap();
        let made = ext4.call("mkfs.ext4", &["-q".as_ref(), ext4.image().as_ref()]);
        if !made || !ext4.try_mount() {
            eprintln!("SKIPPED: no ext4 on a loop device here");
            return None;
        }
        ext4.unmount();
        Some(ext4)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    fn call(&self, program: &str, arguments: &[&std::ffi::OsStr]) -> bool {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    }

    fn try_mount(&self) -> bool {
        let (image, mount_point) = (self.image(), self.mount_point());
        self.call("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), mount_point.as_ref()])
    }

    fn mount(&self) {
        assert!(self.try_mount());
    }

    fn unmount(&self) {
        // A process that another test has just forked may briefly hold a file.
        wait_for("ext4 to be unmounted", || self.call("umount", &[self.mount_point().as_ref()]));
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        self.call("umount", &["-l".as_ref(), self.mount_point().as_ref()]);
    }
}
