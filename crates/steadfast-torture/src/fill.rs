//! No space, at every fill level. A small volume is filled so that each possible number of free
//! blocks occurs. At each level, each kind of operation runs once, on a copy of the volume.
//!
//! An operation succeeds, or is refused with `NoSpace` and changes nothing. Operations that free
//! space, commit or roll back are never refused. The session judges both. Afterwards the volume is
//! emptied, and all of its space is free again.

use std::sync::Arc;

use steadfast::Error;
use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};

use crate::image::Image;
use crate::ledger::Point;
use crate::model::State;
use crate::operation::{Change, Make, Name, Operation, Place};
use crate::platform::Clock;
use crate::session::{Session, Verdict};
use crate::subject::{LabVolume, Subject};
use crate::tape::{Lie, Tape};
use crate::world::World;

/// Counts of the tries.
#[derive(Debug, Clone, Copy, Default)]
pub struct FillTally {
    /// Fill levels: volumes with a different number of blocks left.
    pub levels: u64,
    /// Operations tried at these levels.
    pub done: u64,
    /// Operations that found no space.
    pub refused: u64,
}

fn file(name: u8) -> Place {
    Place::Path(vec![Name(name)])
}

fn create(name: u8, make: Make) -> Operation {
    Operation::Create {
        directory: Place::Path(Vec::new()),
        name: Name(name),
        make,
        permissions: 0o644,
        caller: 0,
    }
}

/// One operation of each kind, on the files that [`fill`] makes.
fn kinds() -> Vec<Operation> {
    let root = || Place::Path(Vec::new());
    let size = |size| Change { size: Some(size), ..Change::default() };
    let allocate = |mode| Operation::Allocate { place: file(0), offset: 700, length: 5000, mode };
    vec![
        create(20, Make::Regular),
        create(20, Make::Directory),
        create(20, Make::Symlink(700)),
        Operation::CreateUnnamed { directory: root(), slot: 0, caller: 0 },
        Operation::Link { from: file(0), directory: root(), name: Name(20) },
        Operation::Unlink { directory: root(), name: Name(0) },
        Operation::Unlink { directory: root(), name: Name(1) },
        Operation::RemoveDirectory { directory: root(), name: Name(2) },
        Operation::Rename {
            from: root(),
            from_name: Name(0),
            to: root(),
            to_name: Name(1),
            mode: RenameMode::Replace,
        },
        Operation::Rename {
            from: root(),
            from_name: Name(0),
            to: Place::Path(vec![Name(2)]),
            to_name: Name::LONGEST,
            mode: RenameMode::NoReplace,
        },
        Operation::Set { place: file(0), change: size(0) },
        Operation::Set { place: file(0), change: size(777) },
        Operation::Set { place: file(1), change: size(100_000) },
        Operation::Set {
            place: file(1),
            change: Change { permissions: Some(0o600), ..Change::default() },
        },
        Operation::SetXattr {
            place: file(1),
            name: 0,
            length: 900,
            fill: 3,
            mode: SetXattrMode::Any,
        },
        Operation::Write { place: file(0), offset: 0, length: 1, fill: 8, sync: false },
        Operation::Write { place: file(1), offset: 100, length: 9000, fill: 8, sync: true },
        Operation::Append { place: file(0), length: 3000, fill: 9, sync: false },
        allocate(AllocateMode::PunchHole),
        allocate(AllocateMode::ZeroRange { keep_size: false }),
        allocate(AllocateMode::Allocate { keep_size: true }),
        Operation::CopyRange {
            from: file(0),
            from_offset: 0,
            to: file(1),
            to_offset: 10,
            length: 4000,
        },
        Operation::Transact,
        Operation::Checkpoint,
        Operation::Rollback,
        Operation::Remount { clean: true },
    ]
}

/// Fills the volume of a world step by step, and tries everything at each number of free blocks.
///
/// # Errors
/// The first broken promise.
pub fn fill(world: &World, tally: &mut FillTally) -> Result<(), String> {
    fill_world(world, tally).map_err(|what| format!("{world}: {what}"))
}

fn fill_world(world: &World, tally: &mut FillTally) -> Result<(), String> {
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, Lie::None);
    match <LabVolume as Subject>::format(world, &tape, &clock) {
        Ok(()) => {}
        Err(Error::VolumeTooSmall { .. }) => return Ok(()),
        Err(error) => return Err(format!("format: {error}")),
    }
    let mut state = Arc::new(State::empty(clock.now()));
    let mut image = tape.image();
    let mut tick = 1;
    let mut levels = std::collections::BTreeSet::new();
    let mut steps =
        vec![create(0, Make::Regular), create(1, Make::Regular), create(2, Make::Directory)];
    steps.push(Operation::Write { place: file(0), offset: 0, length: 6000, fill: 1, sync: false });
    steps.push(Operation::Append { place: file(1), length: 200, fill: 2, sync: false });
    let block = u64::from(world.format.block_size);
    let mut level = 0u64;
    loop {
        // Each step adds one block of data or, if that is refused, one small file, until both are
        // refused.
        let (mut session, tape) = open(world, &clock, &image, &state, tick)?;
        let mut full = true;
        if steps.is_empty() {
            steps.push(Operation::Write {
                place: file(1),
                offset: (level + 8) * block,
                length: block as u32,
                fill: 5,
                sync: false,
            });
            steps.push(create(30u8.wrapping_add((level % 60) as u8), Make::Fifo));
        }
        for operation in steps.drain(..) {
            full &= session.step(&operation)? != Verdict::Done;
        }
        session.step(&Operation::Checkpoint)?;
        let free = session.blocks_free()?;
        (image, state, tick) = (tape.image(), session.ledger.last().state.clone(), session.tick());
        drop(session);
        level += 1;
        if levels.insert(free) {
            tally.levels += 1;
            for operation in kinds() {
                let label = format!("{operation:?} with {free} blocks free");
                try_one(world, &clock, (&image, &state, tick), operation, tally)
                    .map_err(|what| format!("{label}: {what}"))?;
            }
        }
        if full || level > 600 {
            break;
        }
    }
    empty(world, &clock, (&image, &state, tick))
}

type FillSession<'w> = (Session<'w, LabVolume>, Tape);

fn open<'w>(
    world: &'w World,
    clock: &Clock,
    image: &Image,
    state: &Arc<State>,
    tick: u64,
) -> Result<FillSession<'w>, String> {
    let tape = Tape::new(image.clone(), world.atomic_unit, Lie::None);
    let start = Point::new(state.clone(), "the state before".to_owned(), 0, Some(0));
    let (session, _) = Session::open(world, &tape, clock, tick, &[start])?;
    Ok((session, tape))
}

/// Does one operation twice, and commits.
fn try_one(
    world: &World,
    clock: &Clock,
    (image, state, tick): (&Image, &Arc<State>, u64),
    operation: Operation,
    tally: &mut FillTally,
) -> Result<(), String> {
    let (mut session, tape) = open(world, clock, image, state, tick)?;
    for _ in 0..2 {
        match session.step(&operation)? {
            Verdict::Done => tally.done += 1,
            _ => tally.refused += 1,
        }
    }
    session.step(&Operation::Transact)?;
    session.step(&Operation::Background { advance_ms: 0 })?;
    session.step(&Operation::Compare)?;
    session.step(&Operation::Checkpoint)?;
    drop(session);
    LabVolume::check(world, &tape, clock)
}

/// Checks that a full volume can be emptied, and then holds as much as before.
fn empty(
    world: &World,
    clock: &Clock,
    (image, state, tick): (&Image, &Arc<State>, u64),
) -> Result<(), String> {
    let (mut session, tape) = open(world, clock, image, state, tick)?;
    let root = || Place::Path(Vec::new());
    session.step(&Operation::RemoveDirectory { directory: root(), name: Name(2) })?;
    for name in [0, 1].into_iter().chain(30..90) {
        session.step(&Operation::Unlink { directory: root(), name: Name(name) })?;
    }
    session.compare_counts()?;
    session.step(&Operation::Checkpoint)?;
    session.step(&Operation::Checkpoint)?;
    let left = session.model.state.nodes().count();
    if left != 1 {
        return Err(format!("{left} inodes are left"));
    }
    drop(session);
    LabVolume::check(world, &tape, clock)
}
