//! How long an owner knows that it is the owner: [`Tenure`], without clock and without etcd.
//!
//! Invariant: only a beat that etcd took extends the lease, from the moment when it was sent. A
//! record that still names this node does not: another node may have watched it for
//! [`SILENCE`](crate::SILENCE) already.

use std::time::Duration;

use crate::LEASE;
use crate::record::{Node, OwnerRecord, Seen};

/// The term of an owner.
#[derive(Debug)]
pub struct Tenure {
    node: Node,
    epoch: u64,
    /// End of the lease.
    until: Duration,
}

/// What a look at the record has shown.
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for a moment")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This node is still the owner: store this record, if the revision is still the one seen.
    Beat(OwnerRecord),
    /// Another node has the volume, or none: this process may not act any more.
    Deposed,
}

impl Tenure {
    /// The term in `epoch`, which began with a change that was sent at `sent` and that etcd took.
    pub fn new(node: Node, epoch: u64, sent: Duration) -> Tenure {
        Tenure { node, epoch, until: sent + LEASE }
    }

    /// The number of the term.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether no other node can have taken over at `now`.
    pub fn is_sure(&self, now: Duration) -> bool {
        now < self.until
    }

    /// How long it is so from `now` on, if it is.
    pub fn sure_for(&self, now: Duration) -> Option<Duration> {
        self.until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// etcd shows this record.
    pub fn saw(&self, record: &Seen<OwnerRecord>) -> Verdict {
        match record.value.is_of(&self.node, self.epoch) {
            true => {
                Verdict::Beat(OwnerRecord { beat: record.value.beat + 1, ..record.value.clone() })
            }
            false => Verdict::Deposed,
        }
    }

    /// etcd has taken a beat, which was sent at `sent`.
    pub fn beaten(&mut self, sent: Duration) {
        self.until = self.until.max(sent + LEASE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn only_beats_that_were_taken_extend_the_lease_from_when_they_were_sent() {
        let node = Node { name: "a".into(), host: "h".into(), process: 1, instance: "i".into() };
        let record = OwnerRecord::default().taken_by(&node);
        let mut tenure = Tenure::new(node.clone(), 1, ms(100));
        assert!(tenure.is_sure(ms(799)) && !tenure.is_sure(ms(800)));
        let seen = Seen { value: record, revision: 9 };
        assert!(matches!(tenure.saw(&seen), Verdict::Beat(record) if record.beat == 1));
        assert!(!tenure.is_sure(ms(800)), "a look extends nothing");
        tenure.beaten(ms(300));
        assert!(tenure.is_sure(ms(999)) && !tenure.is_sure(ms(1000)));
        let again = Node { instance: "later".into(), ..node };
        let lost = Seen { value: seen.value.taken_by(&again), revision: 11 };
        assert_eq!(tenure.saw(&lost), Verdict::Deposed, "another process of the same node");
    }
}
