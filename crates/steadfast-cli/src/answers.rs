//! Which mounts answer.
//!
//! A call on a mount whose daemon hangs does not return, and a process with such a call may not
//! even end. So another process makes the first call, and this one waits for it for a limited time.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Exit, Failure};
use crate::mounts;
use crate::pause::Pause;

/// How long a mount may take to answer. A loaded machine takes seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// For each target, whether it is in a Steadfast mount that does not answer.
pub fn silent(targets: &[PathBuf]) -> Vec<bool> {
    let deadline = Instant::now() + LIMIT;
    let probes: Vec<Option<Child>> = targets.iter().map(|target| probe(target)).collect();
    probes.into_iter().map(|child| child.is_some_and(|child| hangs(child, deadline))).collect()
}

/// The failure for a mount that does not answer.
pub fn failure(target: &Path) -> Failure {
    Failure::new(
        Exit::CannotMount,
        "the daemon of this mount does not answer",
        target.display(),
        "look whether the storage below it hangs; ending the daemon makes calls on the mount return",
    )
}

/// A process that opens the mount; `None` if the target is in none.
fn probe(target: &Path) -> Option<Child> {
    let mount = mounts::holding(target).ok()?.or_else(|| mounts::of_source(target).ok()?)?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["df", "--answers", "--"]).arg(&mount.directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

fn hangs(mut child: Child, deadline: Instant) -> bool {
    let mut pause = Pause::new();
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            // It ends when the daemon answers or ends, if not now.
            let _ = child.kill();
            return true;
        }
        pause.wait();
    }
    false
}
