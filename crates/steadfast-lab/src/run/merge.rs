//! Adds the findings of a step to the result.

use super::plan::{Plan, PlannedSuite};
use crate::Trouble;
use crate::measure::Histogram;
use crate::result::{
    Cpu, CrossCheck, Measurement, MediumTraffic, Memory, RunResult, Status, Suite, Test,
    Verification,
};
use crate::statistics::{ratio_of_rounds, summarise};
use crate::workload::{Finding, TestSpec};

/// The suites of a plan without values.
pub fn empty_suites(plan: &Plan) -> Vec<Suite> {
    plan.suites.iter().map(empty_suite).collect()
}

fn empty_suite(planned: &PlannedSuite) -> Suite {
    let mut tests: Vec<Test> = Vec::new();
    for spec in planned.workloads.iter().flat_map(|workload| workload.tests()) {
        if !tests.iter().any(|test| test.id == spec.id()) {
            tests.push(empty_test(spec));
        }
    }
    Suite {
        id: planned.id.clone(),
        title: planned.title.clone(),
        answers: planned.answers.clone(),
        missing: planned.missing.clone(),
        tests,
    }
}

fn empty_test(spec: TestSpec) -> Test {
    Test {
        id: spec.id(),
        workload: spec.workload.into(),
        name: spec.name,
        title: spec.title,
        parameters: spec.parameters,
        unit: spec.unit,
        better: spec.better,
        counted: spec.counted,
        cache: spec.cache,
        measurements: Vec::new(),
    }
}

/// Adds the findings of a step. Tests of the workload without a finding get the trouble that ended
/// it.
pub fn enter(
    result: &mut RunResult,
    suite: usize,
    target: &str,
    tests: &[TestSpec],
    findings: Vec<Finding>,
    trouble: Option<&Trouble>,
) {
    let order: Vec<String> = result.targets.iter().map(|target| target.id.clone()).collect();
    let Some(suite) = result.suites.get_mut(suite) else { return };
    for spec in tests {
        let id = spec.id();
        let Some(test) = suite.tests.iter_mut().find(|test| test.id == id) else { continue };
        let measurement = place(test, target, &order);
        let mut found = false;
        for finding in findings.iter().filter(|finding| finding.test == id) {
            found = true;
            join(measurement, finding);
        }
        if let Some(trouble) = trouble.filter(|_| !found) {
            worsen(&mut measurement.status, status(trouble));
        }
    }
}

/// The status of a test after a trouble.
pub fn status(trouble: &Trouble) -> Status {
    match trouble {
        Trouble::Skip(reason) => Status::Skipped { reason: reason.clone() },
        Trouble::Stopped => Status::Skipped { reason: "the run was stopped".into() },
        other => Status::Failed { reason: other.to_string() },
    }
}

/// The measurement of a target, in the order of the targets.
fn place<'t>(test: &'t mut Test, target: &str, order: &[String]) -> &'t mut Measurement {
    let rank = |id: &str| order.iter().position(|other| other == id);
    let index = match test.measurements.iter().position(|measurement| measurement.target == target)
    {
        Some(index) => index,
        None => {
            let after = test
                .measurements
                .iter()
                .take_while(|other| rank(&other.target) < rank(target))
                .count();
            test.measurements.insert(after, empty(target));
            after
        }
    };
    &mut test.measurements[index]
}

fn empty(target: &str) -> Measurement {
    Measurement {
        target: target.into(),
        status: Status::Ok,
        samples: Vec::new(),
        latency: None,
        cpu: None,
        memory: None,
        medium: None,
        verification: Verification::default(),
        cross_check: None,
    }
}

fn join(measurement: &mut Measurement, finding: &Finding) {
    worsen(&mut measurement.status, finding.status.clone());
    if let Some(sample) = finding.sample {
        // A step that runs again after a stop counts once.
        measurement.samples.retain(|other| other.round != sample.round);
        measurement.samples.push(sample);
        measurement.samples.sort_by_key(|sample| sample.round);
    }
    let mut latency = measurement.latency.as_ref().map(Histogram::from_result).unwrap_or_default();
    latency.merge(&finding.latency);
    measurement.latency = latency.to_result();
    measurement.verification.bytes += finding.verification.bytes;
    measurement.verification.items += finding.verification.items;
    if let Some(cpu) = &finding.cpu {
        measurement.cpu = Some(match measurement.cpu.take() {
            Some(before) => Cpu {
                elapsed: before.elapsed + cpu.elapsed,
                user: before.user + cpu.user,
                system: before.system + cpu.system,
                daemon: before.daemon + cpu.daemon,
                kernel_threads: before.kernel_threads + cpu.kernel_threads,
                curve: cpu.curve.clone(),
            },
            None => cpu.clone(),
        });
    }
    if let Some(memory) = finding.memory {
        let before = measurement.memory.map_or(0, |memory| memory.resident_most);
        measurement.memory =
            Some(Memory { resident_most: memory.resident_most.max(before), ..memory });
    }
    if let Some(medium) = finding.medium {
        measurement.medium = Some(match measurement.medium {
            Some(before) => MediumTraffic {
                bytes_asked: before.bytes_asked + medium.bytes_asked,
                bytes_written: before.bytes_written + medium.bytes_written,
                bytes_read: before.bytes_read + medium.bytes_read,
                writes: before.writes + medium.writes,
                reads: before.reads + medium.reads,
                flushes: before.flushes.zip(medium.flushes).map(|(before, now)| before + now),
            },
            None => medium,
        });
    }
    if let Some(now) = &finding.cross_check {
        let mut values =
            measurement.cross_check.take().map_or_else(Vec::new, |before| before.values);
        values.extend(&now.values);
        measurement.cross_check =
            Some(judged(CrossCheck { values, ..now.clone() }, &measurement.values()));
    }
}

/// Maximum distance of fio's median from the lab's.
const AGREEMENT: f64 = 0.1;

/// Judges whether fio agrees with the lab's own values.
fn judged(check: CrossCheck, ours: &[f64]) -> CrossCheck {
    let (Some(one), Some(other)) = (summarise(ours), summarise(&check.values)) else {
        return check;
    };
    let ratio = one.median / other.median;
    if !ratio.is_finite() {
        return check;
    }
    let agrees = (1.0 - AGREEMENT..=1.0 / (1.0 - AGREEMENT)).contains(&ratio);
    // Both ran one after the other in each round, so a real difference shows in all rounds.
    let rounds =
        ours.iter().zip(&check.values).filter(|(ours, theirs)| **ours > 0.0 && **theirs > 0.0);
    let logarithms: Vec<f64> = rounds.map(|(ours, theirs)| (ours / theirs).ln()).collect();
    let found = ratio_of_rounds(&logarithms).filter(|found| found.has_interval);
    let wide = found.filter(|found| !agrees && found.low <= 1.0 && found.high >= 1.0);
    let explanation = wide.map(|found| {
        format!(
            "the rounds themselves differ: by them it is anything from {:.2} to {:.2}",
            found.low, found.high
        )
    });
    CrossCheck { ratio, agrees, explanation, ..check }
}

/// A failure is final; a skip can still become a failure.
fn worsen(status: &mut Status, other: Status) {
    let rank = |status: &Status| match status {
        Status::Ok => 0,
        Status::Skipped { .. } => 1,
        Status::Failed { .. } => 2,
    };
    if rank(&other) > rank(status) {
        *status = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_agrees_differs_or_is_too_restless_to_say() {
        let check = |values: &[f64], ours: &[f64]| {
            let values = values.to_vec();
            let check = CrossCheck {
                command: String::new(),
                version: String::new(),
                values,
                ratio: 0.0,
                agrees: false,
                explanation: None,
            };
            let found = judged(check, ours);
            (found.agrees, found.explanation.is_some(), found.ratio)
        };
        assert_eq!(check(&[100.0, 101.0, 99.0], &[109.0, 108.0, 110.0]), (true, false, 1.09));
        assert_eq!(check(&[100.0, 101.0, 99.0], &[200.0, 201.0, 199.0]), (false, false, 2.0));
        assert_eq!(check(&[100.0, 101.0, 99.0], &[80.0, 80.0, 80.0]), (false, false, 0.8));
        assert_eq!(check(&[100.0, 180.0, 60.0], &[120.0, 190.0, 70.0]), (false, true, 1.2));
        assert_eq!(check(&[], &[1.0]), (false, false, 0.0));
        assert!(!check(&[0.0], &[1.0]).0);
    }
}
