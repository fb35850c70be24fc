//! Translates operations of tests to calls of the facade: places become inodes, names become bytes.

use std::sync::Arc;

use steadfast::fs::{NewNode, SetAttributes, SetTime};
use steadfast::{InodeNumber, Timestamp, TransactionMask};

use super::background::TURNS_MAX;
use super::{Session, Verdict};
use crate::fault::Fault;
use crate::ledger::Point;
use crate::model::State;
use crate::operation::{
    ALL_SLOTS, Change, Make, Operation, Place, Time, caller, snapshot_name, xattr_name,
};
use crate::random::pattern_vec;
use crate::subject::{Call, Reply, Subject};

/// Bytes of each piece of a scattered write.
const SCATTER_BLOCK: u64 = 128;

impl<S: Subject> Session<'_, S> {
    pub(super) fn resolve(&self, place: &Place) -> Option<InodeNumber> {
        match place {
            Place::Slot(slot) => self.slot(*slot),
            Place::Path(names) => names.iter().try_fold(InodeNumber::ROOT, |directory, name| {
                self.model.state.entry(directory, &name.bytes(self.model.limits.name_max))
            }),
        }
    }

    pub(super) fn dispatch(&mut self, operation: &Operation) -> Result<Verdict, String> {
        let name_max = self.model.limits.name_max;
        let label = format!("{operation:?}");
        macro_rules! resolve {
            ($place:expr) => {
                match self.resolve($place) {
                    Some(inode) => inode,
                    None => return Ok(Verdict::Skipped),
                }
            };
        }
        match operation {
            Operation::Create { directory, name, make, permissions, caller: by } => {
                let target;
                let node = match *make {
                    Make::Regular => NewNode::Regular,
                    Make::Directory => NewNode::Directory,
                    Make::Symlink(length) => {
                        target = pattern_vec(u32::from(length), 0, usize::from(length))
                            .iter()
                            .map(|byte| b'a' + byte % 26)
                            .collect::<Vec<u8>>();
                        NewNode::Symlink(&target)
                    }
                    Make::Fifo => NewNode::Fifo,
                    Make::Socket => NewNode::Socket,
                    Make::CharDevice(number) => NewNode::CharDevice(number),
                    Make::BlockDevice(number) => NewNode::BlockDevice(number),
                };
                let (directory, name, permissions) =
                    (resolve!(directory), name.bytes(name_max), *permissions);
                let caller = caller(*by);
                self.call(
                    &Call::Create { directory, name: &name, node, permissions, caller },
                    &label,
                )
                .map(|(verdict, _)| verdict)
            }
            Operation::CreateUnnamed { directory, slot, caller: by } => {
                let directory = resolve!(directory);
                self.free_slot(*slot)?;
                if self.slot_was_last(directory) {
                    return Ok(Verdict::Skipped);
                }
                let call =
                    Call::CreateUnnamed { directory, permissions: 0o640, caller: caller(*by) };
                let (verdict, reply) = self.call(&call, &label)?;
                if let Some(Reply::Attributes(attributes)) = reply {
                    self.slots[usize::from(*slot) % ALL_SLOTS] = Some(attributes.inode);
                }
                Ok(verdict)
            }
            Operation::Link { from, directory, name } => {
                let (inode, directory) = (resolve!(from), resolve!(directory));
                self.plain(&Call::Link { inode, directory, name: &name.bytes(name_max) }, &label)
            }
            Operation::Unlink { directory, name } => {
                let directory = resolve!(directory);
                self.plain(&Call::Unlink { directory, name: &name.bytes(name_max) }, &label)
            }
            Operation::RemoveDirectory { directory, name } => {
                let directory = resolve!(directory);
                self.plain(
                    &Call::RemoveDirectory { directory, name: &name.bytes(name_max) },
                    &label,
                )
            }
            Operation::Rename { from, from_name, to, to_name, mode } => {
                let (from_name, to_name) = (from_name.bytes(name_max), to_name.bytes(name_max));
                let (from, to) = (resolve!(from), resolve!(to));
                let call = Call::Rename {
                    from,
                    from_name: &from_name,
                    to,
                    to_name: &to_name,
                    mode: *mode,
                };
                self.plain(&call, &label)
            }
            Operation::Set { place, change } => {
                let inode = resolve!(place);
                self.plain(&Call::SetAttributes { inode, set: set_attributes(change) }, &label)
            }
            Operation::SetXattr { place, name, length, fill, mode } => {
                let inode = resolve!(place);
                let value = pattern_vec(*fill, 0, *length as usize);
                let name = xattr_name(*name);
                self.plain(
                    &Call::SetXattr { inode, name: &name, value: &value, mode: *mode },
                    &label,
                )
            }
            Operation::RemoveXattr { place, name } => {
                let inode = resolve!(place);
                self.plain(&Call::RemoveXattr { inode, name: &xattr_name(*name) }, &label)
            }
            Operation::Acquire { place, slot } => {
                let inode = resolve!(place);
                self.free_slot(*slot)?;
                if self.slot_was_last(inode) {
                    return Ok(Verdict::Skipped);
                }
                let verdict = self.plain(&Call::Acquire { inode }, &label)?;
                if verdict == Verdict::Done {
                    self.slots[usize::from(*slot) % ALL_SLOTS] = Some(inode);
                }
                Ok(verdict)
            }
            Operation::Release { slot } => {
                self.free_slot(*slot)?;
                Ok(Verdict::Done)
            }
            Operation::Closed { place } => {
                let inode = resolve!(place);
                self.plain(&Call::Closed { inode }, &label)
            }
            Operation::Write { place, offset, length, fill, sync } => {
                let inode = resolve!(place);
                let data = pattern_vec(*fill, *offset, *length as usize);
                self.plain(
                    &Call::Write { inode, offset: *offset, data: &data, sync: *sync },
                    &label,
                )
            }
            Operation::Append { place, length, fill, sync } => {
                let inode = resolve!(place);
                let data = pattern_vec(*fill, self.tick, *length as usize);
                let size = self.model.content(inode).map(|content| content.size());
                let (verdict, reply) =
                    self.call(&Call::Append { inode, data: &data, sync: *sync }, &label)?;
                match (reply, size) {
                    (Some(reply), Ok(size)) if reply != Reply::Number(size) => {
                        Err(format!("appended at {reply:?}, the size was {size}"))
                    }
                    _ => Ok(verdict),
                }
            }
            Operation::Scatter { place, count, fill } => {
                let inode = resolve!(place);
                let block = self.model.limits.block_size.max(SCATTER_BLOCK);
                let mut verdict = Verdict::Done;
                for piece in 0..u64::from(*count) {
                    let offset = 2 * piece * block;
                    let data = pattern_vec(*fill, offset, SCATTER_BLOCK as usize);
                    verdict = self
                        .plain(&Call::Write { inode, offset, data: &data, sync: false }, &label)?;
                    if verdict != Verdict::Done {
                        break;
                    }
                }
                Ok(verdict)
            }
            Operation::Allocate { place, offset, length, mode } => {
                let inode = resolve!(place);
                self.plain(
                    &Call::Allocate { inode, offset: *offset, length: *length, mode: *mode },
                    &label,
                )
            }
            Operation::CopyRange { from, from_offset, to, to_offset, length } => {
                let (from, to) = (resolve!(from), resolve!(to));
                let call = Call::CopyRange {
                    from,
                    from_offset: *from_offset,
                    to,
                    to_offset: *to_offset,
                    length: *length,
                };
                self.plain(&call, &label)
            }
            Operation::CloneRange { from, from_offset, to, to_offset, length } => {
                if !S::EXTENDED {
                    return Ok(Verdict::Skipped);
                }
                let (from, to) = (resolve!(from), resolve!(to));
                let (from_offset, to_offset, length) = (*from_offset, *to_offset, *length);
                self.plain(&Call::CloneRange { from, from_offset, to, to_offset, length }, &label)
            }
            Operation::Fsync { place, data_only } => {
                let inode = resolve!(place);
                self.plain(&Call::Fsync { inode, data_only: *data_only }, &label)
            }
            Operation::Sync => self.plain(&Call::Sync, &label),
            Operation::Transact => self.plain(&Call::Transact, &label),
            Operation::Checkpoint => self.plain(&Call::Checkpoint, &label),
            Operation::Rollback => self.roll_back(&Call::Rollback, &label),
            // A hold is ended only if it exists, because the daemon knows which process holds the
            // volume.
            Operation::Begin if S::EXTENDED => self.plain(&Call::Begin, &label),
            Operation::Commit if self.model.held => self.plain(&Call::Commit, &label),
            Operation::Abort if self.model.held => self.roll_back(&Call::Abort, &label),
            Operation::Begin | Operation::Commit | Operation::Abort => Ok(Verdict::Skipped),
            Operation::Resize { eighths } => self.resize(*eighths, &label),
            Operation::Background { advance_ms } => self.background(*advance_ms, TURNS_MAX, &label),
            Operation::Turn { advance_ms } => self.background(*advance_ms, 1, &label),
            Operation::SetMask { mask } => {
                let mask = TransactionMask(*mask & TransactionMask::ALL.0);
                self.plain(&Call::SetMask { mask }, &label)
            }
            Operation::SetTimer { ms } => self.plain(&Call::SetTimer { ms: *ms }, &label),
            Operation::SnapshotCreate { name } => {
                if !S::EXTENDED {
                    return Ok(Verdict::Skipped);
                }
                // Accepted changes become durable just before the snapshot does.
                let (before, begun) = (Arc::new(self.model.state.clone()), self.tape.position());
                self.snapshot_begins =
                    Some(Point::new(before, format!("before {label}"), begun, None));
                let verdict =
                    self.plain(&Call::SnapshotCreate { name: &snapshot_name(*name) }, &label);
                self.snapshot_begins = None;
                verdict
            }
            Operation::SnapshotDelete { name } => {
                if !S::EXTENDED {
                    return Ok(Verdict::Skipped);
                }
                self.plain(&Call::SnapshotDelete { name: &snapshot_name(*name) }, &label)
            }
            Operation::SnapshotRollback { name, destroy_newer } => {
                if !S::EXTENDED {
                    return Ok(Verdict::Skipped);
                }
                let name = snapshot_name(*name);
                let call = Call::SnapshotRollback { name: &name, destroy_newer: *destroy_newer };
                let verdict = self.plain(&call, &label)?;
                // If a fault stopped the call, the state was already judged.
                if verdict != Verdict::Refused(Fault::Broken) {
                    self.compare()
                        .map_err(|what| format!("after going back to a snapshot: {what}"))?;
                }
                Ok(verdict)
            }
            Operation::Remount { clean } => self.remount(*clean),
            Operation::Compare => self.compare().map(|()| Verdict::Done),
        }
    }

    fn roll_back(&mut self, call: &Call<'_>, label: &str) -> Result<Verdict, String> {
        let verdict = self.plain(call, label)?;
        if verdict != Verdict::Done {
            return Ok(verdict);
        }
        self.in_flight.clear();
        self.dirty_since_ms = None;
        let candidates: Vec<Arc<State>> =
            self.ledger.last_candidates().iter().map(|point| point.state.clone()).collect();
        let mut differences = String::new();
        for state in candidates.iter().rev() {
            self.model.roll_back(state);
            match self.compare() {
                Ok(()) => {
                    self.ledger.settle(state);
                    return Ok(verdict);
                }
                Err(what) => differences += &format!("; {what}"),
            }
        }
        Err(format!("after the rollback it is in no state that is allowed{differences}"))
    }

    /// Whether the slot just freed was the last reference to the inode. Until background work has
    /// reclaimed the inode, the volume may still know it, so the test does not ask.
    pub(super) fn slot_was_last(&self, inode: InodeNumber) -> bool {
        self.model.state.node(inode).is_none() && self.numbers.contains(&inode)
    }

    pub(super) fn plain(&mut self, call: &Call<'_>, label: &str) -> Result<Verdict, String> {
        self.call(call, label).map(|(verdict, _)| verdict)
    }

    pub(super) fn free_slot(&mut self, slot: u8) -> Result<(), String> {
        match self.slots[usize::from(slot) % ALL_SLOTS].take() {
            Some(inode) => self.call(&Call::Release { inode }, "release").map(|_| ()),
            None => Ok(()),
        }
    }
}

fn set_attributes(change: &Change) -> SetAttributes {
    let time = |time: Time| match time {
        Time::Now => SetTime::Now,
        Time::At(seconds, nanoseconds) => SetTime::At(Timestamp { seconds, nanoseconds }),
    };
    SetAttributes {
        permissions: change.permissions,
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        accessed: change.accessed.map(time),
        modified: change.modified.map(time),
        changed: change.changed.map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds }),
        drop_privileges: change.drop_privileges,
        unchecked: false,
    }
}
