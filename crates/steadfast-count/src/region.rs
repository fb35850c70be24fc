//! The function whose costs count, and the counts that this process can take itself.
//!
//! Invariant: nothing but the operation runs inside [`counted_region`]. The driver names that
//! function to callgrind, so it is never inlined.

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use steadfast_media::MediumCounters;

use crate::allocations::{self, Allocations};
use crate::stack;

/// Runs one repetition. Callgrind collects costs from its entry to its return.
#[inline(never)]
pub fn counted_region(operation: &mut dyn FnMut()) {
    operation();
    // Without this the call would be a jump, and callgrind would not see the return.
    black_box(());
}

/// Sums over all counted repetitions of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Repetitions, or units of work if a repetition has several.
    pub units: u64,
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes that they asked for.
    pub allocated_bytes: u64,
    /// Reads of the medium.
    pub reads: u64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Writes to the medium.
    pub writes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Flushes of the medium.
    pub flushes: u64,
    /// Discards of the medium.
    pub discards: u64,
    /// Deepest stack of a repetition, bytes; 0 if it was not measured.
    pub stack_max: u64,
}

/// Counts repetitions.
pub struct Region<'m> {
    requests: &'m dyn Fn() -> MediumCounters,
    counting: bool,
    with_stack: bool,
    counts: Counts,
}

impl<'m> Region<'m> {
    /// `requests` tells what the medium has done so far. With `with_stack` each repetition's stack
    /// is measured; that is for runs whose instructions are not counted.
    pub fn new(requests: &'m dyn Fn() -> MediumCounters, with_stack: bool) -> Region<'m> {
        Region { requests, counting: false, with_stack, counts: Counts::default() }
    }

    /// Ends the warm-up: repetitions count from now on.
    pub fn start(&mut self) {
        self.counting = true;
    }

    /// Runs one repetition of `units` units.
    pub fn run<T>(&mut self, units: u64, operation: impl FnOnce() -> T) -> T {
        if !self.counting {
            return operation();
        }
        let (mut operation, mut result) = (Some(operation), None);
        let mut once = || result = operation.take().map(|operation| operation());
        if self.with_stack {
            let ((), depth) = stack::measure(|| counted_region(&mut once));
            self.counts.stack_max = self.counts.stack_max.max(depth as u64);
        } else {
            let requests = (self.requests)();
            let before = allocations::start();
            counted_region(&mut once);
            let allocated = allocations::stop(before);
            self.add(units, allocated, requests);
        }
        result.expect("the region ran the operation")
    }

    fn add(&mut self, units: u64, allocated: Allocations, before: MediumCounters) {
        let after = (self.requests)();
        let counts = &mut self.counts;
        counts.units += units;
        counts.allocations += allocated.count;
        counts.allocated_bytes += allocated.bytes;
        counts.reads += after.reads - before.reads;
        counts.read_bytes += after.read_bytes - before.read_bytes;
        counts.writes += after.writes - before.writes;
        counts.written_bytes += after.written_bytes - before.written_bytes;
        counts.flushes += after.flushes - before.flushes;
        counts.discards += after.discards - before.discards;
    }

    /// The sums.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
