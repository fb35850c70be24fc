//! Starting the mount in the background.
//!
//! The command starts itself a second time, in a new session, with a pipe as standard output: the
//! *ready pipe*. The second process opens the volume, mounts it and reports success or the failure
//! on the pipe. The first process passes the report on to its caller. So errors come back as one
//! line and an exit code. When the command returns success, the mount exists.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::stdio::dup2_stdout;

use crate::failure::{Exit, Failure, Outcome};
use crate::logger;

/// Message on the ready pipe: the mount exists.
const READY: u8 = b'+';
/// Message on the ready pipe: a warning line follows, and mounting continues.
const WARNING: u8 = b'!';
/// Message on the ready pipe: an exit code and an error line follow.
const FAILED: u8 = b'-';

/// What the daemon is called in its command line.
pub const NAME: &str = "steadfast";
/// The same where it serves the root file system. At the end systemd spares only processes whose
/// names begin so. The last writes to the root come after that.
pub const NAME_OF_ROOT: &str = "@steadfast";

/// Runs this program again with `arguments`, under the name `name`, and waits until it is ready.
///
/// # Errors
/// What the second process reports, and failures to start it.
pub fn start(name: &str, arguments: &[std::ffi::OsString]) -> Outcome {
    let cannot =
        |error: io::Error| Failure::host(&error, "start the daemon", "/proc/self/exe".as_ref());
    close_inherited_on_exec();
    let (reader, writer) = io::pipe().map_err(cannot)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(name)
        .args(arguments)
        // The daemon's log thread reads priorities in the format of a journal.
        .env(logger::JOURNAL_VARIABLE, "daemon")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    // Only the child holds the writing end now, so the child's death ends the read.
    drop(command);
    let mut ready = false;
    // The lines end when the child closes the pipe: it is ready, has failed or was killed. Warnings
    // are printed at once, for a child may wait long.
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(cannot)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match line.split_first() {
            Some((&READY, _)) => ready = true,
            Some((&WARNING, rest)) => eprintln!("steadfast: {}", text(rest)),
            Some((&FAILED, rest)) => {
                let _ = child.wait();
                return Err(decode_failure(&text(rest)));
            }
            _ => {}
        }
    }
    if ready {
        return Ok(());
    }
    let status = child.wait().map_err(cannot)?;
    Err(Failure::new(
        Exit::Failed,
        format!("the daemon ended before the mount was there ({status})"),
        "steadfast mount",
        "run it with -f to see why",
    ))
}

/// The ready pipe as the second process sees it, or the terminal when the mount runs in the
/// foreground.
#[derive(Debug, Clone, Copy)]
pub enum Ready {
    /// Standard output is the ready pipe.
    Pipe,
    /// Messages go straight to standard error.
    Foreground,
}

impl Ready {
    /// Reports a warning line to the process that started the mount. In the foreground the log has
    /// it, which goes to the same terminal.
    pub fn warn(&self, line: &str) {
        match self {
            Ready::Pipe => send(WARNING, line),
            Ready::Foreground => {}
        }
    }

    /// Whether the process that waits for the mount has ended.
    pub fn is_abandoned(&self) -> bool {
        let stdout = io::stdout();
        let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
        matches!(self, Ready::Pipe)
            && poll(&mut pipe, Some(&Timespec::default())).is_ok()
            && pipe.iter().any(|pipe| pipe.revents().contains(PollFlags::ERR))
    }

    /// Reports that the mount exists and detaches from the process that started it.
    ///
    /// # Errors
    /// `/dev/null` does not exist.
    pub fn mounted(self) -> io::Result<()> {
        if matches!(self, Ready::Pipe) {
            send(READY, "");
            let null = OpenOptions::new().write(true).open("/dev/null")?;
            dup2_stdout(null.as_fd())?;
        }
        Ok(())
    }

    /// Reports that the mount failed. In the foreground the caller prints the failure like every
    /// command.
    pub fn failed(&self, failure: &Failure) {
        if matches!(self, Ready::Pipe) {
            send(FAILED, &encode_failure(failure));
        }
    }
}

/// Starts a new session, and sets the process name to the program's name.
pub fn detach() {
    // This fails only for a process that leads its group already, which serves as well.
    let _ = rustix::process::setsid();
    // The process was started as /proc/self/exe, and process lists would show that name.
    let _ = std::fs::write("/proc/self/comm", "steadfast");
}

fn send(kind: u8, line: &str) {
    let mut message = vec![kind];
    message.extend_from_slice(line.replace('\n', " ").as_bytes());
    message.push(b'\n');
    // The process that started the mount may have ended; the mount continues without it.
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(&message).and_then(|()| stdout.flush());
}

/// Separates the parts of a failure on the pipe; no path or message contains it.
const SEPARATOR: char = '\u{1f}';

fn encode_failure(failure: &Failure) -> String {
    format!(
        "{}{SEPARATOR}{}{SEPARATOR}{}{SEPARATOR}{}",
        failure.exit as u8, failure.what, failure.place, failure.advice
    )
}

fn decode_failure(text: &str) -> Failure {
    let mut parts = text.split(SEPARATOR);
    let exit = match parts.next().and_then(|number| number.parse::<u8>().ok()) {
        Some(2) => Exit::Usage,
        Some(3) => Exit::NotAVolume,
        Some(4) => Exit::Damaged,
        Some(5) => Exit::Busy,
        Some(6) => Exit::NoSpace,
        Some(7) => Exit::NoPermission,
        Some(8) => Exit::CannotMount,
        Some(9) => Exit::Degraded,
        _ => Exit::Failed,
    };
    let mut next = || parts.next().unwrap_or_default();
    Failure::new(exit, next(), next().to_owned(), next())
}

/// Sets close-on-exec on the descriptors that this process inherited, so that the daemon does not
/// keep them. Such a descriptor may be a lock, or a pipe that a test or build tool waits for.
fn close_inherited_on_exec() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        #[allow(unsafe_code)]
        // SAFETY: the borrow lasts for one call that does not close the descriptor. If the number
        // is closed already (the one that listed the directory), the call fails with EBADF, which
        // is ignored.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_cross_the_pipe() {
        let exits = [
            Exit::Failed,
            Exit::Usage,
            Exit::NotAVolume,
            Exit::Damaged,
            Exit::Busy,
            Exit::NoSpace,
            Exit::NoPermission,
            Exit::CannotMount,
            Exit::Degraded,
        ];
        for exit in exits {
            let failure = Failure::new(exit, "what: it", "/a: b", "do: this");
            assert_eq!(decode_failure(&encode_failure(&failure)), failure);
        }
    }
}
