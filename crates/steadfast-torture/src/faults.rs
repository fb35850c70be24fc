//! Faults of the medium: every request of a run fails once, and the reaction is judged.
//!
//! The rules:
//! - The caller of the affected operation gets an error. It names the medium, or the reason why the
//!   volume is read-only. No other caller notices anything.
//! - A refused operation has changed nothing. If only the transaction point of a change failed, the
//!   change may be visible without being durable.
//! - A failed read never makes the volume read-only, except in a rollback; then a second rollback
//!   helps.
//! - No caller sees a transient fault, except for a flush, which must not be retried.
//! - After it is opened again, the volume is at the last acknowledged transaction point or at one
//!   that was in flight. `check` is clean, and the volume accepts changes.

mod judge;

use std::sync::Arc;

use steadfast_media::{ErrorClass, MediumOperation};

use crate::generate::Generator;
use crate::image::Image;
use crate::ledger::Point;
use crate::model::State;
use crate::operation::Operation;
use crate::platform::Clock;
use crate::powercut::guard;
use crate::session::Session;
use crate::subject::{LabVolume, Subject};
use crate::tape::{Lie, Tape};
use crate::trouble::{Armed, Lasting};
use crate::world::World;

/// The amount and the outcome of the tries.
#[derive(Debug, Clone, Default)]
pub struct FaultTally {
    /// Worlds.
    pub worlds: u64,
    /// Runs with one fault each.
    pub faults: u64,
    /// Number of these runs in which a request met the fault.
    pub struck: u64,
    /// Operations that were refused because of the fault.
    pub refused: u64,
    /// Runs after which the volume was read-only.
    pub read_only: u64,
}

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct FaultEffort {
    /// Operations that fill the volume beforehand.
    pub before: usize,
    /// Operations during which each request fails in turn.
    pub operations: usize,
    /// Most requests of a kind that fail, evenly spread if there are more.
    pub requests: u64,
}

/// Every way in which a request of this kind can fail.
fn ways(operation: MediumOperation) -> Vec<(ErrorClass, Lasting, bool)> {
    use ErrorClass::{Gone, Permanent, Transient};
    let mut ways = vec![(Permanent, Lasting::Times(1), false), (Gone, Lasting::Gone, false)];
    if operation != MediumOperation::Flush {
        ways.push((Transient, Lasting::Times(2), false));
        ways.push((Permanent, Lasting::Stuck, false));
    }
    if operation == MediumOperation::Write {
        ways.push((Permanent, Lasting::Times(1), true));
    }
    ways
}

/// A volume with files, and the operations that faults will hit.
struct Prepared {
    image: Image,
    state: Arc<State>,
    tick: u64,
    operations: Vec<Operation>,
    /// Reads, writes, flushes and discards of the run without faults.
    counts: [(MediumOperation, u64); 4],
}

/// Fails the requests of one world in turn, in every way.
///
/// # Errors
/// The first violation: the world, the fault, the operations, and what happened.
pub fn strike_all(
    world: &World,
    effort: &FaultEffort,
    tally: &mut FaultTally,
) -> Result<(), String> {
    let Some(prepared) = prepare(world, effort).map_err(|what| format!("{world}: {what}"))? else {
        return Ok(());
    };
    tally.worlds += 1;
    for (operation, count) in prepared.counts {
        let step = count.div_ceil(effort.requests.max(1)).max(1);
        for (class, lasting, torn) in ways(operation) {
            let mut skip = 0;
            while skip < count {
                let armed = Armed { operation, skip, class, lasting, torn };
                strike(world, &prepared, armed, tally).map_err(|what| {
                    let operations: Vec<String> = prepared
                        .operations
                        .iter()
                        .map(|operation| format!("    {operation:?},"))
                        .collect();
                    format!("{world}\n  {armed}: {what}\n  operations:\n{}", operations.join("\n"))
                })?;
                skip += step;
            }
        }
    }
    Ok(())
}

/// Makes one run with one fault.
fn strike(
    world: &World,
    prepared: &Prepared,
    armed: Armed,
    tally: &mut FaultTally,
) -> Result<(), String> {
    let tape = Tape::new(prepared.image.clone(), world.atomic_unit, Lie::None);
    let tape = tape.wanting_discards(world.discards);
    let run = || run(world, &tape, prepared, Some(armed));
    let (refused, read_only) =
        guard(run).unwrap_or_else(|panic| Err(format!("panics: {panic}")))?;
    let struck = tape.all_strikes() > 0;
    tally.faults += 1;
    tally.struck += u64::from(struck);
    tally.refused += refused;
    tally.read_only += u64::from(read_only);
    // Flushes are not retried; a discard is only advice.
    let invisible = match armed.operation {
        MediumOperation::Flush => false,
        MediumOperation::Discard => armed.class != ErrorClass::Gone,
        _ => armed.class == ErrorClass::Transient,
    };
    if invisible && (refused > 0 || read_only) {
        return Err(format!("a {:?} fault of a {:?} was seen", armed.class, armed.operation));
    }
    Ok(())
}

/// Runs the operations and judges each, then opens the volume again without faults. Returns the
/// number of operations that the fault refused, and whether the volume became read-only.
fn run(
    world: &World,
    tape: &Tape,
    prepared: &Prepared,
    armed: Option<Armed>,
) -> Result<(u64, bool), String> {
    let clock = Clock::default();
    let start = Point::new(prepared.state.clone(), "the state before".to_owned(), 0, Some(0));
    let (mut session, _) =
        Session::<LabVolume>::open(world, tape, &clock, prepared.tick, &[start])?;
    tape.arm(armed);
    let (mut refused, mut read_only) = (0, false);
    for operation in &prepared.operations {
        refused += session.step_in_trouble(operation)?;
        read_only |= session.failure().is_some();
    }
    tape.undisturbed(|| {
        session.remount(false)?;
        session.step(&Operation::Checkpoint)?;
        session.compare_counts()?;
        drop(session);
        LabVolume::check(world, tape, &clock)
    })?;
    Ok((refused, read_only))
}

/// Formats and fills the volume, and draws the operations. `None`: the medium is too small for a
/// volume.
fn prepare(world: &World, effort: &FaultEffort) -> Result<Option<Prepared>, String> {
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, Lie::None);
    let tape = tape.wanting_discards(world.discards);
    let Some(mut session) = Session::<LabVolume>::begin(world, &tape, &clock)? else {
        return Ok(None);
    };
    let mut generator = Generator::new(world, 5);
    for _ in 0..effort.before {
        let operation = generator.next(&session.model);
        session.step(&operation)?;
    }
    session.step(&Operation::Checkpoint)?;
    session.step(&Operation::Remount { clean: true })?;
    let (image, state, tick) = (tape.image(), session.ledger.last().state.clone(), session.tick());
    tape.arm(None);
    let mut operations = Vec::new();
    for number in 0..effort.operations {
        let operation = match number % 8 {
            // These operations read the whole volume, or open it.
            3 => Operation::Compare,
            7 => Operation::Remount { clean: number % 16 == 7 },
            1 | 5 if world.extras.snapshots => generator.snapshot(),
            2 if world.extras.holds && !session.model.held => Operation::Begin,
            6 if world.extras.resizes => generator.resize(),
            _ => generator.next(&session.model),
        };
        session.step_in_trouble(&operation)?;
        operations.push(operation);
    }
    use MediumOperation::{Discard, Flush, Read, Write};
    let counts = [Read, Write, Flush, Discard].map(|operation| (operation, tape.count(operation)));
    Ok(Some(Prepared { image, state, tick, operations, counts }))
}
