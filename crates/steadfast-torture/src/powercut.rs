//! Power cuts. A sequence runs once on the recording medium. Then the power is cut at its every
//! I/O, and again while the volume recovers.
//!
//! After each cut the volume must open, be in a state that the [`Ledger`](crate::ledger::Ledger)
//! allows, accept further operations, commit them, and pass its own check. A violation of any of
//! these is a finding, and so is a panic.

mod judge;
mod seen;
mod start;
mod tally;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cut::Survival;
use crate::image::Image;
use crate::operation::Operation;
use crate::subject::Subject;
use crate::tape::Event;
use crate::world::World;

use judge::{Judge, Stage};
pub use seen::JudgedImages;
pub use start::Start;
pub use tally::PowercutTally;

/// The number and kind of cuts.
#[derive(Debug, Clone, Copy)]
pub struct CutEffort {
    /// Operations in a sequence.
    pub operations: usize,
    /// Cuts tried in the sequence; `None`: at every I/O.
    pub cuts: Option<usize>,
    /// Random choices of surviving writes at each cut, in addition to the fixed ones.
    pub survivals: usize,
    /// Cuts tried in each recovery, in the recovery from that, and so on.
    pub recovery_cuts: [usize; 3],
}

/// A finding: the broken promise, and how to reproduce it.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What happened, as text.
    pub what: String,
    /// The operations up to the violation.
    pub operations: Vec<Operation>,
    /// The cuts up to the violation; empty if the volume failed without any.
    pub cuts: Vec<(usize, Survival)>,
    /// The I/Os up to each cut; the last one was in flight.
    pub events: Vec<Vec<Event>>,
    /// The medium before the failing run: after the last cut, or freshly formatted.
    pub image: Option<Image>,
}

impl Violation {
    /// A violation before the first cut.
    pub fn new(what: String) -> Violation {
        Violation {
            what,
            operations: Vec::new(),
            cuts: Vec::new(),
            events: Vec::new(),
            image: None,
        }
    }
}

/// I/Os printed before each cut.
const EVENTS_SHOWN: usize = 16;

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.what)?;
        for ((event, survival), events) in self.cuts.iter().zip(&self.events) {
            writeln!(
                f,
                "  after a power cut at I/O {event}, surviving: {survival:?}; the I/Os before it:"
            )?;
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

/// The operations of a run: drawn during the run, or given.
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
    effort: &CutEffort,
    tally: &mut PowercutTally,
) -> Result<(), Box<Violation>> {
    match Start::format::<S>(world) {
        Ok(Some(start)) => {
            torture_from::<S>(world, &start, script, 0, effort, &mut JudgedImages::default(), tally)
        }
        Ok(None) => {
            tally.too_small += 1;
            Ok(())
        }
        Err(what) => {
            // A volume that cannot be made is a world that was tried.
            tally.sequences += 1;
            Err(Box::new(Violation::new(what)))
        }
    }
}

/// Runs one sequence on an existing volume, and cuts the power in it from operation number `from`
/// on. Images in `seen` are not judged again.
///
/// # Errors
/// The first violation.
pub fn torture_from<S: Subject>(
    world: &World,
    start: &Start,
    script: &Script,
    from: usize,
    effort: &CutEffort,
    seen: &mut JudgedImages,
    tally: &mut PowercutTally,
) -> Result<(), Box<Violation>> {
    let mut judge = Judge::new(world, start, effort, seen, tally);
    judge.tally.sequences += 1;
    let stage = Stage::Sequence { script, from };
    let result = judge.run::<S>(
        start.image.clone(),
        std::slice::from_ref(&start.point),
        start.tick,
        stage,
        None,
    );
    judge.finish();
    result
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
