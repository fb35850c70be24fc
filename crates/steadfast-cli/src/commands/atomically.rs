//! `steadfast atomically`: a command's changes on a mounted volume, as a whole or not at all.
//!
//! A descriptor of the mount's control file holds the volume. This process commits if the command
//! has succeeded, and rolls back otherwise.
//!
//! The command and its children inherit the descriptor. If this process is killed, the command gets
//! SIGKILL, and the mount rolls back when the last child has ended. So no process writes after the
//! rollback.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::live::Live;
use crate::target::Target;

/// How long a command may take to end after a signal; then it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Exit codes of a shell for a command that cannot be run, or is not found.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Run a command whose changes to a mounted volume are made all at once, or not at all
///
/// The changes become durable when the command exits with 0. If it fails, is interrupted or killed,
/// if the volume is unmounted meanwhile, or if power fails, the volume is as it was before.
///
/// Transactions are per volume: what other programs write to it meanwhile is committed or rolled
/// back as well, and their fsync returns at once. Space that the command frees can be used again
/// only afterwards. Exits with the exit code of the command (128 + number for a signal).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point (or the image that is mounted); the default is the mount that holds the current
    /// directory
    #[arg(value_name = "DIR")]
    target: Option<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    mount: Option<PathBuf>,
    /// Print nothing about what became of the changes
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How the command ended.
enum Ended {
    /// The command ended by itself.
    Status(ExitStatus),
    /// The command ended after this process received this signal.
    Interrupted(i32),
}

/// Runs the command. The exit code is that of the command.
///
/// # Errors
/// The volume is not mounted, or another process holds it; the command cannot be run; the commit
/// fails.
pub fn run(args: &Args) -> Outcome<u8> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::new(Exit::Usage, "no command", "command line", "give one after '--'"));
    };
    let live = match args.target.as_deref().or(args.mount.as_deref()) {
        Some(path) => Target::find_mounted(path)?,
        None => Live::open(Path::new("."))?,
    };
    // Signals are caught first: a signal that ended this process while it holds the volume would
    // skip the advice below.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot catch signals: {}", text_os(&error)),
            "this process",
            "try again",
        )
    })?;
    // Orphaned descendants of the command become children of this process, so that it can end them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let atomic = live.begin_atomic()?;
    let say = |text: String| {
        if !args.quiet {
            eprintln!("steadfast: {text}");
        }
    };
    let place = live.directory().display();
    let name = program.display();
    let mut child = match spawn(program, arguments) {
        Ok(child) => child,
        Err(error) => {
            atomic.abort()?;
            let code =
                if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            say(format!("cannot run '{name}': {}: {place}: nothing was changed", text_os(&error)));
            return Ok(code as u8);
        }
    };
    let ended = wait(&mut child, &mut signals);
    let (code, why) = match &ended {
        // What the command has done at the path of the mount since then is somewhere else.
        Ended::Status(status) if status.success() && !live.is_in_place() => {
            end_descendants();
            atomic.abort()?;
            return Err(Failure::new(
                Exit::Failed,
                format!("rolled back: the volume was unmounted while '{name}' ran"),
                place,
                "nothing was changed on the volume: mount it and run the command again",
            ));
        }
        Ended::Status(status) if status.success() => {
            return match atomic.commit() {
                Ok(()) => {
                    say(format!("committed: {place}: everything that '{name}' changed is durable"));
                    Ok(0)
                }
                Err(failure) => {
                    let _ = atomic.abort();
                    Err(failure)
                }
            };
        }
        Ended::Status(status) => match (status.code(), status.signal()) {
            (Some(code), _) => (code, format!("exited with {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                (128 + signal, format!("was ended by signal {signal}"))
            }
        },
        Ended::Interrupted(signal) => (128 + signal, format!("was interrupted by signal {signal}")),
    };
    // Remaining descendants would write to the volume after the rollback.
    end_descendants();
    let no_space = live.ran_out_of_space();
    atomic.abort()?;
    let space = if no_space {
        "; there was no space: what a command frees can be used again only after a commit, so make room first"
    } else {
        ""
    };
    say(format!("rolled back: {place}: '{name}' {why}, nothing was changed{space}"));
    Ok(u8::try_from(code).unwrap_or(1))
}

fn spawn(program: &OsString, arguments: &[OsString]) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments);
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only system calls that are safe there, no allocation.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                // The parent was killed between fork and the call above.
                return Err(std::io::Error::from_raw_os_error(
                    rustix::io::Errno::SRCH.raw_os_error(),
                ));
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Waits for the command, and forwards signals to it. If the command does not end after a signal,
/// it is killed.
fn wait(child: &mut Child, signals: &mut Signals) -> Ended {
    let mut interrupted: Option<(i32, Instant)> = None;
    loop {
        for signal in signals.pending() {
            let number = if signal == SIGINT || signal == SIGQUIT { SIGINT } else { SIGTERM };
            let pass = if number == SIGINT { Signal::INT } else { Signal::TERM };
            send(child.id(), pass);
            interrupted.get_or_insert((signal, Instant::now()));
        }
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                return interrupted
                    .map_or(Ended::Status(status), |(signal, _)| Ended::Interrupted(signal));
            }
            // The exit status is not available, so the command does not count as successful.
            Err(_) => return Ended::Interrupted(interrupted.map_or(SIGTERM, |(signal, _)| signal)),
        }
        if interrupted.is_some_and(|(_, since)| since.elapsed() > GRACE) {
            send(child.id(), Signal::KILL);
        }
        nap(child.id(), interrupted.is_some());
    }
}

/// Waits until the process ends or a short time has passed.
fn nap(process: u32, short: bool) {
    let limit = Duration::from_millis(if short { 20 } else { 100 });
    let waited = pid(process)
        .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok())
        .is_some_and(|descriptor| {
            let mut list = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec::try_from(limit).ok();
            rustix::event::poll(&mut list, limit.as_ref()).is_ok()
        });
    if !waited {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

fn send(process: u32, signal: Signal) {
    if let Some(pid) = pid(process) {
        // The process may have ended in the meantime.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Kills every descendant that the command has left, and waits for them.
fn end_descendants() {
    let start = Instant::now();
    while start.elapsed() < GRACE {
        for process in children() {
            send(process, Signal::KILL);
        }
        match rustix::process::wait(WaitOptions::NOHANG) {
            // No child is left.
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) => {}
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// The children of this process: the fourth field of `/proc/PID/stat` is the parent.
fn children() -> Vec<u32> {
    let me = std::process::id();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let parent = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name in the second field may hold anything, including spaces and brackets.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process| parent(*process) == Some(me))
        .collect()
}
