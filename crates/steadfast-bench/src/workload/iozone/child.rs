//! A process of throughput mode: it is told over a pipe which file is its own and which test to do,
//! and answers with what it saw.
//!
//! Lines of JSON: one [`Job`], then any number of [`Order`]s, each answered with an [`Answer`]. It
//! ends with its input.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::Timed;
use super::super::content::Content;
use super::options::Options;
use super::pass::{Cell, Pass, Place};
use crate::measure::Histogram;
use crate::result::{Latency, Verification};
use crate::run::Stop;
use crate::target::SystemFiles;
use crate::{Outcome, Trouble};

/// What a process is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    /// Where the files are.
    pub directory: PathBuf,
    /// Number of its file.
    pub file: u64,
    pub file_size: u64,
    pub record_size: u64,
    pub seed: u64,
    pub options: Options,
}

/// What it is to do next.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Order {
    /// Write the file, untimed.
    Prepare,
    /// One test.
    Pass(Pass),
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Done {
        latency: Option<Latency>,
        nanoseconds: u64,
        operations: u64,
        bytes: u64,
        verification: Verification,
    },
    /// It cannot be done here.
    Skipped(String),
    /// What was read is wrong.
    Wrong(String),
    /// Anything else.
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

    /// As if it had been done here.
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

/// Does what it is told until there is nothing more.
///
/// # Errors
/// The pipes broke, or what came through them is no order.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(());
    }
    let job: Job = serde_json::from_str(&line)?;
    let content = Content::new(job.seed, job.options.dedupable);
    let mut cell =
        Cell::new(job.file, &content, &job.options, job.file_size, job.record_size, job.seed);
    let files = SystemFiles::new(&job.directory);
    let stop = Stop::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let place = Place { files: &files, stop: &stop };
        let outcome = match serde_json::from_str(&line)? {
            Order::Prepare => cell.prepare(place).map(|()| Timed::default()),
            Order::Pass(pass) => cell.run(place, pass),
        };
        serde_json::to_writer(&mut output, &Answer::of(outcome))?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
}
