//! kill -9 of the daemon at chosen moments, and the state afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, pattern};
use crate::sys::Mapping;

const SIZE: u64 = 256 << 20;
const MIB: usize = 1 << 20;

#[test]
fn a_bare_transact_saves_dirty_pages_of_open_files() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    let data = pattern(1, 10 * MIB + 321);
    // One file is never closed or synced; another one is only mapped.
    let mut open = File::create(daemon.path("open")).unwrap();
    open.write_all(&data).unwrap();
    fs::write(daemon.path("mapped"), vec![0; MIB]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(daemon.path("mapped")).unwrap();
    let mapping = Mapping::new(&file, MIB).unwrap();
    drop(file);
    mapping.write(12_345, b"mapped bytes");
    let removed = File::create(daemon.path("removed")).unwrap();
    removed.write_at(&data, 0).unwrap();
    fs::remove_file(daemon.path("removed")).unwrap();
    ioctl::transact(&daemon.root()).unwrap();
    daemon.kill();
    drop((open, mapping, removed));

    let mounted = place.mount(&MountOptions::default());
    assert!(fs::read(mounted.path("open")).unwrap() == data);
    assert_eq!(&fs::read(mounted.path("mapped")).unwrap()[12_345..12_357], b"mapped bytes");
    assert!(!mounted.path("removed").exists());
    mounted.unmount();
}

#[test]
fn transact_works_without_its_helper_process() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    daemon.kill_helper();
    let data = pattern(4, 3 * MIB);
    let mut open = File::create(daemon.path("open")).unwrap();
    for _ in 0..2 {
        open.write_all(&data).unwrap();
        ioctl::transact(&daemon.root()).unwrap();
    }
    daemon.kill();
    drop(open);
    let mounted = place.mount(&MountOptions::default());
    assert!(fs::read(mounted.path("open")).unwrap() == data.repeat(2));
    mounted.unmount();
}

#[test]
fn many_transacts_at_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (path, root) = (daemon.path(&format!("f{number}")), daemon.root());
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for round in 0..20u64 {
                    file.write_all(&(number * 100 + round).to_le_bytes()).unwrap();
                    ioctl::transact(&root).unwrap();
                }
                // The file is closed only after the daemon's death, so only the ioctl can have
                // saved the bytes.
                file
            });
        }
    });
    daemon.kill();
    let mounted = place.mount(&MountOptions::default());
    for number in 0..16u64 {
        let expected: Vec<u8> =
            (0..20).flat_map(|round| (number * 100 + round).to_le_bytes()).collect();
        assert!(fs::read(mounted.path(&format!("f{number}"))).unwrap() == expected);
    }
    mounted.unmount();
}

/// Requests that arrive while the threads of the daemon begin, some of which wait for each other.
#[test]
fn the_first_requests_of_a_mount_are_answered() {
    if !can_mount() {
        return;
    }
    for _ in 0..12 {
        let place = Place::new(SIZE / 16, QUIET);
        let root = place.mount_point();
        let before = fs::metadata(&root).unwrap().dev();
        let (done, ends) = mpsc::channel();
        for number in 0..24 {
            let (done, root) = (done.clone(), root.clone());
            std::thread::spawn(move || {
                while fs::metadata(&root).is_ok_and(|found| found.dev() == before) {}
                let made = match number % 3 {
                    0 => File::create(root.join(format!("f{number}"))).map(drop),
                    _ => File::open(&root).and_then(|root| ioctl::transact(&root)),
                };
                let _ = done.send(made);
            });
        }
        let daemon = place.daemon();
        for _ in 0..24 {
            match ends.recv_timeout(Duration::from_secs(30)) {
                Ok(made) => made.unwrap(),
                Err(_) => {
                    // The threads that wait end with the daemon.
                    daemon.kill();
                    panic!("a request is not answered");
                }
            }
        }
        daemon.unmount();
    }
}

#[test]
fn without_a_transaction_point_nothing_is_there() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    fs::write(daemon.path("before"), "before").unwrap();
    ioctl::transact(&daemon.root()).unwrap();
    fs::write(daemon.path("after"), "after").unwrap();
    fs::remove_file(daemon.path("before")).unwrap();
    daemon.kill();
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("before")).unwrap(), "before");
    assert!(!mounted.path("after").exists());
    mounted.unmount();
}

#[test]
fn fsync_is_enough_for_one_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    let mut file = File::create(daemon.path("file")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    let mut sync = crate::sys::open(
        &daemon.path("osync"),
        libc::O_CREAT | libc::O_WRONLY | libc::O_SYNC,
        0o644,
    )
    .unwrap();
    sync.write_all(b"written through").unwrap();
    daemon.kill();
    drop((file, sync));
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "synced");
    assert_eq!(fs::read_to_string(mounted.path("osync")).unwrap(), "written through");
    mounted.unmount();
}

#[test]
fn transact_under_load_and_a_kill_in_its_middle_hang_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    for round in 0..6 {
        let daemon = place.daemon();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (stop, path) = (&stop, daemon.path(&format!("w{writer}")));
                scope.spawn(move || {
                    let Ok(file) =
                        OpenOptions::new().write(true).create(true).truncate(false).open(path)
                    else {
                        return;
                    };
                    let data = pattern(writer, 64 << 10);
                    let mut at = 0;
                    while !stop.load(Ordering::Relaxed)
                        && file.write_at(&data, at % (8 << 20)).is_ok()
                    {
                        at += data.len() as u64;
                    }
                });
            }
            let (stop_flag, root) = (&stop, daemon.root());
            scope.spawn(move || {
                while !stop_flag.load(Ordering::Relaxed) {
                    // Transactions and rollbacks: a kill during their invalidations must not leave
                    // a hang.
                    let _ = ioctl::transact(&root);
                    let _ = ioctl::rollback(&root, true);
                }
            });
            std::thread::sleep(Duration::from_millis(200 + 37 * round));
            daemon.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }
    place.mount(&MountOptions::default()).unmount();
}
