//! Pages of files on several nodes. Mappings, and splice(2) as sendfile(2) uses it, read through
//! the kernel's pages, also in files that stay open. They show what other nodes have changed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast::TransactionMask;

use crate::peers::Nodes;
use crate::support::{Place, QUIET, can_mount, wait_for};
use crate::sys;

pub const SIZE: usize = 16 << 10;

pub fn read_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true).to_owned()
}

/// Changes of the first bytes of a file of [`SIZE`] bytes of `o`.
pub const CHANGES: [fn(&Path); 7] = [
    |path| read_write().open(path).unwrap().write_all_at(b"new", 0).unwrap(),
    |path| {
        let flags = libc::O_DIRECT;
        let file = read_write().custom_flags(flags).open(path).unwrap();
        file.write_all_at(&[b'n'; SIZE], 0).unwrap();
    },
    // Other sizes on the way, and the same in the end.
    |path| {
        let file = read_write().open(path).unwrap();
        file.set_len(0).unwrap();
        file.set_len(SIZE as u64).unwrap();
    },
    |path| {
        let file = read_write().open(path).unwrap();
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        sys::fallocate(&file, punch, 0, 8192).unwrap();
    },
    |path| {
        let file = read_write().open(path).unwrap();
        let source = File::open(path.with_file_name("source")).unwrap();
        assert_eq!(sys::copy_file_range(&source, 0, &file, 0, SIZE).unwrap(), SIZE);
    },
    |path| {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
        file.write_all(&[b'n'; SIZE]).unwrap();
    },
    // The time of the last change is as before.
    |path| {
        let file = read_write().open(path).unwrap();
        let times = fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        file.write_all_at(b"new", 0).unwrap();
        file.set_times(times).unwrap();
    },
];

#[test]
fn mappings_and_splices_show_what_other_nodes_have_changed() {
    if !can_mount() {
        return;
    }
    for delegations in [false, true] {
        let place = Place::new(64 << 20, QUIET);
        let nodes = Nodes::new(&place, 3, delegations);
        fs::write(nodes.directories[0].join("source"), [b'n'; SIZE]).unwrap();
        for (number, change) in CHANGES.iter().enumerate() {
            for changer in 0..3 {
                let name = format!("f{number}-{changer}");
                let path = |node: usize| nodes.directories[node].join(&name);
                fs::write(path(changer), [b'o'; SIZE]).unwrap();
                let open: Vec<_> =
                    (0..3).map(|node| read_write().open(path(node)).unwrap()).collect();
                let maps: Vec<_> =
                    open.iter().map(|file| sys::Mapping::new(file, SIZE).unwrap()).collect();
                let seen = |node: usize| {
                    let mut mapped = [0; 3];
                    maps[node].read(0, &mut mapped);
                    (sys::spliced(&open[node], 3).unwrap(), mapped)
                };
                for node in 0..3 {
                    assert_eq!(seen(node), (b"ooo".to_vec(), *b"ooo"));
                }
                change(&path(changer));
                let mut truth = [0; 3];
                open[changer].read_exact_at(&mut truth, 0).unwrap();
                assert_ne!(truth, *b"ooo");
                for node in 0..3 {
                    let what = format!("change {number} of node {changer}, node {node}");
                    assert_eq!(seen(node), (truth.to_vec(), truth), "{what}");
                }
            }
        }
        nodes.end();
    }
}

/// What a program writes through a mapping reaches the mappings of other nodes with msync(2).
#[test]
fn what_is_synced_from_a_mapping_reaches_other_mappings() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, false);
    let path = |node: usize| nodes.directories[node].join("mapped");
    fs::write(path(0), [0; SIZE]).unwrap();
    let open: Vec<_> = (0..3).map(|node| read_write().open(path(node)).unwrap()).collect();
    let maps: Vec<_> = open.iter().map(|file| sys::Mapping::new(file, SIZE).unwrap()).collect();
    for round in 1..10_u32 {
        let from = round as usize % 3;
        // A store to a page that another node has changed meanwhile must not bring the old one
        // back.
        maps[from].counter(0).store(round, Ordering::Relaxed);
        maps[from].sync().unwrap();
        for map in &maps {
            wait_for("the mapping to show it", || map.counter(0).load(Ordering::Relaxed) == round);
        }
    }
    // A file that is mapped is open, and the unmount waits for it.
    drop((maps, open));
    nodes.end();
}

/// Readers never see a state before an answer that a writer on another node has.
#[test]
fn a_splice_is_never_older_than_an_answered_write() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    let path = |node: usize| nodes.directories[node].join("counted");
    fs::write(path(0), 0_u64.to_ne_bytes()).unwrap();
    let older = Mutex::new(Vec::new());
    for writer in 0..3 {
        let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
        fs::write(path(0), 0_u64.to_ne_bytes()).unwrap();
        std::thread::scope(|scope| {
            for node in 0..3 {
                let (file, written, over) = (File::open(path(node)).unwrap(), &written, &over);
                let older = &older;
                scope.spawn(move || {
                    let mut reads = 0_u64;
                    while !over.load(Ordering::Relaxed) {
                        let least = written.load(Ordering::SeqCst);
                        let found = sys::spliced(&file, 8).unwrap();
                        let found = u64::from_ne_bytes(found.try_into().unwrap());
                        if found < least {
                            older.lock().unwrap().push((node, found, least));
                        }
                        reads += 1;
                    }
                    assert!(reads > 0);
                });
            }
            let end = Instant::now() + Duration::from_millis(1500);
            let mut file = read_write().open(path(writer)).unwrap();
            let mut number = 0_u64;
            while Instant::now() < end {
                number += 1;
                match number % 2 {
                    0 => file.write_all_at(&number.to_ne_bytes(), 0).unwrap(),
                    _ => {
                        file = read_write().open(path(writer)).unwrap();
                        file.write_all(&number.to_ne_bytes()).unwrap();
                    }
                }
                written.store(number, Ordering::SeqCst);
            }
            over.store(true, Ordering::Relaxed);
            assert!(number > 0);
        });
    }
    let told = nodes.metrics.as_ref().unwrap().sharing().unwrap();
    assert!(told.recalls > 0);
    // A machine that is too busy to answer in time has no promise.
    let older = older.into_inner().unwrap();
    assert!(told.silent > 0 || older.is_empty(), "node, found, written: {older:?}");
    nodes.end();
}

/// A rollback makes open files stale on all nodes, also for what reads through pages.
#[test]
fn nothing_shows_what_a_rollback_has_dropped() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, TransactionMask::MANUAL);
    let nodes = Nodes::new(&place, 3, false);
    let path = |node: usize| nodes.directories[node].join("file");
    fs::write(path(0), b"old").unwrap();
    let root = File::open(&nodes.directories[0]).unwrap();
    steadfast_fuse::ioctl::transact(&root).unwrap();
    fs::write(path(0), b"new").unwrap();
    let open: Vec<_> = (0..3).map(|node| File::open(path(node)).unwrap()).collect();
    for file in &open {
        assert_eq!(sys::spliced(file, 3).unwrap(), b"new");
    }
    steadfast_fuse::ioctl::rollback(&root, true).unwrap();
    for (node, file) in open.iter().enumerate() {
        let found = sys::spliced(file, 3);
        assert!(found.is_err(), "node {node} shows {found:?}");
        assert_eq!(sys::spliced(&File::open(path(node)).unwrap(), 3).unwrap(), b"old");
    }
    drop((open, root));
    nodes.end();
}

/// Many writers and readers of pages, each waiting for what another one must answer: they go on.
#[test]
fn many_writers_go_on_beside_many_readers_of_pages() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, false);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let path = nodes.directories[number % 2].join(format!("f{number}"));
            let other = nodes.directories[(number + 1) % 2].join(format!("f{number}"));
            fs::write(&path, [0; SIZE]).unwrap();
            for path in [path.clone(), other] {
                let over = &over;
                scope.spawn(move || {
                    let file = File::open(path).unwrap();
                    while !over.load(Ordering::Relaxed) {
                        sys::spliced(&file, SIZE).unwrap();
                    }
                });
            }
            let over = &over;
            scope.spawn(move || {
                let file = read_write().open(path).unwrap();
                while !over.load(Ordering::Relaxed) {
                    file.write_all_at(&[1; SIZE], 0).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::Relaxed);
    });
    let told = nodes.metrics.as_ref().unwrap().sharing().unwrap();
    assert!(told.recalls > 0, "{told:?}");
    nodes.end();
}
