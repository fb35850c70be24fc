//! [`Holdings`]: what the programs of one node have at the owner, open files and locks.
//!
//! The owner knows it only as long as it lives. So each node notes its own part from the answers,
//! and brings it to the next owner, with its deltas ([`super::deltas`]). If the volume has all that
//! the node was told of, the next owner begins with it, before it serves any node: files stay open,
//! and locks are held throughout.
//!
//! Invariants:
//! - What was asked and not answered is not in it: the node asks the next owner
//!   ([`super::channel`]). So a file stays in it until the owner has answered its RELEASE.
//! - Nothing of a snapshot is in it, nor the control file: their node ids end with the owner.
//! - A node with too many open files or locks brings none, and its files become stale. So does one
//!   that had no sign of the owner for a while: the owner may have given its locks to others.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::time::Duration;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::input::{FlushIn, LkIn, ReleaseIn};
use crate::abi::opcode;
use crate::filesystem::locking::{is_unlock, lock_of};
use crate::locks::{HeldLocks, Lock, Owner};
use crate::open::Handle;
use crate::request::Request;
use crate::snapshots::is_snapshot;
use crate::validity::opened_node;

/// How long after a sign of the owner a node may bring its open files and locks to the next one.
/// The owner gives them to others after [`SESSION_TIME`](super::SESSION_TIME) without a connection.
pub(crate) const HELD_FOR: Duration = Duration::from_secs(5);
/// Most open files of a node, and most locks.
const HOLDINGS_MAX: usize = 1 << 16;
/// The numbers of open files of the next owner are above those of all that are brought.
const NUMBER_MAX: u64 = 1 << 48;
/// The node's own kernel in its locks. The next owner puts its number for that kernel in.
const HERE: u64 = 0;

/// Numbers before the files and locks.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HoldingsHead {
    files: u32,
    locks: u32,
    incomplete: u32,
    reserved: u32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FileWire {
    nodeid: u64,
    handle: u64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LockWire {
    nodeid: u64,
    owner: u64,
    start: u64,
    end: u64,
    handle: u64,
    process: u32,
    /// [`EXCLUSIVE`], [`FLOCK`].
    kind: u32,
}

const EXCLUSIVE: u32 = 1;
const FLOCK: u32 = 2;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Node ids and handles of open files.
    files: HashSet<(u64, u64)>,
    /// By node id.
    locks: HashMap<u64, HeldLocks>,
    /// There was too much.
    incomplete: bool,
}

impl Holdings {
    /// Those of a node that may not have them any more.
    pub(super) fn unsure() -> Holdings {
        Holdings { incomplete: true, ..Holdings::default() }
    }

    /// Whether it is all that the node has.
    pub(super) fn is_complete(&self) -> bool {
        !self.incomplete
    }

    /// Node ids and handles of open files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.files.iter().copied()
    }

    /// Locks, with the node ids of their files. Their owner is no kernel of the next owner.
    pub(crate) fn locks(&self) -> impl Iterator<Item = (u64, Lock)> + '_ {
        let of_file = |(nodeid, held): (&u64, &HeldLocks)| {
            let nodeid = *nodeid;
            held.all().to_vec().into_iter().map(move |lock| (nodeid, lock))
        };
        self.locks.iter().flat_map(of_file)
    }

    /// The owner has answered a request, with data or an error.
    pub(super) fn answered(&mut self, request: &Request<'_>, result: Result<&[u8], ()>) {
        let nodeid = request.header.nodeid;
        let mut arguments = request.arguments();
        match request.header.opcode {
            opcode::OPEN | opcode::CREATE | opcode::TMPFILE => {
                if let Some(opened) = result.ok().and_then(|answer| opened_node(request, answer)) {
                    self.opened(opened.nodeid, opened.handle);
                }
            }
            // Whatever the answer: the kernel does not ask again.
            opcode::RELEASE => {
                if let Ok(released) = arguments.take::<ReleaseIn>() {
                    self.files.remove(&(nodeid, released.fh));
                    self.change_locks(nodeid, |held| held.released(HERE, released.fh));
                }
            }
            // The owner ends the locks first, whatever it then answers.
            opcode::FLUSH => {
                if let Ok(closed) = arguments.take::<FlushIn>() {
                    let owner = Owner { kernel: HERE, number: closed.lock_owner };
                    self.change_locks(nodeid, |held| held.closed(owner));
                }
            }
            opcode::SETLK | opcode::SETLKW if !is_snapshot(nodeid) => {
                if let Ok(wanted) = arguments.take::<LkIn>() {
                    self.asked_for_lock(nodeid, &wanted, result.is_ok());
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, nodeid: u64, handle: u64) {
        if is_snapshot(nodeid) {
            return;
        }
        match self.files.len() < HOLDINGS_MAX {
            true => drop(self.files.insert((nodeid, handle))),
            false => self.incomplete = true,
        }
    }

    fn asked_for_lock(&mut self, nodeid: u64, wanted: &LkIn, granted: bool) {
        let lock = lock_of(Owner { kernel: HERE, number: wanted.owner }, wanted);
        match (granted, is_unlock(wanted)) {
            (true, true) => self.change_locks(nodeid, |held| held.cut(&lock)),
            (true, false) => {
                let held = self.locks.entry(nodeid).or_default();
                held.hold(lock);
                self.incomplete |= held.all().len() > HOLDINGS_MAX;
            }
            // A conversion has given up what was held, see `Locks::take`.
            (false, false) if lock.flock => self.change_locks(nodeid, |held| held.cut(&lock)),
            (false, _) => {}
        }
    }

    fn change_locks(&mut self, nodeid: u64, change: impl FnOnce(&mut HeldLocks)) {
        if let Some(held) = self.locks.get_mut(&nodeid) {
            change(held);
            if held.all().is_empty() {
                self.locks.remove(&nodeid);
            }
        }
    }

    /// What [`read`](Self::read) reads.
    pub(super) fn encode(&self) -> Vec<u8> {
        let locks: Vec<LockWire> = self
            .locks()
            .map(|(nodeid, lock)| LockWire {
                nodeid,
                owner: lock.owner.number,
                start: lock.start,
                end: lock.end,
                handle: lock.handle,
                process: lock.process,
                kind: if lock.exclusive { EXCLUSIVE } else { 0 }
                    | if lock.flock { FLOCK } else { 0 },
            })
            .collect();
        let files: Vec<FileWire> =
            self.files().map(|(nodeid, handle)| FileWire { nodeid, handle }).collect();
        // What is incomplete is of no use.
        let incomplete = self.incomplete || locks.len() > HOLDINGS_MAX;
        let (files, locks) = match incomplete {
            true => (&[][..], &[][..]),
            false => (&files[..], &locks[..]),
        };
        let head = HoldingsHead {
            files: files.len() as u32,
            locks: locks.len() as u32,
            incomplete: incomplete.into(),
            reserved: 0,
        };
        [head.as_bytes(), files.as_bytes(), locks.as_bytes()].concat()
    }

    /// Reads what another node has [encoded](Self::encode).
    ///
    /// # Errors
    /// The connection breaks, or it is something else.
    pub(super) fn read(reader: &mut dyn Read) -> io::Result<Holdings> {
        let garbled =
            || io::Error::new(io::ErrorKind::InvalidData, "what another node holds makes no sense");
        let mut head = HoldingsHead::new_zeroed();
        reader.read_exact(head.as_mut_bytes())?;
        let counts = [head.files as usize, head.locks as usize];
        if counts.iter().any(|count| *count > HOLDINGS_MAX) {
            return Err(garbled());
        }
        let mut holdings = Holdings { incomplete: head.incomplete != 0, ..Holdings::default() };
        for _ in 0..head.files {
            let mut file = FileWire::new_zeroed();
            reader.read_exact(file.as_mut_bytes())?;
            if Handle(file.handle).number() > NUMBER_MAX {
                return Err(garbled());
            }
            holdings.opened(file.nodeid, file.handle);
        }
        for _ in 0..head.locks {
            let mut wire = LockWire::new_zeroed();
            reader.read_exact(wire.as_mut_bytes())?;
            if wire.start > wire.end {
                return Err(garbled());
            }
            let lock = Lock {
                owner: Owner { kernel: HERE, number: wire.owner },
                flock: wire.kind & FLOCK != 0,
                exclusive: wire.kind & EXCLUSIVE != 0,
                start: wire.start,
                end: wire.end,
                process: wire.process,
                handle: wire.handle,
            };
            holdings.locks.entry(wire.nodeid).or_default().restore(lock);
        }
        Ok(holdings)
    }
}

#[cfg(test)]
#[path = "holdings_tests.rs"]
mod tests;
