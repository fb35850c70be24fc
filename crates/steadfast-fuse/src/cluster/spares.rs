//! [`Spares`]: attributes that an answer of the owner has told, for the next request that asks.
//!
//! The kernel may not keep the attributes of most answers ([`super::keeper`]). It asks again at
//! once: after CREATE and LOOKUP, or for each of two checks of a permission. The owner has
//! delegated them to this node all the same. So this node gives the next GETATTR the same ones,
//! once, and the kernel keeps nothing of that.
//!
//! A change of a name changes the attributes of its directory, and the kernel asks for these next.
//! So the owner tells them with the answer. They are given as often as the kernel asks.
//!
//! The owner recalls a delegation before another node changes the file. What this node changes
//! itself has to be seen here. A request [touches](touched) the attributes of a node from when it
//! is sent until it is answered.
//!
//! Invariants:
//! - The attributes of an answer are kept only if nothing has met them since that answer was asked
//!   for. Neither a request of this node nor a recall may have. They go before such a request is
//!   sent, before such a recall is confirmed, with the time of the delegation, and with the
//!   session.
//! - So they are those that the owner would tell at the moment when they are given.
//!
//! Everything happens under the lock of the channel. Requests have numbers that grow there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use zerocopy::FromBytes;

use crate::abi::input::CreateIn;
use crate::abi::opcode;
use crate::abi::output::{Attr, AttrOut, EntryOut};
use crate::filesystem::recall::RecalledNode;
use crate::request::Request;

/// Most nodes whose attributes are kept.
const NODES_MAX: usize = 1 << 10;
/// Most nodes that are known as touched. Beyond them all count as touched.
const TOUCHED_MAX: usize = 1 << 12;

/// The nodes whose attributes a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    Nothing,
    Node(u64),
    All,
}

impl Touched {
    fn has(self, nodeid: u64) -> bool {
        match self {
            Touched::Nothing => false,
            Touched::Node(touched) => touched == nodeid,
            Touched::All => true,
        }
    }
}

/// What a request touches. Reading counts, because of the access time. A new file needs no mention:
/// a request that touches it has its node.
fn touched(request: &Request<'_>) -> Touched {
    let here = Touched::Node(request.header.nodeid);
    match request.header.opcode {
        opcode::LOOKUP
        | opcode::GETATTR
        | opcode::STATX
        | opcode::STATFS
        | opcode::GETXATTR
        | opcode::LISTXATTR
        | opcode::OPENDIR
        | opcode::RELEASEDIR
        | opcode::FLUSH
        | opcode::GETLK
        | opcode::SETLK
        | opcode::SETLKW => Touched::Nothing,
        opcode::READ
        | opcode::READLINK
        | opcode::READDIR
        | opcode::WRITE
        | opcode::SETATTR
        | opcode::OPEN
        | opcode::RELEASE
        | opcode::FALLOCATE
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::LSEEK
        | opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::SYMLINK => here,
        // Without O_EXCL it may truncate a file that is there.
        opcode::CREATE => match request.arguments().take::<CreateIn>() {
            Ok(wanted) if wanted.flags as i32 & libc::O_EXCL != 0 => here,
            _ => Touched::All,
        },
        _ => Touched::All,
    }
}

/// Attributes that an answer tells of a node, and how long they are delegated.
fn delegated(request: &Request<'_>, answer: &[u8]) -> Option<(u64, Attr, Duration)> {
    let (nodeid, attr, seconds, nanoseconds) = match request.header.opcode {
        opcode::GETATTR => {
            let (found, _) = AttrOut::read_from_prefix(answer).ok()?;
            (request.header.nodeid, found.attr, found.attr_valid, found.attr_valid_nsec)
        }
        opcode::LOOKUP | opcode::CREATE => {
            let (found, _) = EntryOut::read_from_prefix(answer).ok()?;
            (found.nodeid, found.attr, found.attr_valid, found.attr_valid_nsec)
        }
        _ => return None,
    };
    Some((nodeid, attr, duration(seconds, nanoseconds)))
}

fn duration(seconds: u64, nanoseconds: u32) -> Duration {
    Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanoseconds.into()))
}

#[derive(Debug, Clone, Copy)]
struct Spare {
    attr: Attr,
    until: Instant,
    /// Whether it is given only once.
    once: bool,
}

/// What an answer tells.
pub(super) struct AnswerParts<'a> {
    /// The answer itself, unless it is an error.
    pub(super) answer: Option<&'a [u8]>,
    /// See [`AnswerFrame::directory`](super::frame::AnswerFrame).
    pub(super) directory: Option<&'a AttrOut>,
    /// When the request has arrived.
    pub(super) asked: Instant,
}

impl AnswerParts<'_> {
    /// The attributes that are delegated by it, those of a changed directory last.
    fn spares(&self, request: &Request<'_>) -> [Option<(u64, Spare)>; 2] {
        let spare = |attr, valid, once| {
            Some(Spare { attr, until: self.asked.checked_add(valid)?, once })
                .filter(|_| !Duration::is_zero(&valid))
        };
        let told = self.answer.and_then(|answer| {
            let (nodeid, attr, valid) = delegated(request, answer)?;
            Some((nodeid, spare(attr, valid, true)?))
        });
        let directory = self.directory.and_then(|found| {
            let valid = duration(found.attr_valid, found.attr_valid_nsec);
            Some((request.header.nodeid, spare(found.attr, valid, false)?))
        });
        [told, directory]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Spares {
    by_node: HashMap<u64, Spare>,
    /// Answers to requests with smaller numbers may be from before a change of the node.
    since: HashMap<u64, u64>,
    /// The same for all nodes.
    all_since: u64,
}

impl Spares {
    /// A request with this number is about to be sent.
    pub(super) fn asked(&mut self, request: &Request<'_>, number: u64) {
        self.touch(touched(request), number);
    }

    /// The request with a number is answered, and no request with the number `next` is sent yet.
    /// `pending`: those that are not answered.
    pub(super) fn answered<'a>(
        &mut self,
        request: &Request<'_>,
        told: &AnswerParts<'_>,
        number: u64,
        next: u64,
        pending: impl Iterator<Item = Request<'a>> + Clone,
    ) {
        let spares = told.spares(request).map(|spare| {
            spare.filter(|(nodeid, _)| {
                self.since.get(nodeid).is_none_or(|since| *since <= number)
                    && self.all_since <= number
                    && !pending.clone().any(|other| touched(&other).has(*nodeid))
            })
        });
        self.touch(touched(request), next);
        // After that: what such an answer tells is from after the change.
        for (nodeid, spare) in spares.into_iter().flatten() {
            self.put(nodeid, spare);
        }
    }

    /// The owner recalls nodes, and no request with the number `next` is sent yet.
    pub(super) fn recall(&mut self, nodes: &[RecalledNode], next: u64) {
        nodes.iter().for_each(|node| self.touch(Touched::Node(node.nodeid), next));
    }

    /// The session is lost, and no request with the number `next` is sent yet.
    pub(super) fn lose(&mut self, next: u64) {
        self.touch(Touched::All, next);
    }

    /// The attributes of a node, for the kernel to use `now`.
    pub(super) fn take(&mut self, nodeid: u64, now: Instant) -> Option<AttrOut> {
        let Spare { attr, until, once } = *self.by_node.get(&nodeid)?;
        if once || now >= until {
            self.by_node.remove(&nodeid);
        }
        (now < until).then_some(AttrOut { attr, ..AttrOut::default() })
    }

    fn touch(&mut self, touched: Touched, since: u64) {
        match touched {
            Touched::Nothing => {}
            Touched::Node(nodeid) if self.since.len() < TOUCHED_MAX => {
                self.by_node.remove(&nodeid);
                self.since.insert(nodeid, since);
            }
            Touched::Node(_) | Touched::All => {
                self.by_node.clear();
                self.since.clear();
                self.all_since = since;
            }
        }
    }

    fn put(&mut self, nodeid: u64, spare: Spare) {
        if self.by_node.len() >= NODES_MAX {
            // Most are never asked for.
            self.by_node.clear();
        }
        self.by_node.insert(nodeid, spare);
    }
}

#[cfg(test)]
#[path = "spares_tests.rs"]
mod tests;
