//! The judge: opens the image after a cut, compares it, continues to work, and cuts again.

use super::{CutEffort, JudgedImages, PowercutTally, Script, Start, Violation, guard};
use crate::cut::{Cutter, Survival};
use crate::digest::Digest;
use crate::generate::Generator;
use crate::image::Image;
use crate::ledger::{Ledger, Point};
use crate::operation::{Operation, Place};
use crate::platform::Clock;
use crate::random::Random;
use crate::schedule::Scheduler;
use crate::session::{Brought, Session, Survivor, Tellings};
use crate::subject::Subject;
use crate::tape::Tape;
use crate::world::World;

/// The position of a run in the recursion.
#[derive(Clone, Copy)]
pub(super) enum Stage<'s> {
    /// The sequence itself; cuts begin with operation number `from`.
    Sequence { script: &'s Script, from: usize },
    /// A run after this many power cuts, the last of which interrupted these operations.
    Recovery(usize, &'s [Operation]),
}

impl Stage<'_> {
    /// The number of cuts before this run.
    fn depth(&self) -> usize {
        match self {
            Stage::Sequence { .. } => 0,
            Stage::Recovery(depth, _) => *depth,
        }
    }
}

/// Judges one sequence.
pub(super) struct Judge<'a> {
    world: &'a World,
    start: &'a Start,
    effort: &'a CutEffort,
    seen: &'a mut JudgedImages,
    pub tally: &'a mut PowercutTally,
    random: Random,
    digest: Digest,
}

/// The result of a run: the tape, and the states that cuts in it may leave.
struct Recorded {
    tape: Tape,
    ledger: Ledger,
    tellings: Tellings,
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

/// The points that a volume may be at which is opened with what a node keeps. Without the node it
/// would be at one of those in `left`.
fn allowed_after(told: &Survivor<'_>, left: &[Point]) -> Vec<Point> {
    let Some(point) = told.point else { return left.to_vec() };
    let at = point.begun;
    if left.first().is_some_and(|acknowledged| acknowledged.begun >= at) {
        return left.to_vec();
    }
    let later = left.iter().filter(|point| told.ending || point.begun >= at);
    let mut allowed: Vec<Point> = later.cloned().collect();
    allowed.insert(0, point.clone());
    allowed
}

impl<'a> Judge<'a> {
    pub fn new(
        world: &'a World,
        start: &'a Start,
        effort: &'a CutEffort,
        seen: &'a mut JudgedImages,
        tally: &'a mut PowercutTally,
    ) -> Judge<'a> {
        let random = Random::new(world.seed).fork(2);
        Judge { world, start, effort, seen, tally, random, digest: Digest::default() }
    }

    /// Adds the digest of the run to the tally.
    pub fn finish(self) {
        self.tally.digest = self.tally.digest.wrapping_add(self.digest.value() as u64);
    }

    /// Opens `image` with what other nodes keep, works on it, and cuts the power during that. It is
    /// in one of the `allowed` states then. Without the nodes it is in one of those beside them.
    pub fn run<S: Subject>(
        &mut self,
        image: Image,
        allowed: &[Point],
        tick: u64,
        stage: Stage<'_>,
        brought: Option<Brought<'_>>,
    ) -> Result<(), Box<Violation>> {
        let recorded = self.record::<S>(image.clone(), allowed, tick, stage, brought)?;
        let depth = stage.depth();
        let (cuts, survivals, first) = match stage {
            Stage::Sequence { from, .. } => {
                self.tally.operations += recorded.operations.len() as u64;
                self.tally.no_space += recorded.no_space;
                let first =
                    if from == 0 { 0 } else { recorded.begun.get(from).copied().unwrap_or(0) };
                (self.effort.cuts, self.effort.survivals, first)
            }
            Stage::Recovery(..) => {
                self.tally.later_points += u64::from(recorded.found > 0);
                (Some(self.effort.recovery_cuts.get(depth - 1).copied().unwrap_or(0)), 1, 0)
            }
        };
        if cuts == Some(0) {
            return Ok(());
        }
        let events = recorded.tape.events();
        let places = events.len() + 1 - first;
        let mut at: Vec<usize> = match cuts {
            Some(count) if count < places => {
                (0..count).map(|_| first + self.random.index(places)).collect()
            }
            _ => (first..=events.len()).collect(),
        };
        at.sort_unstable();
        let mut cutter = Cutter::new(image, &events, self.world.atomic_unit).on(self.world.medium);
        for cut in at {
            cutter.advance(cut);
            let mut choices: Vec<Survival> = match stage {
                Stage::Sequence { .. } => Survival::FIXED.to_vec(),
                Stage::Recovery(..) => vec![Survival::Nothing],
            };
            choices.extend(
                (0..survivals).map(|_| Survival::random(&mut self.random, &self.world.medium)),
            );
            if cutter.is_settled() {
                choices.truncate(1);
            }
            for survival in choices {
                // During the opening that is the state that it finds: the result of a recovery must
                // not depend on how often it was interrupted.
                let left = recorded.ledger.allowed(cut);
                let told = recorded.tellings.at(cut).filter(|_| self.random.chance(3, 4));
                let with_told = told.as_ref().map(|told| allowed_after(told, left));
                let allowed = with_told.as_deref().unwrap_or(left);
                let image = cutter.image(survival);
                let kept = told.as_ref().map_or(&[][..], |told| &told.kept);
                if !self.seen.is_new(&image, &self.start.image, allowed, kept) {
                    self.tally.repeated += 1;
                    continue;
                }
                self.tally.cuts += 1;
                self.tally.recovery_cuts += u64::from(depth > 0);
                if let Some(count) =
                    depth.checked_sub(1).and_then(|at| self.tally.deep_cuts.get_mut(at))
                {
                    *count += 1;
                }
                self.digest.number(cut as u64).shown(&survival);
                let stage = Stage::Recovery(depth + 1, recorded.interrupted(cut));
                let promised = told.as_ref().is_some_and(|told| told.point.is_some());
                self.tally.told += u64::from(promised);
                let brought = told.as_ref().map(|told| Brought {
                    deltas: kept,
                    without: left,
                    told: told.point.filter(|_| !told.ending),
                });
                let run = self.run::<S>(image, allowed, recorded.tick, stage, brought);
                run.map_err(|mut violation| {
                    violation.cuts.insert(0, (cut, survival));
                    violation.events.insert(0, events[..events.len().min(cut + 1)].to_vec());
                    violation.operations.splice(0..0, recorded.operations.iter().cloned());
                    violation
                })?;
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
        brought: Option<Brought<'_>>,
    ) -> Result<Recorded, Box<Violation>> {
        let mut operations = Vec::new();
        let before = image.clone();
        let what = match guard(|| {
            self.record_inner::<S>(image, (allowed, brought), tick, stage, &mut operations)
        }) {
            Ok(Ok(mut recorded)) => {
                recorded.operations = operations;
                return Ok(recorded);
            }
            Ok(Err(what)) => what,
            Err(panic) => format!("panic: {panic}"),
        };
        self.digest.shown(&what);
        Err(Box::new(Violation { operations, image: Some(before), ..Violation::new(what) }))
    }

    fn record_inner<S: Subject>(
        &mut self,
        image: Image,
        (allowed, brought): (&[Point], Option<Brought<'_>>),
        tick: u64,
        stage: Stage<'_>,
        operations: &mut Vec<Operation>,
    ) -> Result<Recorded, String> {
        let clock = Clock::default();
        let tape = Tape::new(image, self.world.atomic_unit, self.world.lie);
        let tape = tape.wanting_discards(self.world.discards);
        if let Stage::Recovery(..) = stage {
            S::check(self.world, &tape, &clock)
                .map_err(|what| format!("check after the cut: {what}"))?;
        }
        let (mut session, found) =
            Session::<S>::open_after(self.world, &tape, &clock, tick, allowed, brought)?;
        let mut begun = Vec::new();
        let mut step = |session: &mut Session<'_, S>, operation: Operation| {
            begun.push(tape.position());
            operations.push(operation.clone());
            session.step(&operation)
        };
        match stage {
            Stage::Sequence { script: Script::Given(given), .. } => {
                for operation in given {
                    step(&mut session, operation.clone())?;
                }
            }
            Stage::Sequence { script: Script::Drawn, .. } => {
                let mut scheduler = Scheduler::new(self.world);
                // Space that a full volume has refused must become usable again.
                let mut refill = Vec::new();
                for _ in 0..self.effort.operations {
                    let again = refill.pop();
                    let drawn = again.is_none();
                    let operation = again.unwrap_or_else(|| scheduler.next(&session.model));
                    let refused = session.no_space;
                    step(&mut session, operation)?;
                    if drawn && session.no_space > refused {
                        refill.extend(scheduler.refill(&session.model).into_iter().rev());
                    }
                }
            }
            Stage::Recovery(_, interrupted) => {
                // The volume must continue to work: its counts are consistent, and new changes can
                // be made, committed and found again.
                session.compare_counts()?;
                // The comparison at opening used log and tree together. Counting has replayed the
                // log into the tree, so the tree is compared alone now.
                session.compare()?;
                match self.random.below(16) {
                    // Removes everything; every block must be free again.
                    0 => {
                        session.drain(Some(self.start.nodes_when_new))?;
                        self.tally.emptied += 1;
                    }
                    // This acts as a program that retries what the cut interrupted. The same bytes
                    // go to the same places, and may complete a torn first try.
                    1..8 => {
                        for operation in interrupted {
                            step(&mut session, operation.clone())?;
                        }
                    }
                    _ => {
                        let mut generator = Generator::new(self.world, self.random.bits());
                        for _ in 0..self.random.below(3) {
                            let operation = generator.next(&session.model);
                            step(&mut session, operation)?;
                        }
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
        let (tick, no_space, answers) = (session.tick(), session.no_space, session.digest.value());
        let tellings = std::mem::take(&mut session.tellings);
        let ledger = session.abandon();
        S::check(self.world, &tape, &clock).map_err(|what| format!("check: {what}"))?;
        self.digest
            .number(found as u64)
            .bytes(&answers.to_le_bytes())
            .bytes(&tape.digest().to_le_bytes());
        Ok(Recorded {
            tape,
            ledger,
            tellings,
            found,
            tick,
            operations: Vec::new(),
            begun,
            no_space,
        })
    }
}
