//! A process of throughput mode: it receives its file and its tests through a pipe, and returns its
//! results.
//!
//! The protocol is lines of JSON: one [`Job`], then any number of [`Order`]s, each followed by an
//! [`Answer`]. The process ends when its input ends.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::Timed;
use super::super::content::Content;
use super::options::Options;
use super::pass::{Context, Pass, RecordFile};
use crate::measure::Histogram;
use crate::result::{Latency, Verification};
use crate::run::Stop;
use crate::target::SystemFiles;
use crate::{Outcome, Trouble};

/// The job of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    /// The directory of the files.
    pub directory: PathBuf,
    /// Number of its file.
    pub file: u64,
    pub file_size: u64,
    pub record_size: u64,
    pub seed: u64,
    pub options: Options,
}

/// The next task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Order {
    /// Write the file, untimed.
    Prepare,
    /// One test.
    Pass(Pass),
}

/// The result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Done {
        latency: Option<Latency>,
        nanoseconds: u64,
        operations: u64,
        bytes: u64,
        verification: Verification,
    },
    /// The test cannot be done here.
    Skipped(String),
    /// The data read is wrong.
    Wrong(String),
    /// Any other failure.
    Failed(String),
}

impl Answer {
    fn of(outcome: Outcome<Timed>) -> Answer {
        match outcome {
            Ok(timed) => Answer::Done {
                latency: timed.latency.to_result(),
                nanoseconds: u64::try_from(timed.total.as_nanos()).unwrap_or(u64::MAX),
                operations: timed.operations,
                bytes: timed.bytes,
                verification: timed.verification,
            },
            Err(Trouble::Skip(reason)) => Answer::Skipped(reason),
            Err(Trouble::Wrong { what }) => Answer::Wrong(what),
            Err(trouble) => Answer::Failed(trouble.to_string()),
        }
    }

    /// The result as if the test had run in this process.
    ///
    /// # Errors
    /// That of the process.
    pub fn outcome(self) -> Outcome<Timed> {
        match self {
            Answer::Done { latency, nanoseconds, operations, bytes, verification } => Ok(Timed {
                latency: latency.as_ref().map(Histogram::from_result).unwrap_or_default(),
                total: Duration::from_nanos(nanoseconds),
                operations,
                bytes,
                verification,
            }),
            Answer::Skipped(reason) => Err(Trouble::Skip(reason)),
            Answer::Wrong(what) => Err(Trouble::Wrong { what }),
            Answer::Failed(output) => {
                Err(Trouble::Tool { command: "a process of throughput mode".into(), output })
            }
        }
    }
}

/// Executes orders until the input ends.
///
/// # Errors
/// The pipes broke, or a line is not an order.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(());
    }
    let job: Job = serde_json::from_str(&line)?;
    let content = Content::new(job.seed, job.options.dedupable);
    let mut cell =
        RecordFile::new(job.file, &content, &job.options, job.file_size, job.record_size, job.seed);
    let files = SystemFiles::new(&job.directory);
    let stop = Stop::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let context = Context { files: &files, stop: &stop };
        let outcome = match serde_json::from_str(&line)? {
            Order::Prepare => cell.prepare(context).map(|()| Timed::default()),
            Order::Pass(pass) => cell.run(context, pass),
        };
        serde_json::to_writer(&mut output, &Answer::of(outcome))?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
}
