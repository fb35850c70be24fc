//! A toy volume that tests the tests. It is the model under the interface of a volume, with a
//! commit so simple that it is evidently correct. It also has flaws that can be enabled, and the
//! power cuts must find each of them.
//!
//! A commit writes a body of several units, flushes, writes a slot (one of two in turn) that names
//! the body, and flushes. Body and slot carry their sequence number in every unit, so that torn
//! ones are detected. The state itself stays in the memory of the process, under the number in the
//! slot.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast::fs::{Attributes, DirectoryEntry, FileFlags, SeekTo, Statistics};
use steadfast::{Error, InodeNumber, TransactionMask};
use steadfast_media::Medium;

use crate::fault::Fault;
use crate::model::{Body, Limits, Model, Node, State};
use crate::platform::Clock;
use crate::subject::{Call, Reply, Subject, SubjectFacts};
use crate::tape::Tape;
use crate::triggers::triggers;
use crate::world::World;

/// No flaw.
pub const SOUND: u8 = 0;
/// The slot is written before the body is durable.
pub const NO_FLUSH_BEFORE_SLOT: u8 = 1;
/// A commit returns before its slot is durable.
pub const NO_FLUSH_AFTER_SLOT: u8 = 2;
/// There is only one slot, overwritten in place.
pub const ONE_SLOT: u8 = 3;
/// The body is not flushed before the slot, and only its last unit is checked: a torn body passes
/// as complete.
pub const TORN_BODY_ACCEPTED: u8 = 4;
/// Opening an image that has lost its newest commit overwrites the older one before it is replaced.
pub const RECOVERY_DESTROYS: u8 = 5;
/// Background work makes an unrequested commit.
pub const BACKGROUND_COMMITS: u8 = 6;
/// Every flaw.
pub const FLAWS: [u8; 6] = [
    NO_FLUSH_BEFORE_SLOT,
    NO_FLUSH_AFTER_SLOT,
    ONE_SLOT,
    TORN_BODY_ACCEPTED,
    RECOVERY_DESTROYS,
    BACKGROUND_COMMITS,
];

const BODY_UNITS: u64 = 5;
const SLOT_UNITS: u64 = 2;

/// The contents of a commit.
#[derive(Clone)]
struct ToyCommit {
    state: State,
    mask: TransactionMask,
    timer_ms: u32,
    next_inode: u64,
}

static ARCHIVE: LazyLock<Mutex<HashMap<u64, ToyCommit>>> = LazyLock::new(Default::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

struct ToyInner {
    model: Model,
    kept: ToyCommit,
    sequence: u64,
    points: u64,
    monotonic_ms: u64,
    dirty: bool,
}

/// The toy with the given flaw.
pub struct Toy<const FLAW: u8> {
    tape: Tape,
    clock: Clock,
    inner: Mutex<ToyInner>,
}

fn unit(tape: &Tape) -> u64 {
    u64::from(tape.geometry().atomic_unit)
}

/// Units that all carry this sequence number and archive number.
fn stamped(tape: &Tape, units: u64, sequence: u64, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..units {
        let end = bytes.len() + unit(tape) as usize;
        bytes.extend_from_slice(b"toy ");
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.resize(end, 0);
    }
    bytes
}

/// Sequence and archive number, if all units agree.
fn read_stamp(tape: &Tape, offset: u64, units: u64) -> Option<(u64, u64)> {
    let mut bytes = vec![0; (units * unit(tape)) as usize];
    tape.read(offset, &mut bytes).ok()?;
    let stamps: Vec<Option<(u64, u64)>> = bytes
        .chunks(unit(tape) as usize)
        .map(|chunk| {
            let number = |at: usize| chunk[at..at + 8].try_into().map(u64::from_le_bytes).ok();
            (&chunk[..4] == b"toy ").then_some(())?;
            Some((number(4)?, number(12)?))
        })
        .collect();
    let first = *stamps.first()?;
    stamps.iter().all(|stamp| *stamp == first).then_some(first)?
}

impl<const FLAW: u8> Toy<FLAW> {
    fn body_offset(tape: &Tape, sequence: u64) -> u64 {
        (2 * SLOT_UNITS + (sequence % 3) * BODY_UNITS) * unit(tape)
    }

    fn slot_offset(tape: &Tape, sequence: u64) -> u64 {
        if FLAW == ONE_SLOT { 0 } else { (sequence % 2) * SLOT_UNITS * unit(tape) }
    }

    fn store(tape: &Tape, sequence: u64, kept: ToyCommit) -> Result<(), Error> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ARCHIVE.lock().insert(number, kept);
        tape.write(
            Self::body_offset(tape, sequence),
            &stamped(tape, BODY_UNITS, sequence, number),
        )?;
        if FLAW != NO_FLUSH_BEFORE_SLOT && FLAW != TORN_BODY_ACCEPTED {
            tape.flush()?;
        }
        tape.write(
            Self::slot_offset(tape, sequence),
            &stamped(tape, SLOT_UNITS, sequence, number),
        )?;
        if FLAW != NO_FLUSH_AFTER_SLOT {
            tape.flush()?;
        }
        Ok(())
    }

    fn load(tape: &Tape) -> Option<(u64, ToyCommit)> {
        let mut slots: Vec<(u64, u64)> = (0..2)
            .filter_map(|slot| read_stamp(tape, Self::slot_offset(tape, slot), SLOT_UNITS))
            .collect();
        slots.sort_unstable();
        while let Some((sequence, number)) = slots.pop() {
            let offset = Self::body_offset(tape, sequence);
            let found = match FLAW {
                // A body that does not match the slot stands for wrong data under a metadata
                // pointer.
                NO_FLUSH_BEFORE_SLOT => {
                    Some(read_stamp(tape, offset, BODY_UNITS).map_or(number, |(_, other)| other))
                }
                TORN_BODY_ACCEPTED => {
                    let last = read_stamp(tape, offset + (BODY_UNITS - 1) * unit(tape), 1);
                    let first = read_stamp(tape, offset, 1).map_or(number, |(_, other)| other);
                    (last == Some((sequence, number))).then_some(first)
                }
                _ => (read_stamp(tape, offset, BODY_UNITS) == Some((sequence, number)))
                    .then_some(number),
            };
            if let Some(number) = found {
                return Some((sequence, ARCHIVE.lock().get(&number)?.clone()));
            }
        }
        None
    }

    fn commit(&self, inner: &mut ToyInner) -> Result<(), Error> {
        inner.kept.state = inner.model.state.clone();
        inner.sequence += 1;
        inner.points += 1;
        inner.dirty = false;
        Self::store(&self.tape, inner.sequence, inner.kept.clone())
    }

    fn attributes_of(&self, inode: InodeNumber) -> Result<Attributes, Error> {
        let inner = self.inner.lock();
        inner.model.state.node(inode).map(|node| attributes(inode, node)).ok_or(Error::Stale(inode))
    }
}

fn attributes(inode: InodeNumber, node: &Node) -> Attributes {
    Attributes {
        inode,
        kind: node.kind,
        permissions: node.permissions,
        links: node.links,
        uid: node.uid,
        gid: node.gid,
        device: node.device,
        size: node.size(),
        allocated: node.size().div_ceil(512) * 512,
        shrinking: false,
        block_size: 512,
        accessed: node.accessed,
        modified: node.modified,
        changed: node.changed,
        created: node.created,
        flags: FileFlags::NONE,
    }
}

/// An error of the core for the first refusal in the list.
fn refusal(faults: &crate::fault::Faults, inode: InodeNumber) -> Error {
    let known = [
        (Fault::NotFound, Error::NotFound),
        (Fault::AlreadyExists, Error::AlreadyExists),
        (Fault::NotADirectory, Error::NotADirectory),
        (Fault::IsADirectory, Error::IsADirectory),
        (Fault::DirectoryNotEmpty, Error::DirectoryNotEmpty),
        (Fault::NotARegularFile, Error::NotARegularFile),
        (Fault::NameTooLong, Error::NameTooLong),
        (Fault::InvalidName, Error::InvalidName),
        (Fault::InvalidArgument, Error::InvalidArgument("toy")),
        (Fault::FileTooLarge, Error::FileTooLarge),
        (Fault::MoveIntoSelf, Error::MoveIntoSelf),
        (Fault::NoAttribute, Error::NoAttribute),
        (Fault::NotPermitted, Error::NotPermitted),
        (Fault::Unsupported, Error::Unsupported("toy")),
        (Fault::Stale, Error::Stale(inode)),
    ];
    known
        .into_iter()
        .find(|(fault, _)| faults.allow(*fault))
        .map_or(Error::Busy, |(_, error)| error)
}

impl<const FLAW: u8> Subject for Toy<FLAW> {
    fn format(world: &World, tape: &Tape, clock: &Clock) -> Result<(), Error> {
        if unit(tape) < 20 {
            return Err(Error::BadBlockSize(unit(tape) as u32));
        }
        let kept = ToyCommit {
            state: State::empty(clock.now()),
            mask: world.format.mask,
            timer_ms: world.format.timer_ms,
            next_inode: InodeNumber::FIRST_USER.0,
        };
        Self::store(tape, 0, kept)?;
        tape.flush()?;
        Ok(())
    }

    fn open(_world: &World, tape: &Tape, clock: &Clock) -> Result<Self, Error> {
        let (sequence, kept) = Self::load(tape).ok_or(Error::NoMetaroot)?;
        if FLAW == RECOVERY_DESTROYS {
            tape.write(
                Self::slot_offset(tape, sequence),
                &vec![0; (SLOT_UNITS * unit(tape)) as usize],
            )?;
            tape.flush()?;
            Self::store(tape, sequence, kept.clone())?;
        }
        let model = Model::open(kept.state.clone(), Limits::default(), clock.now());
        let inner =
            ToyInner { model, kept, sequence, points: 0, monotonic_ms: clock.ms(), dirty: false };
        Ok(Toy { tape: tape.clone(), clock: clock.clone(), inner: Mutex::new(inner) })
    }

    fn close(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if inner.kept.mask.contains(TransactionMask::UNMOUNT) {
            self.commit(&mut inner)?;
        }
        Ok(())
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply, Error> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        inner.model.now = self.clock.now();
        let mut made = InodeNumber(inner.kept.next_inode);
        if let Call::Link { inode, .. } | Call::SetAttributes { inode, .. } = call {
            made = *inode;
        }
        // The model takes the number of a new inode from a reply.
        let mut given = attributes(made, &root_of(&inner.model.state).ok_or(Error::NoMetaroot)?);
        given.inode = made;
        let offset = match call {
            Call::Append { inode, .. } => {
                inner.model.content(*inode).map_or(0, |content| content.size())
            }
            Call::CopyRange { from, from_offset, to, to_offset, length } => {
                inner.model.copy_length(*from, *from_offset, *to, *to_offset, *length).unwrap_or(0)
            }
            _ => 0,
        };
        let before = inner.model.state.clone();
        let hint = match call {
            Call::Append { .. } | Call::CopyRange { .. } => Reply::Number(offset),
            _ => Reply::Attributes(given),
        };
        let hint = match call {
            Call::SnapshotCreate { .. }
            | Call::SnapshotDelete { .. }
            | Call::SnapshotRollback { .. }
            | Call::CloneRange { .. }
            | Call::Begin
            | Call::Commit
            | Call::Abort
            | Call::Grow { .. }
            | Call::Shrink { .. } => {
                return Err(Error::Unsupported("more than a plain file system"));
            }
            Call::Fsync { .. } | Call::Closed { .. } => None,
            _ => Some(&hint),
        };
        inner.model.apply(call, hint).map_err(|faults| refusal(&faults, made))?;
        inner.dirty |= !inner.model.state.is_untouched(&before);
        let reply = match call {
            Call::Create { .. }
            | Call::CreateUnnamed { .. }
            | Call::Link { .. }
            | Call::SetAttributes { .. } => {
                let node = inner.model.state.node(made).ok_or(Error::Stale(made))?;
                Reply::Attributes(attributes(made, node))
            }
            Call::Append { .. } | Call::CopyRange { .. } => Reply::Number(offset),
            Call::Background => Reply::More(false),
            _ => Reply::Done,
        };
        if matches!(call, Call::Create { .. } | Call::CreateUnnamed { .. }) {
            inner.kept.next_inode += 1;
        }
        match call {
            Call::SetMask { mask } => inner.kept.mask = *mask,
            Call::SetTimer { ms } => inner.kept.timer_ms = *ms,
            Call::Rollback => {
                let state = inner.kept.state.clone();
                inner.model.roll_back(&state);
                inner.dirty = false;
            }
            Call::Background => {
                let timer = inner.kept.mask.contains(TransactionMask::TIMER);
                let expired =
                    self.clock.ms() - inner.monotonic_ms >= u64::from(inner.kept.timer_ms);
                if (timer && expired) || FLAW == BACKGROUND_COMMITS {
                    inner.monotonic_ms = self.clock.ms();
                    if inner.dirty {
                        self.commit(inner)?;
                        inner.points -= u64::from(FLAW == BACKGROUND_COMMITS);
                    }
                }
            }
            call if triggers(call, inner.kept.mask) => self.commit(inner)?,
            _ => {}
        }
        Ok(reply)
    }

    fn facts(&self) -> SubjectFacts {
        let inner = self.inner.lock();
        SubjectFacts {
            transaction_points: inner.points,
            mask: inner.kept.mask,
            timer_ms: inner.kept.timer_ms,
            size: 0,
            block_size: 0,
            name_max: 255,
        }
    }

    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes, Error> {
        let found = self.inner.lock().model.state.entry(directory, name);
        self.attributes_of(found.ok_or(Error::NotFound)?)
    }

    fn attributes(&self, inode: InodeNumber) -> Result<Attributes, Error> {
        self.attributes_of(inode)
    }

    fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>, Error> {
        let listed: Vec<(Vec<u8>, InodeNumber)> = {
            let inner = self.inner.lock();
            let node = inner.model.state.node(directory).ok_or(Error::Stale(directory))?;
            let Body::Directory { entries, parent } = &node.body else {
                return Err(Error::NotADirectory);
            };
            let dots = [(b".".to_vec(), directory), (b"..".to_vec(), *parent)];
            dots.into_iter()
                .chain(entries.iter().map(|(name, inode)| (name.clone(), *inode)))
                .collect()
        };
        let entries = listed.into_iter().enumerate().skip(cookie as usize).take(count);
        entries
            .map(|(index, (name, inode))| {
                let attributes = self.attributes_of(inode)?;
                let kind = attributes.kind;
                Ok((DirectoryEntry { name, inode, kind, cookie: index as u64 + 1 }, attributes))
            })
            .collect()
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let inner = self.inner.lock();
        let content = inner.model.content(inode).map_err(|faults| refusal(&faults, inode))?;
        let data = content.read(offset, buffer.len());
        buffer[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, Error> {
        match self.inner.lock().model.state.node(inode).map(|node| &node.body) {
            Some(Body::Symlink(target)) => Ok(target.clone()),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, Error> {
        let inner = self.inner.lock();
        let node = inner.model.state.node(inode).ok_or(Error::Stale(inode))?;
        node.xattrs.get(name).map(|value| value.to_vec()).ok_or(Error::NoAttribute)
    }

    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, Error> {
        let inner = self.inner.lock();
        let node = inner.model.state.node(inode).ok_or(Error::Stale(inode))?;
        Ok(node.xattrs.keys().cloned().collect())
    }

    fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64, Error> {
        let inner = self.inner.lock();
        let content = inner.model.content(inode).map_err(|faults| refusal(&faults, inode))?;
        if offset >= content.size() {
            return Err(Error::NoSuchOffset);
        }
        let ranges = content.ranges();
        let inside =
            ranges.iter().find(|(start, length)| *start <= offset && offset < start + length);
        match to {
            SeekTo::Data if inside.is_some() => Ok(offset),
            SeekTo::Data => ranges
                .iter()
                .map(|(start, _)| *start)
                .find(|start| *start > offset)
                .ok_or(Error::NoSuchOffset),
            SeekTo::Hole => Ok(inside.map_or(offset, |(start, length)| start + length)),
        }
    }

    fn statistics(&self) -> Result<Statistics, Error> {
        let inodes = self.inner.lock().model.state.nodes().count() as u64;
        Ok(Statistics { blocks: 1, inodes, name_max: 255, ..Statistics::default() })
    }

    fn check(_world: &World, tape: &Tape, _clock: &Clock) -> Result<(), String> {
        Self::load(tape).map(|_| ()).ok_or_else(|| "no state".to_owned())
    }
}

fn root_of(state: &State) -> Option<Node> {
    state.node(InodeNumber::ROOT).cloned()
}
