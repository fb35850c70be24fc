//! Does the campaign find what it is there to find?
//!
//! Every lie of a medium and every planted bug between test and volume is played until the first
//! violation. One that stays hidden means that a clean campaign says nothing about faults of its
//! kind.

use super::finding::{Finding, Name, play, shorten};
use crate::powercut::Tally;
use crate::sabotage::{Bug, Sabotaged};
use crate::subject::{LabVolume, Subject};
use crate::tape::Lie;

/// Seeds within which each fault must be found.
pub const SEEDS_MAX: u64 = 40;

/// A fault on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The medium breaks a promise.
    Medium(Lie),
    /// The volume breaks one.
    Volume(Bug),
}

/// What became of a planted fault.
#[derive(Debug, Clone)]
pub struct Caught {
    /// The fault.
    pub planted: Planted,
    /// Seeds played, the one that showed it included.
    pub seeds: u64,
    /// Power cuts until then.
    pub cuts: u64,
    /// The violation; none when the fault went unnoticed.
    pub finding: Option<Finding>,
}

impl Planted {
    /// Every fault that must be found.
    pub fn all() -> Vec<Planted> {
        let volume = Bug::ALL.into_iter().map(Planted::Volume);
        std::iter::once(Planted::Medium(Lie::Flush)).chain(volume).collect()
    }

    /// In words.
    pub fn text(self) -> String {
        match self {
            Planted::Medium(Lie::None) => "nothing".to_owned(),
            Planted::Medium(Lie::Flush) => "the medium's flushes do nothing".to_owned(),
            Planted::Medium(Lie::Fua) => "the medium's forced writes are ordinary ones".to_owned(),
            Planted::Volume(bug) => format!("a bug in the volume: {bug:?}"),
        }
    }
}

/// Plays seeds from `first_seed` on until the fault shows. Its sequence is shortened only where
/// `short` says so.
pub fn hunt(planted: Planted, first_seed: u64, short: bool) -> Caught {
    match planted {
        Planted::Medium(lie) => hunt_in::<LabVolume>(planted, lie, Bug::None, first_seed, short),
        Planted::Volume(bug) => {
            hunt_in::<Sabotaged<LabVolume>>(planted, Lie::None, bug, first_seed, short)
        }
    }
}

fn hunt_in<S: Subject>(
    planted: Planted,
    lie: Lie,
    bug: Bug,
    first_seed: u64,
    short: bool,
) -> Caught {
    let mut tally = Tally::default();
    for seeds in 1..=SEEDS_MAX {
        let name = Name::new(first_seed.wrapping_add(seeds - 1), None, None);
        let world = name.world(lie, bug);
        if let Err(violation) = play::<S>(&world, &mut tally) {
            let finding = if short {
                shorten::<S>(name, &world, *violation)
            } else {
                let operations_found = violation.operations.len();
                Finding { name, world: world.to_string(), operations_found, violation: *violation }
            };
            return Caught { planted, seeds, cuts: tally.cuts, finding: Some(finding) };
        }
    }
    Caught { planted, seeds: SEEDS_MAX, cuts: tally.cuts, finding: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_fault_is_caught() {
        for planted in Planted::all() {
            let caught = hunt(planted, 0, false);
            assert!(caught.finding.is_some(), "{} goes unnoticed", planted.text());
        }
    }
}
