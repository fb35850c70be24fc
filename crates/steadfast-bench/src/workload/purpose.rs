//! Another workload for some of the targets only, and for one purpose: its tests are told apart
//! from the same tests for another one.

use super::{Bench, TestSpec, Workload};
use crate::Outcome;

/// A workload with its purpose.
pub struct Purposeful {
    /// What is done.
    pub inner: Box<dyn Workload>,
    /// What for.
    pub purpose: &'static str,
    /// On which targets, where the run has them.
    pub targets: &'static [&'static str],
}

/// The parameter of tests that names the purpose.
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
