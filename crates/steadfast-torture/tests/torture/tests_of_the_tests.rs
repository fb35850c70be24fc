//! Tests of the tests: a correct toy passes, and every flawed toy and every lying medium is found.

use steadfast_torture::bug::Bug;
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, Violation, torture};
use steadfast_torture::sabotage::Sabotaged;
use steadfast_torture::subject::Subject;
use steadfast_torture::tape::Lie;
use steadfast_torture::toy::{self, Toy};
use steadfast_torture::world::{Profile, World};

const EFFORT: CutEffort =
    CutEffort { operations: 60, cuts: None, survivals: 2, recovery_cuts: [2, 1, 0] };

fn hunt<S: Subject>(seeds: std::ops::Range<u64>, shape: impl Fn(&mut World)) -> Option<Violation> {
    let mut tally = PowercutTally::default();
    for seed in seeds {
        let mut world = World::new(seed, Profile::ALL[(seed % 5) as usize].1);
        world.size = world.size.min(1 << 20);
        shape(&mut world);
        if let Err(violation) = torture::<S>(&world, &Script::Drawn, &EFFORT, &mut tally) {
            return Some(*violation);
        }
    }
    println!("{tally:?}");
    None
}

#[test]
fn the_sound_toy_passes() {
    if let Some(violation) = hunt::<Toy<{ toy::SOUND }>>(0..20, |_| {}) {
        panic!("{violation}");
    }
}

#[test]
fn every_flaw_of_the_toy_is_found() {
    assert!(hunt::<Toy<{ toy::NO_FLUSH_BEFORE_SLOT }>>(0..20, |_| {}).is_some());
    assert!(hunt::<Toy<{ toy::NO_FLUSH_AFTER_SLOT }>>(0..20, |_| {}).is_some());
    assert!(hunt::<Toy<{ toy::ONE_SLOT }>>(0..20, |_| {}).is_some());
    assert!(hunt::<Toy<{ toy::TORN_BODY_ACCEPTED }>>(0..20, |_| {}).is_some());
    assert!(hunt::<Toy<{ toy::RECOVERY_DESTROYS }>>(0..20, |_| {}).is_some());
    assert!(hunt::<Toy<{ toy::BACKGROUND_COMMITS }>>(0..20, |_| {}).is_some());
}

#[test]
fn a_medium_that_lies_about_flushes_is_found() {
    let violation = hunt::<Toy<{ toy::SOUND }>>(0..20, |world| world.lie = Lie::Flush);
    let violation = violation.expect("a flush that does nothing goes unnoticed");
    assert!(!violation.cuts.is_empty(), "{violation}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = hunt::<Sabotaged<Toy<{ toy::SOUND }>>>(0..40, |world| world.bug = bug);
        assert!(found.is_some(), "{bug:?} goes unnoticed");
    }
}
