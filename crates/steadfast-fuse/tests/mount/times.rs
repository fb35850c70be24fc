//! The times of a file after a remount equal those before. With the write-back cache the kernel
//! keeps the times, and data arrives later than it was written.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use steadfast::TransactionMask;
use steadfast_fuse::MountOptions;

use crate::support::{Place, QUIET, can_mount, pattern};
use crate::sys;

const FILES: usize = 40;

/// Modification and change time.
type Times = [(i64, i64); 2];

fn times(path: &PathBuf) -> Times {
    let found = fs::metadata(path).unwrap();
    [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())]
}

/// Creates files in one way, closes them in another, and compares their times after a remount.
fn survive(change: impl Fn(&File, &PathBuf), end: impl Fn(&File)) {
    if !can_mount() {
        return;
    }
    for write_back in [true, false] {
        let place = Place::new(64 << 20, TransactionMask(QUIET.0 | TransactionMask::UNMOUNT.0));
        let options = MountOptions { write_back, ..MountOptions::default() };
        let mounted = place.mount(&options);
        let paths: Vec<PathBuf> =
            (0..FILES).map(|number| mounted.path(&format!("file{number}"))).collect();
        let open = |path: &PathBuf| {
            let file =
                OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
            change(&file, path);
            file
        };
        let files: Vec<File> = paths.iter().map(open).collect();
        // Requests after this point arrive at a different time.
        std::thread::sleep(Duration::from_millis(30));
        files.iter().for_each(&end);
        drop(files);
        let before: Vec<Times> = paths.iter().map(times).collect();
        mounted.unmount();
        let mounted = place.mount(&options);
        let after: Vec<Times> = paths.iter().map(times).collect();
        let differ = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert_eq!(differ, 0, "of {FILES} files, write_back {write_back}");
        mounted.unmount();
    }
}

fn write(file: &File, _: &PathBuf) {
    file.write_all_at(&pattern(1, 20_000), 0).unwrap();
}

#[test]
fn what_is_written_in_the_moment_in_which_a_file_is_made() {
    // The kernel has nothing to send then, because the inode already has that time.
    survive(write, |file| file.sync_all().unwrap());
    survive(write, |file| file.sync_data().unwrap());
    survive(write, |_| ());
}

#[test]
fn what_arrives_after_its_time() {
    // A new name makes the kernel send the times before the pages.
    let change = |file: &File, path: &PathBuf| {
        write(file, path);
        fs::hard_link(path, path.with_extension("link")).unwrap();
    };
    survive(change, |file| file.sync_all().unwrap());
    survive(change, |_| ());
    // Only pages, and the end of the mount.
    survive(change, |file| sys::write_pages(file).unwrap());
}

#[test]
fn what_is_written_around_the_cache() {
    let direct = |_: &File, path: &PathBuf| {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        file.write_all_at(&pattern(2, 4096), 0).unwrap();
        sys::fallocate(&file, 0, 0, 50_000).unwrap();
    };
    survive(direct, |file| file.sync_all().unwrap());
    survive(direct, |_| ());
}

#[test]
fn what_was_set() {
    let set = |file: &File, path: &PathBuf| {
        write(file, path);
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    };
    survive(set, |file| file.sync_all().unwrap());
    survive(set, |_| ());
    survive(set, |file| sys::write_pages(file).unwrap());
}
