//! Where the messages of a mount go.
//!
//! Every message is a line on standard error. If a journal reads it, the line begins with a `<N>`
//! priority. That is all in the foreground. In the background, standard error is a pipe to a thread
//! of this process. The thread writes each line to the system log, or with the time to the file of
//! `--log`. A daemon never keeps the standard error of its parent, because another process may wait
//! for that pipe to close.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::SystemTime;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::stdio::dup2_stderr;
use steadfast::Timestamp;

use crate::failure::{Exit, Failure, Outcome};
use crate::stat_text;

/// systemd sets this if standard error is a journal. It is also set for the daemon, whose lines
/// have the same format.
pub const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Socket of the system log; journald listens on it too.
const SYSLOG_SOCKET: &str = "/dev/log";

/// Facility "daemon" of the system log, shifted into place.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Severities of syslog(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Priority {
    /// Something failed.
    Error = 3,
    /// A condition that needs attention.
    Warning = 4,
    /// Normal operation.
    Info = 6,
}

/// Writes one message. A message that cannot be written is dropped.
pub fn message(priority: Priority, text: impl std::fmt::Display) {
    let text = text.to_string().replace('\n', " ");
    let mut stderr = io::stderr().lock();
    let _ = match std::env::var_os(JOURNAL_VARIABLE) {
        Some(_) => writeln!(stderr, "<{}>steadfast: {text}", priority as u8),
        None => writeln!(stderr, "steadfast: {text}"),
    };
}

/// The destination of a daemon's lines.
enum Sink {
    File(File),
    Syslog(UnixDatagram),
    /// This machine has no system log.
    Nowhere,
}

/// Redirects standard error to a log while this value exists. Dropping it writes the remaining
/// lines.
pub struct Redirect {
    thread: Option<JoinHandle<()>>,
}

impl Redirect {
    /// Redirects standard error to `file`, or to the system log.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no memory for a pipe and a thread.
    pub fn new(file: Option<&Path>) -> Outcome<Redirect> {
        let sink = match file {
            Some(path) => Sink::File(open_log(path)?),
            None => syslog().map_or(Sink::Nowhere, Sink::Syslog),
        };
        let cannot =
            |error: io::Error| Failure::host(&error, "start logging", Path::new("standard error"));
        let (reader, writer) = io::pipe().map_err(cannot)?;
        dup2_stderr(writer.as_fd()).map_err(|errno| cannot(errno.into()))?;
        drop(writer);
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || forward(BufReader::new(reader), sink))
            .map_err(cannot)?;
        Ok(Redirect { thread: Some(thread) })
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        // This closes the last writing end of the pipe, so the thread ends after it has read
        // everything.
        let closed = OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .and_then(|null| dup2_stderr(null.as_fd()).map_err(io::Error::from));
        if let (Ok(()), Some(thread)) = (closed, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Opens a log file. The open of a FIFO would wait for its other end, and a FIFO that nothing reads
/// would stop the file system.
fn open_log(path: &Path) -> Outcome<File> {
    let cannot = |error: io::Error| Failure::host(&error, "open the log file", path);
    let refuse = |found: Metadata| {
        let kind = found.file_type();
        if kind.is_file() || kind.is_char_device() || kind.is_dir() {
            return Ok(());
        }
        let what = "the log is no regular file";
        Err(Failure::new(Exit::Usage, what, path.display(), "give a file with --log"))
    };
    match fs::metadata(path) {
        Ok(found) => refuse(found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).custom_flags(flags.bits() as i32);
    let file = options.open(path).map_err(cannot)?;
    // The name may belong to another file by now.
    refuse(file.metadata().map_err(cannot)?)?;
    fcntl_setfl(&file, OFlags::APPEND).map_err(|errno| cannot(errno.into()))?;
    Ok(file)
}

fn syslog() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SYSLOG_SOCKET)?;
    // A log that accepts no messages must not block the file system.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn forward(lines: impl BufRead, mut sink: Sink) {
    for line in lines.split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        let (priority, text) = split_priority(&line);
        let _ = match &mut sink {
            Sink::File(file) => writeln!(file, "{} {text}", now()),
            Sink::Syslog(socket) => {
                let text = text.strip_prefix("steadfast: ").unwrap_or(text);
                let line = format!(
                    "<{}>steadfast[{}]: {text}",
                    FACILITY_DAEMON | priority,
                    std::process::id()
                );
                socket.send(line.as_bytes()).map(drop)
            }
            Sink::Nowhere => Ok(()),
        };
    }
}

/// Splits `<4>` off a line; a line without a priority is informational.
fn split_priority(line: &str) -> (u8, &str) {
    line.strip_prefix('<')
        .and_then(|rest| rest.split_once('>'))
        .and_then(|(number, text)| Some((number.parse().ok().filter(|number| *number < 8)?, text)))
        .unwrap_or((Priority::Info as u8, line))
}

fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    stat_text::time(Timestamp { seconds, nanoseconds: since.subsec_nanos() }, true)
}

#[cfg(test)]
mod tests {
    use super::split_priority;

    #[test]
    fn priorities_of_lines() {
        assert_eq!(split_priority("<3>steadfast: bad"), (3, "steadfast: bad"));
        for line in ["steadfast: fine", "<x>y", "<9>y", "<3", ""] {
            assert_eq!(split_priority(line), (6, line));
        }
    }
}
