//! [`Closes`]: the closes that a peer answers without the owner.
//!
//! The kernel reports each close(2) with FLUSH. The owner does four things then. It ends the fcntl
//! locks of the process, and sets a transaction point if the mask has `close`. It returns the error
//! of mapped pages that could not be stored, and it refuses a file that is stale. Most closes need
//! nothing of that. The owner knows the mask, the errors and the stale files, and tells with the
//! answer that opens a file (`filesystem/closing.rs`). This node knows of locks and mappings,
//! because all requests pass here.
//!
//! The kernel still sends FLUSH to this node. Without (FOPEN_NOFLUSH) it would not write back
//! mapped pages at a close, and a lock that is taken later could not bring FLUSH back.
//!
//! Invariants: a FLUSH is answered here only
//! - for [`CLOSES_VALID`] after the request that the owner has answered so, and until the owner
//!   recalls that;
//! - of a file whose node id has the tag of that answer. A rollback changes the tag. It recalls
//!   nothing from a node whose time has ended, so a file of before it would not be known as stale;
//! - of a file all of whose open descriptors were opened so since the last recall;
//! - while no program of this node has asked for a lock of the file, or written to a mapping of it.
//!   That counts from when the file was last closed everywhere on this node.
//!
//! So the owner would answer each of them with success, and change nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::abi::opcode;
use crate::filesystem::affected::CLOSES;
use crate::filesystem::delegations::CLOSES_VALID;
use crate::filesystem::recall::RecalledNode;
use crate::node;
use crate::request::Request;
use crate::validity::opened_node;

/// Most files that are known to be open. Beyond them the owner answers each close, until the next
/// session.
const FILES_MAX: usize = 1 << 16;

/// A file that programs of this node have open.
#[derive(Debug)]
struct OpenHere {
    handles: u64,
    /// Its closes go to the owner.
    forwarded: bool,
}

#[derive(Debug, Default)]
struct ClosesState {
    /// By node id.
    files: HashMap<u64, OpenHere>,
    /// Some open files are not in the table.
    incomplete: bool,
    /// Until when closes are answered here, and the tag of the node ids of which they are.
    until: Option<(Instant, u16)>,
    /// When the owner took that back last.
    recalled: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Closes(Mutex<ClosesState>);

impl Closes {
    /// The kernel sends a request. This must come before the owner gets it.
    pub(super) fn asked(&self, request: &Request<'_>) {
        let nodeid = request.header.nodeid;
        match request.header.opcode {
            opcode::SETLK | opcode::SETLKW => self.state().forward(nodeid),
            opcode::WRITE if request.is_for_pages() => self.state().forward(nodeid),
            opcode::RELEASE => self.state().released(nodeid),
            _ => {}
        }
    }

    /// Whether a request is a close to be answered `now`, with success.
    pub(super) fn answers(&self, request: &Request<'_>, now: Instant) -> bool {
        request.header.opcode == opcode::FLUSH && self.state().answers(request.header.nodeid, now)
    }

    /// The owner has answered a request, without an error. `asked`: when it has arrived.
    pub(super) fn answered(&self, request: &Request<'_>, answer: &[u8], asked: Instant) {
        if let Some(opened) = opened_node(request, answer) {
            self.state().opened(opened.nodeid, opened.no_flush, asked);
        }
    }

    /// The owner recalls what is delegated of nodes. Takes out what stands for closes.
    pub(super) fn recall(&self, nodes: &mut Vec<RecalledNode>, now: Instant) {
        let before = nodes.len();
        nodes.retain(|recalled| node::inode(recalled.nodeid) != CLOSES);
        if nodes.len() < before {
            self.state().recall(now);
        }
    }

    /// The owner is no more: each close goes to the next one.
    pub(super) fn owner_lost(&self, now: Instant) {
        self.state().recall(now);
    }

    /// The session is lost. The kernel's nodes are stale, and it has none of the next session.
    pub(super) fn lose(&self) {
        *self.state() = ClosesState::default();
    }

    fn state(&self) -> MutexGuard<'_, ClosesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClosesState {
    fn forward(&mut self, nodeid: u64) {
        if let Some(file) = self.files.get_mut(&nodeid) {
            file.forwarded = true;
        }
    }

    fn opened(&mut self, nodeid: u64, alone: bool, asked: Instant) {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&nodeid) {
            self.incomplete = true;
            return;
        }
        // An answer may have been overtaken by a recall.
        let alone = alone && self.recalled.is_none_or(|at| asked > at);
        let file = self.files.entry(nodeid).or_insert(OpenHere { handles: 0, forwarded: false });
        file.handles += 1;
        file.forwarded |= !alone;
        if alone {
            // The later one, in order: a later request never has an older tag.
            self.until = self.until.max(Some((asked + CLOSES_VALID, node::tag_of(nodeid))));
        }
    }

    /// One open file is no more. The locks that were taken through it end at the owner, whatever
    /// the close has done.
    fn released(&mut self, nodeid: u64) {
        if let Entry::Occupied(mut file) = self.files.entry(nodeid) {
            file.get_mut().handles -= 1;
            if file.get().handles == 0 {
                file.remove();
            }
        }
    }

    fn answers(&self, nodeid: u64, now: Instant) -> bool {
        !self.incomplete
            && self.until.is_some_and(|(until, tag)| now < until && node::tag_of(nodeid) == tag)
            && self.files.get(&nodeid).is_some_and(|file| !file.forwarded)
    }

    /// The mask may get the event, or nodes become stale. The table stays: files may have locks.
    fn recall(&mut self, now: Instant) {
        self.until = None;
        self.recalled = Some(now);
        self.files.values_mut().for_each(|file| file.forwarded = true);
    }
}

#[cfg(test)]
#[path = "closes_tests.rs"]
mod tests;
