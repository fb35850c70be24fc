//! Large reads of a peer go to the medium itself, and show no other bytes than through the owner.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::peers::{Directly, Nodes};
use crate::support::{Place, QUIET, can_mount};

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 24;

/// What peers have read from the medium.
fn found(nodes: &Nodes) -> u64 {
    nodes.found.load(Ordering::Relaxed)
}

/// What the owner has told peers to read there.
fn told(nodes: &Nodes) -> u64 {
    nodes.metrics.as_ref().unwrap().sharing().unwrap().direct_bytes
}

#[test]
fn a_large_file_does_not_pass_through_the_owner() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, true);
    let (owner, peer) = (nodes.directories[0].join("file"), nodes.directories[1].join("file"));
    let bytes: Vec<u8> = (0..(6 << 20) + 123).map(|at: usize| (at / 1000) as u8).collect();
    fs::write(&owner, &bytes).unwrap();
    File::open(&owner).unwrap().sync_all().unwrap();
    assert!(fs::read(&peer).unwrap() == bytes);
    // The end of the file goes through the owner: only it may tell the kernel where that is.
    let read = found(&nodes);
    assert!((1 << 20..=6 << 20).contains(&read), "{read} bytes");
    let asked = told(&nodes);
    assert!(asked >= read, "{asked} bytes");
    assert_eq!(fs::read(&owner).unwrap(), bytes);
    assert_eq!(told(&nodes), asked, "the owner has no other way");
    // Holes are on no medium, and small reads are not worth it.
    File::create(&owner).unwrap().set_len(4 << 20).unwrap();
    assert!(fs::read(&peer).unwrap().iter().all(|byte| *byte == 0));
    let before = told(&nodes);
    let file = OpenOptions::new().read(true).write(true).open(&peer).unwrap();
    file.read_exact_at(&mut [0; 4096], 8192).unwrap();
    drop(file);
    assert_eq!(told(&nodes), before);
    nodes.end();
}

/// Reads blocks of a file that is written all the time. Each block has the number of its write, and
/// a page is old or new.
fn reads(path: &Path, cached: bool, written: &AtomicU64, over: &AtomicBool) -> Option<String> {
    let flags = if cached { 0 } else { libc::O_DIRECT };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap();
    let mut memory = vec![0_u8; BLOCKS * BLOCK + 4096];
    let start = memory.as_ptr().addr().wrapping_neg() % 4096;
    let bytes = &mut memory[start..start + BLOCKS * BLOCK];
    while !over.load(Ordering::Relaxed) {
        let least = written.load(Ordering::SeqCst);
        file.read_exact_at(bytes, 0).unwrap();
        // A read may take its pages from several requests.
        for (page, found) in bytes.chunks(4096).enumerate() {
            let block = page * 4096 / BLOCK;
            let number = u64::from_ne_bytes(found[..8].try_into().unwrap());
            // The writer goes round and round.
            let due = least.saturating_sub(least.saturating_sub(block as u64) % BLOCKS as u64);
            if !found.chunks(8).all(|word| word == number.to_ne_bytes()) {
                return Some(format!("a page of block {block} has several numbers: {number}"));
            }
            if number < due || number % BLOCKS as u64 != block as u64 {
                return Some(format!("block {block} has number {number} after {least}"));
            }
        }
    }
    None
}

fn race(directly: Directly, time: Duration, meanwhile: impl Fn(&Nodes)) -> u64 {
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::with(&place, 3, true, directly);
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |node: usize, number: u64| {
        let block = number as usize % BLOCKS;
        let words = [number.to_ne_bytes(); BLOCK / 8].concat();
        let path = nodes.directories[node].join("file");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all_at(&words, (block * BLOCK) as u64).unwrap();
        // So that the blocks of before are free, and written again.
        if number.is_multiple_of(16) {
            file.sync_all().unwrap();
        }
        written.store(number, Ordering::SeqCst);
    };
    for number in 0..BLOCKS as u64 {
        write(0, number);
    }
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = nodes
            .directories
            .iter()
            .flat_map(|directory| [(directory, true), (directory, false)])
            .map(|(directory, cached)| {
                let (written, over) = (&written, &over);
                scope.spawn(move || reads(&directory.join("file"), cached, written, over))
            })
            .collect();
        let end = Instant::now() + time;
        for number in BLOCKS as u64.. {
            if Instant::now() >= end && number > 4 * BLOCKS as u64 {
                break;
            }
            write(number as usize / 40 % 3, number);
            meanwhile(&nodes);
        }
        over.store(true, Ordering::Relaxed);
        readers.into_iter().filter_map(|reader| reader.join().unwrap()).collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
    let read = found(&nodes);
    nodes.end();
    read
}

#[test]
fn a_direct_read_is_never_older_than_an_answered_change() {
    if can_mount() {
        let read = race(Directly::Always, Duration::from_millis(1500), |_| ());
        assert!(read > 1 << 20, "{read} bytes");
    }
}

/// The medium may be behind what the owner tells, fail, or be slow.
#[test]
fn a_direct_read_that_fails_goes_to_the_owner() {
    if can_mount() {
        let read = race(Directly::Often, Duration::from_millis(1500), |_| ());
        assert!(read > 1 << 20, "{read} bytes");
    }
}

#[test]
fn a_direct_read_is_never_older_while_connections_break() {
    if can_mount() {
        let round = AtomicU64::new(0);
        race(Directly::Often, Duration::from_millis(1500), |nodes| {
            if round.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
                nodes.break_all();
            }
        });
    }
}
