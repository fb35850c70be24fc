//! The cost of small synced writes: bytes and requests that servers receive, and the additional
//! cost of cleaning.
//!
//! `cargo test -p steadfast-remote --test traffic -- --nocapture` prints the tables of
//! docs/inside/REMOTE.md. The results do not depend on time.

mod counting;

use std::sync::Arc;

use steadfast_media::Medium;
use steadfast_media::random::Random;
use steadfast_remote::array::{Array, ArrayOptions, BLOCK, CreateOptions, Policy};

use counting::Counting;

/// Bytes that each server lends: segments are 64 KiB.
const SIZE: usize = 16 << 20;

const POLICIES: [(Policy, usize); 5] = [
    (Policy::None, 2),
    (Policy::Mirror, 2),
    (Policy::Parity, 3),
    (Policy::Erasure { data: 2, parity: 2 }, 4),
    (Policy::Erasure { data: 4, parity: 2 }, 6),
];

fn array(
    policy: Policy,
    servers: usize,
    hold_bytes: u64,
) -> (Arc<Counting>, Array<Arc<Counting>>, u64) {
    let fleet = Arc::new(Counting::new(servers, SIZE, SIZE));
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
        println!(
            "| {policy} on {servers} | {} | {} | {} |",
            count.written, count.requests, count.rounds
        );
        let (data, parity) = policy.shards(servers).unwrap();
        let copies = 1 + parity;
        assert_eq!(count.written as usize, copies * BLOCK + (data + parity) * 512, "{policy}");
        assert_eq!(
            (count.requests as usize, count.rounds, count.read),
            (servers, 1, 0),
            "{policy}"
        );
    }
}

/// Positions of single-block writes: `hot` of ten go to a twentieth of all blocks.
struct Places {
    random: Random,
    blocks: u64,
    hot: u64,
}

impl Places {
    fn new(blocks: u64, hot: u64) -> Places {
        Places { random: Random::new(1), blocks, hot }
    }

    fn next(&mut self) -> u64 {
        let hot = self.random.below(10) < self.hot;
        self.random.below(if hot { self.blocks / 20 } else { self.blocks })
    }
}

/// Writes `percent` of the blocks once, then synced writes of single blocks, `hot` of ten to a
/// twentieth of those. Counting begins when cleaning is needed all the time. Returns bytes written
/// and read for each byte.
fn small_writes(
    policy: Policy,
    servers: usize,
    hold: u64,
    hot: u64,
    percent: u64,
) -> (f64, f64, u64) {
    let (fleet, array, blocks) = array(policy, servers, hold);
    let blocks = blocks * percent / 100;
    let mut places = Places::new(blocks, hot);
    let mut truth = vec![1_u8; blocks as usize];
    array.write(0, &vec![1; blocks as usize * BLOCK]).unwrap();
    array.flush().unwrap();
    let writes = 2 * blocks;
    for write in 0..3 * blocks {
        if write == blocks {
            fleet.take();
        }
        let block = places.next();
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
    println!(
        "| policy | written to | without: sent | read | rounds | with: sent | read | rounds |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for (policy, servers) in POLICIES {
        for (hot, places) in [(0, "anywhere"), (9, "mostly a twentieth")] {
            let (sent, read, rounds) = small_writes(policy, servers, 0, hot, 100);
            let with = small_writes(policy, servers, 16 << 20, hot, 100);
            println!(
                "| {policy} on {servers} | {places} | {sent:.2} | {read:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                rounds as f64 / 100.0,
                with.0,
                with.1,
                with.2 as f64 / 100.0,
            );
            match policy.shards(servers).unwrap().0 {
                // No stripe is partly filled.
                1 => assert!((with.0, with.1) == (sent, read), "{policy}: {with:?}"),
                _ => {
                    assert!(
                        with.1 < 0.8 * read && with.0 < 1.05 * sent,
                        "{policy}: {with:?}, {read} without"
                    )
                }
            }
        }
    }
}
