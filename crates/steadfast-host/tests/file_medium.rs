//! Image files as media, buffered and direct.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_host::{FileMedium, FileOptions, LockMode, OpenError};
use steadfast_media::{ErrorClass, Medium, MediumOperation};

const SIZE: u64 = 4 << 20;

/// A directory on a disk file system if there is one, because memory file systems have little
/// support for direct I/O.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn image(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("a.img")
}

fn direct() -> FileOptions {
    FileOptions { direct: true, ..FileOptions::default() }
}

/// Creates an image for direct I/O, if the file system supports it.
fn create_direct(path: &PathBuf) -> Option<FileMedium> {
    match FileMedium::create(path, SIZE, &direct()) {
        Err(OpenError::DirectUnsupported(_)) => {
            eprintln!("skipped: no direct I/O here");
            None
        }
        result => Some(result.unwrap()),
    }
}

#[test]
fn buffered_file_behaves_like_memory() {
    let directory = directory();
    let medium = FileMedium::create(image(&directory), SIZE, &FileOptions::default()).unwrap();
    assert_eq!((medium.geometry().size, medium.geometry().atomic_unit), (SIZE, 512));
    common::compare(&medium, 1, 1500, true);
    common::in_parallel(&medium);
}

#[test]
fn units_below_a_sector_work_on_buffered_files() {
    let directory = directory();
    let options = FileOptions { atomic_unit: Some(1), ..FileOptions::default() };
    let medium = FileMedium::create(image(&directory), SIZE - 3, &options).unwrap();
    assert_eq!((medium.geometry().size, medium.geometry().atomic_unit), (SIZE - 3, 1));
    common::compare(&medium, 2, 1000, true);
    common::in_parallel(&medium);
}

/// The hook runs before a read waits, and does not run if the page cache has all of the data.
#[test]
fn a_read_that_has_to_wait_says_so_before() {
    let directory = directory();
    let path = image(&directory);
    fs::write(&path, vec![7; SIZE as usize]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let medium = FileMedium::open(&path, &FileOptions::default()).unwrap();
    let waits = Arc::new(AtomicUsize::new(0));
    let count = waits.clone();
    medium.before_waits(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let mut data = [0; 4096];
    let mut read = |offset| {
        medium.read(offset, &mut data).unwrap();
        assert_eq!(data, [7; 4096]);
        waits.load(Ordering::Relaxed)
    };
    // Data just written, and data already read.
    read(8192);
    let before = read(8192);
    assert_eq!(read(8192), before);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(read(8192), before + 1);
    assert_eq!(read(8192), before + 1);
}

fn cached_above() -> FileOptions {
    FileOptions { cached_above: true, ..FileOptions::default() }
}

#[test]
fn file_with_data_cached_above_behaves_like_memory() {
    let directory = directory();
    let medium = FileMedium::create(image(&directory), SIZE, &cached_above()).unwrap();
    assert_eq!((medium.geometry().size, medium.geometry().atomic_unit), (SIZE, 512));
    common::compare(&medium, 4, 3000, true);
    common::in_parallel(&medium);
    // If the host has no direct I/O, or has different rules, the page cache serves the reads.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let medium = FileMedium::create(image(&memory), SIZE, &cached_above()).unwrap();
    common::compare(&medium, 5, 3000, true);
}

#[test]
fn large_reads_leave_nothing_in_the_page_cache() {
    let directory = directory();
    let path = image(&directory);
    let data = common::Aligned::new(1 << 20, 3);
    let direct_io = create_direct(&directory.path().join("b.img")).is_some();
    for (options, keeps) in [(FileOptions::default(), true), (cached_above(), false)] {
        let medium = FileMedium::create(&path, SIZE, &options).unwrap();
        for place in [0, 1 << 20] {
            medium.write_vectored(place, &[&[], data.bytes(), &[]]).unwrap();
        }
        medium.flush().unwrap();
        let mut back = common::Aligned::new(1 << 20, 0);
        // Data in the page cache comes from the page cache.
        medium.read(0, back.bytes_mut()).unwrap();
        assert!(back.bytes() == data.bytes());
        if !common::forget_pages(&path) {
            eprintln!("skipped: pages stay cached here");
            return;
        }
        medium.read(1 << 20, back.bytes_mut()).unwrap();
        assert!(back.bytes() == data.bytes());
        if let Some(found) = common::is_cached(&path, 1 << 20)
            && (keeps || direct_io)
        {
            assert_eq!(found, keeps);
        }
        // Reads see dirty pages and clean pages, and what was written between them.
        medium.write(1 << 20, &[9; 512]).unwrap();
        medium.read(1 << 20, back.bytes_mut()).unwrap();
        assert!(back.bytes()[..512] == [9; 512] && back.bytes()[512..] == data.bytes()[512..]);
        medium.flush().unwrap();
        medium.read(1 << 20, back.bytes_mut()).unwrap();
        assert!(back.bytes()[..512] == [9; 512] && back.bytes()[512..] == data.bytes()[512..]);
        drop(medium);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn direct_file_behaves_like_memory() {
    let directory = directory();
    let Some(medium) = create_direct(&image(&directory)) else { return };
    assert!(medium.geometry().atomic_unit >= 512);
    common::compare(&medium, 3, 1500, true);
    common::in_parallel(&medium);
}

#[test]
fn what_is_written_is_there_after_opening_again() {
    let directory = directory();
    let path = image(&directory);
    for (mark, options) in [(1, FileOptions::default()), (2, direct())] {
        let medium = if mark == 1 {
            FileMedium::create(&path, SIZE, &options).unwrap()
        } else {
            match FileMedium::open(&path, &options) {
                Err(OpenError::DirectUnsupported(_)) => return,
                result => result.unwrap(),
            }
        };
        medium.write(8192, &[mark; 4096]).unwrap();
        medium.flush().unwrap();
        drop(medium);
        let again = FileMedium::open(&path, &FileOptions { read_only: true, ..options }).unwrap();
        let mut found = [0; 4096];
        again.read(8192, &mut found).unwrap();
        assert_eq!(found, [mark; 4096]);
    }
}

#[test]
fn a_new_image_is_sparse_and_holes_come_back() {
    let directory = directory();
    let path = image(&directory);
    let medium = FileMedium::create(&path, 1 << 40, &FileOptions::default()).unwrap();
    let blocks = || fs::metadata(&path).unwrap().blocks();
    assert!(blocks() < 64);
    medium.write(1 << 39, &vec![1; 1 << 20]).unwrap();
    medium.flush().unwrap();
    assert!(blocks() >= 2048);
    medium.discard(0, 1 << 40).unwrap();
    assert!(blocks() < 64);
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 40);
}

#[test]
fn one_owner_when_writing_many_when_reading() {
    let directory = directory();
    let path = image(&directory);
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let writer = FileMedium::create(&path, SIZE, &FileOptions::default()).unwrap();
    for options in [FileOptions::default(), read_only.clone()] {
        let error = FileMedium::open(&path, &options).unwrap_err();
        let OpenError::InUse { owner: Some(owner), .. } = &error else { panic!("{error}") };
        assert_eq!(owner.pid, std::process::id());
        assert!(
            error.to_string().contains(&format!("in use by another process (pid {}", owner.pid))
        );
    }
    FileMedium::open(&path, &FileOptions { lock: LockMode::None, ..read_only.clone() }).unwrap();
    drop(writer);

    let readers = [
        FileMedium::open(&path, &read_only).unwrap(),
        FileMedium::open(&path, &read_only).unwrap(),
    ];
    assert!(matches!(
        FileMedium::open(&path, &FileOptions::default()),
        Err(OpenError::InUse { .. })
    ));
    drop(readers);
    FileMedium::open(&path, &FileOptions::default()).unwrap();
}

#[test]
fn read_only_refuses_to_write() {
    let directory = directory();
    let path = image(&directory);
    drop(FileMedium::create(&path, SIZE, &FileOptions::default()).unwrap());
    let medium =
        FileMedium::open(&path, &FileOptions { read_only: true, ..FileOptions::default() })
            .unwrap();
    let error = medium.write(0, &[1; 512]).unwrap_err();
    assert_eq!((error.operation, error.class), (MediumOperation::Write, ErrorClass::Permanent));
    assert!(medium.write_fua(0, &[1; 512]).is_err() && medium.discard(0, 512).is_err());
    medium.flush().unwrap();
    medium.read(0, &mut [1; 512]).unwrap();
}

#[test]
fn bad_requests_are_errors() {
    let directory = directory();
    let path = image(&directory);
    let medium = FileMedium::create(&path, SIZE, &FileOptions::default()).unwrap();
    assert!(medium.read(1, &mut [0; 512]).is_err());
    assert!(medium.write(SIZE, &[0; 512]).is_err());
    assert!(medium.write(u64::MAX - 511, &[0; 512]).is_err());
    assert!(medium.discard(0, 100).is_err());
    medium.read(SIZE, &mut []).unwrap();

    // Another program truncates the file during use.
    File::options().write(true).open(&path).unwrap().set_len(1024).unwrap();
    let error = medium.read(512, &mut [0; 1024]).unwrap_err();
    assert_eq!((error.offset, error.length, error.class), (512, 1024, ErrorClass::Permanent));
}

#[test]
fn what_cannot_be_opened_says_why() {
    let directory = directory();
    let path = image(&directory);
    let options = FileOptions::default();
    let open = |path: &PathBuf| FileMedium::open(path, &FileOptions::default()).unwrap_err();
    assert!(matches!(open(&path), OpenError::NotFound(_)));
    assert!(matches!(open(&path.join("below")), OpenError::NotFound(_)));
    let error = open(&directory.path().to_owned());
    assert!(
        error.to_string().ends_with("is a directory; a regular file or a block device is needed")
    );
    assert!(matches!(
        open(&"/dev/null".into()),
        OpenError::NotAMedium { what: "character device", .. }
    ));

    File::create(&path).unwrap().write_all(&[0; 1000]).unwrap();
    assert!(matches!(FileMedium::create(&path, SIZE, &options), Err(OpenError::AlreadyExists(_))));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1000, "it is untouched");
    assert!(open(&path.join("below")).to_string().contains("cannot open"));
    // The rest that is smaller than a unit is unused.
    assert_eq!(FileMedium::open(&path, &options).unwrap().geometry().size, 512);
    for unit in [0, 3, 1024, 1 << 20] {
        let options = FileOptions { atomic_unit: Some(unit), ..FileOptions::default() };
        assert!(matches!(FileMedium::open(&path, &options), Err(OpenError::AtomicUnit { .. })));
    }

    let other = directory.path().join("b.img");
    let error = FileMedium::create(&other, u64::MAX, &options).unwrap_err();
    assert!(matches!(error, OpenError::Size { .. }), "{error}");
    assert!(!other.exists(), "nothing half made is left");
    let missing = directory.path().join("missing").join("c.img");
    assert!(matches!(FileMedium::create(&missing, SIZE, &options), Err(OpenError::NotFound(_))));
}

#[test]
fn names_are_followed_and_permissions_told() {
    let directory = directory();
    let path = image(&directory);
    drop(FileMedium::create(&path, SIZE, &FileOptions::default()).unwrap());
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    let medium = FileMedium::open(&link, &FileOptions::default()).unwrap();
    assert!(matches!(
        FileMedium::open(&path, &FileOptions::default()),
        Err(OpenError::InUse { .. })
    ));
    drop(medium);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may open every file.
    if let Err(error) = FileMedium::open(&path, &FileOptions::default()) {
        assert!(matches!(error, OpenError::PermissionDenied { writing: true, .. }), "{error}");
    }
}
