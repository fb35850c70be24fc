//! Short lines on standard error. Under systemd they have the priority prefix that the journal
//! understands.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::OnceLock;

/// Priorities of syslog(3).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// Writes one line. Errors are ignored: standard error may be closed.
pub(crate) fn line(priority: Priority, text: Arguments<'_>) {
    static JOURNAL: OnceLock<bool> = OnceLock::new();
    let journal = *JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some());
    let mut stderr = std::io::stderr().lock();
    let _ = if journal {
        writeln!(stderr, "<{}>steadfast: {text}", priority as u8)
    } else {
        writeln!(stderr, "steadfast: {text}")
    };
}

macro_rules! log_error {
    ($($argument:tt)*) => { $crate::log::line($crate::log::Priority::Error, format_args!($($argument)*)) };
}
macro_rules! log_warning {
    ($($argument:tt)*) => { $crate::log::line($crate::log::Priority::Warning, format_args!($($argument)*)) };
}
macro_rules! log_info {
    ($($argument:tt)*) => { $crate::log::line($crate::log::Priority::Info, format_args!($($argument)*)) };
}
pub(crate) use {log_error, log_info, log_warning};
