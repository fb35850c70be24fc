//! The volume against the model: random operations, and power cuts at every I/O.
//!
//! Longer runs: `STEADFAST_SEEDS=0..5000` (sequences with power cuts), `STEADFAST_CASES=20000`
//! (property tests).

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use steadfast_torture::bounded::{Bounded, Calls};
use steadfast_torture::bug::Bug;
use steadfast_torture::generate::operation;
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::minimise::minimise;
use steadfast_torture::powercut::{CutEffort, JudgedImages, PowercutTally, Script, torture};
use steadfast_torture::sabotage::Sabotaged;
use steadfast_torture::subject::LabVolume;
use steadfast_torture::tape::Lie;
use steadfast_torture::world::{Profile, World};

/// The seeds to run: from the environment, or the fixed ones of CI.
fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    std::env::var("STEADFAST_SEEDS")
        .ok()
        .and_then(|text| {
            let (from, to) = text.split_once("..")?;
            Some(from.parse().ok()?..to.parse().ok()?)
        })
        .unwrap_or(default)
}

fn cases(default: u32) -> u32 {
    std::env::var("STEADFAST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs seeds of one profile, and reports the first violation with its shortest sequence.
fn run(profile: Profile, seeds: std::ops::Range<u64>, effort: &CutEffort) {
    let mut tally = PowercutTally::default();
    for seed in seeds {
        let world = World::new(seed, profile).on(MediumProfile::of_seed(seed)).with_extras();
        if let Err(found) = torture::<LabVolume>(&world, &Script::Drawn, effort, &mut tally) {
            let mut best = *found;
            let end = best.operations.len().min(effort.operations);
            minimise(&best.operations.clone()[..end], 60, |operations| {
                let script = Script::Given(operations.to_vec());
                torture::<LabVolume>(&world, &script, effort, &mut PowercutTally::default())
                    .map_err(|violation| best = *violation)
                    .is_err()
            });
            panic!("{world}\n{best}");
        }
    }
    println!("{profile:?}: {tally:?}");
}

/// Without power cuts: many operations, every answer compared.
const STRAIGHT: CutEffort =
    CutEffort { operations: 400, cuts: Some(0), survivals: 0, recovery_cuts: [0, 0, 0] };
/// With cuts at every I/O, and in the recovery.
const CUTS: CutEffort =
    CutEffort { operations: 40, cuts: Some(120), survivals: 2, recovery_cuts: [1, 1, 1] };

macro_rules! profiles {
    ($($name:ident, $cuts:ident: $profile:expr;)*) => {$(
        #[test]
        fn $name() {
            run($profile, seeds(0..60), &STRAIGHT);
        }

        #[test]
        fn $cuts() {
            run($profile, seeds(1000..1020), &CUTS);
        }
    )*};
}

profiles! {
    mixed_operations_agree_with_the_model, mixed_operations_survive_power_cuts: Profile::Mixed;
    names_agree_with_the_model, names_survive_power_cuts: Profile::Names;
    data_agrees_with_the_model, data_survives_power_cuts: Profile::Data;
    a_full_volume_agrees_with_the_model, a_full_volume_survives_power_cuts: Profile::Full;
    transactions_agree_with_the_model, transactions_survive_power_cuts: Profile::Transactions;
}

/// Sequences long enough that the log changes more nodes than the smallest cache holds.
const LONG: CutEffort =
    CutEffort { operations: 500, cuts: Some(40), survivals: 2, recovery_cuts: [2, 1, 1] };

#[test]
fn replays_that_write_nodes_out_survive_power_cuts() {
    for profile in [Profile::Mixed, Profile::Names, Profile::Data] {
        let mut tally = PowercutTally::default();
        for seed in seeds(2000..2004) {
            let world = World::new(seed, profile).with_little_memory();
            let run = torture::<LabVolume>(&world, &Script::Drawn, &LONG, &mut tally);
            run.unwrap_or_else(|violation| panic!("{world}\n{violation}"));
        }
        println!("{profile:?}: {tally:?}");
    }
}

/// A shrinking property test, with cuts at a few I/Os of each case.
#[test]
fn any_operations_agree_with_the_model() {
    let config = Config { cases: cases(200), failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (any::<u64>(), proptest::collection::vec(operation(), 1..40));
    let effort = CutEffort { operations: 0, cuts: Some(6), survivals: 1, recovery_cuts: [1, 0, 0] };
    let result = runner.run(&strategy, |(seed, operations)| {
        let world = World::new(seed, Profile::Mixed);
        torture::<LabVolume>(
            &world,
            &Script::Given(operations),
            &effort,
            &mut PowercutTally::default(),
        )
        .map_err(|violation| TestCaseError::fail(format!("{world}\n{violation}")))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Every sequence of one operation over a small set of files, with every persistence call and a
/// power cut at every I/O. Sequences of two and three operations are sampled. The `bounded` command
/// runs them all.
#[test]
fn every_short_sequence_survives_every_power_cut() {
    let effort = CutEffort { operations: 0, cuts: None, survivals: 1, recovery_cuts: [0; 3] };
    for (length, calls, every) in [(1, Calls::All, 1), (2, Calls::All, 4099), (3, Calls::Few, 199)]
    {
        let bounded = Bounded::new::<LabVolume>(length, calls, MediumProfile::SECTOR).unwrap();
        let (mut seen, mut tally) = (JudgedImages::default(), PowercutTally::default());
        for index in (0..bounded.count()).step_by(every) {
            let sequence = bounded.sequence(index).unwrap();
            let run = bounded.run::<LabVolume>(index, &sequence, &effort, &mut seen, &mut tally);
            if let Err(violation) = run {
                panic!("{index} {}\n{violation}", sequence.name);
            }
        }
        println!("length {length}: {} enumerated, {tally}", bounded.count());
    }
}

#[test]
fn a_medium_that_lies_is_found() {
    let effort =
        CutEffort { operations: 60, cuts: Some(60), survivals: 3, recovery_cuts: [0, 0, 0] };
    let found = (0..40).any(|seed| {
        let sound = World::new(seed, Profile::Mixed);
        let lying = World { lie: Lie::Flush, ..sound.clone() };
        let fails = |world| {
            torture::<LabVolume>(world, &Script::Drawn, &effort, &mut PowercutTally::default())
                .is_err()
        };
        fails(&lying) && !fails(&sound)
    });
    assert!(found, "a flush that does nothing goes unnoticed");
}

#[test]
fn every_planted_bug_is_found() {
    let effort =
        CutEffort { operations: 100, cuts: Some(60), survivals: 1, recovery_cuts: [0, 0, 0] };
    for bug in Bug::ALL {
        let found = (0..60).any(|seed| {
            let sound = World::new(seed, Profile::ALL[(seed % 5) as usize].1);
            let buggy = World { bug, ..sound.clone() };
            let fails = |world| {
                let mut tally = PowercutTally::default();
                torture::<Sabotaged<LabVolume>>(world, &Script::Drawn, &effort, &mut tally).is_err()
            };
            fails(&buggy) && !fails(&sound)
        });
        assert!(found, "{bug:?} goes unnoticed");
    }
}
