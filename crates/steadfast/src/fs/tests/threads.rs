//! Several threads on one volume: nothing deadlocks, nothing is lost, no reader sees half of a
//! write.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::error::Error;
use crate::fs::tests::{ROOT, plain};
use crate::fs::{Caller, NewNode, RenameMode, SetAttributes};

#[test]
fn writers_of_names_and_data_beside_readers_and_commits() {
    let volume = plain();
    let stop = AtomicBool::new(false);
    let shared = volume.make("shared", NewNode::Regular).inode;
    thread::scope(|scope| {
        for worker in 0..3u8 {
            let volume = &volume;
            scope.spawn(move || {
                let d = volume.make(&format!("d{worker}"), NewNode::Directory).inode;
                for round in 0..150u32 {
                    let f = volume.make_in(d, "f", NewNode::Regular).inode;
                    volume.acquire(f).unwrap();
                    volume.write(f, 0, &vec![worker; 20_000 + round as usize * 7], false).unwrap();
                    volume
                        .rename(d, b"f", ROOT, format!("t{worker}").as_bytes(), RenameMode::Replace)
                        .unwrap();
                    let set = SetAttributes { size: Some(5000), ..SetAttributes::default() };
                    volume.set_attributes(f, &set).unwrap();
                    volume.unlink(ROOT, format!("t{worker}").as_bytes()).unwrap();
                    assert_eq!(volume.contents(f), vec![worker; 5000]);
                    volume.release(f);
                }
            });
        }
        // One thread writes the whole file in one call; every other thread sees one of the
        // versions.
        scope.spawn(|| {
            for version in 1..200u8 {
                volume.write(shared, 0, &vec![version; 100_000], false).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buffer = vec![0; 100_000];
                while !stop.load(Ordering::Acquire) {
                    let count = volume.read(shared, 0, &mut buffer).unwrap();
                    assert!(count == 0 || count == 100_000);
                    assert!(
                        buffer[..count].iter().all(|byte| *byte == buffer[0]),
                        "half of a write"
                    );
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                volume.background().unwrap();
                volume.checkpoint().unwrap();
            }
        });
    });
    assert_eq!(volume.reads_repeated(), 0, "without a rollback no read has a reason to look again");
    volume.settle_orphans();
    assert_eq!(volume.attributes(ROOT).unwrap().size, 4);
    volume.assert_clean();
}

#[test]
fn memory_is_given_back_beside_writers_and_readers() {
    let volume = plain();
    assert_eq!(volume.give_back(0), 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let givers = scope.spawn(|| {
            let mut all = 0;
            while !stop.load(Ordering::Acquire) {
                all += volume.give_back(1);
                all += volume.give_back(usize::MAX);
                thread::yield_now();
            }
            all
        });
        let workers: Vec<_> = (0..3u8)
            .map(|worker| {
                let volume = &volume;
                scope.spawn(move || {
                    let d = volume.make(&format!("d{worker}"), NewNode::Directory).inode;
                    for round in 0..300u32 {
                        let name = format!("f{}", round % 20);
                        if round >= 20 {
                            volume.unlink(d, name.as_bytes()).unwrap();
                        }
                        let f = volume.make_in(d, &name, NewNode::Regular).inode;
                        volume.write(f, 0, &vec![worker; 9000], false).unwrap();
                        assert_eq!(volume.contents(f), vec![worker; 9000]);
                        if round % 30 == 0 {
                            volume.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Ordering::Release);
        assert!(givers.join().unwrap() > 0);
    });
    volume.settle_orphans();
    volume.checkpoint().unwrap();
    for worker in 0..3u8 {
        let d = volume.lookup(ROOT, format!("d{worker}").as_bytes()).unwrap().inode;
        assert_eq!(volume.attributes(d).unwrap().size, 20);
        let f = volume.lookup(d, b"f7").unwrap().inode;
        assert_eq!(volume.contents(f), vec![worker; 9000]);
    }
    // A part, and then all: nothing is dirty.
    let held = volume.can_give_back();
    let part = volume.give_back(held / 2);
    assert!((held / 2..held).contains(&part), "{part} of {held}");
    assert_eq!(volume.give_back(usize::MAX), held - part);
    assert_eq!((volume.can_give_back(), volume.give_back(usize::MAX)), (0, 0));
    volume.assert_clean();
}

#[test]
fn an_inode_is_acquired_or_gone() {
    let volume = plain();
    for round in 0..300 {
        let f = volume.make("f", NewNode::Regular).inode;
        volume.write(f, 0, b"data", false).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| volume.unlink(ROOT, b"f").unwrap());
            scope.spawn(|| while volume.orphan_step().unwrap() {});
            scope.spawn(|| match volume.acquire(f) {
                Ok(()) => {
                    thread::yield_now();
                    assert_eq!(volume.contents(f), b"data", "round {round}");
                    volume.release(f);
                }
                Err(error) => assert_eq!(error, Error::Stale(f)),
            });
        });
        volume.settle_orphans();
        assert_eq!(volume.attributes(f), Err(Error::Stale(f)));
    }
}

#[test]
fn rollback_in_the_middle_of_everything() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    volume.write(f, 0, &vec![1; 50_000], false).unwrap();
    volume.transact().unwrap();
    thread::scope(|scope| {
        for worker in 2..4u8 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..100 {
                    let _ = volume.write(f, round * 3000, &vec![worker; 30_000], false);
                    let name = format!("n{worker}-{round}");
                    if let Ok(made) = volume.create(
                        ROOT,
                        name.as_bytes(),
                        NewNode::Regular,
                        0,
                        &Caller::default(),
                    ) {
                        let _ = volume.write(made.inode, 0, &vec![worker; 9000], false);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut buffer = vec![0; 50_000];
            for _ in 0..200 {
                volume.read(f, 0, &mut buffer).unwrap();
            }
        });
        for _ in 0..40 {
            volume.rollback().unwrap();
        }
    });
    volume.rollback().unwrap();
    assert_eq!(volume.contents(f), vec![1; 50_000]);
    assert_eq!(volume.attributes(ROOT).unwrap().size, 1);
    volume.assert_clean();
}
