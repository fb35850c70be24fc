//! What is to be run, in which order.

use std::path::PathBuf;

use crate::target::Target;
use crate::workload::Workload;

/// How long a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// At most about two minutes: small sizes, three rounds.
    Quick,
    /// The sizes of the published tests where that is sensible, five rounds.
    #[default]
    Default,
    /// The sizes of the published tests and beyond, seven rounds.
    Full,
}

impl Effort {
    /// For the result.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Full => "full",
        }
    }

    /// Rounds, unless something else was asked for.
    pub fn rounds(self) -> u32 {
        match self {
            Effort::Quick => 3,
            Effort::Default => 5,
            Effort::Full => 7,
        }
    }

    /// Chooses by effort.
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
    /// For people.
    pub title: String,
    /// The published comparison.
    pub answers: String,
    /// What it has and this does not.
    pub missing: Vec<String>,
    /// What is run.
    pub workloads: Vec<Box<dyn Workload>>,
}

/// A run.
pub struct Plan {
    /// What to run, in this order.
    pub suites: Vec<PlannedSuite>,
    /// On what.
    pub targets: Vec<Box<dyn Target>>,
    /// The target to which ratios are given; `None`: the first one that is neither Steadfast nor
    /// `null`, else the first one.
    pub peer: Option<String>,
    /// How often.
    pub rounds: u32,
    /// Of everything random.
    pub seed: u64,
    /// For the result.
    pub effort: Effort,
    /// Where the volumes are: a directory or a block device.
    pub backing: PathBuf,
    /// The `steadfast` program, for processes that work for a test.
    pub program: PathBuf,
    /// Where the result goes: a file.
    pub result: PathBuf,
    /// Go on with what is in the result file.
    pub resume: bool,
}

/// One workload on one target in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Place in [`Plan::suites`].
    pub suite: usize,
    /// Place in its workloads.
    pub workload: usize,
    /// Place in [`Plan::targets`].
    pub target: usize,
    /// Counted from 0.
    pub round: u32,
}

impl Plan {
    /// All steps in their order. Odd rounds go through the targets backwards, so that a machine
    /// that gets slower or faster all the time favours none.
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
