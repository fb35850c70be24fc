//! Cuts the power at every write and every flush of a short run, three times. What was not flushed
//! is kept, lost, or kept in every other unit. After each cut the volume must be the state at the
//! last acknowledged transaction point, or at the one that was in flight.
#![no_std]
#![no_main]

use steadfast::fs::{Caller, NewNode, RenameMode};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, Result};
use steadfast_bare::RacyCell;
use steadfast_boards::chip::{CHIP, Chip, Loss};
use steadfast_boards::platform::Board;
use steadfast_boards::print::{field, text};
use steadfast_boards::{heap, machine, must};

type Volume = steadfast::Volume<&'static Chip, Board>;

const ROOT: InodeNumber = InodeNumber::ROOT;
const SIZE: usize = 256 << 10;
const FILES: usize = 6;
const LENGTH_MAX: usize = 3072;
const OPERATIONS: u32 = 40;

#[derive(Clone, Copy)]
struct File {
    exists: bool,
    length: usize,
    bytes: [u8; LENGTH_MAX],
}

const NO_FILE: File = File { exists: false, length: 0, bytes: [0; LENGTH_MAX] };

/// What the volume should hold.
#[derive(Clone)]
struct Model([File; FILES]);

/// Large things beside the heap of the file system, as a flash chip is.
struct Beside {
    /// The state at the last acknowledged point.
    acknowledged: Model,
    /// The state of all that was accepted.
    accepted: Model,
    /// The medium after `format`.
    formatted: [u8; SIZE],
}

static BESIDE: RacyCell<Beside> = RacyCell::new(Beside {
    acknowledged: Model([NO_FILE; FILES]),
    accepted: Model([NO_FILE; FILES]),
    formatted: [0; SIZE],
});

fn name(file: usize) -> [u8; 2] {
    [b'f', b'0' + file as u8]
}

/// The next number of the sequence that chooses the operations. The counts of cuts depend on it.
fn random(seed: &mut u32, below: u32) -> u32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 10) % below
}

fn mount() -> Result<Volume> {
    let options = OpenOptions { cache_size: 0, access_times: false, ..OpenOptions::default() };
    Volume::open(&CHIP, options, Board)
}

/// Finds a file, or makes it. The model learns of it after the volume, because no point is set.
fn file(volume: &Volume, beside: &mut Beside, file: usize) -> Result<InodeNumber> {
    match volume.lookup(ROOT, &name(file)) {
        Ok(found) => Ok(found.inode),
        Err(Error::NotFound) => {
            let made =
                volume.create(ROOT, &name(file), NewNode::Regular, 0o644, &Caller::default())?;
            beside.accepted.0[file] = File { exists: true, ..NO_FILE };
            Ok(made.inode)
        }
        Err(error) => Err(error),
    }
}

/// Writes, in the model first: the write may set the point that is in flight at the cut.
fn write(
    volume: &Volume,
    beside: &mut Beside,
    number: usize,
    at: usize,
    seed: u32,
    length: usize,
    sync: bool,
) -> Result<()> {
    let inode = file(volume, beside, number)?;
    let model = &mut beside.accepted.0[number];
    let end = (at + length).min(LENGTH_MAX);
    for (index, byte) in model.bytes[at..end].iter_mut().enumerate() {
        *byte = (seed as u8).wrapping_add(index as u8);
    }
    model.length = model.length.max(end);
    volume.write(inode, at as u64, &model.bytes[at..end], sync)?;
    if sync {
        beside.acknowledged = beside.accepted.clone();
    }
    Ok(())
}

/// One operation of the run.
fn step(volume: &Volume, beside: &mut Beside, seed: &mut u32) -> Result<()> {
    let number = random(seed, FILES as u32) as usize;
    let content = random(seed, 256);
    match random(seed, 10) {
        0..3 => {
            let (at, length) = (random(seed, 1500) as usize, 1 + random(seed, 1500) as usize);
            write(volume, beside, number, at, content, length, true)
        }
        3 => {
            let at = beside.accepted.0[number].length;
            write(volume, beside, number, at, content, 32, true)
        }
        4 | 5 => {
            let (at, length) = (random(seed, 2500) as usize, 1 + random(seed, 500) as usize);
            write(volume, beside, number, at, content, length, false)
        }
        6 => {
            let to = (number + 1) % FILES;
            if beside.accepted.0[number].exists {
                volume.rename(ROOT, &name(number), ROOT, &name(to), RenameMode::Replace)?;
                beside.accepted.0[to] = core::mem::replace(&mut beside.accepted.0[number], NO_FILE);
            }
            Ok(())
        }
        7 => {
            if beside.accepted.0[number].exists {
                volume.unlink(ROOT, &name(number))?;
                beside.accepted.0[number] = NO_FILE;
            }
            Ok(())
        }
        8 => {
            volume.transact()?;
            beside.acknowledged = beside.accepted.clone();
            Ok(())
        }
        _ => {
            while volume.background()? {}
            Ok(())
        }
    }
}

/// Formats, runs, and stops where the power fails.
fn work(beside: &mut Beside) -> Result<()> {
    beside.accepted = Model([NO_FILE; FILES]);
    beside.acknowledged = beside.accepted.clone();
    let volume = mount()?;
    let mut seed = 26;
    for operation in 0..OPERATIONS {
        step(&volume, beside, &mut seed)?;
        if operation == OPERATIONS / 2 {
            volume.checkpoint()?;
            beside.acknowledged = beside.accepted.clone();
        }
    }
    volume.close()?;
    beside.acknowledged = beside.accepted.clone();
    Ok(())
}

/// Whether the volume is what a model says.
fn is(volume: &Volume, model: &Model) -> bool {
    let mut bytes = [0; 512];
    for (number, file) in model.0.iter().enumerate() {
        let found = match volume.lookup(ROOT, &name(number)) {
            Ok(found) => found,
            Err(Error::NotFound) if !file.exists => continue,
            _ => return false,
        };
        if !file.exists || found.size != file.length as u64 {
            return false;
        }
        for (index, part) in file.bytes[..file.length].chunks(512).enumerate() {
            match volume.read(found.inode, index as u64 * 512, &mut bytes) {
                Ok(read) if bytes[..read] == *part => {}
                _ => return false,
            }
        }
    }
    true
}

/// Opens the volume after a cut, compares it, changes it, and opens it again.
fn verify(beside: &mut Beside) -> bool {
    let volume = must(mount());
    if is(&volume, &beside.acknowledged) {
        beside.accepted = beside.acknowledged.clone();
    } else if !is(&volume, &beside.accepted) {
        return false;
    }
    must(write(&volume, beside, 0, 0, 7, 600, true));
    drop(volume);
    CHIP.power_up();
    is(&must(mount()), &beside.accepted)
}

#[unsafe(no_mangle)]
fn run() {
    // SAFETY: there is one task, and this is the only reference.
    let beside = unsafe { &mut *BESIDE.get() };
    CHIP.set_size(SIZE);
    let options = FormatOptions {
        block_size: 512,
        log_size: Some(8 << 10),
        metadata_copies: Some(2),
        ..FormatOptions::default()
    };
    must(Volume::format(&&CHIP, &options, &Board));
    CHIP.save(&mut beside.formatted);

    // The whole run counts the writes.
    CHIP.fail_at(0, Loss::Nothing);
    must(work(beside));
    let events = CHIP.events();
    let mut failures = 0;
    for loss in [Loss::Nothing, Loss::Everything, Loss::OddUnits] {
        for event in 1..=events {
            CHIP.restore(&beside.formatted);
            CHIP.fail_at(event, loss);
            let stopped = work(beside).is_err();
            assert!(stopped == CHIP.is_off() && heap::used() == 0);
            CHIP.power_up();
            if !verify(beside) {
                failures += 1;
                text("wrong state:");
                field("event", event.into());
                field("loss", loss as u64);
                text("\n");
            }
            assert!(heap::used() == 0);
        }
    }
    text("cuts");
    field("number", 3 * u64::from(events));
    field("failures", failures);
    text("\n");
    machine::stop(failures == 0)
}
