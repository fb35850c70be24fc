//! Throughput mode: several threads, each with a file of its own, in the same test at the same time.
//!
//! All begin together. The value is what IOzone calls "children see": the sum of what each thread got. With one thread it is
//! the plain test, on the thread of the run.

use std::sync::Barrier;

use super::super::{Bench, Timed};
use super::pass::{Cell, Pass, Place};
use crate::result::Unit;
use crate::target::Files;
use crate::{Outcome, Trouble};

/// One test on all files: bytes per second of all threads together, and what was seen. The time is that of the slowest.
///
/// # Errors
/// That of the first thread that has one; `Skip` where the file system is for one thread only.
pub(super) fn run(bench: &Bench<'_>, cells: &mut [Cell<'_>], pass: Pass) -> Outcome<(f64, Timed)> {
    if let [cell] = cells {
        let timed = cell.run(Place { files: bench.files()?, stop: bench.stop() }, pass)?;
        return Ok((rate(&timed), timed));
    }
    let Some(files) = bench.files()?.shared() else {
        return Err(Trouble::Skip("this library is for one thread only".into()));
    };
    let stop = bench.stop();
    let together = Barrier::new(cells.len());
    let passed: Vec<Outcome<Timed>> = std::thread::scope(|scope| {
        let start = |cell| scope.spawn(|| alone(cell, files, stop, &together, pass));
        let threads: Vec<_> = cells.iter_mut().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let mut sum = 0.0;
    let mut all = Timed::default();
    for timed in passed {
        let timed = timed?;
        sum += rate(&timed);
        all.join_beside(timed);
    }
    Ok((sum, all))
}

fn alone(
    cell: &mut Cell<'_>,
    files: &(dyn Files + Sync),
    stop: &crate::run::Stop,
    together: &Barrier,
    pass: Pass,
) -> Outcome<Timed> {
    together.wait();
    cell.run(Place { files, stop }, pass)
}

fn rate(timed: &Timed) -> f64 {
    timed.value(Unit::BytesPerSecond).unwrap_or(0.0)
}

fn panicked() -> Trouble {
    Trouble::Io { doing: "run a thread".into(), error: std::io::Error::other("it panicked") }
}
