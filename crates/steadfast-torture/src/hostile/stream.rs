//! A stream of operations drawn from bytes, applied to a volume and to the model.

use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};

use super::choices::Choices;
use crate::image::Image;
use crate::operation::{Change, Make, Name, Operation, Place};
use crate::platform::Clock;
use crate::session::Session;
use crate::subject::{LabVolume, Subject};
use crate::tape::{Lie, Tape};
use crate::world::{Profile, World};

/// Maximum number of operations.
const OPERATIONS_MAX: usize = 60;

/// The fuzz target `operations`: the first bytes of the input draw the world, the rest the
/// operations.
///
/// # Errors
/// Volume and model disagree.
pub fn run_stream(input: &[u8]) -> Result<usize, String> {
    let mut choices = Choices::new(input);
    let mut world = World::new(choices.below(1 << 16) as u64, Profile::Mixed);
    world.size = world.size.min(1 << 20).max(64 * u64::from(world.format.block_size));
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, Lie::None);
    let begun = Session::<LabVolume>::begin(&world, &tape, &clock);
    let Some(mut session) = begun.map_err(|error| format!("{world}: {error}"))? else {
        return Ok(0);
    };
    let mut done = Vec::new();
    let mut run = |session: &mut Session<'_, LabVolume>, operation: Operation| {
        let result = session.step(&operation);
        done.push(operation);
        match result {
            Ok(_) => Ok(done.len()),
            Err(what) => Err(format!("{world}: {what}\n  operations: {done:#?}")),
        }
    };
    let mut count = 0;
    while !choices.is_empty() && count < OPERATIONS_MAX {
        count = run(&mut session, operation(&mut choices))?;
    }
    run(&mut session, Operation::Remount { clean: count % 2 == 0 })?;
    drop(session);
    LabVolume::check(&world, &tape, &clock)
        .map_err(|what| format!("{world}: check: {what}\n  {done:#?}"))?;
    Ok(count)
}

fn name(choices: &mut Choices<'_>) -> Name {
    match choices.byte() {
        byte @ 0..240 => Name(byte % 6),
        240..248 => Name::LONGEST,
        _ => Name::BINARY,
    }
}

fn directory(choices: &mut Choices<'_>) -> Place {
    let byte = choices.byte();
    if byte < 150 { Place::Path(Vec::new()) } else { Place::Path(vec![Name(byte % 6)]) }
}

fn place(choices: &mut Choices<'_>) -> Place {
    match choices.byte() {
        byte @ 0..170 => Place::Path(vec![Name(byte % 6)]),
        byte @ 170..230 => Place::Path(vec![Name(byte % 6), Name(byte / 6 % 6)]),
        byte => Place::Slot(byte),
    }
}

fn offset(choices: &mut Choices<'_>) -> u64 {
    match choices.byte() {
        byte @ 0..200 => u64::from(byte) * 257,
        byte => u64::from(byte) << (choices.byte() % 40),
    }
}

fn operation(choices: &mut Choices<'_>) -> Operation {
    let length = |choices: &mut Choices<'_>| choices.below(20_000) as u32;
    match choices.byte() % 26 {
        0..=3 => Operation::Create {
            directory: directory(choices),
            name: name(choices),
            make: [
                Make::Regular,
                Make::Regular,
                Make::Directory,
                Make::Directory,
                Make::Symlink(300),
                Make::Fifo,
            ][choices.below(6)],
            permissions: 0o644,
            caller: choices.byte(),
        },
        4 => Operation::CreateUnnamed {
            directory: directory(choices),
            slot: choices.byte(),
            caller: 0,
        },
        5 => Operation::Link {
            from: place(choices),
            directory: directory(choices),
            name: name(choices),
        },
        6 | 7 => Operation::Unlink { directory: directory(choices), name: name(choices) },
        8 => Operation::RemoveDirectory { directory: directory(choices), name: name(choices) },
        9 | 10 => Operation::Rename {
            from: directory(choices),
            from_name: name(choices),
            to: directory(choices),
            to_name: name(choices),
            mode: [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                [choices.below(3)],
        },
        11 => Operation::Set {
            place: place(choices),
            change: Change { size: Some(offset(choices)), ..Change::default() },
        },
        12 => Operation::Set {
            place: place(choices),
            change: Change { permissions: Some(0o600), uid: Some(7), ..Change::default() },
        },
        13 => Operation::SetXattr {
            place: place(choices),
            name: choices.byte() % 12,
            length: choices.below(1200) as u32,
            fill: u32::from(choices.byte()),
            mode: SetXattrMode::Any,
        },
        14 => Operation::RemoveXattr { place: place(choices), name: choices.byte() % 12 },
        15 => Operation::Acquire { place: place(choices), slot: choices.byte() },
        16 => Operation::Release { slot: choices.byte() },
        17 | 18 => Operation::Write {
            place: place(choices),
            offset: offset(choices),
            length: length(choices),
            fill: u32::from(choices.byte()),
            sync: choices.byte().is_multiple_of(8),
        },
        19 => Operation::Append {
            place: place(choices),
            length: length(choices),
            fill: u32::from(choices.byte()),
            sync: false,
        },
        20 => Operation::Allocate {
            place: place(choices),
            offset: offset(choices),
            length: 1 + u64::from(length(choices)),
            mode: [
                AllocateMode::PunchHole,
                AllocateMode::ZeroRange { keep_size: false },
                AllocateMode::Allocate { keep_size: true },
                AllocateMode::Allocate { keep_size: false },
            ][choices.below(4)],
        },
        21 => Operation::CopyRange {
            from: place(choices),
            from_offset: offset(choices),
            to: place(choices),
            to_offset: offset(choices),
            length: u64::from(length(choices)),
        },
        22 => Operation::Fsync { place: place(choices), data_only: false },
        23 => [Operation::Transact, Operation::Checkpoint, Operation::Rollback, Operation::Sync]
            [choices.below(4)]
        .clone(),
        24 => Operation::Background { advance_ms: u64::from(choices.byte()) * 50 },
        _ => Operation::Remount { clean: choices.byte().is_multiple_of(2) },
    }
}
