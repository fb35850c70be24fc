//! The volume against the model: random operations, and power cuts at every I/O.
//!
//! Longer runs: `STEADFAST_SEEDS=0..5000` (sequences with power cuts), `STEADFAST_CASES=20000` (property tests).

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use steadfast::TransactionMask;
use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};
use steadfast_lab::generate::operation;
use steadfast_lab::minimise::minimise;
use steadfast_lab::operation::{Change, Make, Name, Operation, Place};
use steadfast_lab::powercut::{Effort, Script, Tally, torture};
use steadfast_lab::sabotage::{Bug, Sabotaged};
use steadfast_lab::subject::LabVolume;
use steadfast_lab::tape::Lie;
use steadfast_lab::world::{Profile, World};

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

/// Runs seeds of one profile and reports the first violation with its shortest sequence.
fn run(profile: Profile, seeds: std::ops::Range<u64>, effort: &Effort) {
    let mut tally = Tally::default();
    for seed in seeds {
        let world = World::new(seed, profile);
        if let Err(found) = torture::<LabVolume>(&world, &Script::Drawn, effort, &mut tally) {
            let mut best = *found;
            let end = best.operations.len().min(effort.operations);
            minimise(&best.operations.clone()[..end], 60, |operations| {
                let script = Script::Given(operations.to_vec());
                torture::<LabVolume>(&world, &script, effort, &mut Tally::default())
                    .map_err(|violation| best = *violation)
                    .is_err()
            });
            panic!("{world}\n{best}");
        }
    }
    println!("{profile:?}: {tally:?}");
}

/// Without power cuts: many operations, every answer compared.
const STRAIGHT: Effort = Effort { operations: 400, cuts: Some(0), survivals: 0, recovery_cuts: [0, 0, 0] };
/// With cuts at every I/O, and in the recovery.
const CUTS: Effort = Effort { operations: 40, cuts: Some(120), survivals: 2, recovery_cuts: [1, 1, 1] };

macro_rules! profiles {
    ($($name:ident, $cuts:ident: $profile:expr;)*) => {$(
        #[test]
        fn $name() {
            run($profile, seeds(0..150), &STRAIGHT);
        }

        #[test]
        fn $cuts() {
            run($profile, seeds(1000..1040), &CUTS);
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

/// Shrinking property test with cuts at a few I/Os of each case.
#[test]
fn any_operations_agree_with_the_model() {
    let config = Config { cases: cases(400), failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (any::<u64>(), proptest::collection::vec(operation(), 1..40));
    let effort = Effort { operations: 0, cuts: Some(6), survivals: 1, recovery_cuts: [1, 0, 0] };
    let result = runner.run(&strategy, |(seed, operations)| {
        let world = World::new(seed, Profile::Mixed);
        torture::<LabVolume>(&world, &Script::Given(operations), &effort, &mut Tally::default())
            .map_err(|violation| TestCaseError::fail(format!("{world}\n{violation}")))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A small set of files, and every operation over it that differs in kind.
fn alphabet() -> Vec<Operation> {
    let path = |names: &[u8]| Place::Path(names.iter().map(|name| Name(*name)).collect());
    let root = || path(&[]);
    let create = |directory, name, make| Operation::Create {
        directory,
        name: Name(name),
        make,
        permissions: 0o644,
        caller: 0,
    };
    let rename = |from, to, mode| Operation::Rename {
        from: root(),
        from_name: Name(from),
        to: root(),
        to_name: Name(to),
        mode,
    };
    let size =
        |place, size| Operation::Set { place, change: Change { size: Some(size), ..Change::default() } };
    let write = |place, offset, length| Operation::Write { place, offset, length, fill: 77, sync: false };
    let allocate = |offset, length, mode| Operation::Allocate { place: path(&[0]), offset, length, mode };
    vec![
        create(root(), 5, Make::Regular),
        create(path(&[2]), 5, Make::Directory),
        create(root(), 5, Make::Symlink(700)),
        Operation::Link { from: path(&[0]), directory: path(&[2]), name: Name(5) },
        Operation::Unlink { directory: root(), name: Name(0) },
        Operation::Unlink { directory: root(), name: Name(1) },
        Operation::RemoveDirectory { directory: root(), name: Name(3) },
        rename(0, 1, RenameMode::Replace),
        rename(0, 5, RenameMode::NoReplace),
        rename(0, 2, RenameMode::Exchange),
        rename(2, 3, RenameMode::Replace),
        Operation::Rename {
            from: root(),
            from_name: Name(2),
            to: path(&[3]),
            to_name: Name(5),
            mode: RenameMode::Replace,
        },
        size(path(&[0]), 0),
        size(path(&[0]), 5_001),
        size(path(&[1]), 3_000),
        write(path(&[0]), 0, 1_000),
        write(path(&[0]), 900, 9_000),
        write(path(&[1]), 4_096, 10),
        Operation::Append { place: path(&[1]), length: 700, fill: 78, sync: false },
        allocate(500, 3_000, AllocateMode::PunchHole),
        allocate(500, 9_000, AllocateMode::ZeroRange { keep_size: false }),
        allocate(3_000, 9_000, AllocateMode::Allocate { keep_size: true }),
        Operation::CopyRange {
            from: path(&[0]),
            from_offset: 0,
            to: path(&[1]),
            to_offset: 100,
            length: 5_000,
        },
        Operation::SetXattr { place: path(&[0]), name: 0, length: 300, fill: 79, mode: SetXattrMode::Any },
        Operation::Acquire { place: path(&[0]), slot: 0 },
        Operation::CreateUnnamed { directory: root(), slot: 1, caller: 0 },
        Operation::Transact,
        Operation::Checkpoint,
        Operation::Rollback,
        Operation::Background { advance_ms: 10_000 },
    ]
}

/// The files that the alphabet is about: `a` small, `b` of several blocks, `c` and `d` directories, `c/e` a file.
fn prelude() -> Vec<Operation> {
    let root = || Place::Path(Vec::new());
    let create = |directory, name, make| Operation::Create {
        directory,
        name: Name(name),
        make,
        permissions: 0o755,
        caller: 0,
    };
    let write = |name, length| Operation::Write {
        place: Place::Path(vec![Name(name)]),
        offset: 0,
        length,
        fill: 70 + u32::from(name),
        sync: false,
    };
    vec![
        create(root(), 0, Make::Regular),
        create(root(), 1, Make::Regular),
        create(root(), 2, Make::Directory),
        create(root(), 3, Make::Directory),
        create(Place::Path(vec![Name(2)]), 4, Make::Regular),
        write(0, 100),
        write(1, 6_000),
        Operation::Checkpoint,
    ]
}

/// Every sequence of one and of two operations over a small set of files, each followed by a transaction point, with a
/// power cut at every I/O.
#[test]
fn every_short_sequence_survives_every_power_cut() {
    let effort = Effort { operations: 0, cuts: None, survivals: 1, recovery_cuts: [0, 0, 0] };
    let mut tally = Tally::default();
    let alphabet = alphabet();
    let share = seeds(0..1).end.max(1);
    for (first_index, first) in alphabet.iter().enumerate() {
        for second_index in 0..=alphabet.len() {
            let second = alphabet.get(second_index);
            // CI runs one pair in eight; a longer run all of them.
            if second.is_some() && share == 1 && (first_index * 31 + second_index) % 8 != 0 {
                continue;
            }
            let mut operations = prelude();
            operations.push(first.clone());
            operations.extend(second.cloned());
            operations.push(Operation::Transact);
            let mut world = World::plain(first_index as u64, TransactionMask::DEFAULT);
            if second_index % 2 == 1 {
                world.format.log_size = Some(0);
            }
            let script = Script::Given(operations);
            if let Err(violation) = torture::<LabVolume>(&world, &script, &effort, &mut tally) {
                panic!("{world}\n{violation}");
            }
        }
    }
    println!("{tally:?}");
}

#[test]
fn a_medium_that_lies_is_found() {
    let effort = Effort { operations: 60, cuts: Some(60), survivals: 3, recovery_cuts: [0, 0, 0] };
    let found = (0..40).any(|seed| {
        let sound = World::new(seed, Profile::Mixed);
        let lying = World { lie: Lie::Flush, ..sound.clone() };
        let fails =
            |world| torture::<LabVolume>(world, &Script::Drawn, &effort, &mut Tally::default()).is_err();
        fails(&lying) && !fails(&sound)
    });
    assert!(found, "a flush that does nothing goes unnoticed");
}

#[test]
fn every_planted_bug_is_found() {
    let effort = Effort { operations: 100, cuts: Some(60), survivals: 1, recovery_cuts: [0, 0, 0] };
    for bug in Bug::ALL {
        let found = (0..60).any(|seed| {
            let sound = World::new(seed, Profile::ALL[(seed % 5) as usize].1);
            let buggy = World { bug, ..sound.clone() };
            let fails = |world| {
                let mut tally = Tally::default();
                torture::<Sabotaged<LabVolume>>(world, &Script::Drawn, &effort, &mut tally).is_err()
            };
            fails(&buggy) && !fails(&sound)
        });
        assert!(found, "{bug:?} goes unnoticed");
    }
}
