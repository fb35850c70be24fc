//! A violation as the user gets it: named by its world, as short as possible, ready to be replayed.
//!
//! One seed is one world, and the cuts in it are drawn from it too. So a [`RunName`] is enough to
//! reproduce a violation. No sequence has to be stored, and the replay finds the same shortest
//! sequence.

use std::fmt;
use std::str::FromStr;

use crate::bug::Bug;
use crate::medium::MediumProfile;
use crate::minimise::minimise;
use crate::powercut::{CutEffort, PowercutTally, Script, Violation, torture};
use crate::subject::{LabVolume, Subject};
use crate::tape::Lie;
use crate::world::{Profile, World};

/// Cuts and operations of one seed, equal in every campaign of this version: a seed must mean the
/// same run everywhere. The numbers are small, so that many worlds are tried and a run ends soon
/// after a request to stop.
pub const EFFORT: CutEffort =
    CutEffort { operations: 60, cuts: Some(48), survivals: 2, recovery_cuts: [1, 1, 1] };

/// Attempts to leave operations out of a failing sequence.
const ATTEMPTS: usize = 150;

/// The source of a run: `SEED`, `SEED:PROFILE` or `SEED:PROFILE:MEDIUM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunName {
    /// The seed of all random choices.
    pub seed: u64,
    /// Which operations are likely.
    pub profile: Profile,
    /// What a cut may leave on the medium.
    pub medium: MediumProfile,
}

impl RunName {
    /// The run of `seed`. If no profile or no medium is requested, seeds take them in turn.
    pub fn new(seed: u64, profile: Option<Profile>, medium: Option<MediumProfile>) -> RunName {
        let turn = (seed % Profile::ALL.len() as u64) as usize;
        let profile = profile.or_else(|| Profile::ALL.get(turn).map(|(_, profile)| *profile));
        RunName {
            seed,
            profile: profile.unwrap_or(Profile::Mixed),
            medium: medium.unwrap_or_else(|| MediumProfile::of_seed(seed)),
        }
    }

    /// The world of the run, with these faults of the medium and the volume.
    pub fn world(self, lie: Lie, bug: Bug) -> World {
        World { lie, bug, ..World::new(self.seed, self.profile).on(self.medium).with_extras() }
    }
}

/// The name of a profile on the command line and in reports.
pub fn profile_name(profile: Profile) -> &'static str {
    Profile::ALL.iter().find(|(_, known)| *known == profile).map_or("mixed", |(name, _)| name)
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.seed, profile_name(self.profile), self.medium.name)
    }
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<RunName, String> {
        let wrong =
            || format!("'{text}' is not a run: write SEED, SEED:PROFILE or SEED:PROFILE:MEDIUM");
        let mut words = text.split(':');
        let seed = words.next().and_then(|seed| seed.parse().ok()).ok_or_else(wrong)?;
        let profile =
            words.next().map(|word| Profile::from_name(word).ok_or_else(wrong)).transpose()?;
        let medium = words
            .next()
            .map(|word| MediumProfile::from_name(word).ok_or_else(wrong))
            .transpose()?;
        if words.next().is_some() { Err(wrong()) } else { Ok(RunName::new(seed, profile, medium)) }
    }
}

/// A shortened violation.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The run that shows it.
    pub name: RunName,
    /// The world as text: block size, mask and so on.
    pub world: String,
    /// Operations of the sequence when the violation was found.
    pub operations_found: usize,
    /// The violation with the shortest sequence that still fails.
    pub violation: Violation,
}

/// Plays one run.
///
/// # Errors
/// The violation as it was found, not yet shortened.
pub fn play<S: Subject>(world: &World, tally: &mut PowercutTally) -> Result<(), Box<Violation>> {
    torture::<S>(world, &Script::Drawn, &EFFORT, tally)
}

/// Shortens a violation.
pub fn shorten<S: Subject>(name: RunName, world: &World, found: Violation) -> Finding {
    let operations = found.operations.clone();
    // The operations after the sequence itself ran in a recovery.
    let sequence = &operations[..operations.len().min(EFFORT.operations)];
    let mut best = found;
    minimise(sequence, ATTEMPTS, |shorter| {
        let script = Script::Given(shorter.to_vec());
        match torture::<S>(world, &script, &EFFORT, &mut PowercutTally::default()) {
            Err(violation) => {
                best = *violation;
                true
            }
            Ok(()) => false,
        }
    });
    Finding { name, world: world.to_string(), operations_found: sequence.len(), violation: best }
}

/// Replays a run for `--replay`.
pub fn replay(name: RunName, lie: Lie, tally: &mut PowercutTally) -> Option<Finding> {
    let world = name.world(lie, Bug::None);
    let violation = play::<LabVolume>(&world, tally).err()?;
    Some(shorten::<LabVolume>(name, &world, *violation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_read_back() {
        for seed in 0..12 {
            let name = RunName::new(seed, None, None);
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(seed.to_string().parse(), Ok(name), "profile and medium can be left out");
            let part = format!("{seed}:{}", profile_name(name.profile));
            assert_eq!(part.parse(), Ok(name), "the medium can be left out");
        }
        for text in ["", "x", "1:", "1:nothing", "-1", "1:names:2", "1:names:emmc:3"] {
            assert!(text.parse::<RunName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_violation_is_found_again_and_shorter() {
        let mut tally = PowercutTally::default();
        let (name, first) = (0..20)
            .map(|seed| RunName::new(seed, None, None))
            .find_map(|name| Some((name, replay(name, Lie::Flush, &mut tally)?)))
            .expect("a medium that lies is found");
        let again = replay(name, Lie::Flush, &mut tally).expect("the same run shows the same");
        assert_eq!(first.violation.what, again.violation.what);
        assert_eq!(first.violation.operations, again.violation.operations);
        assert!(first.violation.operations.len() <= first.operations_found + 5);
    }
}
