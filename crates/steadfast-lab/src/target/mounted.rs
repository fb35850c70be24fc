//! A mounted volume: a directory, its files, and the daemon that serves it, if there is one.

use std::path::Path;
use std::time::{Duration, Instant};

use super::cleanup::Guard;
use super::system::SystemFiles;
use crate::{Outcome, Trouble};

/// A mounted volume. Unmounted when it is dropped.
#[derive(Debug)]
pub(super) struct Mounted {
    guard: Guard,
    files: SystemFiles,
    daemon: Vec<u32>,
}

impl Mounted {
    /// A mount that `guard` undoes, with the processes that serve it.
    pub fn new(guard: Guard, files: SystemFiles, daemon: Vec<u32>) -> Mounted {
        Mounted { guard, files, daemon }
    }

    /// The mount point.
    pub fn directory(&self) -> &Path {
        self.guard.path()
    }

    /// The files for workloads.
    pub fn files(&self) -> &SystemFiles {
        &self.files
    }

    /// The processes that serve it; empty for a file system in the kernel.
    pub fn daemon(&self) -> &[u32] {
        &self.daemon
    }
}

/// Unmounts the volume, if it is mounted, with this command, and waits for the end of its daemon.
///
/// # Errors
/// Those of the command; it is still mounted then.
pub(super) fn unmount(
    mounted: &mut Option<Mounted>,
    command: impl FnOnce(&Path) -> Outcome<String>,
) -> Outcome {
    let Some(taken) = mounted.take() else { return Ok(()) };
    if let Err(trouble) = command(taken.directory()) {
        *mounted = Some(taken);
        return Err(trouble);
    }
    taken.guard.done();
    wait_for_end(&taken.daemon);
    Ok(())
}

/// Processes that have this path among their arguments.
pub(super) fn processes_with(path: &Path) -> Vec<u32> {
    let wanted = path.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(arguments) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if pid != std::process::id()
            && arguments.split(|byte| *byte == 0).any(|word| word == wanted)
        {
            found.push(pid);
        }
    }
    found
}

/// Kills processes so that they write nothing more, like a power cut.
///
/// # Errors
/// This process has no permission to kill them.
pub(super) fn kill(processes: &[u32]) -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    for pid in processes {
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        match kill_process(pid, Signal::KILL) {
            Err(error) if error != rustix::io::Errno::SRCH => {
                return Err(Trouble::Io { doing: "kill the daemon".into(), error: error.into() });
            }
            _ => {}
        }
    }
    wait_for_end(processes);
    Ok(())
}

/// Waits, at most ten seconds, until these processes have ended: a daemon that still writes would
/// disturb the next step.
fn wait_for_end(processes: &[u32]) {
    let end = Instant::now() + Duration::from_secs(10);
    let alive = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie has ended; its parent has not collected its status yet.
        !stat.is_empty()
            && !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    };
    while processes.iter().any(alive) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}
