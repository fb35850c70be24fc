//! Closes on a node that is not the owner, with delegations. The node answers most of them itself,
//! and always as the owner would.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use steadfast::TransactionMask;
use steadfast_fuse::ioctl;
use steadfast_fuse::metrics::Kind;

use crate::peers::Nodes;
use crate::support::{Place, QUIET, can_mount, errno, wait_for};
use crate::sys;

const WITH_CLOSE: TransactionMask = QUIET.union(TransactionMask::CLOSE);

fn made(path: &Path) -> File {
    let mut file = sys::open(path, libc::O_RDWR | libc::O_CREAT, 0o644).unwrap();
    file.write_all(b"some").unwrap();
    file
}

/// Makes and closes files on the peer until it answers closes itself.
fn settle(nodes: &Nodes) {
    let path = nodes.directories[1].join("settled");
    wait_for("the peer to answer closes", || {
        let before = nodes.count(Kind::Close);
        sys::close(made(&path)).unwrap();
        nodes.count(Kind::Close) == before
    });
}

/// A machine that is too busy runs out of the time in which the peer may answer: again, then.
fn until_in_time(nodes: &Nodes, mut attempt: impl FnMut() -> bool) {
    wait_for("an attempt in time", || {
        settle(nodes);
        attempt()
    });
}

#[test]
fn a_close_on_a_peer_reaches_the_owner_only_where_that_has_to_do_something() {
    if !can_mount() {
        return;
    }
    let place = Place::new(32 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, true);
    let [owner, peer] = [0, 1].map(|node| nodes.directories[node].clone());
    let closes = || nodes.count(Kind::Close);
    until_in_time(&nodes, || {
        let before = closes();
        for number in 0..5 {
            sys::close(made(&peer.join(format!("f{number}")))).unwrap();
            sys::close(File::open(peer.join(format!("f{number}"))).unwrap()).unwrap();
        }
        closes() == before
    });
    assert_eq!(fs::read(owner.join("f4")).unwrap(), b"some");

    // What a mapping has written may be lost, and the owner knows the error.
    let file = made(&peer.join("mapped"));
    let mapping = sys::Mapping::new(&file, 4).unwrap();
    mapping.write(0, b"more");
    let before = closes();
    sys::close(file).unwrap();
    assert_eq!(closes(), before + 1);
    assert_eq!(fs::read(owner.join("mapped")).unwrap(), b"more", "a close writes it back");
    drop(mapping);

    // Any close of the file by the process ends its locks.
    let (locked, theirs) = (made(&peer.join("f0")), made(&owner.join("f0")));
    for _ in 0..3 {
        settle(&nodes);
        let other = File::open(peer.join("f0")).unwrap();
        sys::lock(&locked).unwrap();
        assert!(matches!(errno(sys::lock(&theirs)), libc::EAGAIN | libc::EACCES));
        sys::close(other).unwrap();
        sys::lock(&theirs).unwrap();
        sys::close(made(&owner.join("f0"))).unwrap();
    }
    drop((locked, theirs));
    nodes.end();
}

#[test]
fn each_close_after_a_change_of_the_mask_is_the_event() {
    if !can_mount() {
        return;
    }
    let place = Place::new(32 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    let path = nodes.directories[1].join("file");
    // A node may change it for itself, too.
    for changer in [0, 1, 2] {
        let root = File::open(&nodes.directories[changer]).unwrap();
        for _ in 0..2 {
            settle(&nodes);
            let (before, file) = (nodes.points(), made(&path));
            ioctl::mask_set(&root, WITH_CLOSE, 200).unwrap();
            let changed = nodes.points();
            sys::close(file).unwrap();
            assert_eq!(nodes.points(), changed + 1, "by node {changer}");
            sys::close(made(&path)).unwrap();
            assert_eq!(nodes.points(), changed + 2);
            ioctl::mask_set(&root, QUIET, 200).unwrap();
            let changed = nodes.points();
            sys::close(made(&path)).unwrap();
            assert_eq!(nodes.points(), changed);
            assert!(before <= changed);
        }
        drop(root);
    }
    nodes.end();
}

#[test]
fn a_close_after_a_rollback_fails() {
    if !can_mount() {
        return;
    }
    let place = Place::new(32 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, true);
    for broken in [false, true] {
        settle(&nodes);
        let file = made(&nodes.directories[1].join("file"));
        let root = File::open(&nodes.directories[0]).unwrap();
        ioctl::transact(&root).unwrap();
        if broken {
            // The peer may not hear of it, so that it has to wait.
            nodes.break_all();
        }
        ioctl::rollback(&root, true).unwrap();
        assert_eq!(errno(sys::close(file)), libc::ESTALE);
        drop(root);
        std::thread::sleep(Duration::from_millis(50));
    }
    nodes.end();
}
