//! [`DirectReads`]: data that a peer reads from the medium itself. The owner answers a large READ
//! with a plan ([`crate::planned`]), so the bytes do not pass through it.
//!
//! Invariants:
//! - Each byte matches the checksum that the owner has told. So it is what the file had when the
//!   owner answered, whatever is on the medium by now.
//! - If that cannot be, or takes longer than [`TIME`], the owner is asked for the data.
//! - A plan covers all bytes that the kernel wants. A read that ends early tells the kernel where
//!   the file ends, and recalls may overtake a direct read, but not an answer of the owner.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use steadfast::fs::ReadPlan;

use super::frame::AnswerFrame;
use super::switch::Switch;
use crate::abi::input::ReadIn;
use crate::abi::opcode;
use crate::log::{log_info, log_warning};
use crate::planned;
use crate::request::Request;

/// Reads what a plan tells from the medium; `None` if it does not match. See [`ReadPlan::read`].
pub type ReadDirectly = Box<dyn Fn(&ReadPlan) -> io::Result<Option<Vec<u8>>> + Send + Sync>;

/// Smaller reads are as fast through the owner.
const SIZE_MIN: u32 = 32 << 10;
/// How old a direct read may be, counted from the kernel's request. The kernel keeps pages that it
/// fills locked, and a change by another node waits up to 0.62 s for them.
const TIME: Duration = Duration::from_millis(250);
/// How long the owner is asked for all data after the medium has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// After so many reads in a row that do not match the medium counts as failed: it may be another
/// one.
const MISMATCHES_MAX: u32 = 64;
/// Reads that are under way at once.
const THREADS: usize = 4;

/// A plan of the owner, and how many sessions were lost when it came.
type Planned = (AnswerFrame, u64);

/// See the module.
pub(super) struct DirectReads {
    read: Option<ReadDirectly>,
    queue: Sender<Planned>,
    medium: Mutex<MediumState>,
}

#[derive(Default)]
struct MediumState {
    /// Reads in a row that did not match. A few are usual while a file is written.
    mismatches: u32,
    /// When it has failed last.
    failed: Option<Instant>,
}

impl DirectReads {
    /// [`start`](Self::start) has to be called with the second result.
    pub(super) fn new(read: Option<ReadDirectly>) -> (DirectReads, Receiver<Planned>) {
        let (queue, plans) = channel();
        (DirectReads { read, queue, medium: Mutex::default() }, plans)
    }

    /// Starts the threads that read. They end with the switch.
    pub(super) fn start(switch: &Arc<Switch>, plans: Receiver<Planned>) -> io::Result<()> {
        if switch.direct.read.is_none() {
            return Ok(());
        }
        let plans = Arc::new(Mutex::new(plans));
        for number in 0..THREADS {
            let (switch, plans) = (Arc::downgrade(switch), Arc::clone(&plans));
            let run = move || run(&switch, &plans);
            Builder::new().name(format!("direct-{number}")).spawn(run)?;
        }
        Ok(())
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
        // The threads end after this.
        let _ = self.queue.send((answer, lost));
    }

    /// The bytes of a plan, if they are on the medium.
    fn read(&self, plan: &[u8]) -> Option<Vec<u8>> {
        let (plan, read) = (planned::decode(plan)?, self.read.as_ref()?);
        let found = read(&plan);
        self.medium().note(&found);
        found.ok().flatten()
    }

    fn medium(&self) -> MutexGuard<'_, MediumState> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MediumState {
    fn note(&mut self, found: &io::Result<Option<Vec<u8>>>) {
        let why = match found {
            Ok(Some(_)) => {
                if self.failed.take().is_some() {
                    log_info!("large reads go to the medium again");
                }
                self.mismatches = 0;
                return;
            }
            Ok(None) => {
                self.mismatches += 1;
                if self.mismatches < MISMATCHES_MAX {
                    return;
                }
                "it does not have what the owner has written".to_owned()
            }
            Err(error) => error.to_string(),
        };
        if self.failed.replace(Instant::now()).is_none() {
            log_warning!("this node reads all data from the owner, not the medium: {why}");
        }
        self.mismatches = 0;
    }
}

fn run(switch: &Weak<Switch>, plans: &Mutex<Receiver<Planned>>) {
    loop {
        let planned = plans.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok((answer, lost)), Some(switch)) = (planned, switch.upgrade()) else { return };
        switch.read_directly(answer, lost);
    }
}

impl Switch {
    /// Answers a READ with what the owner's plan tells, or asks the owner for the data.
    fn read_directly(&self, mut answer: AnswerFrame, lost: u64) {
        let bytes = self.direct.read(&answer.bytes);
        let number = answer.number;
        match bytes.filter(|_| self.channel.waits_less_than(number, TIME)) {
            Some(bytes) => {
                answer.bytes = bytes;
                self.answered(answer, lost);
            }
            None => self.channel.ask_for_data(number, lost),
        }
    }
}
