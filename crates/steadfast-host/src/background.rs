//! [`BackgroundThread`]: the thread that does the background work of a volume.
//!
//! The core has no threads. Its timer, its checkpoints and the reclaiming of deleted files advance
//! only when the host calls [`Volume::background`]. One call is a turn. The thread takes a turn at
//! least every [`INTERVAL`], immediately while more work is due, and immediately after a
//! [`Waker::wake`].
//!
//! A volume that was opened after a power cut gets its first turn late, or with the first change
//! ([`turns`]). Replaying the log into the tree reads nodes all over the medium, and a starting
//! system has more urgent reads.
//!
//! The thread reports a failure to the owner once, not every 50 ms: it repeats the same failure
//! only after a successful turn. After a panic the thread reports it and ends, because the state of
//! the work is unknown.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast::{Error, Platform, Result, Volume};
use steadfast_media::Medium;

/// Longest pause between two turns.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Pause after a failed turn, because the cause rarely disappears within 50 ms.
const INTERVAL_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a replay is postponed while the volume does not change.
const CALM: Duration = Duration::from_secs(5);

/// The background work of a volume that was just opened; each call is one turn. During the first
/// five seconds a turn does nothing while the log waits for replay and the volume is unchanged.
pub fn turns<M: Medium, P: Platform>(
    volume: impl Deref<Target = Volume<M, P>>,
) -> impl FnMut() -> Result<bool> {
    let opened = Instant::now();
    move || turn(&volume, opened.elapsed())
}

/// A turn at this time after the volume was opened.
fn turn<M: Medium, P: Platform>(volume: &Volume<M, P>, since_open: Duration) -> Result<bool> {
    if since_open < CALM && volume.replay_pending() {
        return Ok(false);
    }
    let more = volume.background()?;
    match volume.failure() {
        // The caller of the failed request got the error; this reports it to the owner of the
        // thread.
        Some(why) => Err(Error::Poisoned(why)),
        None => Ok(more),
    }
}

/// Why background work failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundFailure {
    /// The volume reported an error; the thread continues.
    Error(steadfast::Error),
    /// The core panicked, with this text. The thread has ended, and the volume gets no more turns.
    Panic(String),
}

impl fmt::Display for BackgroundFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackgroundFailure::Error(error @ Error::Poisoned(_)) => {
                write!(f, "{error}; what was acknowledged is safe, all later changes are refused")
            }
            BackgroundFailure::Error(error) => write!(f, "background work failed: {error}"),
            BackgroundFailure::Panic(text) => {
                write!(
                    f,
                    "background work stopped by an internal error, unmount the volume: {text}"
                )
            }
        }
    }
}

impl std::error::Error for BackgroundFailure {}

#[derive(Default)]
struct Signals {
    stop: bool,
    wake: bool,
}

#[derive(Default)]
struct WakeSignals {
    signals: Mutex<Signals>,
    changed: Condvar,
}

impl WakeSignals {
    /// Waits at most `pause` for a signal. Returns whether to continue.
    fn wait(&self, pause: Duration) -> bool {
        let mut signals = self.signals.lock();
        if !signals.stop && !signals.wake {
            // A spurious wake-up costs one early turn.
            self.changed.wait_for(&mut signals, pause);
        }
        signals.wake = false;
        !signals.stop
    }

    fn signal(&self, set: impl FnOnce(&mut Signals)) {
        set(&mut self.signals.lock());
        self.changed.notify_all();
    }
}

/// Makes the volume's next turn start immediately. Cheap to clone; may outlive the thread.
#[derive(Clone)]
pub struct Waker(Arc<WakeSignals>);

impl Waker {
    /// Ends the pause of the background thread.
    pub fn wake(&self) {
        self.0.signal(|signals| signals.wake = true);
    }
}

/// Owns the thread that does a volume's background work. Dropping it ends and joins the thread,
/// after the running turn.
#[must_use = "the thread ends when this is dropped"]
pub struct BackgroundThread {
    shared: Arc<WakeSignals>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    /// Starts the background work ([`turns`]) of `volume`, which was just opened. `on_failure` is
    /// called on the thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn spawn<M, P>(
        volume: Arc<Volume<M, P>>,
        on_failure: impl FnMut(BackgroundFailure) + Send + 'static,
    ) -> io::Result<Self>
    where
        M: Medium + 'static,
        P: Platform + 'static,
        Volume<M, P>: Send + Sync,
    {
        Self::spawn_work(turns(volume), on_failure)
    }

    /// Like [`spawn`](Self::spawn), for any work. A turn returns whether more work is due
    /// immediately.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn spawn_work(
        work: impl FnMut() -> Result<bool> + Send + 'static,
        on_failure: impl FnMut(BackgroundFailure) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(WakeSignals::default());
        let thread = thread::Builder::new().name("steadfast-bg".into()).spawn({
            let shared = shared.clone();
            move || run(&shared, work, on_failure)
        })?;
        Ok(BackgroundThread { shared, thread: Some(thread) })
    }

    /// Makes the volume's next turn start immediately.
    pub fn wake(&self) {
        self.shared.signal(|signals| signals.wake = true);
    }

    /// A handle that other code can use to wake the thread.
    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    /// Whether the thread runs. It ends by itself only after a panic.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.shared.signal(|signals| signals.stop = true);
        // If `on_failure` drops it on the thread itself, the thread ends after this turn. Joining
        // would wait forever.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches panics of the work. A panic of `on_failure` cannot be reported.
            let _ = thread.join();
        }
    }
}

fn run(
    shared: &WakeSignals,
    mut work: impl FnMut() -> Result<bool>,
    mut on_failure: impl FnMut(BackgroundFailure),
) {
    let mut last_error = None;
    let mut pause = Duration::ZERO;
    while shared.wait(pause) {
        // The loop ends after a panic, so its state is not used again.
        match catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(Ok(more)) => {
                last_error = None;
                pause = if more { Duration::ZERO } else { INTERVAL };
            }
            Ok(Err(error)) => {
                if last_error.replace(error) != Some(error) {
                    on_failure(BackgroundFailure::Error(error));
                }
                pause = INTERVAL_AFTER_FAILURE;
            }
            Err(panic) => {
                on_failure(BackgroundFailure::Panic(panic_text(&*panic)));
                return;
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::Instant;

    use steadfast::fs::{Caller, NewNode};
    use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions};

    use super::*;
    use crate::{FileMedium, FileOptions, HostPlatform};

    fn counted(more_until: u32) -> (Arc<AtomicU32>, impl FnMut() -> Result<bool> + Send + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let work = {
            let count = count.clone();
            move || Ok(count.fetch_add(1, SeqCst) + 1 < more_until)
        };
        (count, work)
    }

    fn until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn works_at_once_while_there_is_more_and_then_regularly() {
        let (count, work) = counted(10_000);
        let background = BackgroundThread::spawn_work(work, |failure| panic!("{failure}")).unwrap();
        until(|| count.load(SeqCst) >= 10_002);
        assert!(background.is_running());
        drop(background);
        let at_end = count.load(SeqCst);
        thread::sleep(2 * INTERVAL);
        assert_eq!(count.load(SeqCst), at_end, "the thread is joined");
    }

    #[test]
    fn a_wake_ends_the_pause() {
        let (count, work) = counted(0);
        let background = BackgroundThread::spawn_work(work, |failure| panic!("{failure}")).unwrap();
        let waker = background.waker();
        let start = Instant::now();
        for turn in 1..=50 {
            until(|| count.load(SeqCst) >= turn);
            waker.wake();
        }
        assert!(start.elapsed() < 50 * INTERVAL);
        drop(background);
        waker.wake();
    }

    /// After a power cut the log causes no reads or writes until the time has passed or the volume
    /// changes.
    #[test]
    fn a_log_is_left_alone_at_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let medium = FileMedium::create(&path, 16 << 20, &FileOptions::default()).unwrap();
        Volume::format(&medium, &FormatOptions::default(), &HostPlatform::new()).unwrap();
        let open = |medium: FileMedium| {
            Volume::open(medium, OpenOptions::default(), HostPlatform::new()).unwrap()
        };
        let create = |volume: &Volume<FileMedium, HostPlatform>, name: &[u8]| {
            let (root, caller) = (InodeNumber::ROOT, Caller::default());
            volume.create(root, name, NewNode::Regular, 0o644, &caller).unwrap();
        };
        let requests = |volume: &Volume<FileMedium, HostPlatform>| volume.medium().counters();
        let volume = open(medium);
        create(&volume, b"one");
        volume.transact().unwrap();
        assert!(!volume.replay_pending());
        drop(volume);
        for changed in [false, true] {
            let volume = open(FileMedium::open(&path, &FileOptions::default()).unwrap());
            assert!(volume.replay_pending());
            let before = requests(&volume);
            for since_open in [Duration::ZERO, INTERVAL, CALM - INTERVAL] {
                assert!(!turn(&volume, since_open).unwrap());
            }
            assert_eq!(requests(&volume), before);
            if changed {
                create(&volume, b"other");
                while turn(&volume, INTERVAL).unwrap() {}
            } else {
                while turn(&volume, CALM).unwrap() {}
                assert_ne!(requests(&volume), before);
            }
            assert!(!volume.replay_pending());
        }
    }

    #[test]
    fn a_failure_is_told_once() {
        let (sender, failures) = mpsc::channel();
        let mut turn = 0;
        let work = move || {
            turn += 1;
            if turn < 4 { Err(Error::NoSpace) } else { Err(Error::ReadOnly) }
        };
        let background = BackgroundThread::spawn_work(work, move |failure| {
            let _ = sender.send(failure);
        })
        .unwrap();
        for _ in 0..500 {
            background.wake();
            thread::sleep(Duration::from_millis(1));
        }
        drop(background);
        let told: Vec<_> = failures.iter().collect();
        assert_eq!(
            told,
            [BackgroundFailure::Error(Error::NoSpace), BackgroundFailure::Error(Error::ReadOnly)]
        );
    }

    #[test]
    fn a_panic_ends_the_thread_and_is_told() {
        let (sender, failures) = mpsc::channel();
        let background = BackgroundThread::spawn_work(
            || panic!("broken"),
            move |failure| {
                let _ = sender.send(failure);
            },
        )
        .unwrap();
        assert_eq!(failures.recv().unwrap(), BackgroundFailure::Panic("broken".into()));
        until(|| !background.is_running());
    }
}
