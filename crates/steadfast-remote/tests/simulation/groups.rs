//! Parity in place: clients die, and servers are lost, while whole groups bypass the log.

use std::ops::Range;

use steadfast_media::Medium;
use steadfast_remote::array::{BLOCK, Fleet};

use crate::fleet::Trouble;
use crate::found::rebuild;
use crate::homes::{Full, dies_in, every_death, first_home};

/// Sizes of servers with two spare places, and with six.
const SIZES: [u64; 2] = [1 << 20, 2 << 20];

/// A client dies at its `calls`-th call, as in `homes.rs`. Returns whether it died before its end.
pub fn dies_with_groups(servers: usize, size: u64, calls: u64, seed: u64) -> bool {
    let lost = (calls % servers as u64) as usize;
    let full = Full::groups(servers, size, seed);
    dies_in(full, calls, lost, &format!("groups, {servers} servers of {size}, seed {seed}"))
}

/// Some calls; with STEADFAST_DEATHS=all every one.
#[test]
fn groups_survive_the_client_and_a_server() {
    let worlds = [(3, SIZES[0], 47), (3, SIZES[1], 47), (4, SIZES[1], 97), (6, SIZES[1], 211)];
    for (servers, size, step) in worlds {
        let died = |calls: &u64| dies_with_groups(servers, size, *calls, 1 + calls % 7);
        let deaths = (0..).step_by(if every_death() { 1 } else { step }).take_while(died).count();
        println!("{servers} servers of {size}: {deaths} deaths");
        assert!(deaths > 10, "{servers}, {size}: {deaths}");
    }
}

/// Groups repeatedly overwrite blocks that are in the log, with `tidy` in between, and the client
/// dies at its `calls`-th call. All servers lose power. Returns whether the client died before its
/// end.
pub fn dies_committing(calls: u64, seed: u64) -> bool {
    let context = format!("{calls} calls, seed {seed}");
    let mut full = Full::empty(3, SIZES[seed as usize % 2], seed);
    let part = 64;
    full.write(0, part).expect(&context);
    full.flush(&context);
    // As many segments as that takes, with nothing else in them.
    for first in (0..part).step_by(8) {
        full.write(first, 8).expect(&context);
        full.flush(&context);
    }
    full.fleet.arm_death(calls);
    let go = |full: &mut Full| -> Option<()> {
        for turn in 0..4 {
            full.write(0, part).ok()?;
            full.array().tidy().ok()?;
            if turn % 2 == 1 {
                full.array().flush().ok()?;
                full.note();
            }
        }
        Some(())
    };
    let ended = go(&mut full).is_some();
    (0..3).for_each(|server| full.fleet.restart_flushed(server));
    full.reopen(&context);
    full.check(&context);
    full.write(0, part).expect(&context);
    full.flush(&context);
    full.fleet.set_trouble((calls % 3) as usize, Trouble::Down);
    full.check(&context);
    !ended
}

#[test]
fn a_commit_survives_the_client_and_the_power_at_any_moment() {
    for seed in crate::seeds(1..8) {
        let deaths = (0..).take_while(|calls| dies_committing(*calls, seed)).count();
        assert!(deaths > 20, "seed {seed}: {deaths}");
    }
}

/// A living client's write of a group, the one after `writes` others, is not answered in time. It
/// arrives after many later writes. No member is lost for it, and no block is damaged. Returns
/// whether there were so many writes.
pub fn late_in_a_place(servers: usize, writes: u64) -> bool {
    let context = format!("{servers} servers, {writes} writes");
    // No other block is written home.
    let mut full = Full::empty(servers, SIZES[1], 1 + writes % 4);
    let group = 16 * (servers as u64 - 1);
    let groups = full.array().geometry().size / BLOCK as u64 / group;
    full.fleet.keep_write(first_home(full.array()), writes);
    (0..20).for_each(|turn| full.write(turn % groups * group, group).expect(&context));
    let late = !full.fleet.kept().is_empty();
    full.flush(&context);
    assert!(full.array().lost().is_empty(), "{context}: {:?} are lost", full.array().lost());
    // Every free place is used again.
    for turn in 0..4 * groups {
        full.write(turn % groups * group, group).expect(&context);
        full.flush(&context);
    }
    full.fleet.deliver();
    full.check(&format!("{context}, delivered"));
    for lost in 0..servers {
        full.fleet.set_trouble(lost, Trouble::Down);
        full.check(&format!("{context}, delivered, {lost} is lost"));
        full.fleet.set_trouble(lost, Trouble::None);
        if full.array().lost() == [lost] {
            rebuild(full.array(), lost);
        }
    }
    late
}

#[test]
fn a_group_that_arrives_late_hurts_nothing_and_costs_nobody() {
    for servers in [3, 5] {
        let late = (0..30).take_while(|writes| late_in_a_place(servers, *writes)).count();
        assert!(late > 15, "{servers}: {late}");
    }
}

/// An idle connection breaks, and a large write is the first to notice.
#[test]
fn a_connection_that_breaks_between_writes_costs_nobody() {
    for seed in 1..20 {
        let mut full = Full::groups(3, SIZES[1], seed);
        full.flush("flushed");
        let before = full.array().status().groups;
        for server in 0..3 {
            full.fleet.restart_without_unflushed(server);
            full.write(0, 96).unwrap();
            full.flush("flushed");
            full.write(32, 64).unwrap();
            full.flush("flushed");
        }
        assert!(full.array().status().groups > before, "seed {seed}");
        assert!(full.array().lost().is_empty(), "seed {seed}: {:?} are lost", full.array().lost());
        full.check(&format!("seed {seed}"));
    }
}

/// Clients follow one another; each writes groups over blocks that are in the log.
#[test]
fn groups_are_where_they_were_when_the_next_client_opens_the_array() {
    for seed in 1..40 {
        let mut full = Full::groups(3 + seed as usize % 3, SIZES[seed as usize % 2], seed);
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            (0..25).for_each(|_| full.one().expect(&context));
            let written = full.array().status().groups;
            full.reopen(&context);
            full.check(&context);
            assert!(written > 5, "{context}: {written} groups");
        }
        let servers = full.fleet.servers();
        full.fleet.set_trouble(seed as usize % servers, Trouble::Down);
        full.check(&format!("seed {seed}, degraded"));
    }
}

/// A write-behind log (`behind`) asks the next client which blocks have changed since a flush. The
/// answer comes from checksums, which a commit may have packed with others. A client dies at its
/// `calls`-th call, if there are so many. Every block of the last write that exists must be
/// reported. Returns the calls that packed checksums of other groups.
fn changes_are_told(calls: Option<u64>, seed: u64) -> Vec<Range<u64>> {
    let context = format!("{calls:?} calls, seed {seed}");
    let mut full = Full::empty(16, 3 << 20, seed);
    let group = 240;
    let groups = full.flushed.len() as u64 / group;
    (0..groups).for_each(|number| full.write(number * group, group).expect(&context));
    full.flush(&context);
    let mut point = full.array().point();
    let first = full.fleet.calls();
    if let Some(calls) = calls {
        full.fleet.arm_death(calls);
    }
    let mut packing = Vec::new();
    for _ in 0..160 {
        let before = (full.fleet.calls() - first, full.array().status().packed);
        let number = full.random.below(groups);
        if full.write(number * group, group).and_then(|()| full.array().flush()).is_err() {
            break;
        }
        full.note();
        point = full.array().point();
        if full.array().status().packed > before.1 {
            packing.push(before.0..full.fleet.calls() - first);
        }
    }
    let before = full.flushed.clone();
    let under_way = full.under_way.clone();
    full.reopen(&context);
    assert!(full.array().follows(&point), "{context}");
    full.check(&context);
    for (block, _) in under_way {
        if full.flushed[block as usize] != before[block as usize] {
            let block = block as u32;
            assert_eq!(full.array().changed_since(&point, block), Some(block), "{context}");
        }
    }
    packing
}

/// Some calls of commits that also pack checksums of other groups; with STEADFAST_DEATHS=all every
/// one, in three worlds.
#[test]
fn whoever_keeps_a_copy_learns_of_every_group_that_was_written() {
    let (seeds, commits, step) = match every_death() {
        true => (1..4, usize::MAX, 1),
        false => (1..2, 2, 8),
    };
    for seed in seeds {
        let packing = changes_are_told(None, seed);
        assert!(packing.len() > 1, "seed {seed}: {packing:?}");
        for calls in packing.into_iter().take(commits).flatten().step_by(step) {
            changes_are_told(Some(calls), seed);
        }
    }
}
