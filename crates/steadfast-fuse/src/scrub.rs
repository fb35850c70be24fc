//! Scrubbing a mounted volume: a thread that reads at a bounded rate, and its commands.
//!
//! [`start`], [`stop`] and [`status`] are for other processes, by ioctl on the mount. One pass runs
//! at a time and ends with the mount. The findings of a pass stay available until the next pass
//! begins, and are in the log.

use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::scrub::{Scrub, ScrubFinding, ScrubReport};
use steadfast::{Platform, Volume};
use steadfast_media::Medium;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;
use crate::ioctl::call::{NONE, READ, WRITE, call, number};
use crate::log::{log_error, log_info, log_warning};

/// `_IOW(TYPE, 0x50, ScrubStartArgument)`: starts a pass.
pub const START: u32 = number(WRITE, 0x50, size_of::<ScrubStartArgument>());
/// `_IO(TYPE, 0x51)`: stops the running pass.
pub const STOP: u32 = number(NONE, 0x51, 0);
/// `_IOR(TYPE, 0x52, ScrubStatusArgument)`: returns the progress of the running pass, or the
/// results of the last one.
pub const STATUS: u32 = number(READ, 0x52, size_of::<ScrubStatusArgument>());

/// Bytes for findings in [`ScrubStatusArgument`].
const TEXT_MAX: usize = 8192;
/// Largest number of findings that are logged individually.
const LOGGED_MAX: usize = 20;

/// Argument of [`START`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScrubStartArgument {
    /// Bytes to read per second; 0: no limit.
    pub rate: u64,
}

/// Argument of [`STATUS`]; [`ScrubReport`] has the meaning of the fields.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct ScrubStatusArgument {
    /// A number of [`ScrubState`].
    pub state: u32,
    pub reserved: u32,
    pub rate: u64,
    pub elapsed_ms: u64,
    pub bytes: u64,
    pub bytes_total: u64,
    pub nodes: u64,
    pub data_blocks: u64,
    pub healed: u64,
    pub bad: u64,
    /// Findings, one a line, as many as fit; the rest is zeros.
    pub text: [u8; TEXT_MAX],
}

/// State of the scrubber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubState {
    /// No pass since the mount.
    Never = 0,
    /// A pass is under way.
    Running = 1,
    /// The last pass covered the whole volume.
    Finished = 2,
    /// The last pass was stopped.
    Stopped = 3,
    /// The last pass failed.
    Failed = 4,
}

/// Progress of the running pass, or results of the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Whether a pass runs, and how the last one ended.
    pub state: ScrubState,
    /// Rate limit in bytes per second; 0: none.
    pub rate: u64,
    /// Running time.
    pub elapsed: Duration,
    /// Bytes read. [`bytes_total`](Self::bytes_total) estimates the total.
    pub bytes: u64,
    /// See [`bytes`](Self::bytes).
    pub bytes_total: u64,
    /// Tree nodes verified.
    pub nodes: u64,
    /// Blocks of data verified.
    pub data_blocks: u64,
    /// Bad copies that were rewritten.
    pub healed: u64,
    /// Damage that remains.
    pub bad: u64,
    /// The first findings.
    pub findings: Vec<String>,
}

/// Starts a pass over the volume of `file`, with `rate` bytes per second (0: no limit). Only the
/// mounting user and root may use it.
///
/// # Errors
/// EBUSY while a pass runs; EPERM; ENOTTY.
pub fn start(file: &File, rate: u64) -> io::Result<()> {
    call(file, START, &mut ScrubStartArgument { rate })
}

/// Stops the running pass, if there is one. Only the mounting user and root may use it.
///
/// # Errors
/// EPERM; ENOTTY.
pub fn stop(file: &File) -> io::Result<()> {
    call::<[u8; 0]>(file, STOP, &mut [])
}

/// Returns the progress of the running pass, or the results of the last one.
///
/// # Errors
/// ENOTTY.
pub fn status(file: &File) -> io::Result<ScrubStatus> {
    let mut argument = ScrubStatusArgument::new_zeroed();
    call(file, STATUS, &mut argument)?;
    Ok(ScrubStatus::from(&argument))
}

/// The state of scrubbing, and requests for passes.
#[derive(Debug)]
pub(crate) struct Scrubber {
    shared: Mutex<ScrubProgress>,
    changed: Condvar,
}

#[derive(Debug)]
struct ScrubProgress {
    state: ScrubState,
    rate: u64,
    started: Instant,
    /// While no pass runs: the duration of the last one.
    elapsed: Duration,
    report: ScrubReport,
    stop: bool,
    /// The mount has ended.
    end: bool,
}

impl Scrubber {
    pub(crate) fn new() -> Scrubber {
        let shared = ScrubProgress {
            state: ScrubState::Never,
            rate: 0,
            started: Instant::now(),
            elapsed: Duration::ZERO,
            report: ScrubReport::default(),
            stop: false,
            end: false,
        };
        Scrubber { shared: Mutex::new(shared), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ScrubProgress> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a pass.
    pub(crate) fn start(&self, rate: u64) -> Result<(), Errno> {
        let mut shared = self.lock();
        if shared.state == ScrubState::Running {
            return Err(Errno(libc::EBUSY));
        }
        shared.state = ScrubState::Running;
        shared.rate = rate;
        shared.started = Instant::now();
        shared.report = ScrubReport::default();
        shared.stop = false;
        self.changed.notify_all();
        Ok(())
    }

    /// Stops the running pass.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.lock().end = true;
        self.changed.notify_all();
    }

    /// The present state.
    pub(crate) fn status(&self) -> ScrubStatusArgument {
        let shared = self.lock();
        let running = shared.state == ScrubState::Running;
        let elapsed = if running { shared.started.elapsed() } else { shared.elapsed };
        let mut argument = ScrubStatusArgument::new_zeroed();
        argument.state = shared.state as u32;
        argument.rate = shared.rate;
        argument.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let report = &shared.report;
        argument.bytes = report.bytes;
        argument.bytes_total = report.bytes_total;
        argument.nodes = report.nodes;
        argument.data_blocks = report.data_blocks;
        argument.healed = report.healed;
        argument.bad = report.bad;
        let mut room = &mut argument.text[..];
        for finding in &report.findings {
            let line = format!("{finding}\n");
            let Some((place, rest)) = room.split_at_mut_checked(line.len()) else { break };
            place.copy_from_slice(line.as_bytes());
            room = rest;
        }
        argument
    }

    /// Runs requested passes until [`end`](Self::end).
    pub(crate) fn run<M: Medium + 'static, P: Platform + Clone + 'static>(
        &self,
        volume: &Volume<M, P>,
    ) {
        loop {
            let mut shared = self.lock();
            while shared.state != ScrubState::Running && !shared.end {
                shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
            }
            if shared.end {
                return;
            }
            drop(shared);
            let state = self.pass(volume);
            let mut shared = self.lock();
            shared.state = state;
            shared.elapsed = shared.started.elapsed();
        }
    }

    fn pass<M: Medium + 'static, P: Platform + Clone + 'static>(
        &self,
        volume: &Volume<M, P>,
    ) -> ScrubState {
        let mut scrub = Scrub::new();
        let mut told = 0;
        let state = loop {
            let step = volume.scrub_step(&mut scrub);
            let report = scrub.report();
            // Bad data is reported at the end, when its path is known.
            let new = report.findings.iter().skip(told).filter(|finding| finding.inode.is_none());
            tell(new, LOGGED_MAX.saturating_sub(told));
            told = report.findings.len();
            let mut shared = self.lock();
            shared.report.clone_from(report);
            match step {
                Ok(_) if report.finished => break ScrubState::Finished,
                Ok(_) => {}
                Err(error) => {
                    log_error!("scrub: cannot go on: {error}");
                    break ScrubState::Failed;
                }
            }
            if self.pause(shared) {
                break ScrubState::Stopped;
            }
        };
        let report = scrub.report();
        tell(report.findings.iter().filter(|finding| finding.inode.is_some()), LOGGED_MAX);
        let said = match state {
            ScrubState::Finished => "finished",
            ScrubState::Stopped => "stopped",
            _ => "failed",
        };
        let (read, nodes, blocks) = (report.bytes, report.nodes, report.data_blocks);
        let (healed, bad) = (report.healed, report.bad);
        if bad > 0 {
            log_error!(
                "scrub {said}: {read} bytes, {nodes} nodes, {blocks} data blocks: {bad} bad, {healed} healed"
            );
        } else {
            log_info!(
                "scrub {said}: {read} bytes, {nodes} nodes, {blocks} data blocks: {healed} healed"
            );
        }
        state
    }

    /// Waits until the rate allows more reading; `true` if the pass shall stop.
    fn pause(&self, mut shared: MutexGuard<'_, ScrubProgress>) -> bool {
        loop {
            if shared.stop || shared.end {
                return true;
            }
            if shared.rate == 0 {
                return false;
            }
            let due = Duration::from_secs_f64(shared.report.bytes as f64 / shared.rate as f64);
            let Some(early) =
                due.checked_sub(shared.started.elapsed()).filter(|early| !early.is_zero())
            else {
                return false;
            };
            let waited = self.changed.wait_timeout(shared, early);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Logs at most `most` findings.
fn tell<'f>(findings: impl Iterator<Item = &'f ScrubFinding>, most: usize) {
    for finding in findings.take(most) {
        if finding.healed {
            log_warning!("scrub: {finding}");
        } else {
            log_error!("scrub: {finding}");
        }
    }
}

impl From<&ScrubStatusArgument> for ScrubStatus {
    fn from(argument: &ScrubStatusArgument) -> ScrubStatus {
        let text = argument.text.split(|byte| *byte == 0).next().unwrap_or_default();
        ScrubStatus {
            state: match argument.state {
                1 => ScrubState::Running,
                2 => ScrubState::Finished,
                3 => ScrubState::Stopped,
                4 => ScrubState::Failed,
                _ => ScrubState::Never,
            },
            rate: argument.rate,
            elapsed: Duration::from_millis(argument.elapsed_ms),
            bytes: argument.bytes,
            bytes_total: argument.bytes_total,
            nodes: argument.nodes,
            data_blocks: argument.data_blocks,
            healed: argument.healed,
            bad: argument.bad,
            findings: String::from_utf8_lossy(text).lines().map(str::to_owned).collect(),
        }
    }
}
