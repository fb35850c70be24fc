//! [`PagedNodes`]: the nodes of which this node's kernel may have pages.
//!
//! The kernel tells by FORGET that it has a node no more. Another thread may execute FORGET only
//! after requests of a later time, for which the kernel has the node again, with pages. So a node
//! that was used lately stays: at most [`LATE`] after its last use.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::filesystem::recall::RecalledNode;

/// Most nodes that are known to have pages.
const NODES_MAX: usize = 1 << 16;
/// How much later than a request that the kernel sent after it FORGET may be executed.
const LATE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub(super) struct PagedNodes {
    nodes: HashMap<u64, Use>,
}

/// The last use of a node's pages.
struct Use {
    at: Instant,
    /// FORGET was executed since.
    forgotten: bool,
}

impl Use {
    fn is_over(&self, now: Instant) -> bool {
        self.forgotten && now >= self.at + LATE
    }
}

impl PagedNodes {
    /// Notes that the kernel may get pages of a node. Returns false if there is no place for it.
    pub(super) fn add(&mut self, nodeid: u64, now: Instant) -> bool {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&nodeid) {
            self.nodes.retain(|_, last| !last.is_over(now));
            if self.nodes.len() >= NODES_MAX {
                return false;
            }
        }
        self.nodes.insert(nodeid, Use { at: now, forgotten: false });
        true
    }

    /// Takes any node out, for a place.
    pub(super) fn take_one(&mut self) -> Option<RecalledNode> {
        let other = self.nodes.keys().next().copied()?;
        self.nodes.remove(&other);
        Some(RecalledNode::stale(other))
    }

    /// The kernel has forgotten a node, at an earlier time than now.
    pub(super) fn forget(&mut self, nodeid: u64, now: Instant) {
        if let Some(last) = self.nodes.get_mut(&nodeid) {
            last.forgotten = true;
            if last.is_over(now) {
                self.nodes.remove(&nodeid);
            }
        }
    }

    pub(super) fn has(&self, nodeid: u64, now: Instant) -> bool {
        self.nodes.get(&nodeid).is_some_and(|last| !last.is_over(now))
    }

    /// Takes all nodes out.
    pub(super) fn take_all(&mut self) -> Vec<RecalledNode> {
        self.nodes.drain().map(|(nodeid, _)| RecalledNode::stale(nodeid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_forget_does_not_hide_pages_that_came_after_it() {
        let (mut nodes, start) = (PagedNodes::default(), Instant::now());
        assert!(nodes.add(7, start));
        // The kernel forgets the node, has it again, and reads it. Then FORGET is executed.
        let again = start + 2 * LATE;
        assert!(nodes.add(7, again));
        nodes.forget(7, again + Duration::from_millis(1));
        assert!(nodes.has(7, again + LATE / 2), "the kernel may have read pages after FORGET");
        assert!(!nodes.has(7, again + LATE), "FORGET is not that late");
        assert!(nodes.add(7, again + 2 * LATE));
        assert!(nodes.has(7, again + 9 * LATE), "a node in use stays");
    }

    #[test]
    fn a_node_that_was_not_used_lately_goes_at_once() {
        let (mut nodes, start) = (PagedNodes::default(), Instant::now());
        assert!(nodes.add(7, start));
        nodes.forget(7, start + LATE);
        assert!(nodes.nodes.is_empty());
        nodes.forget(8, start);
        assert!(!nodes.has(8, start));
    }

    #[test]
    fn forgotten_nodes_make_place_for_others() {
        let (mut nodes, start) = (PagedNodes::default(), Instant::now());
        for nodeid in 0..NODES_MAX as u64 {
            assert!(nodes.add(nodeid, start));
        }
        assert!(nodes.add(5, start), "it has its place");
        nodes.forget(5, start);
        assert!(!nodes.add(u64::MAX, start), "a node may have pages until FORGET cannot be late");
        assert!(nodes.add(u64::MAX, start + LATE));
        assert!(!nodes.has(5, start + LATE));
        assert!(!nodes.add(5, start + LATE), "no place is left");
        let taken = nodes.take_one().expect("a node");
        assert!(!nodes.has(taken.nodeid, start + LATE));
        assert!(nodes.add(5, start + LATE));
        assert_eq!(nodes.take_all().len(), NODES_MAX);
    }
}
