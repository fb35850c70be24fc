//! What small synced writes cost, counted: bytes and requests that servers get, and what cleaning adds to them.
//!
//! `cargo test -p steadfast-remote --test traffic -- --nocapture` prints the tables of docs/REMOTE.md. Nothing here depends on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_media::Medium;
use steadfast_remote::array::{
    Array, ArrayOptions, BLOCK, Call, Contact, CreateOptions, Fleet, Outcome, Policy,
};
use steadfast_remote::client::Ask;

/// Bytes that each server lends: segments are 64 KiB.
const SIZE: usize = 16 << 20;

/// Servers in good order that count what they are asked.
struct Counting {
    servers: Vec<Mutex<Vec<u8>>>,
    written: AtomicU64,
    read: AtomicU64,
    requests: AtomicU64,
    rounds: AtomicU64,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    written: u64,
    read: u64,
    requests: u64,
    rounds: u64,
}

impl Counting {
    fn new(servers: usize) -> Counting {
        Counting {
            servers: (0..servers).map(|_| Mutex::new(vec![0; SIZE])).collect(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
        }
    }

    /// Since the last time.
    fn take(&self) -> Count {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Count {
            written: take(&self.written),
            read: take(&self.read),
            requests: take(&self.requests),
            rounds: take(&self.rounds),
        }
    }
}

impl Fleet for Counting {
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn contact(&self, _: usize) -> Result<Contact, String> {
        Ok(Contact { size: SIZE as u64, block_min: 1, fua: true, flush: true, trim: true })
    }
    fn set_proof(&self, _: usize, _: u64, _: &[u8]) {}
    fn round(&self, calls: &mut [Call<'_>], _: u64) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(calls.len() as u64, Ordering::Relaxed);
        for call in calls {
            let mut memory = self.servers[call.server].lock();
            let at = call.offset as usize;
            match &mut call.ask {
                Ask::Read(buffer) => {
                    buffer.copy_from_slice(&memory[at..at + buffer.len()]);
                    self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                }
                Ask::Write(pieces, _) => {
                    let bytes = pieces.concat();
                    memory[at..at + bytes.len()].copy_from_slice(&bytes);
                    self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
                Ask::Trim(length) => memory[at..at + *length as usize].fill(0),
                Ask::Flush => {}
            }
            call.outcome = Outcome::Done;
        }
    }
    fn breaks(&self, _: usize) -> u64 {
        0
    }
}

const POLICIES: [(Policy, usize); 5] = [
    (Policy::None, 2),
    (Policy::Mirror, 2),
    (Policy::Parity, 3),
    (Policy::Erasure { data: 2, parity: 2 }, 4),
    (Policy::Erasure { data: 4, parity: 2 }, 6),
];

fn array(policy: Policy, servers: usize, hold_bytes: u64) -> (Arc<Counting>, Array<Arc<Counting>>, u64) {
    let fleet = Arc::new(Counting::new(servers));
    let create = CreateOptions { policy, uuid: [5; 16], spares: 0 };
    let options = ArrayOptions { hold_bytes, ..ArrayOptions::default() };
    let array = Array::create(fleet.clone(), &create, options).unwrap();
    let blocks = array.geometry().size / BLOCK as u64;
    (fleet, array, blocks)
}

#[test]
fn a_small_flush_sends_its_bytes_to_as_few_servers_as_survive() {
    println!("| policy | bytes sent | requests | rounds |\n|---|---:|---:|---:|");
    for (policy, servers) in POLICIES {
        let (fleet, array, _) = array(policy, servers, 0);
        fleet.take();
        array.write(0, &[7; BLOCK]).unwrap();
        array.flush().unwrap();
        let count = fleet.take();
        println!("| {policy} on {servers} | {} | {} | {} |", count.written, count.requests, count.rounds);
        let (data, parity) = policy.shards(servers).unwrap();
        let copies = 1 + parity;
        assert_eq!(count.written as usize, copies * BLOCK + (data + parity) * 512, "{policy}");
        assert_eq!((count.requests as usize, count.rounds, count.read), (servers, 1, 0), "{policy}");
    }
}

/// Each block written once, then synced writes of single blocks, `hot` of ten of them to a twentieth of the blocks. Counted
/// from when cleaning is needed all the time: bytes written and read for each byte.
fn small_writes(policy: Policy, servers: usize, hold: u64, hot: u64) -> (f64, f64, u64) {
    let (fleet, array, blocks) = array(policy, servers, hold);
    let mut state = 88172645463325252_u64;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let mut truth = vec![1_u8; blocks as usize];
    array.write(0, &vec![1; blocks as usize * BLOCK]).unwrap();
    array.flush().unwrap();
    let writes = 2 * blocks;
    for write in 0..3 * blocks {
        if write == blocks {
            fleet.take();
        }
        let block = if random(10) < hot { random(blocks / 20) } else { random(blocks) };
        truth[block as usize] = write as u8;
        array.write(block * BLOCK as u64, &[write as u8; BLOCK]).unwrap();
        array.flush().unwrap();
    }
    let (count, status) = (fleet.take(), array.status());
    let mut found = vec![0; BLOCK];
    for (block, byte) in truth.iter().enumerate() {
        array.read((block * BLOCK) as u64, &mut found).unwrap();
        assert!(found.iter().all(|found| found == byte), "block {block}");
    }
    let bytes = (writes * BLOCK as u64) as f64;
    assert!(status.cleaned > 100 && status.held * BLOCK as u64 <= hold, "{policy}: {status:?}");
    (count.written as f64 / bytes, count.read as f64 / bytes, count.rounds * 100 / writes)
}

#[test]
fn small_flushes_are_packed_without_being_read() {
    println!("| policy | written to | without: sent | read | rounds | with: sent | read | rounds |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for (policy, servers) in POLICIES {
        for (hot, places) in [(0, "anywhere"), (9, "mostly a twentieth")] {
            let (sent, read, rounds) = small_writes(policy, servers, 0, hot);
            let with = small_writes(policy, servers, 16 << 20, hot);
            println!(
                "| {policy} on {servers} | {places} | {sent:.2} | {read:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                rounds as f64 / 100.0,
                with.0,
                with.1,
                with.2 as f64 / 100.0,
            );
            match policy.shards(servers).unwrap().0 {
                // Nothing is partly filled.
                1 => assert!((with.0, with.1) == (sent, read), "{policy}: {with:?}"),
                _ => {
                    assert!(with.1 < 0.8 * read && with.0 < 1.05 * sent, "{policy}: {with:?}, {read} without")
                }
            }
        }
    }
}
