//! Power cuts: a sequence is run once on the recording medium, then the power is cut at its every I/O, and again while
//! the volume recovers from that.
//!
//! After each cut the volume must open, be in a state that the [`Ledger`] allows, take further operations, commit them,
//! and pass its own check. A violation of any of these is a finding, and so is a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::cut::{Cutter, Survival};
use crate::generate::Generator;
use crate::image::Image;
use crate::ledger::{Ledger, Point};
use crate::model::State;
use crate::operation::{Operation, Place};
use crate::platform::Clock;
use crate::random::Random;
use crate::session::Session;
use crate::subject::Subject;
use crate::tape::{Event, Tape};
use crate::world::World;

/// How thoroughly cuts are tried.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Operations in a sequence.
    pub operations: usize,
    /// Cuts tried in the sequence; `None`: at every I/O.
    pub cuts: Option<usize>,
    /// Random choices of what survives at each cut, beside the fixed ones.
    pub survivals: usize,
    /// Cuts tried in each recovery, and in the recovery from that, and so on.
    pub recovery_cuts: [usize; 2],
}

/// What was found: the promise that was broken, and how to see it again.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What happened, in words.
    pub what: String,
    /// The operations up to it.
    pub operations: Vec<Operation>,
    /// The cuts up to it; none where the volume went wrong without any.
    pub cuts: Vec<(usize, Survival)>,
    /// For each cut the I/Os up to it, the last one in flight.
    pub events: Vec<Vec<Event>>,
    /// The medium before the run that went wrong: after the last cut, or freshly formatted.
    pub image: Option<Image>,
}

/// I/Os before each cut that are printed.
const EVENTS_SHOWN: usize = 16;

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.what)?;
        for ((event, survival), events) in self.cuts.iter().zip(&self.events) {
            writeln!(f, "  after a power cut at I/O {event}, surviving: {survival:?}; the I/Os before it:")?;
            let skipped = events.len().saturating_sub(EVENTS_SHOWN);
            for (index, event) in events.iter().enumerate().skip(skipped) {
                writeln!(f, "    {index} {event}")?;
            }
        }
        write!(f, "  operations:")?;
        for operation in &self.operations {
            write!(f, "\n    {operation:?},")?;
        }
        Ok(())
    }
}

/// How much was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Sequences.
    pub sequences: u64,
    /// Operations of the sequences.
    pub operations: u64,
    /// Power cuts (images after a cut that were opened and judged).
    pub cuts: u64,
    /// Of these, cuts during the recovery from a cut.
    pub recovery_cuts: u64,
    /// Operations that found no space.
    pub no_space: u64,
    /// Images that kept something of what was in flight: a later point than the last acknowledged one.
    pub later_points: u64,
    /// Worlds whose medium is too small for a volume.
    pub too_small: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.sequences += other.sequences;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.recovery_cuts += other.recovery_cuts;
        self.no_space += other.no_space;
        self.later_points += other.later_points;
        self.too_small += other.too_small;
    }
}

/// The operations of a run: drawn as it goes, or given.
#[derive(Debug, Clone)]
pub enum Script {
    /// Drawn by seed.
    Drawn,
    /// These.
    Given(Vec<Operation>),
}

/// Runs one sequence in one world and cuts the power in it.
///
/// # Errors
/// The first violation.
pub fn torture<S: Subject>(
    world: &World,
    script: &Script,
    effort: &Effort,
    tally: &mut Tally,
) -> Result<(), Box<Violation>> {
    let blame = |what: String| {
        Box::new(Violation {
            what,
            operations: Vec::new(),
            cuts: Vec::new(),
            events: Vec::new(),
            image: None,
        })
    };
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, world.lie);
    match guard(|| S::format(world, &tape, &clock)) {
        Ok(Ok(())) => {}
        Ok(Err(steadfast::Error::VolumeTooSmall { .. })) => {
            tally.too_small += 1;
            return Ok(());
        }
        Ok(Err(error)) => return Err(blame(format!("format: {error}"))),
        Err(panic) => return Err(blame(format!("format panics: {panic}"))),
    }
    let start = Point {
        state: Arc::new(State::empty(clock.now())),
        label: "the empty volume".to_owned(),
        begun: 0,
        acknowledged: Some(0),
    };
    let mut judge = Judge { world, effort, tally, random: Random::new(world.seed).fork(2) };
    judge.tally.sequences += 1;
    judge.run::<S>(tape.image(), &[start], 1, Stage::Sequence(script))
}

/// Where in the recursion a run is.
#[derive(Clone, Copy)]
enum Stage<'s> {
    /// The sequence itself.
    Sequence(&'s Script),
    /// After so many power cuts, the last of which interrupted these operations.
    Recovery(usize, &'s [Operation]),
}

struct Judge<'a> {
    world: &'a World,
    effort: &'a Effort,
    tally: &'a mut Tally,
    random: Random,
}

/// What a run leaves: the tape and the states that cuts in it may leave.
struct Recorded {
    tape: Tape,
    ledger: Ledger,
    /// Events up to which the volume was being opened; until then the states allowed are those from before.
    opened: usize,
    found: usize,
    tick: u64,
    operations: Vec<Operation>,
    /// Number of events on the tape when each operation began.
    begun: Vec<usize>,
    no_space: u64,
}

impl Recorded {
    /// The operation that a cut at event `cut` interrupts, and the one after it.
    fn interrupted(&self, cut: usize) -> &[Operation] {
        let first = self.begun.partition_point(|begun| *begun <= cut).saturating_sub(1);
        &self.operations[first..self.operations.len().min(first + 2)]
    }
}

impl Judge<'_> {
    /// Opens `image`, which is in one of the `allowed` states, works on it, and cuts the power in that.
    fn run<S: Subject>(
        &mut self,
        image: Image,
        allowed: &[Point],
        tick: u64,
        stage: Stage<'_>,
    ) -> Result<(), Box<Violation>> {
        let recorded = self.record::<S>(image.clone(), allowed, tick, stage)?;
        let (cuts, survivals) = match stage {
            Stage::Sequence(_) => {
                self.tally.operations += recorded.operations.len() as u64;
                self.tally.no_space += recorded.no_space;
                (self.effort.cuts, self.effort.survivals)
            }
            Stage::Recovery(depth, _) => {
                self.tally.later_points += u64::from(recorded.found > 0);
                (Some(self.effort.recovery_cuts.get(depth - 1).copied().unwrap_or(0)), 1)
            }
        };
        let next = match stage {
            Stage::Sequence(_) => 1,
            Stage::Recovery(depth, _) => depth + 1,
        };
        let events = recorded.tape.events();
        let mut at: Vec<usize> = match cuts {
            None => (0..=events.len()).collect(),
            Some(count) if count > events.len() => (0..=events.len()).collect(),
            Some(count) => (0..count).map(|_| self.random.index(events.len() + 1)).collect(),
        };
        at.sort_unstable();
        let mut cutter = Cutter::new(image, &events, self.world.atomic_unit);
        for cut in at {
            cutter.advance(cut);
            let mut choices: Vec<Survival> = match stage {
                Stage::Sequence(_) => Survival::FIXED.to_vec(),
                Stage::Recovery(..) => vec![Survival::Nothing],
            };
            choices.extend((0..survivals).map(|_| Survival::random(&mut self.random)));
            if cutter.is_settled() {
                choices.truncate(1);
            }
            for survival in choices {
                self.tally.cuts += 1;
                self.tally.recovery_cuts += u64::from(next > 1);
                // While the volume was opening it had not yet said which state it found, but what a recovery finds may
                // not depend on how often it was interrupted.
                let left = if cut < recorded.opened {
                    &allowed[recorded.found..=recorded.found]
                } else {
                    recorded.ledger.allowed(cut)
                };
                let stage = Stage::Recovery(next, recorded.interrupted(cut));
                self.run::<S>(cutter.image(survival), left, recorded.tick, stage).map_err(
                    |mut violation| {
                        violation.cuts.insert(0, (cut, survival));
                        violation.events.insert(0, events[..events.len().min(cut + 1)].to_vec());
                        violation.operations.splice(0..0, recorded.operations.iter().cloned());
                        violation
                    },
                )?;
            }
        }
        Ok(())
    }

    fn record<S: Subject>(
        &mut self,
        image: Image,
        allowed: &[Point],
        tick: u64,
        stage: Stage<'_>,
    ) -> Result<Recorded, Box<Violation>> {
        let mut operations = Vec::new();
        let before = image.clone();
        let what = match guard(|| self.record_inner::<S>(image, allowed, tick, stage, &mut operations)) {
            Ok(Ok(mut recorded)) => {
                recorded.operations = operations;
                return Ok(recorded);
            }
            Ok(Err(what)) => what,
            Err(panic) => format!("panic: {panic}"),
        };
        Err(Box::new(Violation {
            what,
            operations,
            cuts: Vec::new(),
            events: Vec::new(),
            image: Some(before),
        }))
    }

    fn record_inner<S: Subject>(
        &mut self,
        image: Image,
        allowed: &[Point],
        tick: u64,
        stage: Stage<'_>,
        operations: &mut Vec<Operation>,
    ) -> Result<Recorded, String> {
        let clock = Clock::default();
        let tape = Tape::new(image, self.world.atomic_unit, self.world.lie);
        if let Stage::Recovery(..) = stage {
            S::check(self.world, &tape, &clock).map_err(|what| format!("check after the cut: {what}"))?;
        }
        let (mut session, found) = Session::<S>::open(self.world, &tape, &clock, tick, allowed)?;
        let opened = tape.position();
        let mut begun = Vec::new();
        let mut step = |session: &mut Session<'_, S>, operation: Operation| {
            begun.push(tape.position());
            operations.push(operation.clone());
            session.step(&operation)
        };
        match stage {
            Stage::Sequence(Script::Given(given)) => {
                for operation in given {
                    step(&mut session, operation.clone())?;
                }
            }
            Stage::Sequence(Script::Drawn) => {
                let mut generator = Generator::new(self.world, 3);
                for _ in 0..self.effort.operations {
                    let operation = generator.next(&session.model);
                    step(&mut session, operation)?;
                }
            }
            Stage::Recovery(_, interrupted) => {
                // The volume must work on: counts add up, something new can be done, committed and found again.
                session.compare_counts()?;
                let mut generator = Generator::new(self.world, self.random.bits());
                if self.random.chance(1, 2) {
                    // As a program that tries again what the cut interrupted: the same bytes go to the same places, and
                    // may complete what the first try has left torn.
                    for operation in interrupted {
                        step(&mut session, operation.clone())?;
                    }
                } else {
                    for _ in 0..self.random.below(3) {
                        let operation = generator.next(&session.model);
                        step(&mut session, operation)?;
                    }
                }
                for operation in [
                    Operation::Fsync { place: Place::Path(Vec::new()), data_only: false },
                    Operation::Transact,
                    Operation::Remount { clean: self.random.chance(1, 2) },
                ] {
                    step(&mut session, operation)?;
                }
            }
        }
        session.compare()?;
        let (tick, no_space) = (session.tick(), session.no_space);
        let ledger = session.abandon();
        S::check(self.world, &tape, &clock).map_err(|what| format!("check: {what}"))?;
        let operations = Vec::new();
        Ok(Recorded { tape, ledger, opened, found, tick, operations, begun, no_space })
    }
}

/// Runs `work` and turns a panic into its message.
pub(crate) fn guard<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a value that is no text".to_owned())
    })
}
