//! The reasons why a measurement failed, and their consequences.

use std::io;

/// The end of a step. The text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The target is not at fault, but cannot do this here. The step is skipped with the reason.
    #[error("{0}")]
    Skip(String),
    /// The operating system or the file system reported an error.
    #[error("cannot {doing}: {}", text(error))]
    Io {
        /// The operation, with the name of the file: `write f0 at 4096`.
        doing: String,
        /// The error.
        error: io::Error,
    },
    /// The data read differs from the data written. Fails the run.
    #[error("wrong {what}")]
    Wrong {
        /// Position and values: `byte at offset 4096 of f0: 0x00 instead of 0x5a`.
        what: String,
    },
    /// A tool failed.
    #[error("{command}: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// The last line of its output, or its exit code.
        output: String,
    },
    /// The user stopped the run.
    #[error("stopped")]
    Stopped,
}

/// Result of a step.
pub type Outcome<T = ()> = Result<T, Trouble>;

/// Adds the operation to an error of the operating system.
pub trait Doing<T> {
    /// Adds the operation to the error; `what` is called only after a failure.
    ///
    /// # Errors
    /// The error with the operation: [`Trouble::Skip`] if the operation is not supported or the
    /// volume is full.
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                Trouble::Skip(format!("cannot {}: not supported", what()))
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Trouble::Skip(format!(
                "cannot {}: the volume is full; give it more with --size",
                what()
            )),
            _ => Trouble::Io { doing: what(), error },
        })
    }
}

/// The message of an operating-system error without Rust's `(os error N)`.
fn text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((message, _)) => message.to_lowercase(),
        None => text,
    }
}
