//! [`Collector`]: what a node that becomes the owner gets from the others before it opens the
//! volume.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::volume::{KeptDeltas, Reached};

use super::deltas::KeptChanges;
use super::executions::{Executed, Inherited};
use super::hello::{Hello, Purpose, Welcome};
use super::holdings::Holdings;
use super::link::Link;
use crate::init::Agreement;

/// How long the next owner waits for the other nodes. They look for it several times in that time.
const WAIT: Duration = Duration::from_millis(700);
/// Most nodes that bring something.
const NODES_MAX: usize = 64;

/// What a node brings.
pub struct Brought {
    /// Distinguishes the nodes.
    pub(super) node: u64,
    pub(super) agreement: Agreement,
    /// The tag of its node ids.
    pub(super) tag: u16,
    pub(super) holdings: Holdings,
    /// What it was told of and that was not durable.
    pub deltas: KeptDeltas,
    /// The requests that the state of these deltas has.
    pub(super) executed: Vec<Executed>,
    /// The node's own ones that the owner before had executed when it ended.
    pub(super) last: Option<Vec<Executed>>,
    /// How the opened volume compares with what the node was told of.
    pub(super) reached: Reached,
}

impl Brought {
    pub(super) fn new(
        node: u64,
        agreement: Agreement,
        kept: KeptChanges,
        holdings: Holdings,
    ) -> Brought {
        let KeptChanges { tag, deltas, executed, last, .. } = kept;
        let reached = Reached::Less;
        Brought { node, agreement, tag, holdings, deltas, executed, last, reached }
    }

    /// The volume is open. `closed`: the owner before has closed it.
    pub fn compared(&mut self, reached: Reached, closed: bool) {
        if closed {
            // A close does more than what nodes are told of.
            self.reached = reached.min(Reached::All);
        } else {
            (self.reached, self.last) = (reached, None);
        }
    }

    /// Whether the opened volume has all that the node was told of.
    pub fn has_all(&self) -> bool {
        self.reached >= Reached::All
    }
}

/// By node; `None`: what it has is not of the owner before.
type ByNode = HashMap<u64, Option<Brought>>;

/// See the module.
pub struct Collector {
    epoch: u64,
    /// The term of the owner before.
    before: Option<u64>,
    /// After the collecting there is none.
    brought: Mutex<Option<ByNode>>,
    wake: Condvar,
}

impl Collector {
    /// For the owner in term `epoch`, after an owner in term `before`.
    pub fn new(epoch: u64, before: Option<u64>) -> Collector {
        let (brought, wake) = (Mutex::new(Some(HashMap::new())), Condvar::new());
        Collector { epoch, before, brought, wake }
    }

    /// Takes what a node brings over this connection. Other nodes try again later.
    ///
    /// # Errors
    /// The connection breaks; what the other side has sent is not of a node of this version.
    pub fn serve(&self, mut link: Link) -> io::Result<()> {
        let Some(hello) = Hello::read(&mut *link.reader)? else {
            return Welcome::OtherVersion.write(0, &mut *link.writer);
        };
        if hello.purpose != Purpose::Bring || hello.epoch != self.epoch {
            return Welcome::OtherTerm.write(0, &mut *link.writer);
        }
        if self.brought().is_none() {
            return Welcome::OtherTerm.write(0, &mut *link.writer);
        }
        let kept = KeptChanges::read(&mut *link.reader)?;
        let holdings = Holdings::read(&mut *link.reader)?;
        let agreement = Agreement::of_peer(hello.minor, hello.flags);
        let epoch = kept.epoch;
        match self.take(epoch, Brought::new(hello.node, agreement, kept, holdings)) {
            true => Welcome::Served.write(0, &mut *link.writer),
            false => Welcome::OtherTerm.write(0, &mut *link.writer),
        }
    }

    /// Takes what a node has of the owner in term `epoch`, if it is not too late. Only what is of
    /// the last owner that has opened the volume counts: a later one may have changed it.
    pub(super) fn take(&self, epoch: u64, of_node: Brought) -> bool {
        let mut brought = self.brought();
        let Some(brought) = brought.as_mut().filter(|brought| brought.len() < NODES_MAX) else {
            return false;
        };
        let counts = Some(epoch) == self.before;
        brought.insert(of_node.node, counts.then_some(of_node));
        self.wake.notify_all();
        true
    }

    /// Waits for `nodes` nodes, or for a while. Returns what they have brought.
    pub fn collect(&self, nodes: usize) -> Vec<Brought> {
        let end = Instant::now() + WAIT;
        let mut brought = self.brought();
        while brought.as_ref().is_some_and(|brought| brought.len() < nodes) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            brought =
                self.wake.wait_timeout(brought, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        brought.take().unwrap_or_default().into_values().flatten().collect()
    }

    fn brought(&self) -> MutexGuard<'_, Option<ByNode>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of the requests of each node to the owner before.
pub(super) fn inherited(brought: &[Brought]) -> Vec<Inherited> {
    let with_all = || brought.iter().filter(|brought| brought.has_all());
    let executed: Vec<Executed> =
        with_all().flat_map(|brought| brought.executed.iter().copied()).collect();
    let is_exact = brought.iter().any(|brought| brought.reached == Reached::Same);
    let of_node = |Brought { node, last, .. }: &Brought| match last {
        Some(last) => Inherited::of_node(*node, last, true),
        None => Inherited::of_node(*node, &executed, is_exact),
    };
    brought.iter().map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brings(collector: &Collector, node: u64, epoch: u64) -> bool {
        let deltas = KeptDeltas { sequence: node, ..KeptDeltas::default() };
        let kept = KeptChanges { epoch, deltas, ..KeptChanges::default() };
        let agreement = Agreement::of_peer(44, 0);
        collector.take(epoch, Brought::new(node, agreement, kept, Holdings::default()))
    }

    #[test]
    fn only_what_is_of_the_owner_before_counts_and_all_nodes_are_waited_for() {
        let collector = Collector::new(7, Some(4));
        for (node, epoch) in [(1, 4), (2, 3), (3, 6), (4, u64::MAX), (1, 4)] {
            assert!(brings(&collector, node, epoch));
        }
        let begun = Instant::now();
        let brought = collector.collect(4);
        assert!(begun.elapsed() < WAIT, "all of them are there");
        let brought: Vec<_> =
            brought.iter().map(|brought| (brought.node, brought.deltas.sequence)).collect();
        assert_eq!(brought, [(1, 1)]);
        assert!(!brings(&collector, 5, 4), "too late");
    }

    #[test]
    fn a_node_that_does_not_come_is_not_waited_for_for_ever() {
        let collector = Collector::new(5, Some(4));
        brings(&collector, 1, 4);
        let begun = Instant::now();
        assert_eq!(collector.collect(2).len(), 1);
        assert!(begun.elapsed() >= WAIT);
    }
}
