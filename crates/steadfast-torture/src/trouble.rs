//! The failures of requests to a [`Tape`](crate::tape::Tape). The n-th request of a kind fails:
//! once, a few times, forever at that place, or together with everything after it.

use steadfast_media::{ErrorClass, MediumError, MediumOperation};

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// This many successive requests of the kind fail.
    Times(u64),
    /// Every later request of the kind that touches the place of the first failure: a bad sector.
    Stuck,
    /// Every later request: the medium has failed.
    Gone,
}

/// An armed fault that waits for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// The kind of requests that count.
    pub operation: MediumOperation,
    /// Number of these requests that succeed first.
    pub skip: u64,
    /// The class of the error.
    pub class: ErrorClass,
    /// The duration of the fault.
    pub lasting: Lasting,
    /// Half of a failing write still arrives.
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
    /// Faults are disabled and nothing is counted, while the judge reads.
    paused: bool,
    /// Requests by kind since the last [`arm`](Self::arm).
    counts: [u64; 4],
    /// Place of the first failed request.
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
    /// Arms a fault, or none, and resets the counts.
    pub fn arm(&mut self, armed: Option<Armed>) {
        *self = Trouble { armed, paused: self.paused, ..Trouble::default() };
    }

    /// Disables or enables faults. Returns whether they were disabled before.
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

    /// Counts a request. `Some` means that it fails with this error; the flag says whether half of
    /// it arrives.
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
