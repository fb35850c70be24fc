//! Why something could not be measured, and what follows from it.

use std::io;

/// What ended a step. The text is one line for people.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Nothing is wrong with the target, it just cannot do this here: the step is skipped with the
    /// reason.
    #[error("{0}")]
    Skip(String),
    /// The operating system or the file system refused.
    #[error("cannot {doing}: {}", text(error))]
    Io {
        /// What was tried, with the name of the file: `write f0 at 4096`.
        doing: String,
        /// What it said.
        error: io::Error,
    },
    /// What was read is not what was written. Fails the run.
    #[error("wrong {what}")]
    Wrong {
        /// Where and what: `byte at offset 4096 of f0: 0x00 instead of 0x5a`.
        what: String,
    },
    /// A tool failed.
    #[error("{command}: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// The last line that it wrote, or its exit code.
        output: String,
    },
    /// The user stopped the run.
    #[error("stopped")]
    Stopped,
}

/// Result of a step.
pub type Outcome<T = ()> = Result<T, Trouble>;

/// Gives an error of the operating system its place.
pub trait Doing<T> {
    /// What was being done, told only when it failed.
    ///
    /// # Errors
    /// The error, with what was done: [`Trouble::Skip`] where the operation is not supported or the
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
