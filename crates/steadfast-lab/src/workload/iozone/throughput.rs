//! Throughput mode: several processes, or threads of one, run the same test at the same time, each
//! with its own file.
//!
//! All begin together. The value is what IOzone calls "children see": the sum of their results.
//! With only one, it is the ordinary test on the thread of the run.

use super::super::content::Content;
use super::super::{Bench, Timed, parallel};
use super::Iozone;
use super::child::Order;
use super::pass::{Context, Pass, RecordFile};
use super::processes::Processes;
use crate::Outcome;
use crate::result::Unit;

/// The workers of a test, on files of one record size.
pub(super) struct Crew<'c> {
    /// The files. With processes, they serve only to remove the files.
    cells: Vec<RecordFile<'c>>,
    processes: Option<Processes>,
}

impl<'c> Crew<'c> {
    /// A crew without any written data.
    ///
    /// # Errors
    /// `Skip` if processes cannot access the file system.
    pub fn new(
        bench: &Bench<'_>,
        iozone: &'c Iozone,
        content: &'c Content,
        record_size: u64,
    ) -> Outcome<Self> {
        let (options, file_size) = (&iozone.options, iozone.file_size);
        let cell =
            |file| RecordFile::new(file, content, options, file_size, record_size, bench.seed);
        let apart = options.threads > 1 && options.processes;
        Ok(Crew {
            cells: (0..options.threads.max(1)).map(cell).collect(),
            processes: match apart {
                true => Some(Processes::start(bench, options, file_size, record_size)?),
                false => None,
            },
        })
    }

    /// Writes the files, untimed, for tests that only read.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn prepare(&mut self, bench: &Bench<'_>) -> Outcome {
        if let Some(processes) = &mut self.processes {
            return processes.each(bench, Order::Prepare).map(|_| ());
        }
        let context = Context { files: bench.files()?, stop: bench.stop() };
        self.cells.iter_mut().try_for_each(|cell| cell.prepare(context))
    }

    /// Runs one test on all files. Returns the sum of bytes per second, and the observations. The
    /// time is that of the slowest worker.
    ///
    /// # Errors
    /// That of the first worker that fails; `Skip` if the file system supports only one thread.
    pub fn run(&mut self, bench: &Bench<'_>, pass: Pass) -> Outcome<(f64, Timed)> {
        let passed = match &mut self.processes {
            Some(processes) => processes.each(bench, Order::Pass(pass))?,
            None => {
                let cells = &mut self.cells;
                parallel::each(bench, cells, |cell, files, stop| {
                    cell.run(Context { files, stop }, pass)
                })?
            }
        };
        let mut sum = 0.0;
        let mut all = Timed::default();
        for timed in passed {
            sum += timed.value(Unit::BytesPerSecond).unwrap_or(0.0);
            all.join_beside(timed);
        }
        Ok((sum, all))
    }

    /// Removes the files.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, bench: &Bench<'_>) -> Outcome {
        self.cells.iter().try_for_each(|cell| cell.remove(bench.files()?))
    }
}
