//! Rot: a byte of a valid volume changes by itself, and everything is read.
//!
//! The test reads the live tree and each snapshot. Each answer must be correct, or report damage.
//! If metadata has two copies, no reader of metadata may notice anything. Only bytes that a reader
//! uses are flipped. A first run records these; all other bytes make no difference to any reader.
//!
//! A flipped byte in the intent log ends the log, because rot there looks like a record torn by a
//! power cut. The volume is then at an earlier transaction point, never between two.

use std::sync::Arc;

use steadfast::{Error, InodeNumber};

use crate::compare::{compare_attributes, text};
use crate::generate::Generator;
use crate::image::Image;
use crate::model::{Body, Content, Node, State};
use crate::operation::{Make, Name, Operation, Place};
use crate::platform::Clock;
use crate::powercut::guard;
use crate::random::Random;
use crate::session::{Session, Verdict};
use crate::subject::{LabVolume, Subject};
use crate::tape::{Lie, Tape};
use crate::world::World;

/// The flips, and the results of the readers.
#[derive(Debug, Clone, Copy, Default)]
pub struct RotTally {
    /// Flipped bytes; each one is a separate image.
    pub flips: u64,
    /// Images that did not open, with an error that gives the reason.
    pub refused: u64,
    /// Reads that reported damage.
    pub errors: u64,
    /// Images in which no reader noticed the flip.
    pub invisible: u64,
    /// Images that were at an earlier transaction point.
    pub earlier: u64,
    /// Snapshots opened and read.
    pub snapshots: u64,
}

/// A valid volume, and the states that it may be in: the newest last.
struct Sound {
    image: Image,
    states: Vec<Arc<State>>,
    /// Stretches of the medium that opening and reading everything use.
    read: Vec<(u64, u64)>,
}

/// Flips every `stride`-th byte of those that are read, and reads everything.
///
/// # Errors
/// The first wrong answer, with the world and the byte.
pub fn rot_world(
    world: &World,
    operations: usize,
    stride: u64,
    tally: &mut RotTally,
) -> Result<(), String> {
    let Some(sound) = make(world, operations).map_err(|what| format!("{world}: {what}"))? else {
        return Ok(());
    };
    let mut random = Random::new(world.seed).fork(11);
    let mut next = 0;
    for (start, end) in &sound.read {
        next = next.max(*start);
        while next < *end {
            let bit = 1 << random.below(8);
            flip(world, &sound, next, bit, tally)
                .map_err(|what| format!("{world}\n  byte {next} ^ {bit:#04x}: {what}"))?;
            next += 1 + if stride > 1 { random.below(2 * stride - 1) } else { 0 };
        }
    }
    Ok(())
}

fn flip(
    world: &World,
    sound: &Sound,
    at: u64,
    bit: u8,
    tally: &mut RotTally,
) -> Result<(), String> {
    let mut image = sound.image.clone();
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ bit]);
    tally.flips += 1;
    let copies = world.format.metadata_copies == Some(2);
    guard(|| {
        let clock = Clock::default();
        let tape = Tape::new(image, world.atomic_unit, Lie::None);
        let volume = match <LabVolume as Subject>::open(world, &tape, &clock) {
            Ok(volume) => volume,
            // The log has only one copy.
            Err(error)
                if is_damage(&error) && !copies || matches!(error, Error::NewerStateLost(_)) =>
            {
                tally.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("does not open: {error}")),
        };
        let mut wrong = String::new();
        for (age, state) in sound.states.iter().rev().enumerate() {
            let mut seen = RotReports::default();
            match read_all(world, &tape, &clock, &volume, state, &mut seen) {
                Ok(()) if copies && seen.metadata_errors > 0 => {
                    return Err("metadata is kept twice, but a reader noticed".to_owned());
                }
                Ok(()) => {
                    tally.errors += seen.errors;
                    tally.invisible += u64::from(seen.errors == 0);
                    tally.snapshots += seen.snapshots;
                    tally.earlier += u64::from(age > 0);
                    return Ok(());
                }
                Err(what) => wrong += &format!("\n    {what}"),
            }
        }
        Err(format!("a wrong answer:{wrong}"))
    })
    .unwrap_or_else(|panic| Err(format!("panics: {panic}")))
}

/// Whether an error reports damage of the volume.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::CorruptMetadata { .. }
            | Error::CorruptLog { .. }
            | Error::CorruptData { .. }
            | Error::SuperblockDamaged
            | Error::NotSteadfast
            | Error::NoMetaroot
            | Error::NewerStateLost(_)
    )
}

/// The results of the readers.
#[derive(Debug, Default)]
struct RotReports {
    errors: u64,
    /// Errors among these that cannot occur if metadata has two copies.
    metadata_errors: u64,
    snapshots: u64,
}

impl RotReports {
    /// Returns the answer, or `None` if it reports damage.
    fn damaged<T>(&mut self, what: &str, answer: Result<T, Error>) -> Result<Option<T>, String> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_damage(&error) => {
                self.errors += 1;
                self.metadata_errors += u64::from(!matches!(error, Error::CorruptData { .. }));
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }
}

/// Reads the live tree and every snapshot.
fn read_all(
    world: &World,
    tape: &Tape,
    clock: &Clock,
    volume: &LabVolume,
    state: &State,
    seen: &mut RotReports,
) -> Result<(), String> {
    Reader { volume, state, seen }.everything()?;
    if let Some(names) = seen.damaged("listing snapshots", Subject::snapshots(volume))?
        && names.iter().ne(state.snapshots().iter().map(|kept| &kept.name))
    {
        return Err(format!("other snapshots than there were: {names:?}"));
    }
    for kept in state.snapshots() {
        let opened = <LabVolume as Subject>::open_snapshot(world, tape, clock, &kept.name);
        if let Some(snapshot) = seen.damaged(&kept.name, opened)? {
            seen.snapshots += 1;
            let read = Reader { volume: &snapshot, state: &kept.state, seen }.everything();
            read.map_err(|what| format!("in {}: {what}", kept.name))?;
        }
    }
    Ok(())
}

/// Reads a tree and compares everything that is readable.
struct Reader<'a> {
    volume: &'a LabVolume,
    state: &'a State,
    seen: &'a mut RotReports,
}

impl Reader<'_> {
    fn damaged<T>(&mut self, what: &str, answer: Result<T, Error>) -> Result<Option<T>, String> {
        self.seen.damaged(what, answer)
    }

    fn everything(&mut self) -> Result<(), String> {
        for (inode, node) in self.state.nodes().filter(|(_, node)| node.links > 0) {
            self.node(inode, node)?;
        }
        Ok(())
    }

    fn node(&mut self, inode: InodeNumber, node: &Node) -> Result<(), String> {
        let path = format!("inode {}", inode.0);
        if let Some(seen) = self.damaged(&path, self.volume.attributes(inode))? {
            compare_attributes(inode, node, &seen, &path)?;
        }
        if let Some(names) = self.damaged(&path, self.volume.list_xattrs(inode))?
            && (names.len() != node.xattrs.len()
                || names.iter().any(|name| !node.xattrs.contains_key(name)))
        {
            return Err(format!("{path}: other attributes than there were"));
        }
        for (name, value) in &node.xattrs {
            let seen = self.damaged(&path, self.volume.xattr(inode, name))?;
            if seen.is_some_and(|seen| seen != **value) {
                return Err(format!("{path}: attribute {} is wrong", text(name)));
            }
        }
        match &node.body {
            Body::Symlink(target) => {
                let seen = self.damaged(&path, self.volume.read_link(inode))?;
                if seen.is_some_and(|seen| seen != *target) {
                    return Err(format!("{path}: the target is wrong"));
                }
            }
            Body::Regular(content) => self.content(inode, content, &path)?,
            Body::Directory { entries, .. } => {
                for (name, right) in entries {
                    let seen = self.damaged(&path, self.volume.lookup(inode, name))?;
                    if seen.is_some_and(|seen| seen.inode != *right) {
                        return Err(format!("{path}: {} is another file", text(name)));
                    }
                }
                self.listing(inode, entries.len(), &path)?;
            }
            Body::Special => {}
        }
        Ok(())
    }

    fn listing(&mut self, inode: InodeNumber, right: usize, path: &str) -> Result<(), String> {
        let (mut cookie, mut seen) = (0, 0);
        loop {
            let answer = self.volume.read_directory_plus(inode, cookie, 7);
            let Some(listed) = self.damaged(path, answer)? else { return Ok(()) };
            let Some((last, _)) = listed.last() else { break };
            cookie = last.cookie;
            seen += listed.len();
        }
        // `.` and `..` are listed too.
        if seen == right + 2 {
            Ok(())
        } else {
            Err(format!("{path}: {seen} entries, right is {right}"))
        }
    }

    fn content(&mut self, inode: InodeNumber, content: &Content, path: &str) -> Result<(), String> {
        let mut buffer = vec![0; 3001];
        let mut right = vec![0; 3001];
        for (start, length) in content.ranges() {
            let mut at = start;
            while at < start + length {
                let count = (start + length - at).min(3001) as usize;
                if let Some(read) =
                    self.damaged(path, self.volume.read(inode, at, &mut buffer[..count]))?
                {
                    content.fill(at, &mut right[..read]);
                    if read != count || buffer[..read] != right[..read] {
                        return Err(format!("{path}: wrong bytes in {at}..{}", at + count as u64));
                    }
                }
                at += count as u64;
            }
        }
        Ok(())
    }
}

/// Makes two files that share blocks, in the tree of every later state.
fn share(session: &mut Session<'_, LabVolume>, world: &World) -> Result<(), String> {
    let (one, other) = (Name(150), Name(151));
    let make = |name| Operation::Create {
        directory: Place::Path(Vec::new()),
        name,
        make: Make::Regular,
        permissions: 0o644,
        caller: 0,
    };
    let path = |name| Place::Path(vec![name]);
    let length = (3 * world.format.block_size).max(3000);
    for operation in [
        make(one),
        make(other),
        Operation::Write { place: path(one), offset: 0, length, fill: 7, sync: false },
        Operation::CloneRange {
            from: path(one),
            from_offset: 0,
            to: path(other),
            to_offset: 0,
            length: 0,
        },
    ] {
        match session.step(&operation)? {
            Verdict::Done => {}
            other => return Err(format!("{operation:?}: {other:?}")),
        }
    }
    Ok(())
}

/// Makes a valid volume with two snapshots, if they fit, and with log records after its checkpoint.
/// `None`: the medium is too small for one.
fn make(world: &World, operations: usize) -> Result<Option<Sound>, String> {
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, Lie::None);
    let Some(mut session) = Session::<LabVolume>::begin(world, &tape, &clock)? else {
        return Ok(None);
    };
    let mut generator = Generator::new(world, 6);
    for number in 0..operations {
        let operation = generator.next(&session.model);
        session.step(&operation)?;
        if number == operations / 4 {
            share(&mut session, world)?;
        }
        if number == operations / 2 || number == operations / 4 * 3 {
            session.step(&Operation::SnapshotCreate { name: (number % 250) as u8 })?;
        }
    }
    session.step(&Operation::Remount { clean: false })?;
    session.step(&Operation::Background { advance_ms: 0 })?;
    session.step(&Operation::Checkpoint)?;
    let mut states = vec![session.ledger.last().state.clone()];
    for _ in 0..3 {
        for _ in 0..4 {
            let operation = generator.next(&session.model);
            session.step(&operation)?;
        }
        session.step(&Operation::Transact)?;
    }
    // Every point since the checkpoint, whatever set it.
    let last = session.ledger.last_index();
    states.extend(
        (last.saturating_sub(20)..=last).map(|index| session.ledger.point(index).state.clone()),
    );
    drop(session);
    let image = tape.image();
    let tape = Tape::new(image.clone(), world.atomic_unit, Lie::None);
    tape.note_reads();
    let volume =
        <LabVolume as Subject>::open(world, &tape, &clock).map_err(|error| error.to_string())?;
    let newest = states[states.len() - 1].clone();
    read_all(world, &tape, &clock, &volume, &newest, &mut RotReports::default())?;
    let mut read = tape.reads();
    read.sort_unstable();
    Ok(Some(Sound { image, states, read }))
}
