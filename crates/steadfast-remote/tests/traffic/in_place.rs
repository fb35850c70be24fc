//! Parity in place beside the log-structured one, counted over the same servers.

use steadfast_media::Medium;
use steadfast_remote::array::{BLOCK, Policy};

use super::{SIZE, array, small_writes};

/// Everything twice, in pieces of 1 MiB with a flush behind each: the second time is counted.
fn large_writes(policy: Policy, servers: usize) -> (f64, f64, f64) {
    const PIECE: usize = 1 << 20;
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
    for servers in [3, 5] {
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
        // Everything twice, and the log once.
        assert!(home.0 > 2.0 * redundancy && home.0 < 2.5 * redundancy, "{servers}: {home:?}");
        assert!(log.0 < 1.2 * redundancy, "{servers}: {log:?}");
    }
}

#[test]
fn more_of_what_is_lent_is_room() {
    let room = |policy| array(policy, 3, 0).2 as f64 * BLOCK as f64 / (2 * SIZE) as f64;
    let (log, home) = (room(Policy::Parity), room(Policy::ParityInPlace));
    assert!(log < 0.8 && home > 0.91, "{log}, {home}");
}
