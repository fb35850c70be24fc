//! Throughput mode with processes: each is another instance of the `steadfast` program, with its
//! own file.
//!
//! All are started before the first test, and receive each test one right after the other, so they
//! begin within microseconds of each other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::super::{Bench, Timed};
use super::child::{Answer, Job, Order};
use super::options::Options;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Processes, each with its file. Dropping this value ends them.
pub(super) struct Processes(Vec<Process>);

struct Process {
    child: Child,
    // Closing this pipe ends the process.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Processes {
    /// Starts the processes.
    ///
    /// # Errors
    /// `Skip` if there is no directory for other processes.
    pub fn start(
        bench: &Bench<'_>,
        options: &Options,
        file_size: u64,
        record_size: u64,
    ) -> Outcome<Processes> {
        let Some(directory) = bench.files()?.directory() else {
            return Err(Trouble::Skip("a library is in one process: -T has threads".into()));
        };
        let mut processes = Processes(Vec::new());
        for file in 0..options.threads.max(1) {
            let mut command = Command::new(bench.program());
            command.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = command.spawn();
            let mut child = child.doing(|| format!("run {}", bench.program().display()))?;
            let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(ended(bench));
            };
            let mut process =
                Process { child, orders: Some(orders), answers: BufReader::new(answers) };
            let (directory, options) = (directory.to_owned(), options.clone());
            let told = process.tell(&Job {
                directory,
                file,
                file_size,
                record_size,
                seed: bench.seed,
                options,
            });
            processes.0.push(process);
            told.map_err(|_| ended(bench))?;
        }
        Ok(processes)
    }

    /// Sends the same order to all, so that they work at once.
    ///
    /// # Errors
    /// That of the first process that fails.
    pub fn each(&mut self, bench: &Bench<'_>, order: Order) -> Outcome<Vec<Timed>> {
        for process in &mut self.0 {
            process.tell(&order).map_err(|_| ended(bench))?;
        }
        // All answers are read; otherwise the next test would get answers of this one.
        let answers: Vec<Outcome<Timed>> =
            self.0.iter_mut().map(|process| process.answer(bench)).collect();
        answers.into_iter().collect()
    }
}

impl Process {
    fn tell(&mut self, what: &impl serde::Serialize) -> std::io::Result<()> {
        let Some(orders) = &mut self.orders else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        orders.write_all(&line)
    }

    fn answer(&mut self, bench: &Bench<'_>) -> Outcome<Timed> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        let answer = read.ok().and_then(|_| serde_json::from_str::<Answer>(&line).ok());
        answer.ok_or_else(|| ended(bench))?.outcome()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// A process has ended: the user's Ctrl-C reaches it too.
fn ended(bench: &Bench<'_>) -> Trouble {
    match bench.check_stop() {
        Err(stopped) => stopped,
        Ok(()) => Trouble::Tool {
            command: "a process of throughput mode".into(),
            output: "it ended before its time".into(),
        },
    }
}
