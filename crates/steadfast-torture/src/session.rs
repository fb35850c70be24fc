//! A volume and the model together: every operation runs on both, and their answers are compared.

mod background;
mod call;
mod dispatch;
mod drain;
mod partial;
mod remount;
mod resize;
mod telling;

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast::volume::{KeptDeltas, Reached};
use steadfast::{Error, InodeNumber, TransactionMask};

use crate::compare::{Depth, compare, compare_parameters, compare_snapshots};
use crate::digest::Digest;
use crate::fault::Fault;
use crate::ledger::{Ledger, Point};
use crate::model::{Limits, Model, State};
use crate::operation::{ALL_SLOTS, Operation};
use crate::platform::Clock;
use crate::subject::{Subject, SubjectFacts};
use crate::tape::Tape;
use crate::world::World;

use background::TURNS_MAX;
pub(crate) use call::Attempt;
pub use telling::{Brought, Survivor, Tellings};

/// The result of an operation on which volume and model agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was done.
    Done,
    /// It was correctly refused.
    Refused(Fault),
    /// It names a file that does not exist or no longer exists.
    Skipped,
}

/// An open volume, its model, and the states that a power cut may leave.
pub struct Session<'w, S: Subject> {
    world: &'w World,
    pub(crate) tape: Tape,
    clock: Clock,
    pub(crate) subject: S,
    /// The correct state.
    pub model: Model,
    /// Transaction points so far.
    pub ledger: Ledger,
    slots: [Option<InodeNumber>; ALL_SLOTS],
    /// Inode numbers of this session; a number is never assigned twice.
    numbers: BTreeSet<InodeNumber>,
    tick: u64,
    monotonic_ms: u64,
    /// Time of the oldest change that no transaction point covers.
    pub(crate) dirty_since_ms: Option<u64>,
    /// The state that becomes durable before the snapshot that is being taken.
    snapshot_begins: Option<Point>,
    /// Number of `NoSpace` answers.
    pub no_space: u64,
    /// The states that faults of the medium may have left on it since the last transaction point,
    /// see [`crate::faults`].
    pub(crate) in_flight: Vec<Arc<State>>,
    /// Every operation and its answer.
    pub digest: Digest,
    /// What another node keeps now.
    kept: KeptDeltas,
    /// What it kept when.
    pub tellings: Tellings,
}

impl<'w, S: Subject> Session<'w, S> {
    /// Formats and opens the volume of a world. `None`: the medium is too small for one.
    ///
    /// # Errors
    /// Formatting or opening fails.
    pub fn begin(world: &'w World, tape: &Tape, clock: &Clock) -> Result<Option<Self>, String> {
        match S::format(world, tape, clock) {
            Ok(()) => {}
            Err(Error::VolumeTooSmall { .. }) => return Ok(None),
            Err(error) => return Err(format!("format: {error}")),
        }
        let state = Arc::new(State::empty(clock.now()));
        let start = Point::new(state, "the empty volume".to_owned(), 0, Some(0));
        Session::open(world, tape, clock, 1, &[start]).map(|(session, _)| Some(session))
    }

    /// Opens the volume on `tape` and determines which of the `allowed` states it is in.
    ///
    /// # Errors
    /// The volume does not open or is in none of these states.
    pub fn open(
        world: &'w World,
        tape: &Tape,
        clock: &Clock,
        tick: u64,
        allowed: &[Point],
    ) -> Result<(Self, usize), String> {
        Session::open_after(world, tape, clock, tick, allowed, None)
    }

    /// As [`open`](Self::open), after a power cut that other nodes may have survived.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_after(
        world: &'w World,
        tape: &Tape,
        clock: &Clock,
        tick: u64,
        allowed: &[Point],
        brought: Option<Brought<'_>>,
    ) -> Result<(Self, usize), String> {
        clock.set_tick(tick);
        let kept = brought.map_or(&[][..], |brought| brought.deltas);
        let (subject, reached) = S::open_after(world, tape, clock, kept)
            .map_err(|error| format!("the volume does not open: {error}"))?;
        let told = brought.and_then(|brought| brought.told);
        let told = told.zip(reached.last());
        if let Some((_, Reached::Less)) = told {
            return Err("the volume says that it lacks what a node was told".to_owned());
        }
        let opened = tape.position();
        let limits = limits(&subject);
        let mut differences = String::new();
        // The newest state is tried first, because usually everything in flight has arrived.
        for (index, point) in allowed.iter().enumerate().rev() {
            let mut model = Model::open(point.state.as_ref().clone(), limits, clock.now());
            let compared: Result<(), String> = tape.undisturbed(|| {
                compare(&subject, &model.state, Depth { list_count: 7, seek: true })?;
                compare_snapshots(&subject, world, tape, clock, &model.state)?;
                compare_parameters(&subject, &model.state).or_else(|difference| {
                    // A rollback to a snapshot keeps the mask in force, and may have made it
                    // durable already. None of these states contains that mask.
                    let goes_back = |later: &Point| later.label.contains("SnapshotRollback");
                    if !allowed[index + 1..].iter().any(goes_back) {
                        return Err(difference);
                    }
                    let facts = subject.facts();
                    model.state.mask = model.state.mask.map(|_| facts.mask);
                    model.state.timer_ms = model.state.timer_ms.map(|_| facts.timer_ms);
                    Ok(())
                })
            });
            match compared {
                Ok(()) => {
                    if let Some((told, Reached::Same)) = told {
                        tape.undisturbed(|| {
                            compare(&subject, &told.state, Depth { list_count: 7, seek: true })
                        })
                        .map_err(|difference| {
                            format!("the volume says that it is where a node was: {difference}")
                        })?;
                    }
                    let state = Arc::new(model.state.clone());
                    let ledger = match brought {
                        None => Ledger::new(state),
                        Some(brought) => Ledger::taken(brought.without, state, opened),
                    };
                    let session = Session {
                        world,
                        tape: tape.clone(),
                        clock: clock.clone(),
                        subject,
                        numbers: model.state.nodes().map(|(inode, _)| inode).collect(),
                        model,
                        ledger,
                        slots: [None; ALL_SLOTS],
                        tick,
                        monotonic_ms: 0,
                        dirty_since_ms: None,
                        snapshot_begins: None,
                        no_space: 0,
                        in_flight: Vec::new(),
                        digest: Digest::default(),
                        kept: KeptDeltas::default(),
                        tellings: Tellings::default(),
                    };
                    return Ok((session, index));
                }
                Err(difference) => {
                    differences += &format!("\n    not {}: {difference}", point.label);
                }
            }
        }
        Err(format!("the volume is in none of the states that are allowed:{differences}"))
    }

    /// The tape below the volume.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The time of the last operation.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The file in a slot.
    pub fn slot(&self, slot: u8) -> Option<InodeNumber> {
        self.slots[usize::from(slot) % ALL_SLOTS]
    }

    /// Compares the whole volume with the model.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self) -> Result<(), String> {
        let list_count = 1 + (self.tick % 11) as usize;
        self.tape.undisturbed(|| self.compare_with(&self.model.state, list_count))
    }

    /// Compares the whole volume with a state, listing this many entries at a time, while faults of
    /// the medium are active.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn compare_with(&self, state: &State, list_count: usize) -> Result<(), String> {
        compare(&self.subject, state, Depth { list_count, seek: true })?;
        compare_snapshots(&self.subject, self.world, &self.tape, &self.clock, state)
    }

    /// Compares counts that must be consistent after background work.
    ///
    /// # Errors
    /// The inconsistent counts.
    pub fn compare_counts(&mut self) -> Result<(), String> {
        self.background(0, TURNS_MAX, "background")?;
        let statistics =
            self.subject.statistics().map_err(|error| format!("statistics: {error}"))?;
        let inodes = self.model.state.nodes().count() as u64;
        if statistics.inodes != inodes {
            return Err(format!(
                "statistics count {} inodes, right is {inodes}",
                statistics.inodes
            ));
        }
        if statistics.blocks_free > statistics.blocks
            || statistics.blocks_available > statistics.blocks_free
        {
            return Err(format!("statistics contradict themselves: {statistics:?}"));
        }
        self.check_nothing_unpublished()
    }

    /// Checks that no block is unpublished between two operations.
    pub(crate) fn check_nothing_unpublished(&self) -> Result<(), String> {
        // This call may fail too if the medium fails.
        let unpublished =
            self.subject.statistics().map_or(0, |statistics| statistics.blocks_unpublished);
        if unpublished == 0 {
            Ok(())
        } else {
            Err(format!("{unpublished} blocks are unpublished and nothing is written"))
        }
    }

    /// The number of free blocks, as the volume reports it.
    ///
    /// # Errors
    /// As the facade.
    pub fn blocks_free(&self) -> Result<u64, String> {
        Ok(self.subject.statistics().map_err(|error| format!("statistics: {error}"))?.blocks_free)
    }

    /// Closes the volume. Changes are lost if the mask does not commit at unmount.
    ///
    /// # Errors
    /// The close failed.
    pub fn close(mut self) -> Result<Ledger, String> {
        self.close_subject()?;
        Ok(self.ledger)
    }

    /// Ends without closing, like a killed process.
    pub fn abandon(self) -> Ledger {
        self.ledger
    }

    fn close_subject(&mut self) -> Result<(), String> {
        let (begun, mask) = (self.tape.position(), self.subject.facts().mask);
        self.subject.close().map_err(|error| format!("close: {error}"))?;
        if mask.contains(TransactionMask::UNMOUNT) {
            self.point("close".to_owned(), begun);
        }
        Ok(())
    }

    /// Does one operation on volume and model.
    ///
    /// # Errors
    /// They disagree, or the volume broke a promise.
    pub fn step(&mut self, operation: &Operation) -> Result<Verdict, String> {
        self.tick += 1;
        self.clock.set_tick(self.tick);
        self.model.now = self.clock.now();
        let begun = self.tape.position();
        let verdict = self.dispatch(operation);
        self.digest.shown(operation).shown(&verdict);
        let told = self.tell(operation, begun, matches!(verdict, Ok(Verdict::Done)));
        verdict
            .and_then(|verdict| told.map(|()| verdict))
            .map_err(|what| format!("at {operation:?}: {what}"))
    }

    /// Records the current state as a transaction point that is acknowledged now.
    fn point(&mut self, label: String, begun: usize) {
        let end = self.tape.position();
        if let Some(point) = self.snapshot_begins.take() {
            self.ledger.add(point.state, point.label, point.begun, end);
        }
        self.ledger.add(Arc::new(self.model.state.clone()), label, begun, end);
        self.dirty_since_ms = None;
        self.in_flight.clear();
    }
}

/// The limits, without a call of `statistics`: that call replays the log, and the state before the
/// replay is compared first.
fn limits<S: Subject>(subject: &S) -> Limits {
    let SubjectFacts { name_max, block_size, .. } = subject.facts();
    Limits { name_max, block_size }
}
