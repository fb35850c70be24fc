//! Another workload for only some of the targets, with a purpose. The purpose distinguishes its
//! tests from the same tests for another purpose.

use super::{Bench, TestSpec, Workload};
use crate::Outcome;

/// A workload with its purpose.
pub struct Purposeful {
    /// The workload.
    pub inner: Box<dyn Workload>,
    /// The purpose.
    pub purpose: &'static str,
    /// The targets, if the run has them.
    pub targets: &'static [&'static str],
}

/// The test parameter that names the purpose.
pub const PARAMETER: &str = "goal";

impl Workload for Purposeful {
    fn label(&self) -> String {
        format!("{}: {}", self.purpose, self.inner.label())
    }

    fn tests(&self) -> Vec<TestSpec> {
        self.inner.tests().into_iter().map(|test| test.with_text(PARAMETER, self.purpose)).collect()
    }

    fn concerns(&self, target: &str) -> bool {
        self.targets.contains(&target)
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        bench.serve(PARAMETER, self.purpose);
        self.inner.run(bench)
    }
}
