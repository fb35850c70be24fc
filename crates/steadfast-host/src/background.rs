//! [`BackgroundThread`]: the thread that gives a volume its turn.
//!
//! The core has no threads. Its timer, its checkpoints and the reclaiming of deleted files make
//! progress when somebody calls [`Volume::background`]; here this somebody is. The thread calls it
//! at least every [`INTERVAL`], at once again while there is more to do, and at once after a
//! [`Waker::wake`].
//!
//! A volume that was opened after a power cut gets its first turn late, or with the first change
//! ([`turns`]): putting the log into the tree reads nodes all over the medium, and while a system
//! starts it has other things to read.
//!
//! What goes wrong is handed to the owner once, not every 50 ms: the same failure is not repeated
//! until a turn went well. After a panic the thread ends, since nobody knows what it left half
//! done; the owner is told.

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
/// Pause after a turn that failed: the cause is hardly gone in 50 ms.
const INTERVAL_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a log that was found is left where it is while nothing changes.
const CALM: Duration = Duration::from_secs(5);

/// The background work of a volume that was just opened, a turn a call. While its log waits to be
/// put into the tree and nothing has changed, the first five seconds, a turn does nothing.
pub fn turns<M: Medium, P: Platform>(
    volume: impl Deref<Target = Volume<M, P>>,
) -> impl FnMut() -> Result<bool> {
    let opened = Instant::now();
    move || turn(&volume, opened.elapsed())
}

/// A turn so long after the volume was opened.
fn turn<M: Medium, P: Platform>(volume: &Volume<M, P>, since_open: Duration) -> Result<bool> {
    if since_open < CALM && volume.log_waits() {
        return Ok(false);
    }
    let more = volume.background()?;
    match volume.failure() {
        // Whoever's request it was has had an error; its owner learns of it here.
        Some(why) => Err(Error::Poisoned(why)),
        None => Ok(more),
    }
}

/// Why background work failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundFailure {
    /// The volume reported an error; the thread goes on.
    Error(steadfast::Error),
    /// The core panicked, with this text; the thread has ended and the volume gets no more turns.
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
struct Shared {
    signals: Mutex<Signals>,
    changed: Condvar,
}

impl Shared {
    /// Waits for a signal, at most `pause`; returns whether to go on.
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

/// Gives the volume its next turn at once. Cheap to clone, may outlive the thread.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Ends the pause of the background thread.
    pub fn wake(&self) {
        self.0.signal(|signals| signals.wake = true);
    }
}

/// Owns the thread that does a volume's background work. Dropping it ends and joins the thread; the
/// turn that is under way is finished.
#[must_use = "the thread ends when this is dropped"]
pub struct BackgroundThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    /// Starts the background work of `volume`, which was just opened: its [`turns`]. `on_failure`
    /// is called on the thread.
    ///
    /// # Errors
    /// When the system has no thread to give.
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

    /// As [`spawn`](Self::spawn) for any work: a turn returns whether there is more to do at once.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn_work(
        work: impl FnMut() -> Result<bool> + Send + 'static,
        on_failure: impl FnMut(BackgroundFailure) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("steadfast-bg".into()).spawn({
            let shared = shared.clone();
            move || run(&shared, work, on_failure)
        })?;
        Ok(BackgroundThread { shared, thread: Some(thread) })
    }

    /// Gives the volume its next turn at once.
    pub fn wake(&self) {
        self.shared.signal(|signals| signals.wake = true);
    }

    /// A handle for others to wake the thread with.
    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    /// Whether the thread still works (it ends by itself only after a panic).
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.shared.signal(|signals| signals.stop = true);
        // Dropped on the thread itself (by `on_failure`), it ends after this turn; joining would
        // wait for ever.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches panics of the work; one of `on_failure` has nobody left to be told
            // to.
            let _ = thread.join();
        }
    }
}

fn run(
    shared: &Shared,
    mut work: impl FnMut() -> Result<bool>,
    mut on_failure: impl FnMut(BackgroundFailure),
) {
    let mut last_error = None;
    let mut pause = Duration::ZERO;
    while shared.wait(pause) {
        // No state of ours is seen after a panic: the loop ends.
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

    /// After a power cut nothing is read or written for the log until the time has come, or
    /// somebody changes something.
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
        assert!(!volume.log_waits());
        drop(volume);
        for changed in [false, true] {
            let volume = open(FileMedium::open(&path, &FileOptions::default()).unwrap());
            assert!(volume.log_waits());
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
            assert!(!volume.log_waits());
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
