//! Every request of a run fails once. Longer: `STEADFAST_SEEDS=0..2000`.

use steadfast_torture::faults::{FaultEffort, FaultTally, strike_all};
use steadfast_torture::tape::Discards;
use steadfast_torture::world::{Extras, Profile, World};

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    std::env::var("STEADFAST_SEEDS")
        .ok()
        .and_then(|text| {
            let (from, to) = text.split_once("..")?;
            Some(from.parse().ok()?..to.parse().ok()?)
        })
        .unwrap_or(default)
}

/// Small volumes with the smallest cache, so that operations read from the medium.
fn world(seed: u64, profile: Profile) -> World {
    let mut world = World::new(seed, profile);
    world.cache_size = 0;
    world.size = world.size.min(1 << 20).max(64 * u64::from(world.format.block_size));
    world
}

fn strike(profile: Profile, seeds: std::ops::Range<u64>) {
    strike_with(profile, Extras::default(), seeds);
}

/// Worlds that hold more than files.
fn strike_with(profile: Profile, extras: Extras, seeds: std::ops::Range<u64>) {
    let effort = FaultEffort { before: 120, operations: 24, requests: 60 };
    let mut tally = FaultTally::default();
    for seed in seeds {
        let mut world = World { extras, ..world(seed, profile) };
        // A medium that asks for discards sees failing ones.
        let wanted =
            [Discards::Never, Discards::AfterCheckpoints, Discards::Never, Discards::Early];
        world.discards = wanted[seed as usize % 4];
        if extras.resizes {
            world.format.size = Some(world.size / 8 * (3 + seed % 6));
        }
        if let Err(what) = strike_all(&world, &effort, &mut tally) {
            panic!("{what}");
        }
    }
    println!("{profile:?}: {tally:?}");
    assert!(tally.struck > 0 && tally.refused > 0 && tally.read_only > 0);
}

#[test]
fn faults_among_all_operations() {
    strike(Profile::Mixed, seeds(0..8));
}

/// The log changes more nodes than the cache holds, so that a replay writes, and a write of it
/// fails.
#[test]
fn faults_among_replays_that_write_nodes_out() {
    let effort = FaultEffort { before: 500, operations: 24, requests: 60 };
    let mut tally = FaultTally::default();
    for seed in seeds(600..603) {
        let world = World::new(seed, Profile::Transactions).with_little_memory();
        if let Err(what) = strike_all(&world, &effort, &mut tally) {
            panic!("{what}");
        }
    }
    println!("{tally:?}");
    assert!(tally.struck > 0 && tally.refused > 0 && tally.read_only > 0);
}

#[test]
fn faults_among_names() {
    strike(Profile::Names, seeds(100..106));
}

#[test]
fn faults_among_data() {
    strike(Profile::Data, seeds(200..206));
}

#[test]
fn faults_on_a_full_volume() {
    strike(Profile::Full, seeds(300..306));
}

#[test]
fn faults_among_transactions() {
    strike(Profile::Transactions, seeds(400..406));
}

#[test]
fn faults_among_snapshots() {
    let extras = Extras { snapshots: true, ..Extras::default() };
    strike_with(Profile::Transactions, extras, seeds(400..406));
    strike_with(Profile::Mixed, extras, seeds(500..506));
}

#[test]
fn faults_among_atomic_commands() {
    let extras = Extras { holds: true, ..Extras::default() };
    strike_with(Profile::Transactions, extras, seeds(600..606));
}

#[test]
fn faults_while_the_size_changes() {
    let extras = Extras { resizes: true, ..Extras::default() };
    strike_with(Profile::Mixed, extras, seeds(700..706));
}

#[test]
fn faults_among_everything() {
    let extras = Extras { snapshots: true, holds: true, resizes: true, ..Extras::default() };
    strike_with(Profile::Transactions, extras, seeds(800..804));
}
