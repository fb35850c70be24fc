//! Traffic of parity in place compared with the log-structured policy on the same servers.

use std::sync::Arc;

use steadfast_media::Medium;
use steadfast_remote::array::{Array, ArrayOptions, BLOCK, CreateOptions, Policy};

use super::counting::Counting;
use super::{Places, SIZE, array, small_writes};

const PIECE: usize = 1 << 20;

/// Writes everything twice, in pieces of 1 MiB with a flush after each; the second time is counted.
fn large_writes(policy: Policy, servers: usize) -> (f64, f64, f64) {
    let (fleet, array, blocks) = array(policy, servers, 16 << 20);
    for turn in 1..=2 {
        fleet.take();
        for at in (0..blocks as usize * BLOCK).step_by(PIECE) {
            let piece = vec![turn; PIECE.min(blocks as usize * BLOCK - at)];
            array.write(at as u64, &piece).unwrap();
            array.flush().unwrap();
        }
    }
    let count = fleet.take();
    let mut found = vec![0; blocks as usize * BLOCK];
    array.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 2));
    let bytes = (blocks * BLOCK as u64) as f64;
    (count.written as f64 / bytes, count.read as f64 / bytes, count.rounds as f64 / blocks as f64)
}

#[test]
fn what_parity_in_place_costs() {
    println!("| servers | written | log: sent | read | rounds | in place: sent | read | rounds |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    let policies = [Policy::Parity, Policy::ParityInPlace];
    for servers in [3, 4, 5] {
        let row = |what: &str, [log, home]: [(f64, f64, f64); 2]| {
            println!(
                "| {servers} | {what} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                log.0, log.1, log.2, home.0, home.1, home.2
            );
        };
        for (hot, percent, what) in [
            (0, 100, "small, anywhere, full"),
            (9, 100, "small, mostly a twentieth, full"),
            (0, 50, "small, anywhere, half full"),
        ] {
            let small = |policy| {
                let (sent, read, rounds) = small_writes(policy, servers, 16 << 20, hot, percent);
                (sent, read, rounds as f64 / 100.0)
            };
            row(what, policies.map(small));
        }
        let [log, home] = policies.map(|policy| large_writes(policy, servers));
        row("1 MiB after the other", [log, home]);
        let redundancy = servers as f64 / (servers as f64 - 1.0);
        // Both policies send everything once, except for groups that a piece of 1 MiB covers only
        // in part.
        let parts = if (PIECE / BLOCK).is_multiple_of(16 * (servers - 1)) { 0.0 } else { 0.15 };
        assert!(
            home.0 < (1.05 + 2.0 * parts) * redundancy && home.1 < parts + 0.01,
            "{servers}: {home:?}"
        );
        assert!(log.0 < 1.2 * redundancy, "{servers}: {log:?}");
    }
}

#[test]
fn more_of_what_is_lent_is_room() {
    let room = |policy| array(policy, 3, 0).2 as f64 * BLOCK as f64 / (2 * SIZE) as f64;
    let (log, home) = (room(Policy::Parity), room(Policy::ParityInPlace));
    assert!(log < 0.8 && home > 0.89, "{log}, {home}");
}

/// Writes every block in a scattered order, one by one and without a flush, and then again. With
/// more servers, each block that is written home adds more of its stripe, and more checksums, to
/// the log.
///
/// Returns the bytes sent for each byte of the second time. Also returns the maximum for one write,
/// as a part of the memory that all servers lend.
fn scattered(servers: usize, size: usize) -> (f64, f64) {
    let fleet = Arc::new(Counting::new(servers, size, size));
    let create = CreateOptions { policy: Policy::ParityInPlace, uuid: [5; 16], spares: 0 };
    let array = Array::create(fleet.clone(), &create, ArrayOptions::default()).unwrap();
    let blocks = array.geometry().size / BLOCK as u64;
    let mut places = Places::new(blocks, 0);
    let mut order: Vec<u64> = (0..blocks).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, places.random(place as u64 + 1) as usize);
    }
    let (mut sent, mut most) = (0, 0);
    for turn in 1..=2 {
        sent = 0;
        for (write, block) in order.iter().enumerate() {
            let done = array.write(block * BLOCK as u64, &[turn; BLOCK]);
            done.unwrap_or_else(|error| {
                panic!("{servers} servers, turn {turn}, write {write}: {error}")
            });
            let count = fleet.take();
            sent += count.written;
            most = most.max(count.written);
        }
    }
    array.flush().unwrap();
    let mut found = vec![0; BLOCK];
    for block in 0..blocks {
        array.read(block * BLOCK as u64, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "{servers} servers: block {block}");
    }
    (sent as f64 / (blocks * BLOCK as u64) as f64, most as f64 / (servers * size) as f64)
}

#[test]
fn scattered_writes_never_use_up_the_log() {
    for (servers, mebibytes) in [(3, 16), (6, 16), (9, 16), (16, 16)] {
        let (sent, most) = scattered(servers, mebibytes << 20);
        // For each block: staged blocks and homes. And no write empties the whole log, which is
        // half of everything here.
        assert!(sent < servers as f64 + 4.0 && most < 0.15, "{servers} servers: {sent}, {most}");
        println!(
            "{servers} servers of {mebibytes} MiB: {sent:.2} bytes for each, at most {most:.4} of all in a write"
        );
    }
}
