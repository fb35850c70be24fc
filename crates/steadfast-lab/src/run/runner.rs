//! Runs a plan, step by step.

use std::time::{Duration, Instant};

use super::merge;
use super::plan::{Plan, Step};
use super::stop::Stop;
use crate::measure::{Watch, probe, provenance};
use crate::result::{self, KIND, Progress, ResultError, RunResult, SCHEMA, Status};
use crate::target::scratch;
use crate::workload::Bench;
use crate::{Outcome, Trouble};

/// The reason why there is no (further) result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A failure with the result file.
    #[error("{0}")]
    Result(#[from] ResultError),
    /// The result file belongs to another run.
    #[error(
        "{0} is of another run (other suites, targets, seed or rounds): use another --out, or leave --resume out"
    )]
    OtherRun(String),
    /// A failure of the machine.
    #[error("{0}")]
    Trouble(#[from] Trouble),
}

/// The report on a step that begins.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// Counted from 1.
    pub number: usize,
    /// Total number of steps.
    pub count: usize,
    /// `b5/iozone file_size=65536 …`.
    pub label: String,
    /// Id of the target.
    pub target: String,
    /// Counted from 0.
    pub round: u32,
    /// Estimated remaining time, if known.
    pub left: Option<Duration>,
}

/// Observes a run.
pub trait Observer {
    /// A step begins.
    fn step(&mut self, report: &StepReport);
    /// One line for the user: a target is skipped, or a test has failed.
    fn message(&mut self, text: &str);
}

/// Runs the plan until its end or until it is stopped. The result is also in the result file.
///
/// # Errors
/// There is no place for the result or the volumes, or the file to continue from belongs to another
/// run. Failures of a target are in the result.
pub fn run(
    mut plan: Plan,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<RunResult, RunError> {
    let steps = plan.steps();
    let mut result = begin(&plan, &steps)?;
    let watch = Watch::start(&mut result.noise);
    for warning in &result.noise.warnings {
        observer.message(warning);
    }
    let mut warm: Vec<bool> = vec![false; plan.targets.len()];
    let mut pace = Pace::new(&plan);
    let mut complete = true;
    for (number, step) in steps.iter().copied().enumerate() {
        let name = plan.name(step);
        if result.progress.done.contains(&name) || !is_usable(&result, step) {
            continue;
        }
        if stop.is_set() {
            complete = false;
            break;
        }
        let left = pace.left(&steps[number..], |step| !is_usable(&result, *step));
        observer.step(&report(&plan, step, number, steps.len(), left));
        let start = Instant::now();
        let ended = perform(&mut plan, step, &mut result, stop, observer, &mut warm);
        pace.note(step, start.elapsed());
        result.progress.seconds += start.elapsed().as_secs_f64();
        if matches!(ended, Err(Trouble::Stopped)) {
            complete = false;
            break;
        }
        result.progress.done.push(name);
        save(&mut result, &plan)?;
    }
    for target in &mut plan.targets {
        // The guards remove what is still mounted.
        let _ = target.unmount();
    }
    result.progress.complete = complete;
    watch.end(&mut result.noise);
    save(&mut result, &plan)?;
    Ok(result)
}

/// A new result, or the one to be continued.
fn begin(plan: &Plan, steps: &[Step]) -> Result<RunResult, RunError> {
    if plan.resume && plan.result.exists() {
        let mut result = result::read(&plan.result)?;
        let same_suites = {
            let planned = merge::empty_suites(plan);
            let tests = |suites: &[result::Suite]| -> Vec<String> {
                suites
                    .iter()
                    .flat_map(|suite| {
                        suite.tests.iter().map(|test| format!("{}/{}", suite.id, test.id))
                    })
                    .collect()
            };
            tests(&planned) == tests(&result.suites)
        };
        let targets = plan.targets.iter().map(|target| target.id());
        let same_targets = result.targets.iter().map(|target| target.id.as_str()).eq(targets);
        let same = same_suites
            && same_targets
            && result.provenance.seed == plan.seed
            && result.progress.steps == steps.len() as u64;
        if !same {
            return Err(RunError::OtherRun(plan.result.display().to_string()));
        }
        result.progress.resumed += 1;
        return Ok(result);
    }
    let noise = if plan.backing.is_dir() {
        probe(scratch(&plan.backing)?.path())?
    } else {
        probe(&plan.backing)?
    };
    let mut provenance = provenance(&plan.backing);
    provenance.seed = plan.seed;
    provenance.effort = plan.effort.name().into();
    let ids: Vec<&str> = plan.targets.iter().map(|target| target.id()).collect();
    let peer = plan.peer.clone().or_else(|| {
        // Steadfast and the floor of FUSE are not alternatives to each other.
        let other = ids.iter().find(|id| !id.starts_with("steadfast") && **id != "null");
        other.or(ids.first()).filter(|_| ids.len() > 1).map(|id| (*id).to_owned())
    });
    let result = RunResult {
        kind: KIND.into(),
        schema: SCHEMA,
        provenance,
        noise,
        targets: plan.targets.iter().map(|target| target.describe()).collect(),
        peer,
        suites: merge::empty_suites(plan),
        progress: Progress { steps: steps.len() as u64, ..Progress::default() },
    };
    // The file is written before the first step, so that a failure to write it is reported at once.
    result::write(&result, &plan.result)?;
    Ok(result)
}

fn save(result: &mut RunResult, plan: &Plan) -> Result<(), RunError> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    result.provenance.updated = now.map_or(0, |since| since.as_secs());
    Ok(result::write(result, &plan.result)?)
}

fn is_usable(result: &RunResult, step: Step) -> bool {
    result.targets.get(step.target).is_some_and(|target| target.status == Status::Ok)
}

fn report(
    plan: &Plan,
    step: Step,
    number: usize,
    count: usize,
    left: Option<Duration>,
) -> StepReport {
    let suite = plan.suites.get(step.suite);
    let workload = suite.and_then(|suite| suite.workloads.get(step.workload));
    StepReport {
        number: number + 1,
        count,
        label: format!(
            "{}/{}",
            suite.map_or("", |suite| &suite.id),
            workload.map(|workload| workload.label()).unwrap_or_default()
        ),
        target: plan.targets.get(step.target).map_or("", |target| target.id()).to_owned(),
        round: step.round,
        left,
    }
}

/// Makes the volume, runs the workload and adds its findings. The first step on a target runs
/// twice; the first time only warms up.
fn perform(
    plan: &mut Plan,
    step: Step,
    result: &mut RunResult,
    stop: &Stop,
    observer: &mut dyn Observer,
    warm: &mut [bool],
) -> Outcome {
    let workload = plan.suites.get(step.suite).and_then(|suite| suite.workloads.get(step.workload));
    let (Some(workload), Some(target)) = (workload, plan.targets.get_mut(step.target)) else {
        return Ok(());
    };
    let id = target.id().to_owned();
    let seed = plan.seed.wrapping_add(u64::from(step.round).wrapping_mul(0x9e37_79b9));
    loop {
        if let Err(trouble) = target.make() {
            observer.message(&format!("{id}: {trouble}"));
            if let Some(entry) = result.targets.get_mut(step.target) {
                entry.status = merge::status(&trouble);
            }
            return Ok(());
        }
        let mut bench = Bench::new(&mut **target, (seed, step.round), &plan.program, stop);
        let ended = workload.run(&mut bench);
        let findings = bench.into_findings();
        if let Some(entry) = result.targets.get_mut(step.target) {
            *entry = target.describe();
        }
        let rested = target.unmount();
        let first = warm.get_mut(step.target).is_some_and(|warm| !std::mem::replace(warm, true));
        if first && ended.is_ok() && rested.is_ok() {
            continue;
        }
        if matches!(ended, Err(Trouble::Stopped)) {
            return ended;
        }
        let tests = workload.tests();
        let trouble = ended.err().or(rested.err());
        if let Some(trouble) = &trouble {
            let kind = if matches!(trouble, Trouble::Skip(_)) { "skipped" } else { "FAILED" };
            observer.message(&format!("{id}: {}: {kind}: {trouble}", workload.label()));
        }
        merge::enter(result, step.suite, &id, &tests, findings, trouble.as_ref());
        return Ok(());
    }
}

/// Estimates the duration of steps from the completed ones.
struct Pace {
    /// Sum and count by suite and workload.
    seen: Vec<Vec<(f64, u32)>>,
    all: (f64, u32),
}

impl Pace {
    fn new(plan: &Plan) -> Pace {
        let seen = plan.suites.iter().map(|suite| vec![(0.0, 0); suite.workloads.len()]).collect();
        Pace { seen, all: (0.0, 0) }
    }

    fn note(&mut self, step: Step, time: Duration) {
        let slot = self.seen.get_mut(step.suite).and_then(|suite| suite.get_mut(step.workload));
        for sum in slot.into_iter().chain([&mut self.all]) {
            sum.0 += time.as_secs_f64();
            sum.1 += 1;
        }
    }

    fn left(&self, steps: &[Step], skipped: impl Fn(&Step) -> bool) -> Option<Duration> {
        if self.all.1 == 0 {
            return None;
        }
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        let seconds: f64 = steps
            .iter()
            .filter(|step| !skipped(step))
            .filter_map(|step| {
                let own = self.seen.get(step.suite).and_then(|suite| suite.get(step.workload));
                own.copied().and_then(mean).or(mean(self.all))
            })
            .sum();
        Duration::try_from_secs_f64(seconds).ok()
    }
}
