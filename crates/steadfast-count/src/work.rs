//! A worker: one operation on one volume, in a process of its own.

use std::path::Path;

use crate::Result;
use crate::operations::{Context, Operation};
use crate::region::{Counts, Region};
use crate::volume::{self, Kind, Random};

/// Stack of the thread that measures: what can be painted, and what the rest of a worker needs.
const STACK: usize = 8 << 20;

/// Measures `operation` on the volume `kind` that the file `image` keeps.
///
/// # Errors
/// If the image cannot be read, or the volume refuses something.
pub fn work(
    operation: &'static Operation,
    kind: Kind,
    image: &Path,
    with_stack: bool,
) -> Result<Counts> {
    let measure = || {
        let medium = volume::load(image)?;
        let requests = || medium.requests();
        let mut context = Context {
            medium: &medium,
            volume: volume::open(&medium, 1)?,
            kind,
            region: Region::new(&requests, with_stack),
            random: Random::new(1),
        };
        operation.measure(&mut context)?;
        Ok(context.region.counts())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, measure);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        thread.join().map_err(|_| format!("{}: the worker has panicked", operation.name))?
    })
}
