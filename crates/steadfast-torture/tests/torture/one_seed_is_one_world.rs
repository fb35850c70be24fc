//! The same seed gives the same operations, answers, I/Os, cuts and verdicts. Another seed gives
//! others.

use std::collections::BTreeSet;

use steadfast_torture::medium::MediumProfile;
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, torture};
use steadfast_torture::subject::LabVolume;
use steadfast_torture::world::{Profile, World};

const EFFORT: CutEffort =
    CutEffort { operations: 40, cuts: Some(10), survivals: 2, recovery_cuts: [1, 1, 1] };

fn run(seed: u64) -> PowercutTally {
    let medium = MediumProfile::ALL[(seed % 6) as usize];
    let world = World::new(seed, Profile::ALL[(seed % 5) as usize].1).on(medium);
    let mut tally = PowercutTally::default();
    if let Err(violation) = torture::<LabVolume>(&world, &Script::Drawn, &EFFORT, &mut tally) {
        panic!("{world}\n{violation}");
    }
    tally
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_another() {
    let mut digests = BTreeSet::new();
    for seed in 0..12 {
        let (one, two) = (run(seed), run(seed));
        assert_eq!(one.digest, two.digest, "seed {seed} is not one world: {one} / {two}");
        assert!(digests.insert(one.digest), "seed {seed} has the digest of another");
        assert!(one.cuts > 0 || one.too_small > 0, "seed {seed}: {one}");
    }
}

/// Threads of the harness, and earlier work in the process, have no influence.
#[test]
fn a_digest_does_not_depend_on_what_runs_beside() {
    let alone = run(3).digest;
    let beside: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| run(3).digest)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    assert_eq!(beside, [alone, alone]);
}
