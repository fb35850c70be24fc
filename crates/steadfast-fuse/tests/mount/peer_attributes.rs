//! Attributes that a node gives its kernel a second time, with delegations. They are always those
//! that the owner would tell.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_fuse::metrics::Kind;

use crate::peers::Nodes;
use crate::support::{Place, QUIET, can_mount, wait_for};
use crate::sys;

#[test]
fn a_peer_that_makes_files_asks_once_for_attributes() {
    const FILES: u64 = 20;
    if !can_mount() {
        return;
    }
    let place = Place::new(32 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, true);
    let [owner, peer] = [0, 1].map(|node| nodes.directories[node].clone());
    fs::create_dir(peer.join("made")).unwrap();
    let mut round = 0;
    // Another node has just changed something, or the machine is too busy: again, then.
    wait_for("attributes to spare", || {
        round += 1;
        let before = nodes.count(Kind::Getattr);
        for number in 0..FILES {
            let path = peer.join(format!("made/{round}-{number}"));
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            file.unwrap().write_all(b"x").unwrap();
        }
        // For the directory, in case that the files of the last round are too long ago.
        nodes.count(Kind::Getattr) - before <= 1
    });
    let seen = |directory: &Path| {
        let found = fs::metadata(directory.join(format!("made/{round}-3"))).unwrap();
        (found.len(), found.mtime_nsec(), found.ctime_nsec(), found.mode())
    };
    assert_eq!(seen(&owner), seen(&peer));
    assert_eq!(seen(&owner).0, 1);
    nodes.end();
}

/// Mode, size and number of links of an open file.
fn seen(file: &File) -> (u32, u64, u64) {
    let found = sys::stat(file).unwrap();
    (found.st_mode, found.st_size as u64, found.st_nlink)
}

/// Changes of `file`: each shows in what is [`seen`] of it.
const CHANGES: [fn(&Path) -> std::io::Result<()>; 8] = [
    |file| fs::set_permissions(file, Permissions::from_mode(0o640)),
    |file| OpenOptions::new().append(true).open(file)?.write_all(b"more"),
    |file| OpenOptions::new().write(true).open(file)?.set_len(100),
    |file| File::create(file).map(drop),
    |file| fs::hard_link(file, file.with_extension("linked")),
    |file| {
        fs::write(file.with_extension("new"), b"")
            .and_then(|()| fs::rename(file.with_extension("new"), file))
    },
    |file| fs::remove_file(file),
    |file| {
        let mut from = File::open(file.with_file_name("source"))?;
        let mut to = OpenOptions::new().write(true).open(file)?;
        std::io::copy(&mut from, &mut to).map(drop)
    },
];

/// The node has attributes to spare of each file when another node, or it itself, changes the file.
#[test]
fn what_is_changed_is_not_given_a_second_time() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    fs::write(nodes.directories[0].join("source"), b"a longer text").unwrap();
    for changer in 0..3 {
        let name = |number: usize| format!("{changer}-{number}");
        for number in 0..CHANGES.len() {
            fs::write(nodes.directories[0].join(name(number)), b"old").unwrap();
        }
        std::thread::sleep(Duration::from_millis(700));
        let reader = &nodes.directories[1];
        let files: Vec<File> = (0..CHANGES.len())
            .map(|number| File::open(reader.join(name(number))).unwrap())
            .collect();
        for (number, file) in files.iter().enumerate() {
            let before = seen(file);
            CHANGES[number](&nodes.directories[changer].join(name(number))).unwrap();
            assert_ne!(seen(file), before, "change {number} of node {changer}");
        }
    }
    nodes.end();
}

/// One program on one node at a time makes a file longer. No program on any node may find it
/// shorter than what was answered before it asked, by name or through an open file.
#[test]
fn no_program_finds_a_file_shorter_than_it_was() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    let wrong: Mutex<Vec<String>> = Mutex::default();
    for breaks in [false, true] {
        for writers in [&[0][..], &[1], &[1, 1], &[0, 1, 2]] {
            let name = format!("log-{breaks}-{}-{}", writers[0], writers.len());
            fs::write(nodes.directories[0].join(&name), b"").unwrap();
            let (size, over, turn) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(()));
            std::thread::scope(|scope| {
                for node in 0..3 {
                    let path = nodes.directories[node].join(&name);
                    let (size, over, wrong) = (&size, &over, &wrong);
                    let file = File::open(&path).unwrap();
                    scope.spawn(move || {
                        while !over.load(Ordering::Relaxed) {
                            for open in [false, true] {
                                let least = size.load(Ordering::SeqCst);
                                let found = match open {
                                    false => sys::stat_name(&path).unwrap().st_size as u64,
                                    true => sys::stat(&file).unwrap().st_size as u64,
                                };
                                if found < least {
                                    wrong.lock().unwrap().push(format!(
                                        "node {node}, open {open}: {found} after {least}"
                                    ));
                                }
                            }
                        }
                    });
                }
                for (number, node) in writers.iter().enumerate() {
                    let path = nodes.directories[*node].join(&name);
                    let (size, over, turn) = (&size, &over, &turn);
                    scope.spawn(move || {
                        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
                        while !over.load(Ordering::Relaxed) {
                            let _mine = turn.lock().unwrap();
                            log.write_all(&[1]).unwrap();
                            let length = sys::stat(&log).unwrap().st_size as u64;
                            let before = size.swap(length, Ordering::SeqCst);
                            assert_eq!(length, before + 1, "writer {number}");
                        }
                    });
                }
                let end = Instant::now() + Duration::from_millis(1500);
                while Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(100));
                    if breaks {
                        nodes.break_all();
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
            assert!(size.load(Ordering::SeqCst) > 3);
        }
    }
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} times: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    nodes.end();
}

/// A peer has attributes to spare of a directory when another node changes names in it.
#[test]
fn a_directory_is_not_given_as_it_was_before_another_node_changed_a_name() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    let parents = nodes.directories.clone().into_iter().map(|node| node.join("parent"));
    let parents: Vec<_> = parents.collect();
    fs::create_dir(&parents[0]).unwrap();
    // As programs do that want no time of creation.
    let links = |parent: &Path| sys::stat_name(parent).unwrap().st_nlink;
    let mut made = 2;
    for (round, (peer, other)) in [(1, 0), (1, 2), (2, 1), (2, 0)].into_iter().enumerate() {
        let mut number = 0;
        let mut make = |node: usize| {
            number += 1;
            made += 1;
            fs::create_dir(parents[node].join(format!("{round}-{number}"))).unwrap();
            made
        };
        // Until no other node has changed the directory for long enough.
        wait_for("attributes to spare", || {
            let made = make(peer);
            let before = nodes.count(Kind::Getattr);
            let found = links(&parents[peer]);
            assert_eq!(found, made, "by the node itself");
            nodes.count(Kind::Getattr) == before
        });
        for _ in 0..3 {
            make(peer);
            let made = make(other);
            assert_eq!(
                links(&parents[peer]),
                made,
                "round {round}: {other} changed it, not {peer}"
            );
        }
        nodes.break_all();
        let made = make(other);
        assert_eq!(links(&parents[peer]), made, "round {round}, after a broken connection");
    }
    nodes.end();
}
