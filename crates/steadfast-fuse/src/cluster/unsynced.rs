//! Which inodes this node's kernel has changed and the owner may not have made durable.
//!
//! What an owner had accepted and not made durable is lost with it, as by a power cut. A program on
//! a surviving node must not be told otherwise. Its open files are stale then (node ids get another
//! tag), so their fsync fails. But a program may open a file again: rename, takeover, open of the
//! directory, fsync. Or it may have the root directory open, whose node id never changes. So each
//! node remembers what its kernel has changed. After a takeover the first fsync of each such inode
//! fails with ESTALE, and so does the first `transact`.
//!
//! Each answer says how many changes the volume had accepted and how many of them were durable
//! ([`Volume::progress`](steadfast::Volume::progress)), so what is surely durable is forgotten.
//! The other direction is not exact: a change that a timer has made durable just before the
//! takeover may fail one fsync.

use std::collections::{HashMap, HashSet};

use super::frame::{AnswerFrame, Progress};
use crate::abi::input::{CopyFileRangeIn, LinkIn, OpenIn, RenameIn};
use crate::abi::opcode;
use crate::abi::output::EntryOut;
use crate::filesystem::flags::sets_flags;
use crate::ioctl;
use crate::node;
use crate::request::Request;

use zerocopy::FromBytes;

/// Most inodes in the table. Beyond them every inode counts as changed.
const INODES_MAX: usize = 1 << 18;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// Number of the last change of each inode.
    changed: HashMap<u64, u64>,
    /// Inodes whose next fsync fails.
    lost: HashSet<u64>,
    /// The table of changes was full since the last durable point that is known.
    overflow: bool,
    /// A takeover came while the table was full: each inode that is not in `told` counts as lost.
    all_lost: bool,
    told: HashSet<u64>,
    /// The first `transact` fails.
    point_lost: bool,
    durable: u64,
    /// The greatest number of an accepted change.
    accepted: u64,
}

impl Unsynced {
    /// The owner says how far the volume is.
    pub(super) fn reached(&mut self, progress: Progress) {
        let Progress { accepted, durable } = progress;
        self.accepted = self.accepted.max(accepted);
        if durable > self.durable {
            self.durable = durable;
            // Not at each point: it goes through the whole table.
            if durable >= self.accepted {
                self.changed.clear();
                self.overflow = false;
            } else if self.changed.len() >= INODES_MAX / 2 {
                self.changed.retain(|_, number| *number > durable);
            }
        }
    }

    /// The owner has answered a request. Call [`reached`](Self::reached) first.
    pub(super) fn answered(&mut self, request: &Request<'_>, answer: &AnswerFrame) {
        if answer.error != 0 {
            return;
        }
        for nodeid in changes(request, &answer.bytes).into_iter().flatten() {
            if self.changed.len() >= INODES_MAX {
                self.overflow = true;
                return;
            }
            self.changed.insert(node::inode(nodeid).0, answer.progress.accepted);
        }
    }

    /// Another node owns the volume, or this one has lost its session. `has_all`: the volume has
    /// all that this node was told of, and it is durable.
    pub(super) fn owner_changed(&mut self, has_all: bool) {
        if has_all {
            self.changed.clear();
            self.overflow = false;
        }
        let durable = self.durable;
        self.point_lost |= self.overflow || self.changed.values().any(|number| *number > durable);
        let lost = self.changed.drain().filter(|(_, number)| *number > durable);
        self.lost.extend(lost.map(|(inode, _)| inode));
        if self.overflow || self.lost.len() > INODES_MAX {
            self.all_lost = true;
            self.told.clear();
        }
        self.overflow = false;
        // The next owner counts from the beginning.
        (self.durable, self.accepted) = (0, 0);
    }

    /// Whether a request would confirm what is lost.
    pub(super) fn must_fail(&mut self, request: &Request<'_>) -> bool {
        match request.header.opcode {
            opcode::FSYNC | opcode::FSYNCDIR => {
                let inode = node::inode(request.header.nodeid).0;
                let known = self.lost.remove(&inode);
                if self.told.len() >= INODES_MAX {
                    self.told.clear();
                    self.all_lost = false;
                }
                known || self.all_lost && self.told.insert(inode)
            }
            opcode::SYNCFS => std::mem::take(&mut self.point_lost),
            opcode::IOCTL => {
                let wanted = request.arguments().take::<crate::abi::input::IoctlIn>();
                let makes_a_point = wanted.is_ok_and(|wanted| {
                    matches!(
                        wanted.cmd,
                        ioctl::TRANSACT | ioctl::CHECKPOINT | ioctl::SNAPSHOT_CREATE
                    )
                });
                makes_a_point && std::mem::take(&mut self.point_lost)
            }
            _ => false,
        }
    }
}

/// The node ids of what a request has changed.
fn changes(request: &Request<'_>, answer: &[u8]) -> [Option<u64>; 2] {
    let nodeid = request.header.nodeid;
    let mut arguments = request.arguments();
    let made = || EntryOut::read_from_prefix(answer).ok().map(|(entry, _)| entry.nodeid);
    match request.header.opcode {
        opcode::SETATTR
        | opcode::WRITE
        | opcode::FALLOCATE
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::UNLINK
        | opcode::RMDIR => [Some(nodeid), None],
        opcode::OPEN => {
            let truncates =
                arguments.take::<OpenIn>().is_ok_and(|open| open.flags as i32 & libc::O_TRUNC != 0);
            [truncates.then_some(nodeid), None]
        }
        opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR | opcode::CREATE | opcode::TMPFILE => {
            [Some(nodeid), made()]
        }
        opcode::LINK => [Some(nodeid), arguments.take::<LinkIn>().ok().map(|link| link.oldnodeid)],
        opcode::RENAME | opcode::RENAME2 => {
            [Some(nodeid), arguments.take::<RenameIn>().ok().map(|to| to.newdir)]
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            [arguments.take::<CopyFileRangeIn>().ok().map(|copy| copy.nodeid_out), None]
        }
        opcode::IOCTL => {
            let wanted = arguments.take::<crate::abi::input::IoctlIn>();
            [wanted.is_ok_and(|wanted| sets_flags(wanted.cmd)).then_some(nodeid), None]
        }
        _ => [None, None],
    }
}

#[cfg(test)]
#[path = "unsynced_tests.rs"]
mod tests;
