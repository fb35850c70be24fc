//! Bounded exhaustive workloads: *every* short sequence over a small set of files. It is run with
//! every persistence call after every operation, and a power cut at every I/O.
//!
//! The method is that of "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing"
//! (OSDI 2018). According to it, nearly all reported crash-consistency bugs need at most three
//! operations on an almost new file system.
//!
//! The bounds are those of the paper. There are few files ([`files`]), and operations have few but
//! telling arguments ([`Alphabet`]). A persistence call or none ([`Persistence`]) follows each, and
//! one comes at the end. The paper cuts the power only after the last call. Here the cut comes at
//! every I/O from the last operation on; earlier cuts belong to a shorter sequence.
//!
//! There would be billions of sequences of three operations. So they are pruned twice, as in the
//! paper. First, only letters that affect each other remain. Second, only [calls](Calls) that
//! differ in more than their name remain, unless all are requested. On this file system a
//! persistence call makes the whole volume durable or does nothing.
//!
//! Sequences are numbered, so that a run can be split into shards, and a sequence can be run again
//! by its number.

mod alphabet;
mod persistence;

use steadfast::TransactionMask;

pub use alphabet::{Alphabet, Element, files};
pub use persistence::Persistence;

use crate::medium::MediumProfile;
use crate::operation::Operation;
use crate::powercut::{
    CutEffort, JudgedImages, PowercutTally, Script, Start, Violation, torture_from,
};
use crate::subject::Subject;
use crate::world::World;

/// The persistence calls after the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Every call.
    All,
    /// The calls that differ in more than their name.
    Few,
}

/// A transaction mask, and the calls that are useful with it.
#[derive(Debug, Clone, Copy)]
struct Regime {
    name: &'static str,
    mask: TransactionMask,
    /// Calls after all operations but the last.
    between: &'static [Persistence],
    /// Calls after the last operation.
    last: &'static [Persistence],
    /// The same for [`Calls::Few`].
    few_between: &'static [Persistence],
    few_last: &'static [Persistence],
}

impl Regime {
    fn between(&self, calls: Calls) -> &'static [Persistence] {
        if calls == Calls::All { self.between } else { self.few_between }
    }

    fn last(&self, calls: Calls) -> &'static [Persistence] {
        if calls == Calls::All { self.last } else { self.few_last }
    }
}

const REGIMES: [Regime; 3] = [
    Regime {
        name: "calls",
        mask: TransactionMask(
            TransactionMask::SYNC_WRITE.0
                | TransactionMask::CLOSE.0
                | TransactionMask::FSYNC.0
                | TransactionMask::SYNC.0
                | TransactionMask::UNMOUNT.0
                | TransactionMask::VOLUME_FULL.0,
        ),
        between: &Persistence::ALL,
        last: &Persistence::CALLS,
        few_between: &[Persistence::None, Persistence::FsyncTouched],
        few_last: &[Persistence::FsyncTouched, Persistence::SyncWrite],
    },
    // The application decides: fsync must not set a transaction point.
    Regime {
        name: "manual",
        mask: TransactionMask::MANUAL,
        between: &[Persistence::None, Persistence::Transact],
        last: &[Persistence::Transact, Persistence::FsyncTouched],
        few_between: &[Persistence::None, Persistence::Transact],
        few_last: &[Persistence::Transact],
    },
    // Every operation is a separate transaction point.
    Regime {
        name: "every",
        mask: TransactionMask(TransactionMask::ALL.0 & !TransactionMask::TIMER.0),
        between: &[Persistence::None],
        last: &[Persistence::None],
        few_between: &[Persistence::None],
        few_last: &[Persistence::None],
    },
];

/// The intent log: the default size, or none.
const LOGS: [(&str, Option<u64>); 2] = [("log", None), ("no log", Some(0))];

/// All sequences of one length.
#[derive(Debug)]
pub struct Bounded {
    length: usize,
    calls: Calls,
    alphabets: Vec<Alphabet>,
    medium: MediumProfile,
    /// The starts of the sequences, one for each regime and log.
    starts: Vec<(World, Start)>,
}

/// One sequence.
#[derive(Debug)]
pub struct Sequence {
    /// Its operations, as text.
    pub name: String,
    /// The operations, persistence calls included.
    pub operations: Vec<Operation>,
    /// Number of the first operation of the last element. Cuts begin there.
    pub from: usize,
    /// Index of the start with which it begins.
    start: usize,
}

impl Bounded {
    /// All sequences of `length` operations with these calls on such a medium. The length is 1 to
    /// 3; sequences of three use the pruned alphabet.
    ///
    /// # Errors
    /// The length is out of range, or the files cannot be made.
    pub fn new<S: Subject>(
        length: usize,
        calls: Calls,
        medium: MediumProfile,
    ) -> Result<Bounded, String> {
        if !(1..=3).contains(&length) {
            return Err(format!(
                "sequences of {length} operations are not enumerated, only of 1, 2 and 3"
            ));
        }
        // Each position writes different bytes, so that a lost second write shows.
        let alphabets = (0..length).map(|position| Alphabet::new(position, length == 3)).collect();
        let mut starts = Vec::new();
        for regime in REGIMES {
            for (_, log_size) in LOGS {
                let mut world = World::plain(0, regime.mask);
                world.format.log_size = log_size;
                let world = world.on(medium);
                let empty =
                    Start::format::<S>(&world)?.ok_or("the medium is too small for a volume")?;
                let start = empty.after::<S>(&world, &files())?;
                starts.push((world, start));
            }
        }
        Ok(Bounded { length, calls, alphabets, medium, starts })
    }

    fn count_of(&self, regime: &Regime) -> u64 {
        let elements: u64 =
            self.alphabets.iter().map(|alphabet| alphabet.elements().len() as u64).product();
        let (between, last) =
            (regime.between(self.calls).len() as u64, regime.last(self.calls).len() as u64);
        elements * between.pow(self.length as u32 - 1) * last
    }

    /// The number of sequences.
    pub fn count(&self) -> u64 {
        REGIMES.iter().map(|regime| self.count_of(regime)).sum::<u64>() * LOGS.len() as u64
    }

    /// Sequence number `index`; `None` from [`count`](Self::count) on.
    pub fn sequence(&self, index: u64) -> Option<Sequence> {
        let (log, mut rest) = ((index % LOGS.len() as u64) as usize, index / LOGS.len() as u64);
        let mut at = 0;
        while rest >= self.count_of(REGIMES.get(at)?) {
            rest -= self.count_of(REGIMES.get(at)?);
            at += 1;
        }
        let regime = REGIMES.get(at)?;
        let mut digit = |base: usize| {
            let digit = (rest % base as u64) as usize;
            rest /= base as u64;
            digit
        };
        let mut sequence = Sequence {
            name: format!("{}, {}, {}:", self.medium.name, regime.name, LOGS[log].0),
            operations: Vec::new(),
            from: 0,
            start: at * LOGS.len() + log,
        };
        for (position, alphabet) in self.alphabets.iter().enumerate() {
            let is_last = position + 1 == self.length;
            let calls = if is_last { regime.last(self.calls) } else { regime.between(self.calls) };
            let call = calls[digit(calls.len())];
            let element = &alphabet.elements()[digit(alphabet.elements().len())];
            sequence.from = sequence.operations.len();
            sequence.operations.extend(element.operations.iter().cloned());
            sequence.operations.extend(call.operations(element));
            sequence.name += &format!(" {} + {call:?};", element.name);
        }
        Some(sequence)
    }

    /// Runs a sequence with a cut at every I/O.
    ///
    /// # Errors
    /// The first violation.
    pub fn run<S: Subject>(
        &self,
        index: u64,
        sequence: &Sequence,
        effort: &CutEffort,
        seen: &mut JudgedImages,
        tally: &mut PowercutTally,
    ) -> Result<(), Box<Violation>> {
        let Some((world, start)) = self.starts.get(sequence.start) else { return Ok(()) };
        let world = World { seed: index, ..world.clone() };
        let script = Script::Given(sequence.operations.clone());
        torture_from::<S>(&world, start, &script, sequence.from, effort, seen, tally)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::subject::LabVolume;

    #[test]
    fn every_number_is_a_sequence_of_its_own() {
        let one = Bounded::new::<LabVolume>(1, Calls::All, MediumProfile::SECTOR).unwrap();
        let names: BTreeSet<String> =
            (0..one.count()).map(|index| one.sequence(index).unwrap().name).collect();
        assert_eq!(names.len() as u64, one.count());
        assert!(one.sequence(one.count()).is_none());
        let two = Bounded::new::<LabVolume>(2, Calls::All, MediumProfile::SECTOR).unwrap();
        assert!(two.sequence(two.count() - 1).is_some() && two.sequence(two.count()).is_none());
        let three = Bounded::new::<LabVolume>(3, Calls::Few, MediumProfile::SECTOR).unwrap();
        assert_eq!(three.count(), 25 * 25 * 25 * (2 * 2 * 2 + 2 * 2 + 1) * 2);
        assert!(Bounded::new::<LabVolume>(4, Calls::All, MediumProfile::SECTOR).is_err());
    }
}
