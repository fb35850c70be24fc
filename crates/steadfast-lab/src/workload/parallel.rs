//! Several threads at once on one file system.

use std::sync::Barrier;

use super::Bench;
use crate::run::Stop;
use crate::target::Files;
use crate::{Outcome, Trouble};

/// Does `work` on all items at once, each on a separate thread; all begin together. A single item
/// runs on the thread of the run, which any file system supports.
///
/// # Errors
/// That of the first item that fails; `Skip` if the file system supports only one thread.
pub(super) fn each<I: Send, T: Send>(
    bench: &Bench<'_>,
    items: &mut [I],
    work: impl Fn(&mut I, &dyn Files, &Stop) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    let stop = bench.stop();
    if let [item] = items {
        return Ok(vec![work(item, bench.files()?, stop)?]);
    }
    let Some(files) = bench.files()?.shared() else {
        return Err(Trouble::Skip("this library is for one thread only".into()));
    };
    let together = Barrier::new(items.len());
    let (together, work) = (&together, &work);
    let done: Vec<Outcome<T>> = std::thread::scope(|scope| {
        let start = |item| {
            scope.spawn(move || {
                together.wait();
                work(item, files, stop)
            })
        };
        let threads: Vec<_> = items.iter_mut().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect()
    });
    done.into_iter().collect()
}

/// Checks for the user's request to stop.
///
/// # Errors
/// `Stopped` if it was made.
pub(super) fn check(stop: &Stop) -> Outcome {
    if stop.is_set() { Err(Trouble::Stopped) } else { Ok(()) }
}

fn panicked() -> Trouble {
    Trouble::Io { doing: "run a thread".into(), error: std::io::Error::other("it panicked") }
}
