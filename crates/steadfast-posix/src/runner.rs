//! Runs checks, each in its own thread and directory, with a time limit.
//!
//! Before the check begins, the thread stops sharing its working directory and umask with the rest
//! of the process. So checks use short relative paths. A check that hangs cannot disturb the next
//! one; its thread is left running.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::list::Check;
use crate::sys;
use crate::verdict::{Stop, Verdict};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Optional operations that the file system refuses count as failures.
    pub require_all: bool,
    /// Names of checks that are known to fail. Their failure counts as a deviation. If one passes,
    /// that is a failure, so that the list stays correct.
    pub deviations: Vec<String>,
    /// Time limit of one check.
    pub limit: Duration,
    /// Print passed and skipped checks too.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            require_all: false,
            deviations: Vec::new(),
            limit: Duration::from_secs(120),
            verbose: false,
        }
    }
}

/// Results of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Checks that passed.
    pub passed: usize,
    /// Name and reason of each check that failed.
    pub failed: Vec<(String, String)>,
    /// Name and reason of each check that failed as expected.
    pub deviating: Vec<(String, String)>,
    /// Name and reason of each check that could not run.
    pub skipped: Vec<(String, String)>,
}

/// Runs `checks` below a new directory in `target`, which is removed at the end. Prints results to
/// `out` as they arrive.
///
/// Errors: the directory cannot be created, or `out` cannot be written. A failed check is no error.
pub fn run(
    target: &Path,
    checks: &[Check],
    options: &Options,
    out: &mut dyn Write,
) -> std::io::Result<Summary> {
    // One process may run several lists at the same time.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let base = target.canonicalize()?.join(format!("posix-suite.{}.{run}", std::process::id()));
    std::fs::create_dir(&base)?;
    let mut summary = Summary::default();
    for (number, check) in checks.iter().enumerate() {
        let begin = Instant::now();
        let directory = base.join(format!("{number:04}"));
        let verdict = match std::fs::create_dir(&directory) {
            Ok(()) => run_one(check, &directory, options.limit),
            Err(error) => {
                Err(Stop::failed(format!("cannot make {}: {error}", directory.display())))
            }
        };
        let verdict = match verdict {
            Err(Stop::Unsupported(why)) if options.require_all => Err(Stop::Failed(why)),
            other => other,
        };
        let known = options.deviations.contains(&check.name);
        match verdict {
            Ok(()) if known => {
                let why =
                    "passes, though it is listed as a deviation; take it off the list".to_owned();
                writeln!(out, "FAIL  {}: {why}", check.name)?;
                summary.failed.push((check.name.clone(), why));
            }
            Err(Stop::Failed(why)) if known => {
                writeln!(out, "known {}: {why}", check.name)?;
                summary.deviating.push((check.name.clone(), why));
            }
            Ok(()) => {
                summary.passed += 1;
                if options.verbose {
                    writeln!(out, "ok    {} ({} ms)", check.name, begin.elapsed().as_millis())?;
                }
            }
            Err(Stop::Failed(why)) => {
                writeln!(out, "FAIL  {}: {why}", check.name)?;
                summary.failed.push((check.name.clone(), why));
            }
            Err(Stop::Skipped(why) | Stop::Unsupported(why)) => {
                if options.verbose {
                    writeln!(out, "skip  {}: {why}", check.name)?;
                }
                summary.skipped.push((check.name.clone(), why));
            }
        }
        // A directory that cannot be removed is also a failure, because this run created everything
        // in it.
        if let Err(error) = remove_all(&directory) {
            let why = format!("cleaning up: {error}");
            writeln!(out, "FAIL  {}: {why}", check.name)?;
            summary.failed.push((check.name.clone(), why));
        }
    }
    // This fails only if a check's directory could not be removed, which was reported above.
    let _ = std::fs::remove_dir(&base);
    Ok(summary)
}

/// Runs one check in `directory` and waits for it at most `limit`.
fn run_one(check: &Check, directory: &Path, limit: Duration) -> Verdict {
    let (sender, receiver) = mpsc::channel();
    let body = check.body.clone();
    let place = directory.to_owned();
    let spawned =
        thread::Builder::new().name(check.name.chars().take(15).collect()).spawn(move || {
            let verdict = enter(&place).and_then(|()| body());
            // After the time limit the receiver is gone, and the verdict is not needed.
            let _ = sender.send(verdict);
        });
    let handle = match spawned {
        Ok(handle) => handle,
        Err(error) => return Err(Stop::skipped(format!("no thread: {error}"))),
    };
    match receiver.recv_timeout(limit) {
        Ok(verdict) => {
            // Wait until the thread's descriptors and working directory are released, before the
            // clean-up starts.
            let _ = handle.join();
            verdict
        }
        Err(RecvTimeoutError::Timeout) => {
            Err(Stop::failed(format!("did not finish within {} s", limit.as_secs())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Stop::failed("the check panicked")),
    }
}

/// Gives the calling thread its own working directory and umask.
fn enter(directory: &Path) -> Verdict {
    sys::unshare_working_directory()
        .map_err(|error| Stop::skipped(format!("no working directory of its own: {error}")))?;
    rustix::process::chdir(directory)?;
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

/// Removes a tree of any depth, and restores access that a check removed.
fn remove_all(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    std::fs::remove_dir_all(directory)
}
