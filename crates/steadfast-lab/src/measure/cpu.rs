//! Processor time and memory of this process, of daemons and of kernel threads.
//!
//! Times come from `/proc/PID/task/*/schedstat` in nanoseconds, or from `stat` in ticks if the
//! kernel has no `schedstat`. `schedstat` loses threads that have ended in between. So the figure
//! is a little low for daemons whose threads come and go. The threads of this process and of
//! Steadfast stay.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::Trouble;
use crate::result::Cpu;

/// The flag in `/proc/PID/stat` that marks a kernel thread.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Kernel threads that work for file systems and loop devices.
const WORKERS: [&str; 6] = ["kworker", "loop", "jbd2", "xfs", "btrfs", "ext4"];

/// Processor times at one moment.
#[derive(Debug, Clone)]
pub struct CpuClock {
    at: Instant,
    user_ticks: u64,
    system_ticks: u64,
    process: f64,
    daemon: f64,
    kernel_threads: f64,
}

impl CpuClock {
    /// The times now, with these processes as the daemon.
    pub fn now(daemon: &[u32]) -> CpuClock {
        let own = Path::new("/proc/self");
        let (user_ticks, system_ticks) = ticks(own).unwrap_or_default();
        CpuClock {
            at: Instant::now(),
            user_ticks,
            system_ticks,
            process: process_seconds(own),
            daemon: processes_seconds(daemon),
            kernel_threads: kernel_seconds(),
        }
    }

    /// The time used since then, of which this process spent `aside` seconds on other work. Ticks
    /// of 10 ms distinguish user and system time. With fewer than ten ticks, everything counts as
    /// `user` for a library and as `system` otherwise.
    pub fn since(&self, daemon: &[u32], in_process: bool, aside: f64) -> Cpu {
        let now = CpuClock::now(daemon);
        let process = (now.process - self.process - aside).max(0.0);
        let user = now.user_ticks.saturating_sub(self.user_ticks) as f64;
        let system = now.system_ticks.saturating_sub(self.system_ticks) as f64;
        let share = match user + system {
            ticks if ticks >= 10.0 => user / ticks,
            _ if in_process => 1.0,
            _ => 0.0,
        };
        Cpu {
            elapsed: (now.at - self.at).as_secs_f64(),
            user: process * share,
            system: process * (1.0 - share),
            daemon: (now.daemon - self.daemon).max(0.0),
            kernel_threads: (now.kernel_threads - self.kernel_threads).max(0.0),
            curve: Vec::new(),
        }
    }
}

/// Processor seconds of the calling thread.
pub fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor seconds of these processes.
pub(super) fn processes_seconds(processes: &[u32]) -> f64 {
    processes.iter().map(|pid| process_seconds(Path::new(&format!("/proc/{pid}")))).sum()
}

/// Processor seconds of a process, the sum of all its threads.
pub(super) fn process_seconds(process: &Path) -> f64 {
    let mut sum = None;
    for task in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
        if let Some(seconds) = scheduled(&task.path()) {
            sum = Some(sum.unwrap_or(0.0) + seconds);
        }
    }
    sum.unwrap_or_else(|| {
        let (user, system) = ticks(process).unwrap_or_default();
        (user + system) as f64 / rustix::param::clock_ticks_per_second() as f64
    })
}

/// Processor seconds of the kernel threads that may work for a file system. The kernel does not say
/// for which one. Only one target is under load while it is measured.
pub(super) fn kernel_seconds() -> f64 {
    let mut sum = 0.0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        {
            continue;
        }
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let flags: u64 =
            rest.split_whitespace().nth(6).and_then(|word| word.parse().ok()).unwrap_or(0);
        let name = head.split_once('(').map_or("", |(_, name)| name);
        if flags & KERNEL_THREAD != 0 && WORKERS.iter().any(|worker| name.starts_with(worker)) {
            sum += scheduled(&entry.path()).unwrap_or(0.0);
        }
    }
    sum
}

fn scheduled(task: &Path) -> Option<f64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// User and system time of a process in ticks.
fn ticks(process: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(process.join("stat")).ok()?;
    // The name may contain anything. The numbers follow its closing bracket, from field 3 on.
    let mut words = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The highest resident memory of the largest of these processes, bytes; an empty list means this
/// process.
pub fn resident_most(processes: &[u32]) -> Option<u64> {
    let own = [std::process::id()];
    let processes = if processes.is_empty() { &own[..] } else { processes };
    let most = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    processes.iter().filter_map(most).max()
}

/// Empties the kernel's page, name and inode caches. The caller has made everything durable before.
///
/// # Errors
/// `Skip` without the permission.
pub fn drop_caches() -> crate::Outcome {
    forget("3")
}

/// Makes the kernel drop names and attributes, and with the inodes also the pages of their files.
/// The caller has made everything durable before.
///
/// # Errors
/// `Skip` without the permission.
pub fn drop_names() -> crate::Outcome {
    forget("2")
}

fn forget(what: &str) -> crate::Outcome {
    fs::write("/proc/sys/vm/drop_caches", what).map_err(|error| {
        Trouble::Skip(format!("cannot drop the kernel's caches ({error}): run as root"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_none_costs_nothing() {
        let clock = CpuClock::now(&[]);
        let start = Instant::now();
        let mut sum = 0u64;
        while process_seconds(Path::new("/proc/self")) - clock.process < 0.05
            && start.elapsed().as_secs() < 30
        {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        let used = clock.since(&[], true, 0.0);
        assert!(used.user + used.system >= 0.05, "{used:?} {sum}");
        assert_eq!(used.daemon, 0.0);
        assert!(resident_most(&[]).is_some_and(|bytes| bytes > 100_000));
    }
}
