//! [`Keeper`]: what this node's kernel may keep of the answers that it gets.
//!
//! The owner says how long the kernel may keep an answer, and recalls that before the answer is
//! wrong ([`crate::filesystem::delegations`]). The kernel has a gap: a recall that overtakes the
//! answer to a request for attributes makes the kernel drop that answer. It then goes on with the
//! attributes that it has, which may be older than the request. So attributes may be kept only once
//! an answer with the same ones has been with the kernel for [`SETTLING`]: no recall can overtake
//! that one.
//!
//! Names have no such gap: a recall begins a new epoch of names, and an answer that was asked for in
//! an earlier one is expired from the start.
//!
//! Invariant: nothing is kept of an answer that is older than [`LATE`]. The owner counts on that
//! when it waits for the end of what it cannot recall.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::input::{BatchForgetIn, ForgetOne};
use crate::abi::opcode;
use crate::device::Device;
use crate::filesystem::delegations::LATE;
use crate::log::log_warning;
use crate::request::Request;
use crate::validity;

/// Longest time in which a thread in the kernel takes the answer that was given to it.
const SETTLING: Duration = Duration::from_millis(500);
/// Most nodes that are known. Beyond them no attributes are kept.
const NODES_MAX: usize = 1 << 16;

/// What the kernel knows of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// When it was given attributes first that no recall can have overtaken.
    first: Option<Instant>,
    /// When they were recalled last.
    recalled: Option<Instant>,
}

/// The nodes whose attributes the kernel may know.
#[derive(Debug, Default)]
struct Settled {
    nodes: HashMap<u64, Known>,
    /// When everything was recalled last.
    all: Option<Instant>,
}

/// See the module.
pub(super) struct Keeper {
    device: Device,
    /// Whether the kernel can expire all names at once.
    epochs: bool,
    settled: Mutex<Settled>,
}

impl Keeper {
    pub(super) fn new(device: Device, epochs: bool) -> Keeper {
        Keeper { device, epochs, settled: Mutex::default() }
    }

    /// Prepares an answer for the kernel. `asked`: when the request has arrived.
    pub(super) fn limit(&self, request: &Request<'_>, answer: &mut [u8], asked: Instant) {
        let now = Instant::now();
        let late = asked + LATE < now;
        let allowed = |may: bool| if may { Duration::MAX } else { Duration::ZERO };
        let attributes = |nodeid| allowed(!late && self.settled().is_settled(nodeid, asked, now));
        validity::limit(request, answer, || allowed(!late), attributes);
    }

    /// The kernel has forgotten nodes.
    pub(super) fn forget(&self, request: &Request<'_>) {
        if request.header.opcode == opcode::FORGET {
            self.settled().nodes.remove(&request.header.nodeid);
            return;
        }
        let mut arguments = request.arguments();
        let Ok(batch) = arguments.take::<BatchForgetIn>() else { return };
        let mut settled = self.settled();
        for _ in 0..batch.count {
            let Ok(one) = arguments.take::<ForgetOne>() else { return };
            settled.nodes.remove(&one.nodeid);
        }
    }

    /// Has the kernel drop the attributes of nodes, and all names if `names`.
    pub(super) fn recall(&self, nodes: &[u64], names: bool) {
        self.settled().recall(nodes, Instant::now());
        self.drop_from_kernel(nodes, names);
    }

    /// Has the kernel drop everything that it keeps.
    pub(super) fn recall_all(&self) {
        let nodes = self.settled().recall_all(Instant::now());
        self.drop_from_kernel(&nodes, true);
    }

    /// None of this waits for anything.
    fn drop_from_kernel(&self, nodes: &[u64], names: bool) {
        let attributes = nodes.iter().try_for_each(|node| self.device.invalidate_inode(*node, -1));
        let expired = if names && self.epochs { self.device.expire_entries() } else { Ok(()) };
        if let Err(error) = attributes.and(expired)
            && error.raw_os_error() != Some(libc::ENODEV)
        {
            log_warning!("the kernel keeps what another node has changed for a while: {error}");
        }
    }

    fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settled {
    /// Whether the kernel may keep the attributes in an answer that is given `now`.
    fn is_settled(&mut self, nodeid: u64, asked: Instant, now: Instant) -> bool {
        let overtaken = |recall: Option<Instant>| recall.is_some_and(|at| asked < at + SETTLING);
        if overtaken(self.all) {
            return false;
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&nodeid) {
            return false;
        }
        let known = self.nodes.entry(nodeid).or_default();
        !overtaken(known.recalled) && *known.first.get_or_insert(now) + SETTLING <= now
    }

    fn recall(&mut self, nodes: &[u64], now: Instant) {
        for node in nodes {
            if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(node) {
                self.all = Some(now);
                return;
            }
            self.nodes.insert(*node, Known { first: None, recalled: Some(now) });
        }
    }

    /// Returns the nodes that the kernel may know.
    fn recall_all(&mut self, now: Instant) -> Vec<u64> {
        self.all = Some(now);
        self.nodes.drain().map(|(node, _)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_kept_once_the_same_ones_have_settled() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut settled = Settled::default();
        assert!(!settled.is_settled(7, at(0), at(1)), "the first look");
        assert!(!settled.is_settled(7, at(400), at(401)));
        assert!(settled.is_settled(7, at(501), at(502)));
        assert!(!settled.is_settled(8, at(501), at(502)), "another node");
        // A recall: what was asked for before it, or shortly behind it, does not count.
        settled.recall(&[7], at(600));
        for asked in [550, 601, 1099] {
            assert!(!settled.is_settled(7, at(asked), at(1120)));
        }
        assert!(!settled.is_settled(7, at(1100), at(1101)), "the first look behind the recall");
        assert!(!settled.is_settled(7, at(1500), at(1600)));
        assert!(settled.is_settled(7, at(1601), at(1602)));
        assert!(settled.is_settled(8, at(1601), at(1602)), "not recalled");
        // A recall of everything.
        let mut nodes = settled.recall_all(at(1700));
        nodes.sort_unstable();
        assert_eq!(nodes, [7, 8]);
        assert!(!settled.is_settled(8, at(2100), at(2101)));
        assert!(!settled.is_settled(8, at(2200), at(2201)));
        assert!(settled.is_settled(8, at(2702), at(2703)));
    }

    #[test]
    fn nodes_that_do_not_fit_are_not_kept() {
        let start = Instant::now();
        let later = start + 2 * SETTLING;
        let mut settled = Settled::default();
        for node in 0..NODES_MAX as u64 {
            settled.is_settled(node, start, start);
        }
        assert!(settled.is_settled(0, later, later));
        assert!(!settled.is_settled(1 << 40, later, later));
        assert!(!settled.is_settled(1 << 40, later + 2 * SETTLING, later + 2 * SETTLING));
        // The recall of a node that does not fit counts for all.
        settled.recall(&[1 << 40], later);
        assert!(!settled.is_settled(0, later, later));
    }
}
