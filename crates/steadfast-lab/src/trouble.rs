//! What goes wrong with the requests to a [`Tape`](crate::tape::Tape): the n-th one of a kind
//! fails, once, a few times, on that place for ever, or with everything after it.

use steadfast_media::{ErrorClass, MediumError, MediumOperation};

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// So many requests of the kind in a row.
    Times(u64),
    /// Every later request of the kind that touches the place of the first: a bad sector.
    Stuck,
    /// Every later request: the medium is gone.
    Gone,
}

/// A fault that waits for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// Which requests count.
    pub operation: MediumOperation,
    /// How many of them pass first.
    pub skip: u64,
    /// What the error says.
    pub class: ErrorClass,
    /// How long it goes on.
    pub lasting: Lasting,
    /// Half of a write that fails arrives all the same.
    pub torn: bool,
}

impl std::fmt::Display for Armed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let torn = if self.torn { ", torn" } else { "" };
        write!(
            f,
            "{:?} {} fails ({:?}, {:?}{torn})",
            self.operation, self.skip, self.class, self.lasting
        )
    }
}

/// The faults of one tape, and what it has counted.
#[derive(Debug, Default)]
pub struct Trouble {
    armed: Option<Armed>,
    /// Faults sleep, and nothing is counted: the judge is looking.
    paused: bool,
    /// Requests by kind since the last [`arm`](Self::arm).
    counts: [u64; 4],
    /// Where the first request that failed was.
    place: Option<(u64, u64)>,
    /// Requests that failed, by kind.
    strikes: [u64; 4],
}

fn index(operation: MediumOperation) -> usize {
    match operation {
        MediumOperation::Read => 0,
        MediumOperation::Write => 1,
        MediumOperation::Flush => 2,
        MediumOperation::Discard => 3,
    }
}

impl Trouble {
    /// Arms a fault, or none, and counts from 0 again.
    pub fn arm(&mut self, armed: Option<Armed>) {
        *self = Trouble { armed, paused: self.paused, ..Trouble::default() };
    }

    /// Lets faults sleep or wakes them. Returns whether they slept before.
    pub fn pause(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.paused, paused)
    }

    /// Requests of a kind so far.
    pub fn count(&self, operation: MediumOperation) -> u64 {
        self.counts[index(operation)]
    }

    /// Requests of a kind that failed.
    pub fn strikes(&self, operation: MediumOperation) -> u64 {
        self.strikes[index(operation)]
    }

    /// Requests that failed.
    pub fn all_strikes(&self) -> u64 {
        self.strikes.iter().sum()
    }

    /// Counts a request; `Some`: it fails with this error, and whether half of it arrives.
    pub fn strike(
        &mut self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Option<(MediumError, bool)> {
        if self.paused {
            return None;
        }
        let count = self.counts[index(operation)];
        self.counts[index(operation)] += 1;
        let armed = self.armed?;
        let began = self.place.is_some();
        let same = armed.operation == operation;
        let hit = match armed.lasting {
            Lasting::Times(times) => {
                same && (armed.skip..armed.skip.saturating_add(times)).contains(&count)
            }
            Lasting::Gone => began || (same && count == armed.skip),
            Lasting::Stuck => {
                let there = self.place.is_some_and(|(start, end)| {
                    offset < end && start < offset.saturating_add(length)
                });
                same && (there || (!began && count == armed.skip))
            }
        };
        if !hit {
            return None;
        }
        self.place.get_or_insert((offset, offset.saturating_add(length)));
        self.strikes[index(operation)] += 1;
        Some((
            MediumError { operation, offset, length, class: armed.class, os_error: 5 },
            armed.torn,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(lasting: Lasting, requests: &[(MediumOperation, u64)]) -> Vec<bool> {
        let mut trouble = Trouble::default();
        trouble.arm(Some(Armed {
            operation: MediumOperation::Read,
            skip: 1,
            class: ErrorClass::Permanent,
            lasting,
            torn: false,
        }));
        requests.iter().map(|(kind, offset)| trouble.strike(*kind, *offset, 10).is_some()).collect()
    }

    #[test]
    fn faults_last_as_long_as_they_should() {
        use MediumOperation::{Read, Write};
        let requests = [(Read, 0), (Write, 0), (Read, 50), (Read, 70), (Write, 50), (Read, 55)];
        assert_eq!(struck(Lasting::Times(1), &requests), [false, false, true, false, false, false]);
        assert_eq!(struck(Lasting::Times(2), &requests), [false, false, true, true, false, false]);
        assert_eq!(struck(Lasting::Stuck, &requests), [false, false, true, false, false, true]);
        assert_eq!(struck(Lasting::Gone, &requests), [false, false, true, true, true, true]);
    }
}
