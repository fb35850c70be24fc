//! The changes between two runs, and whether they are more than chance.
//!
//! Rounds of two runs were not taken side by side. So their medians are compared with Welch's
//! interval and the larger of both runs' noise ([`crate::statistics::ratio_unpaired`]).
//!
//! A machine that was busier on one day changes all figures at once. If both runs have the same
//! peer, the change of the *ratio to the peer* is computed too. The load of the machine drops out
//! of it.

mod text;

use serde::Serialize;

pub use text::print;

use crate::report::comparison::Against;
use crate::report::format;
use crate::result::{Better, Measurement, RunResult, Status, Test, Unit};
use crate::statistics::{self, Verdict};

/// The reason why two results cannot be compared.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompareError {
    /// The results have nothing in common.
    #[error("no test in common: the first has {first}, the second {second}")]
    NothingInCommon {
        /// Suites and targets of the first.
        first: String,
        /// Suites and targets of the second.
        second: String,
    },
}

/// A number before and after.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// The suite.
    pub suite: String,
    /// [`Test::id`].
    pub test: String,
    /// The title of the test.
    pub title: String,
    /// The target.
    pub target: String,
    /// Unit of both medians.
    pub unit: Unit,
    /// Median of the first run.
    pub before: f64,
    /// Median of the second run.
    pub after: f64,
    /// How many times better the second run is.
    #[serde(flatten)]
    pub change: Difference,
    /// The same for the ratio to the peer of both runs; `None` for the peer itself.
    pub beside_peer: Option<Difference>,
}

/// A factor and its verdict.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Difference {
    /// How many times better (more than 1) or worse.
    pub factor: f64,
    /// Lower end of the 95 % interval, if there were enough rounds.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// `better`, `worse`, `within-noise` or `unknown`.
    #[serde(serialize_with = "word")]
    pub verdict: Verdict,
}

/// The whole comparison of two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The tests that both runs have, in the order of the first.
    pub changes: Vec<Change>,
    /// Tests of the first run only, as `suite/test on target`.
    pub only_before: Vec<String>,
    /// Tests of the second run only.
    pub only_after: Vec<String>,
    /// The peer of both runs, if it is the same.
    pub peer: Option<String>,
    /// The noise below which a difference is not a change: the larger one of both runs.
    pub floor: f64,
    /// Differences between the runs other than the results, one sentence each. Figures of two
    /// different machines are not comparable.
    pub circumstances: Vec<String>,
}

fn word<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::WithinNoise => "within-noise",
        Verdict::Unknown => "unknown",
    })
}

/// Compares two runs.
///
/// # Errors
/// The runs have no test in common.
pub fn compare(before: &RunResult, after: &RunResult) -> Result<Comparison, CompareError> {
    let floor = before.noise.floor.max(after.noise.floor);
    let peer = before.peer.clone().filter(|peer| after.peer.as_ref() == Some(peer));
    let first = measured(before);
    let second = measured(after);
    let find =
        |all: &[TestResult], result: &TestResult| all.iter().position(|other| other.same(result));
    let mut changes = Vec::new();
    for result in &first {
        let other = find(&second, result).and_then(|index| second.get(index));
        changes.extend(other.and_then(|other| change(result, other, peer.as_deref(), floor)));
    }
    if changes.is_empty() {
        return Err(CompareError::NothingInCommon {
            first: contents(before),
            second: contents(after),
        });
    }
    let only = |some: &[TestResult], others: &[TestResult]| {
        let lone = some.iter().filter(|result| find(others, result).is_none());
        lone.map(|result| format!("{}/{} on {}", result.suite, result.test.id, result.found.target))
            .collect()
    };
    Ok(Comparison {
        changes,
        only_before: only(&first, &second),
        only_after: only(&second, &first),
        peer,
        floor,
        circumstances: circumstances(before, after),
    })
}

impl Comparison {
    /// The number of changes with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.change.verdict == verdict).count()
    }
}

/// A measurement and its position in the run.
struct TestResult<'a> {
    suite: &'a str,
    test: &'a Test,
    found: &'a Measurement,
}

impl TestResult<'_> {
    fn same(&self, other: &Self) -> bool {
        (self.suite, &self.test.id, &self.found.target, self.test.unit)
            == (other.suite, &other.test.id, &other.found.target, other.test.unit)
    }
}

/// Every measurement of a run that has a value.
fn measured(run: &RunResult) -> Vec<TestResult<'_>> {
    let tests =
        run.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    tests
        .flat_map(|(suite, test)| {
            let good = test.measurements.iter().filter(|found| found.status == Status::Ok);
            good.map(move |found| TestResult { suite: &suite.id, test, found })
        })
        .collect()
}

fn change(
    before: &TestResult,
    after: &TestResult,
    peer: Option<&str>,
    floor: f64,
) -> Option<Change> {
    let (values, values_after) = (before.found.values(), after.found.values());
    let better = before.test.better;
    let floor = before.test.floor(floor);
    let beside = |result: &TestResult| {
        let peer = peer.filter(|peer| *peer != result.found.target)?;
        Some(ratios(result.found, result.test.measurement(peer)?))
    };
    Some(Change {
        suite: before.suite.to_owned(),
        test: before.test.id.clone(),
        title: format::test(before.test),
        target: before.found.target.clone(),
        unit: before.test.unit,
        before: statistics::median(&values)?,
        after: statistics::median(&values_after)?,
        change: difference(&values_after, &values, better, floor)?,
        beside_peer: match (beside(before), beside(after)) {
            (Some(before), Some(after)) => difference(&after, &before, better, floor),
            _ => None,
        },
    })
}

/// The ratios of the rounds that both have.
fn ratios(found: &Measurement, peer: &Measurement) -> Vec<f64> {
    let other = |round| peer.samples.iter().find(|sample| sample.round == round);
    let samples = found.samples.iter();
    samples.filter_map(|sample| Some(sample.value / other(sample.round)?.value)).collect()
}

fn difference(after: &[f64], before: &[f64], better: Better, floor: f64) -> Option<Difference> {
    let ratio = statistics::ratio_unpaired(after, before)?;
    let against = Against::from_ratio(&ratio, better, statistics::judge(&ratio, better, floor));
    Some(Difference {
        factor: against.factor,
        low: against.interval.map(|interval| interval.0),
        high: against.interval.map(|interval| interval.1),
        verdict: against.verdict,
    })
}

/// Suites and targets of a run, for a message.
fn contents(run: &RunResult) -> String {
    let list =
        |names: Vec<&str>| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    let suites = list(run.suites.iter().map(|suite| suite.id.as_str()).collect());
    let targets = list(run.targets.iter().map(|target| target.id.as_str()).collect());
    format!("{suites} on {targets}")
}

/// The differences other than the results.
fn circumstances(before: &RunResult, after: &RunResult) -> Vec<String> {
    let (a, b) = (&before.provenance, &after.provenance);
    let pairs = [
        ("version", a.version.clone(), b.version.clone()),
        ("commit", a.commit.clone().unwrap_or_default(), b.commit.clone().unwrap_or_default()),
        ("build", a.profile.clone(), b.profile.clone()),
        ("host", a.host.clone(), b.host.clone()),
        ("processor", a.cpu.clone(), b.cpu.clone()),
        ("processors", a.cpus.to_string(), b.cpus.to_string()),
        ("memory", format::bytes(a.memory as f64), format::bytes(b.memory as f64)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("medium", medium(before), medium(after)),
        ("effort", a.effort.clone(), b.effort.clone()),
        ("seed", a.seed.to_string(), b.seed.to_string()),
    ];
    let mut differing: Vec<String> = pairs
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| format!("{name}: {a} before, {b} after"))
        .collect();
    for target in &before.targets {
        let Some(other) = after.target(&target.id) else { continue };
        if (&target.mount_options, target.volume_size) != (&other.mount_options, other.volume_size)
        {
            differing
                .push(format!("{}: other mount options or another size of the volume", target.id));
        }
    }
    differing
}

fn medium(run: &RunResult) -> String {
    let backing = &run.provenance.backing;
    format!("{} {}", backing.file_system, backing.device).trim().to_owned()
}
