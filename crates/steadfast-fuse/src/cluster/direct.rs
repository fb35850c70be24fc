//! [`DirectReads`]: data that a peer reads from the medium itself. The owner answers a large READ
//! with a plan ([`crate::planned`]), so the bytes do not pass through it.
//!
//! Invariants:
//! - Each byte matches the checksum that the owner has told. So it is what the file had when the
//!   owner answered, whatever is on the medium by now.
//! - If that cannot be, or takes longer than [`TIME`], the owner is asked for the data. What comes
//!   later does not count.
//! - A plan covers all bytes that the kernel wants. A read that ends early tells the kernel where
//!   the file ends, and recalls may overtake a direct read, but not an answer of the owner.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::fs::ReadPlan;

use super::frame::AnswerFrame;
use crate::abi::input::ReadIn;
use crate::abi::opcode;
use crate::log::{log_info, log_warning};
use crate::planned;
use crate::request::Request;

/// Reads what a plan tells from the medium; `None` if it does not match. See [`ReadPlan::read`].
pub type ReadDirectly = Box<dyn Fn(&ReadPlan) -> io::Result<Option<Vec<u8>>> + Send + Sync>;

/// Smaller reads are as fast through the owner.
const SIZE_MIN: u32 = 32 << 10;
/// How long a direct read may take. The kernel keeps pages that it fills locked, and a change by
/// another node waits up to 0.62 s for them. A medium may not answer at all.
const TIME: Duration = Duration::from_millis(200);
/// How long the owner is asked for all data after the medium has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// After so many reads in a row in vain the medium counts as failed: it may be another one. A few
/// are usual while a file is written.
const VAIN_MAX: u32 = 64;
/// A read that takes too long counts as much as so many that do not match.
const LATE: u32 = 8;
/// The owner is asked for data while so many reads are under way. More would wait behind them and
/// be late.
const UNDER_WAY_MAX: usize = 16;

/// A plan of the owner.
pub(super) struct Planned {
    pub(super) answer: AnswerFrame,
    /// How many sessions were lost when it came.
    pub(super) lost: u64,
}

/// What the threads of [`super::direct_answers`] receive.
pub(super) struct Plans {
    pub(super) plans: Receiver<Planned>,
    /// The numbers of requests, and until when their data must be there. In order.
    pub(super) ends: Receiver<(u64, Instant)>,
}

/// See the module.
pub(super) struct DirectReads {
    read: Option<ReadDirectly>,
    plans: Sender<Planned>,
    ends: Sender<(u64, Instant)>,
    /// The requests that are read directly.
    under_way: Mutex<HashMap<u64, UnderWay>>,
    medium: Mutex<MediumState>,
}

/// A read that has not ended.
pub(super) struct UnderWay {
    /// How many sessions were lost when its plan came.
    pub(super) lost: u64,
    /// When its data must be there.
    end: Instant,
    /// It would be late because of the others, so the owner is asked.
    pub(super) one_too_many: bool,
}

impl UnderWay {
    /// Whether its data comes too late.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }
}

/// The bytes of a plan.
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    /// Some of them come from the medium; a hole does not.
    from_medium: bool,
}

#[derive(Default)]
struct MediumState {
    /// Reads in a row that were in vain.
    vain: u32,
    /// When it has failed last.
    failed: Option<Instant>,
}

impl DirectReads {
    /// [`start`](super::direct_answers::start) has to be called with the second result.
    pub(super) fn new(read: Option<ReadDirectly>) -> (DirectReads, Plans) {
        let (plans, received) = channel();
        let (ends, ending) = channel();
        let (under_way, medium) = (Mutex::default(), Mutex::default());
        let reads = DirectReads { read, plans, ends, under_way, medium };
        (reads, Plans { plans: received, ends: ending })
    }

    /// Whether the owner may answer a request with a plan.
    pub(super) fn wants(&self, request: &Request<'_>) -> bool {
        let is_large = |wanted: ReadIn| wanted.size >= SIZE_MIN;
        self.read.is_some()
            && request.header.opcode == opcode::READ
            && request.arguments().take().is_ok_and(is_large)
            && self.medium().failed.is_none_or(|failed| failed.elapsed() >= PAUSE)
    }

    /// Has a thread read what the owner tells.
    pub(super) fn queue(&self, answer: AnswerFrame, lost: u64) {
        let (number, end) = (answer.number, Instant::now() + TIME);
        let mut under_way = self.under_way();
        let one_too_many = under_way.len() >= UNDER_WAY_MAX;
        under_way.insert(number, UnderWay { lost, end, one_too_many });
        drop(under_way);
        // The threads end after this.
        let _ = self.plans.send(Planned { answer, lost });
        let _ = self.ends.send((number, end));
    }

    /// Whether the medium can be read at all.
    pub(super) fn has_medium(&self) -> bool {
        self.read.is_some()
    }

    /// The bytes of a plan, if they are on the medium.
    pub(super) fn read(&self, plan: &[u8]) -> Option<Found> {
        let (plan, read) = (planned::decode(plan)?, self.read.as_ref()?);
        match read(&plan) {
            Ok(Some(bytes)) => {
                let from_medium = plan.extents.iter().any(|extent| !extent.checksums.is_empty());
                return Some(Found { bytes, from_medium });
            }
            Ok(None) => self.medium().is_in_vain(1, "it does not have what the owner has written"),
            Err(error) => self.medium().has_failed(&error.to_string()),
        }
        None
    }

    /// Whether the data is wanted from the medium; `None`: the read has ended.
    pub(super) fn is_wanted(&self, number: u64) -> Option<bool> {
        self.under_way().get(&number).map(|read| !read.one_too_many)
    }

    /// Ends a read; `None`: another thread has ended it.
    pub(super) fn end(&self, number: u64) -> Option<UnderWay> {
        self.under_way().remove(&number)
    }

    /// A read was in time.
    pub(super) fn note_found(&self, found: &Found) {
        if found.from_medium {
            self.medium().works();
        }
    }

    /// A read takes too long.
    pub(super) fn note_late(&self) {
        self.medium().is_in_vain(LATE, "it takes too long");
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<u64, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn medium(&self) -> MutexGuard<'_, MediumState> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MediumState {
    fn works(&mut self) {
        if self.failed.take().is_some() {
            log_info!("large reads go to the medium again");
        }
        self.vain = 0;
    }

    fn is_in_vain(&mut self, weight: u32, why: &str) {
        self.vain += weight;
        if self.vain >= VAIN_MAX {
            self.has_failed(why);
        }
    }

    fn has_failed(&mut self, why: &str) {
        if self.failed.replace(Instant::now()).is_none() {
            log_warning!("this node reads all data from the owner, not the medium: {why}");
        }
        self.vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_fails_after_reads_in_vain_and_works_after_one_that_matches() {
        let mut medium = MediumState::default();
        for _ in 0..VAIN_MAX / LATE - 1 {
            medium.is_in_vain(LATE, "late");
        }
        (1..LATE).for_each(|_| medium.is_in_vain(1, "other bytes"));
        assert!(medium.failed.is_none());
        medium.works();
        (1..VAIN_MAX).for_each(|_| medium.is_in_vain(1, "other bytes"));
        assert!(medium.failed.is_none());
        medium.is_in_vain(1, "other bytes");
        assert!(medium.failed.is_some());
        medium.works();
        assert!(medium.failed.is_none());
        medium.has_failed("it is gone");
        assert!(medium.failed.is_some());
    }
}
