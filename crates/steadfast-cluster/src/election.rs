//! When a node that stands by takes over: [`Candidate`], without clock and without etcd.
//!
//! Invariant: silence counts only while etcd answers. After an outage of etcd the owner gets the
//! time of a whole [`SILENCE`] to beat again.

use std::time::Duration;

use crate::record::{Node, OwnerRecord, Seen};
use crate::{PREFERENCE, SILENCE};

/// A node that stands by.
#[derive(Debug)]
pub struct Candidate {
    node: Node,
    /// The newest revision seen, and when its first sight had arrived.
    seen: Option<(i64, Duration)>,
    /// An epoch that etcd was asked for and did not answer, and when it was asked first.
    tried: Option<(u64, Duration)>,
}

/// What a candidate does after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look again soon.
    Wait,
    /// Store this record if the revision is still the one that was seen; unless etcd says that it
    /// did not, call [`Candidate::tried`].
    Take(OwnerRecord),
    /// An earlier record, first sent at this time, was stored: this node is the owner.
    Own(OwnerRecord, Duration),
    /// This process may have been the owner without knowing it, and is or will be fenced.
    End,
}

impl Candidate {
    /// A candidate that has seen nothing yet.
    pub fn new(node: Node) -> Candidate {
        Candidate { node, seen: None, tried: None }
    }

    /// etcd has shown this record to a look that was sent and answered at these times of a
    /// monotonic clock. The record may have been stored at any time before the first answer. The
    /// revision was still the same at any time from this sending on.
    pub fn saw(&mut self, sent: Duration, answered: Duration, record: &Seen<OwnerRecord>) -> Step {
        if let Some((epoch, sent)) = self.tried {
            let found = &record.value;
            if found.is_of(&self.node, epoch) {
                return Step::Own(found.clone(), sent);
            }
            if found.epoch > epoch || found.unfenced.contains(&self.node) {
                return Step::End;
            }
            if found.epoch == epoch {
                // An epoch has one owner, so the record was never stored.
                self.tried = None;
            }
        }
        let first = match self.seen {
            Some((revision, first)) if revision == record.revision => first,
            _ => answered,
        };
        self.seen = Some((record.revision, first));
        let waited = sent.saturating_sub(first);
        let OwnerRecord { node, next, unfenced, .. } = &record.value;
        // An owner that was evicted may be sure of its lease for a while.
        let limit = match next {
            _ if node.is_some() || !unfenced.is_empty() => SILENCE,
            Some(next) if *next != self.node.name => PREFERENCE,
            _ => Duration::ZERO,
        };
        match waited >= limit {
            true => Step::Take(record.value.taken_by(&self.node)),
            false => Step::Wait,
        }
    }

    /// etcd has not said whether it has stored the record of this epoch, which was sent now. Of
    /// several attempts the first may be the one that is stored.
    pub fn tried(&mut self, epoch: u64, sent: Duration) {
        if self.tried.is_none_or(|(earlier, _)| earlier != epoch) {
            self.tried = Some((epoch, sent));
        }
    }

    /// etcd has not answered a look.
    pub fn saw_nothing(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node { name: name.into(), host: "host".into(), process: 1, instance: name.into() }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_silent_owner_loses_the_volume_and_has_to_be_fenced() {
        let mut candidate = Candidate::new(node("b"));
        let mut record = Seen { value: OwnerRecord::default().taken_by(&node("a")), revision: 5 };
        assert_eq!(candidate.saw(ms(10), ms(10), &record), Step::Wait);
        record.revision = 6;
        assert_eq!(candidate.saw(ms(900), ms(900), &record), Step::Wait, "the owner has beaten");
        assert_eq!(candidate.saw(ms(1699), ms(1699), &record), Step::Wait);
        let Step::Take(taken) = candidate.saw(ms(1700), ms(1700), &record) else {
            panic!("silent")
        };
        assert!(taken.is_of(&node("b"), 2));
        assert_eq!(taken.unfenced, [node("a")]);
        assert_eq!(taken.taken_by(&node("c")).unfenced, [node("a"), node("b")]);
    }

    #[test]
    fn a_slow_look_shortens_no_silence() {
        let mut candidate = Candidate::new(node("b"));
        let record = Seen { value: OwnerRecord::default().taken_by(&node("a")), revision: 5 };
        assert_eq!(candidate.saw(ms(0), ms(500), &record), Step::Wait);
        assert_eq!(candidate.saw(ms(900), ms(1400), &record), Step::Wait);
        assert!(matches!(candidate.saw(ms(1300), ms(1300), &record), Step::Take(_)));
    }

    #[test]
    fn an_outage_of_etcd_is_no_silence() {
        let mut candidate = Candidate::new(node("b"));
        let record = Seen { value: OwnerRecord::default().taken_by(&node("a")), revision: 5 };
        assert_eq!(candidate.saw(ms(0), ms(0), &record), Step::Wait);
        candidate.saw_nothing();
        assert_eq!(candidate.saw(ms(5000), ms(5000), &record), Step::Wait);
        assert!(matches!(candidate.saw(ms(5800), ms(5800), &record), Step::Take(_)));
    }

    #[test]
    fn a_lost_answer_makes_an_owner_or_ends_the_process() {
        let free = Seen { value: OwnerRecord::default(), revision: 0 };
        let tried = || {
            let mut candidate = Candidate::new(node("a"));
            assert!(matches!(candidate.saw(ms(0), ms(0), &free), Step::Take(_)));
            candidate.tried(1, ms(5));
            candidate.tried(1, ms(9));
            candidate
        };
        let stored = Seen { value: free.value.taken_by(&node("a")), revision: 1 };
        assert_eq!(tried().saw(ms(1), ms(1), &stored), Step::Own(stored.value.clone(), ms(5)));
        assert!(matches!(tried().saw(ms(1), ms(1), &free), Step::Take(_)), "not stored yet");
        let later = Seen { value: stored.value.taken_by(&node("b")), revision: 2 };
        assert_eq!(tried().saw(ms(1), ms(1), &later), Step::End);
        let evicted = OwnerRecord { node: None, unfenced: vec![node("a")], ..stored.value };
        assert_eq!(tried().saw(ms(1), ms(1), &Seen { value: evicted, revision: 2 }), Step::End);
        let other = Seen { value: free.value.taken_by(&node("b")), revision: 1 };
        assert_eq!(tried().saw(ms(1), ms(1), &other), Step::Wait);
    }

    #[test]
    fn a_volume_without_owner_goes_to_the_node_that_was_asked_for() {
        let free = OwnerRecord { epoch: 7, next: Some("b".into()), ..OwnerRecord::default() };
        let record = Seen { value: free, revision: 5 };
        let (mut b, mut c) = (Candidate::new(node("b")), Candidate::new(node("c")));
        assert!(
            matches!(b.saw(ms(0), ms(0), &record), Step::Take(taken) if taken.is_of(&node("b"), 8))
        );
        assert_eq!(c.saw(ms(0), ms(0), &record), Step::Wait);
        assert_eq!(c.saw(ms(1999), ms(1999), &record), Step::Wait);
        assert!(
            matches!(c.saw(ms(2000), ms(2000), &record), Step::Take(taken) if taken.unfenced.is_empty())
        );
        let evicted = OwnerRecord { unfenced: vec![node("a")], ..OwnerRecord::default() };
        let evicted = Seen { value: evicted, revision: 6 };
        assert_eq!(b.saw(ms(3000), ms(3000), &evicted), Step::Wait, "a may be sure of its lease");
        assert!(
            matches!(b.saw(ms(3800), ms(3800), &evicted), Step::Take(taken) if taken.unfenced.len() == 1)
        );
        let new = Seen { value: OwnerRecord::default(), revision: 0 };
        let taken = Candidate::new(node("c")).saw(ms(0), ms(0), &new);
        assert!(matches!(taken, Step::Take(taken) if taken.is_of(&node("c"), 1)));
    }
}
