//! Files that several nodes read through their kernels' pages, with delegations. A read never shows
//! less than a change that was answered before it, whatever connections do meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast::TransactionMask;
use steadfast_fuse::metrics::Kind;

use crate::pages::{CHANGES, SIZE, read_write};
use crate::peers::Nodes;
use crate::support::{Place, QUIET, can_mount, wait_for};

/// Files are opened for cached reads when no other node has changed them for 0.5 s.
const PAUSE: Duration = Duration::from_millis(700);

fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![1; SIZE];
    let length = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(length);
    bytes
}

/// Reads until the kernel keeps the attributes, too.
fn settle(nodes: &Nodes, files: &[File]) {
    wait_for("the kernel to keep attributes", || {
        files.iter().for_each(|file| drop((all(file), file.metadata().unwrap().size())));
        let before = (nodes.looks(), nodes.count(Kind::Read));
        // More than once: a node gives its kernel the same attributes a second time.
        (0..3).for_each(|_| files.iter().for_each(|file| drop(all(file))));
        (nodes.looks(), nodes.count(Kind::Read)) == before
    });
}

#[test]
fn what_is_read_again_takes_no_request_and_shows_each_change() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    fs::write(nodes.directories[0].join("source"), [b'n'; SIZE]).unwrap();
    let cases: Vec<(usize, usize)> = (0..CHANGES.len())
        .flat_map(|number| (0..3).map(move |changer| (number, changer)))
        .collect();
    let path = |node: usize, (number, changer): (usize, usize)| {
        nodes.directories[node].join(format!("f{number}-{changer}"))
    };
    for case in &cases {
        fs::write(path(case.1, *case), [b'o'; SIZE]).unwrap();
    }
    std::thread::sleep(PAUSE);
    for case in cases {
        let files: Vec<File> = (0..3).map(|node| File::open(path(node, case)).unwrap()).collect();
        settle(&nodes, &files);
        // Twice: the second change finds files that were changed just now.
        for _ in 0..2 {
            CHANGES[case.0](&path(case.1, case));
            let truth = read_write().open(path(case.1, case)).unwrap();
            let truth = all(&truth);
            assert_ne!(truth[..3], *b"ooo");
            for (node, file) in files.iter().enumerate() {
                assert!(all(file) == truth, "change {} of node {}: node {node}", case.0, case.1);
            }
        }
    }
    nodes.end();
}

/// What a reader has found, and what had been answered before: the larger one must not come second.
type Older = Mutex<Vec<String>>;

/// Changes three files. The content of one is a number, and one grows by a number at a time. One is
/// cut off and written again, longer and shorter in turn.
fn change(directory: &Path, number: u64) {
    let put = |name: &str| read_write().create(true).open(directory.join(name)).unwrap();
    put("number").write_all_at(&number.to_ne_bytes(), 0).unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(directory.join("log")).unwrap();
    log.write_all(&number.to_ne_bytes()).unwrap();
    let text = "x".repeat(number as usize % 7 * 100 + 1);
    fs::write(directory.join("text"), format!("{number} {text}\n")).unwrap();
}

/// `is_quiet`: no change is under way. While a file is truncated a read may find zero bytes up to
/// the size of before.
fn check(
    files: &[File; 3],
    least: u64,
    is_quiet: impl FnOnce() -> bool,
    older: &mut impl FnMut(String),
) {
    let [count, log, text] = files;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let found = number(&all(count));
    if found < least {
        older(format!("number {found} after {least}"));
    }
    let mut logged = [0; 4096];
    let length = log.read_at(&mut logged, (least - 1) * 8).unwrap();
    let logged: Vec<u64> = logged[..length].chunks(8).map(number).collect();
    if logged.is_empty() || logged.iter().zip(least..).any(|(found, right)| *found != right) {
        older(format!("the log goes on with {logged:?} from {least}"));
    }
    let found = all(text);
    if let Some(at) = found.iter().position(|byte| *byte == 0)
        && is_quiet()
    {
        older(format!("zero bytes at {at} of {} after {least}", found.len()));
    }
    if let Some(line) = found.strip_suffix(b"\n") {
        let found = str::from_utf8(line).ok().and_then(|line| line.split(' ').next()?.parse().ok());
        if found.is_none_or(|found: u64| found < least) {
            older(format!("text {found:?} after {least}"));
        }
    }
}

/// Readers on all nodes while one writes. `meanwhile` is called again and again.
fn race(nodes: &Nodes, time: Duration, meanwhile: impl Fn()) {
    let older: Older = Mutex::default();
    for writer in 0..nodes.directories.len() {
        for name in ["number", "log", "text"] {
            let _ = fs::remove_file(nodes.directories[writer].join(name));
        }
        change(&nodes.directories[writer], 1);
        std::thread::sleep(PAUSE);
        let (begun, written) = (AtomicU64::new(1), AtomicU64::new(1));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Two on each node: one asks for attributes while the other one reads.
            let readers = nodes.directories.iter().enumerate();
            for (node, directory) in readers.clone().chain(readers) {
                let files =
                    ["number", "log", "text"].map(|name| File::open(directory.join(name)).unwrap());
                let (begun, written, over, older) = (&begun, &written, &over, &older);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let least = written.load(Ordering::SeqCst);
                        let is_quiet = || begun.load(Ordering::SeqCst) == least;
                        check(&files, least, is_quiet, &mut |what| {
                            older.lock().unwrap().push(format!("{writer} to {node}: {what}"));
                        });
                    }
                });
            }
            let end = Instant::now() + time;
            let mut number = 1;
            while Instant::now() < end || number < 4 {
                number += 1;
                begun.store(number, Ordering::SeqCst);
                change(&nodes.directories[writer], number);
                written.store(number, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(number % 3));
                meanwhile();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
    let older = older.into_inner().unwrap();
    assert!(older.is_empty(), "{} reads: {:?}", older.len(), &older[..older.len().min(12)]);
}

#[test]
fn a_cached_read_is_never_older_than_an_answered_change() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    race(&nodes, Duration::from_millis(1500), || ());
    let told = nodes.metrics.as_ref().unwrap().sharing().unwrap();
    assert!(told.recalls > 0);
    nodes.end();
}

/// A recall may be lost with its connection. What the kernel keeps ends in time, and before it
/// looks again it has dropped its pages.
#[test]
fn a_cached_read_is_never_older_while_connections_break() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    race(&nodes, Duration::from_millis(2500), || nodes.break_all());
    nodes.end();
}

/// A rollback makes open files stale on all nodes.
#[test]
fn a_cached_read_shows_nothing_that_a_rollback_has_dropped() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, TransactionMask::MANUAL);
    let nodes = Nodes::new(&place, 3, true);
    let path = |node: usize| nodes.directories[node].join("file");
    fs::write(path(0), b"old").unwrap();
    let root = File::open(&nodes.directories[0]).unwrap();
    steadfast_fuse::ioctl::transact(&root).unwrap();
    fs::write(path(0), b"new").unwrap();
    std::thread::sleep(PAUSE);
    let open: Vec<_> = (0..3).map(|node| File::open(path(node)).unwrap()).collect();
    settle(&nodes, &open);
    steadfast_fuse::ioctl::rollback(&root, true).unwrap();
    for (node, file) in open.iter().enumerate() {
        let found = file.read_at(&mut [0; 3], 0);
        assert!(found.is_err(), "node {node} shows {found:?}");
        assert_eq!(fs::read(path(node)).unwrap(), b"old");
    }
    drop((open, root));
    nodes.end();
}
