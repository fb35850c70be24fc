//! Faults that the simulation has found, each reproduced in the fewest steps.

use std::sync::Arc;

use steadfast_media::Medium;
use steadfast_remote::array::{Array, ArrayOptions, BLOCK, CreateOptions, Policy, Progress, State};

use crate::fleet::{Notebook, SimFleet, Trouble};
use crate::world::{fill, options};

pub const SIZE: u64 = 1 << 20;
const BLOCKS: u64 = 24;

fn make(policy: Policy, servers: usize) -> (Arc<SimFleet>, Arc<Notebook>, Array<Arc<SimFleet>>) {
    make_with(policy, servers, 1)
}

fn make_with(
    policy: Policy,
    servers: usize,
    seed: u64,
) -> (Arc<SimFleet>, Arc<Notebook>, Array<Arc<SimFleet>>) {
    let fleet = Arc::new(SimFleet::new(servers, SIZE, seed));
    let notebook = Arc::new(Notebook::default());
    let create = CreateOptions { policy, uuid: [3; 16], spares: 0 };
    let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
    write(&array, 1).unwrap();
    array.flush().unwrap();
    (fleet, notebook, array)
}

pub fn write(array: &impl Medium, version: u64) -> Result<(), steadfast_media::MediumError> {
    (0..BLOCKS).try_for_each(|block| array.write(block * BLOCK as u64, &fill(version, block)))
}

/// All blocks of this version in one buffer.
fn whole(version: u64) -> Vec<u8> {
    (0..BLOCKS).flat_map(|block| fill(version, block)).collect()
}

/// The version of every block.
pub fn versions(array: &impl Medium) -> Vec<u64> {
    let mut found = vec![0; BLOCK];
    let version = |block| {
        array.read(block * BLOCK as u64, &mut found).unwrap();
        (0..10).find(|version| found == fill(*version, block)).expect("one of the versions")
    };
    (0..BLOCKS).map(version).collect()
}

pub fn rebuild(array: &Array<Arc<SimFleet>>, member: usize) {
    let mut rebuild = array.begin_rebuild(member, member).unwrap();
    while array.rebuild_step(&mut rebuild).unwrap() != Progress::Done {}
}

/// Options of a client that does not wait for late writes of a dead client.
fn at_once(notebook: &Arc<Notebook>) -> ArrayOptions {
    ArrayOptions { late_ms: 0, ..options(notebook) }
}

/// A client dies at its `calls`-th call. Its remaining writes arrive only after the next client has
/// opened the array, written and flushed. Returns whether it died before it was finished.
pub fn late(policy: Policy, servers: usize, calls: u64, opening: bool) -> bool {
    let context = format!("{policy} on {servers}, {calls} calls, opening {opening}");
    let (fleet, notebook, array) = make(policy, servers);
    fleet.hold(true);
    if opening {
        drop(array);
        fleet.revive_client();
        fleet.arm_death(calls);
        drop(Array::open(fleet.clone(), at_once(&notebook)));
    } else {
        fleet.arm_death(calls);
        let _ = write(&array, 2).and_then(|()| array.flush()).map(|()| drop(array.tidy()));
    }
    let died = fleet.is_dead();
    fleet.hold(false);
    fleet.revive_client();
    let next = Array::open(fleet.clone(), at_once(&notebook)).expect(&context);
    let before = versions(&next);
    // The first half is new; the other half must stay as it was found.
    for block in 0..BLOCKS / 2 {
        next.write(block * BLOCK as u64, &fill(3, block)).unwrap();
    }
    next.flush().unwrap();
    let expected: Vec<u64> = before
        .iter()
        .enumerate()
        .map(|(block, version)| if block < 12 { 3 } else { *version })
        .collect();
    fleet.deliver();
    assert_eq!(versions(&next), expected, "{context}");
    drop(next);
    fleet.revive_client();
    let last = Array::open(fleet, at_once(&notebook)).expect(&context);
    assert_eq!(versions(&last), expected, "{context}");
    assert!(last.lost().is_empty(), "{context}: {:?} are lost", last.lost());
    died
}

#[test]
fn what_a_dead_client_sent_hides_nothing_when_it_arrives_late() {
    for (policy, servers) in [
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::Parity, 6),
        (Policy::None, 2),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ] {
        for opening in [false, true] {
            let deaths = (0..).take_while(|calls| late(policy, servers, *calls, opening)).count();
            assert!(deaths > 10, "{policy}: {deaths}");
        }
    }
}

/// All servers lose power at the client's `calls`-th call. The client dies, and each server
/// restarts with its flushed data and some of the rest. Returns whether that happened before the
/// end.
pub fn rack(policy: Policy, servers: usize, calls: u64, seed: u64) -> bool {
    let context = format!("{policy} on {servers}, {calls} calls, seed {seed}");
    let (fleet, notebook, array) = make_with(policy, servers, seed);
    fleet.arm_death(calls);
    let (mut flushed, mut newest) = (1, 1);
    for version in 2..9 {
        newest = version;
        // Overwritten segments are obsolete, but only after a flush. Large writes themselves mark
        // segments that were obsolete at the previous flush.
        let done = match version % 4 {
            0 | 1 => array.write(0, &whole(version)).is_ok(),
            _ => write(&array, version).is_ok() && array.tidy().is_ok(),
        };
        if !done {
            break;
        }
        if version % 2 == 1 {
            if array.flush().is_err() {
                break;
            }
            flushed = version;
        }
    }
    let died = fleet.is_dead();
    drop(array);
    (0..servers).for_each(|server| fleet.restart_flushed(server));
    fleet.revive_client();
    let next = Array::open(fleet.clone(), options(&notebook)).expect(&context);
    let found = versions(&next);
    assert!(
        found.iter().all(|version| (flushed..=newest).contains(version)),
        "{context}: {flushed} in {found:?}"
    );
    write(&next, 9).expect(&context);
    next.flush().expect(&context);
    assert!(next.lost().is_empty(), "{context}: {:?} are lost", next.lost());
    died
}

#[test]
fn what_was_flushed_survives_the_power_of_all_servers() {
    for (policy, servers) in [
        (Policy::None, 2),
        (Policy::Mirror, 2),
        (Policy::Parity, 3),
        (Policy::Parity, 6),
        (Policy::Erasure { data: 2, parity: 2 }, 4),
    ] {
        for seed in 1..5 {
            let cuts = (0..).take_while(|calls| rack(policy, servers, *calls, seed)).count();
            assert!(cuts > 40, "{policy}: {cuts}");
        }
    }
}

#[test]
fn segments_that_are_done_with_do_not_come_back() {
    let (fleet, notebook, array) = make(Policy::Parity, 3);
    array.discard(0, BLOCKS * BLOCK as u64).unwrap();
    array.write(30 * BLOCK as u64, &fill(1, 30)).unwrap();
    array.flush().unwrap();
    array.tidy().unwrap();
    array.flush().unwrap();
    assert!(array.status().trimmed > 0);
    // A server that restarts empty receives the needed blocks, and nothing else.
    fleet.restart_empty(0);
    array.write(31 * BLOCK as u64, &fill(1, 31)).unwrap();
    array.flush().unwrap();
    rebuild(&array, 0);
    drop(array);
    fleet.revive_client();
    let array = Array::open(fleet, options(&notebook)).unwrap();
    // Blocks of the last segment may have their old version.
    assert!(versions(&array).contains(&0));
    assert!(array.lost().is_empty());
}

#[test]
fn a_server_that_forgets_that_it_was_wiped_is_not_counted() {
    let (fleet, _, array) = make(Policy::Mirror, 2);
    fleet.set_trouble(1, Trouble::Down);
    write(&array, 2).unwrap();
    array.flush().unwrap();
    fleet.set_trouble(1, Trouble::None);
    let mut rebuild = array.begin_rebuild(1, 1).unwrap();
    fleet.restart_without_unflushed(1);
    // The restart is noticed, and a later flush does not hide it.
    array.write(0, &fill(2, 0)).unwrap();
    array.flush().unwrap();
    assert_eq!(array.status().members[1].0, State::Lost);
    assert!(array.rebuild_step(&mut rebuild).is_err());
}

#[test]
fn openings_that_fail_one_after_the_other_cost_no_member() {
    for calls in 0..120 {
        let (fleet, notebook, array) = make(Policy::Parity, 3);
        drop(array);
        // Each client leaves its epoch on some of the servers.
        for more in 0..3 {
            fleet.revive_client();
            fleet.arm_death(calls + more);
            drop(Array::open(fleet.clone(), options(&notebook)));
        }
        fleet.revive_client();
        let array = Array::open(fleet, options(&notebook)).unwrap();
        assert!(array.lost().is_empty(), "{calls} calls: {:?}", array.lost());
        assert_eq!(versions(&array), vec![1; BLOCKS as usize]);
    }
}

#[test]
fn what_a_dead_client_left_is_flushed_before_it_counts() {
    let (fleet, notebook, array) = make(Policy::Mirror, 2);
    // Sent to both servers, and never flushed.
    let blocks: Vec<u8> = (0..200).flat_map(|block| fill(2, block)).collect();
    let room = blocks.len().min(array.geometry().size as usize);
    array.write(0, &blocks[..room]).unwrap();
    fleet.arm_death(0);
    assert!(array.flush().is_err());
    fleet.revive_client();
    drop(array);
    let array = Array::open(fleet.clone(), options(&notebook)).unwrap();
    let before = versions(&array);
    assert!(before.contains(&2));
    fleet.restart_without_unflushed(0);
    fleet.set_trouble(1, Trouble::Down);
    assert_eq!(versions(&array), before);
}

#[test]
fn a_copy_that_is_wrong_is_put_right_whichever_it_is() {
    let (fleet, _, array) = make(Policy::Mirror, 2);
    let blocks = whole(2);
    array.write(0, &blocks).unwrap();
    array.flush().unwrap();
    let mut found = vec![0; blocks.len()];
    let mut repaired_from_both = 0;
    for block in 0..BLOCKS {
        let mut repaired = [false; 2];
        for (wrong, repaired) in repaired.iter_mut().enumerate() {
            let before = array.status().repaired;
            assert_eq!(fleet.damage(wrong, &fill(2, block)[..64]), 1);
            // A long read uses both servers; its first block decides which server supplies a block.
            for first in 0..BLOCKS as usize {
                let bytes = &mut found[first * BLOCK..];
                array.read((first * BLOCK) as u64, bytes).unwrap();
                assert!(*bytes == blocks[first * BLOCK..], "server {wrong}, from block {first}");
            }
            *repaired = array.status().repaired > before;
            if !*repaired {
                // Turns the bit back.
                fleet.damage(wrong, &fill(2, block)[..64]);
            }
        }
        repaired_from_both += u32::from(repaired == [true; 2]);
    }
    assert!(repaired_from_both > 0);
}

/// Small flushes to a full array, whose blocks are later packed from memory. At the `calls`-th call
/// all servers lose power. Returns whether that happened, and the number of packed blocks.
pub fn packed(policy: Policy, servers: usize, calls: u64, seed: u64) -> (bool, u64) {
    const FLUSHES: u64 = 90;
    let context = format!("{policy} on {servers}, {calls} calls, seed {seed}");
    let (fleet, notebook, array) = make_with(policy, servers, seed);
    let blocks = array.geometry().size / BLOCK as u64;
    let all: Vec<u8> = (0..blocks).flat_map(|block| fill(1, block)).collect();
    array.write(0, &all).unwrap();
    array.flush().unwrap();
    // From here on space is short.
    let mut flushed = vec![1; blocks as usize];
    let mut version = 1;
    let mut one = |array: &Array<_>, flushed: &mut Vec<u64>| {
        version += 1;
        let block = version * 37 % blocks;
        let done =
            array.write(block * BLOCK as u64, &fill(version, block)).and_then(|()| array.flush());
        let before = flushed[block as usize];
        flushed[block as usize] = version;
        done.map_err(|_| (block, before, version))
    };
    while array.status().segments.0 > 6 {
        one(&array, &mut flushed).unwrap();
    }
    fleet.arm_death(calls);
    let cut = (0..FLUSHES).find_map(|_| one(&array, &mut flushed).err());
    let (died, packed) = (fleet.is_dead(), array.status().packed);
    drop(array);
    (0..servers).for_each(|server| fleet.restart_flushed(server));
    fleet.revive_client();
    let next = Array::open(fleet.clone(), options(&notebook)).expect(&context);
    let mut found = vec![0; BLOCK];
    for block in 0..blocks {
        next.read(block * BLOCK as u64, &mut found).expect(&context);
        let newest = flushed[block as usize];
        // A write in flight may be there or not.
        let older =
            cut.and_then(|(cut, before, _)| (cut == block).then_some(before)).unwrap_or(newest);
        assert!(
            found == fill(newest, block) || found == fill(older, block),
            "{context}: block {block} is neither {older} nor {newest}"
        );
    }
    assert!(next.lost().is_empty(), "{context}: {:?} are lost", next.lost());
    (died, packed)
}

/// Policies with stripes that can be partly filled.
pub const STRIPED: [(Policy, usize); 3] =
    [(Policy::None, 2), (Policy::Parity, 3), (Policy::Erasure { data: 2, parity: 2 }, 4)];

#[test]
fn what_is_packed_from_memory_survives_the_power_of_all_servers() {
    for (policy, servers) in STRIPED {
        let mut cuts = 0;
        for calls in (0..).step_by(7) {
            let (died, packed) = packed(policy, servers, calls, 1 + calls % 4);
            cuts += 1;
            if !died {
                assert!(packed > 50, "{policy}: {packed} blocks");
                break;
            }
        }
        assert!(cuts > 40, "{policy}: {cuts}");
    }
}
