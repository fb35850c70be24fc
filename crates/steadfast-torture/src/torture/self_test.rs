//! Tests whether the campaign finds the faults that it should find.
//!
//! Every lie of a medium, and every bug planted between test and volume, is played until the first
//! violation. If a fault stays hidden, a clean campaign proves nothing about faults of its kind.

use super::finding::{Finding, RunName, play, shorten};
use crate::bug::Bug;
use crate::powercut::PowercutTally;
use crate::sabotage::Sabotaged;
use crate::subject::{LabVolume, Subject};
use crate::tape::Lie;

/// Number of seeds within which each fault must be found.
pub const SEEDS_MAX: u64 = 40;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The medium breaks a promise.
    Medium(Lie),
    /// The volume breaks a promise.
    Volume(Bug),
}

/// The result of a planted fault.
#[derive(Debug, Clone)]
pub struct Caught {
    /// The fault.
    pub planted: Planted,
    /// Seeds played, including the one that showed the fault.
    pub seeds: u64,
    /// Power cuts so far.
    pub cuts: u64,
    /// The violation; `None` if the fault went unnoticed.
    pub finding: Option<Finding>,
}

impl Planted {
    /// Every fault that must be found.
    pub fn all() -> Vec<Planted> {
        let volume = Bug::ALL.into_iter().map(Planted::Volume);
        std::iter::once(Planted::Medium(Lie::Flush)).chain(volume).collect()
    }

    /// The fault as text.
    pub fn text(self) -> String {
        match self {
            Planted::Medium(Lie::None) => "nothing".to_owned(),
            Planted::Medium(Lie::Flush) => "the medium's flushes do nothing".to_owned(),
            Planted::Medium(Lie::Fua) => "the medium's forced writes are ordinary ones".to_owned(),
            Planted::Volume(bug) => format!("a bug in the volume: {bug:?}"),
        }
    }
}

/// Plays seeds from `first_seed` on until the fault shows. Shortens its sequence only if `short` is
/// set.
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
    let mut tally = PowercutTally::default();
    for seeds in 1..=SEEDS_MAX {
        let name = RunName::new(first_seed.wrapping_add(seeds - 1), None, None);
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
