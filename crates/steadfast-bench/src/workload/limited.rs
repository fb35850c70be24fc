//! Another workload with little memory: the process and the file system's daemon together have no
//! more, page cache and all.

use super::{Bench, TestSpec, Workload};
use crate::Outcome;
use crate::measure::MemoryLimit;

/// A workload in a control group with a limit.
pub struct Limited<W> {
    /// What is done.
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
        // The daemon is started again inside, and the cache begins empty: it belongs to who was
        // there first.
        bench.target.unmount()?;
        let limit = MemoryLimit::enter(self.bytes)?;
        let mounted = bench.target.mount();
        let ended = mounted.and_then(|_| {
            bench.limited(PARAMETER, self.bytes);
            self.inner.run(bench)
        });
        // The daemon ends before its group is taken away.
        let rested = bench.target.unmount();
        limit.leave()?;
        ended.and(rested)
    }
}
