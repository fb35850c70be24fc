//! Every transaction mask with every kind of medium and every profile of operations.
//!
//! Worlds draw their masks, and operations change them. So a run of seeds meets many masks, but
//! which ones is unknown. Here each seed is one combination, in turn: no event at all, each event
//! alone, the default, all events. The mask stays.

use std::collections::BTreeMap;
use std::fmt;

use steadfast::TransactionMask;

use crate::medium::MediumProfile;
use crate::powercut::PowercutTally;
use crate::world::{Extras, Profile, World};

/// A mask with its name, and with the group under which it is counted.
#[derive(Debug, Clone, Copy)]
pub struct Mask {
    /// Name of the event, or of the set.
    pub name: &'static str,
    /// Row of the table.
    pub group: &'static str,
    /// The transaction mask.
    pub mask: TransactionMask,
}

/// Every mask of a sweep.
pub fn masks() -> Vec<Mask> {
    let whole = |name, mask| Mask { name, group: name, mask };
    let single = TransactionMask::NAMES.iter().map(|(name, mask)| Mask {
        name,
        group: "one event",
        mask: *mask,
    });
    [
        whole("none", TransactionMask::MANUAL),
        whole("default", TransactionMask::DEFAULT),
        whole("all", TransactionMask::ALL),
    ]
    .into_iter()
    .chain(single)
    .collect()
}

/// The combination of one seed.
#[derive(Debug, Clone, Copy)]
pub struct Combination {
    /// Which operations are likely.
    pub profile: (&'static str, Profile),
    /// What a cut may leave.
    pub medium: MediumProfile,
    /// The transaction mask.
    pub mask: Mask,
}

/// The number of combinations: this many successive seeds meet each one once.
pub fn count() -> u64 {
    (Profile::ALL.len() * MediumProfile::ALL.len() * masks().len()) as u64
}

impl Combination {
    /// The combination of a seed.
    pub fn of_seed(seed: u64) -> Combination {
        let masks = masks();
        let mut rest = seed % count();
        let mut digit = |base: usize| {
            let digit = (rest % base as u64) as usize;
            rest /= base as u64;
            digit
        };
        Combination {
            profile: Profile::ALL[digit(Profile::ALL.len())],
            medium: MediumProfile::ALL[digit(MediumProfile::ALL.len())],
            mask: masks[digit(masks.len())],
        }
    }

    /// The world of a seed: everything except these three properties is drawn from it.
    pub fn world(&self, seed: u64) -> World {
        let mut world = World::new(seed, self.profile.1).on(self.medium).with_extras();
        world.extras = Extras { fixed_mask: true, ..world.extras };
        world.with_mask(self.mask.mask)
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy, Default)]
struct SweepRow {
    tally: PowercutTally,
    violations: u64,
    /// Seconds of the threads that ran it.
    seconds: f64,
}

impl SweepRow {
    fn add(&mut self, tally: &PowercutTally, violations: u64, seconds: f64) {
        self.tally.add(tally);
        self.violations += violations;
        self.seconds += seconds;
    }
}

/// Counts of a sweep.
#[derive(Debug, Default)]
pub struct Table {
    cells: BTreeMap<[&'static str; 3], SweepRow>,
    masks: BTreeMap<&'static str, SweepRow>,
    media: BTreeMap<&'static str, SweepRow>,
    profiles: BTreeMap<&'static str, SweepRow>,
}

impl Table {
    /// Adds a sequence that took this many seconds.
    pub fn add(
        &mut self,
        combination: &Combination,
        tally: &PowercutTally,
        violated: bool,
        seconds: f64,
    ) {
        let Combination { profile: (profile, _), medium, mask } = combination;
        let rows = [
            self.cells.entry([*profile, medium.name, mask.group]).or_default(),
            self.masks.entry(mask.name).or_default(),
            self.media.entry(medium.name).or_default(),
            self.profiles.entry(*profile).or_default(),
        ];
        for row in rows {
            row.add(tally, u64::from(violated), seconds);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, words: [&str; 3], row: &SweepRow| {
            let SweepRow { tally, violations, seconds } = row;
            writeln!(
                f,
                "{:13} {:10} {:12} {:>9} {:>10} {:>10} {:>8.0}",
                words[0],
                words[1],
                words[2],
                tally.sequences,
                tally.cuts,
                violations,
                tally.cuts as f64 / seconds.max(0.001)
            )
        };
        writeln!(
            f,
            "profile       medium     mask         sequences       cuts violations   cuts/s"
        )?;
        for (words, found) in &self.cells {
            row(f, *words, found)?;
        }
        writeln!(f, "\nby profile, by medium, by mask")?;
        for (name, found) in &self.profiles {
            row(f, [name, "", ""], found)?;
        }
        for (name, found) in &self.media {
            row(f, ["", name, ""], found)?;
        }
        for (name, found) in &self.masks {
            row(f, ["", "", name], found)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_many_seeds_as_there_are_combinations_meet_each_once() {
        let name = |seed| {
            let Combination { profile, medium, mask } = Combination::of_seed(seed);
            (profile.0, medium.name, mask.name)
        };
        let names: BTreeSet<_> = (0..count()).map(name).collect();
        assert_eq!(names.len() as u64, count());
        assert_eq!(name(3), name(3 + count()));
        let masks: BTreeSet<u32> = masks().iter().map(|mask| mask.mask.0).collect();
        assert_eq!(masks.len(), TransactionMask::NAMES.len() + 3);
    }

    #[test]
    fn the_mask_stays_and_every_row_counts() {
        let mut table = Table::default();
        let combination = Combination::of_seed(7);
        let world = combination.world(7);
        assert_eq!(world.format.mask, combination.mask.mask);
        assert!(world.extras.fixed_mask);
        let tally = PowercutTally { sequences: 1, cuts: 10, ..PowercutTally::default() };
        table.add(&combination, &tally, true, 2.0);
        let text = table.to_string();
        assert_eq!(text.matches(" 1         10          1        5").count(), 4, "{text}");
    }
}
