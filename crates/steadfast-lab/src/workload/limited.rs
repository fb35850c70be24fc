//! Another workload with little memory: the limit covers the process and the file system's daemon
//! together, including the page cache.

use super::{Bench, TestSpec, Workload};
use crate::Outcome;
use crate::measure::MemoryLimit;

/// A workload in a control group with a limit.
pub struct Limited<W> {
    /// The workload.
    pub inner: W,
    /// Bytes of memory.
    pub bytes: u64,
}

const PARAMETER: &str = "memory_limit";

impl<W: Workload> Workload for Limited<W> {
    fn label(&self) -> String {
        format!("{} memory_limit={}", self.inner.label(), self.bytes)
    }

    fn tests(&self) -> Vec<TestSpec> {
        self.inner.tests().into_iter().map(|test| test.with(PARAMETER, self.bytes)).collect()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        // The daemon restarts inside the group, and the cache begins empty, because it belongs to
        // the group that used it first.
        bench.target.unmount()?;
        let limit = MemoryLimit::enter(self.bytes)?;
        let mounted = bench.target.mount();
        let ended = mounted.and_then(|_| {
            bench.limited(PARAMETER, self.bytes);
            self.inner.run(bench)
        });
        // The daemon ends before its group is removed.
        let rested = bench.target.unmount();
        limit.leave()?;
        ended.and(rested)
    }
}
