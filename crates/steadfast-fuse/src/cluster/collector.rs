//! [`Collector`]: what a node that becomes the owner gets from the others before it opens the
//! volume.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::volume::KeptDeltas;

use super::deltas::KeptChanges;
use super::hello::{Hello, Purpose, Welcome};
use super::link::Link;

/// How long the next owner waits for the other nodes. They look for it several times in that time.
const WAIT: Duration = Duration::from_millis(350);
/// Most nodes that bring something.
const NODES_MAX: usize = 64;

/// See the module.
pub struct Collector {
    epoch: u64,
    /// By node; `None`: what it keeps is not of the owner before.
    brought: Mutex<HashMap<u64, Option<KeptDeltas>>>,
    wake: Condvar,
}

impl Collector {
    /// For the owner in this term.
    pub fn new(epoch: u64) -> Collector {
        Collector { epoch, brought: Mutex::default(), wake: Condvar::new() }
    }

    /// Takes what a node brings over this connection. Other nodes try again later.
    ///
    /// # Errors
    /// The connection breaks; what the other side has sent is not of a node of this version.
    pub fn serve(&self, mut link: Link) -> io::Result<()> {
        let Some(hello) = Hello::read(&mut *link.reader)? else {
            return Welcome::OtherVersion.write(&mut *link.writer);
        };
        if hello.purpose != Purpose::Bring || hello.epoch != self.epoch {
            return Welcome::OtherTerm.write(&mut *link.writer);
        }
        let kept = KeptChanges::read(&mut *link.reader)?;
        self.take(hello.brought, kept);
        Welcome::Served.write(&mut *link.writer)
    }

    /// Takes what a node keeps. Only what is of the owner in the term before counts: a later one
    /// may have changed the volume.
    pub(super) fn take(&self, node: u64, kept: KeptChanges) {
        let mut brought = self.brought();
        if brought.len() < NODES_MAX {
            let counts = kept.epoch.checked_add(1) == Some(self.epoch);
            brought.insert(node, counts.then_some(kept.deltas));
            self.wake.notify_all();
        }
    }

    /// Waits for `nodes` nodes, or for a while. Returns what they have brought, and their numbers.
    pub fn collect(&self, nodes: usize) -> Vec<(u64, KeptDeltas)> {
        let end = Instant::now() + WAIT;
        let mut brought = self.brought();
        while brought.len() < nodes {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            brought =
                self.wake.wait_timeout(brought, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        brought.drain().filter_map(|(node, kept)| Some((node, kept?))).collect()
    }

    fn brought(&self) -> MutexGuard<'_, HashMap<u64, Option<KeptDeltas>>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(epoch: u64, sequence: u64) -> KeptChanges {
        KeptChanges { epoch, deltas: KeptDeltas { sequence, ..KeptDeltas::default() } }
    }

    #[test]
    fn only_what_is_of_the_owner_before_counts_and_all_nodes_are_waited_for() {
        let collector = Collector::new(5);
        for (node, epoch) in [(1, 4), (2, 3), (3, 5), (4, u64::MAX), (1, 4)] {
            collector.take(node, kept(epoch, node));
        }
        let begun = Instant::now();
        let brought = collector.collect(4);
        assert!(begun.elapsed() < WAIT, "all of them are there");
        let brought: Vec<_> = brought.iter().map(|(node, kept)| (*node, kept.sequence)).collect();
        assert_eq!(brought, [(1, 1)]);
    }

    #[test]
    fn a_node_that_does_not_come_is_not_waited_for_for_ever() {
        let collector = Collector::new(5);
        collector.take(1, kept(4, 7));
        let begun = Instant::now();
        assert_eq!(collector.collect(2).len(), 1);
        assert!(begun.elapsed() >= WAIT);
    }
}
