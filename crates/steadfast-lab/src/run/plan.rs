//! The work of a run, and its order.

use std::path::PathBuf;

use crate::target::Target;
use crate::workload::Workload;

/// The amount of work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// At most about two minutes: small sizes, three rounds.
    Quick,
    /// The sizes of the published tests if practical, five rounds.
    #[default]
    Default,
    /// The sizes of the published tests and beyond, seven rounds.
    Full,
}

impl Effort {
    /// The name in the result.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Full => "full",
        }
    }

    /// Number of rounds, unless another one is requested.
    pub fn rounds(self) -> u32 {
        match self {
            Effort::Quick => 3,
            Effort::Default => 5,
            Effort::Full => 7,
        }
    }

    /// Selects a value by effort.
    pub fn pick<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Default => default,
            Effort::Full => full,
        }
    }
}

/// A suite with its workloads.
pub struct PlannedSuite {
    /// See [`crate::result::Suite`].
    pub id: String,
    /// Its title.
    pub title: String,
    /// The published comparison.
    pub answers: String,
    /// Parts of the published comparison that are missing here.
    pub missing: Vec<String>,
    /// The workloads.
    pub workloads: Vec<Box<dyn Workload>>,
}

/// A run.
pub struct Plan {
    /// The suites, in this order.
    pub suites: Vec<PlannedSuite>,
    /// The targets.
    pub targets: Vec<Box<dyn Target>>,
    /// The target to which ratios are given. `None`: the first one that is neither Steadfast nor
    /// `null`, or else the first one.
    pub peer: Option<String>,
    /// Number of rounds.
    pub rounds: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// The effort, for the result.
    pub effort: Effort,
    /// The place of the volumes: a directory or a block device.
    pub backing: PathBuf,
    /// The `steadfast-lab` program, for processes that work for a test.
    pub program: PathBuf,
    /// The result file.
    pub result: PathBuf,
    /// Continue from the result file.
    pub resume: bool,
}

/// One workload on one target in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index in [`Plan::suites`].
    pub suite: usize,
    /// Index in its workloads.
    pub workload: usize,
    /// Index in [`Plan::targets`].
    pub target: usize,
    /// Counted from 0.
    pub round: u32,
}

impl Plan {
    /// All steps in their order. Odd rounds visit the targets backwards, so a machine that steadily
    /// gets slower or faster favours none.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (suite, planned) in self.suites.iter().enumerate() {
            for (workload, work) in planned.workloads.iter().enumerate() {
                for round in 0..self.rounds {
                    let all = self.targets.iter().enumerate();
                    let mut targets: Vec<usize> = all
                        .filter(|(_, target)| work.concerns(target.id()))
                        .map(|(place, _)| place)
                        .collect();
                    if round % 2 == 1 {
                        targets.reverse();
                    }
                    steps.extend(targets.into_iter().map(|target| Step {
                        suite,
                        workload,
                        target,
                        round,
                    }));
                }
            }
        }
        steps
    }

    /// The name of a step in [`crate::result::Progress::done`].
    pub fn name(&self, step: Step) -> String {
        let suite = self.suites.get(step.suite);
        let workload = suite
            .and_then(|suite| suite.workloads.get(step.workload))
            .map(|workload| workload.label());
        let target = self.targets.get(step.target).map_or("", |target| target.id());
        format!(
            "{}/{}/{target}/{}",
            suite.map_or("", |suite| &suite.id),
            workload.unwrap_or_default(),
            step.round
        )
    }
}
