//! The degree to which a goal was reached.

use super::list::{Asked, Goal, Measure};
use crate::report::format;
use crate::result::{
    Better, FLOOR_OF_COUNTS, Measurement, Parameter, RunResult, Status, Suite, Test, Unit,
};
use crate::statistics::{self, Ratio, median};
use crate::workload::purpose::PARAMETER;

/// The verdict on a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Reached.
    Met,
    /// Missed.
    NotMet,
    /// Too close to say.
    WithinNoise,
    /// Too few rounds for a verdict.
    Unknown,
    /// There was no requirement.
    Shown,
}

impl Judged {
    /// The verdict as text.
    pub const fn text(self) -> &'static str {
        match self {
            Judged::Met => "met",
            Judged::NotMet => "not met",
            Judged::WithinNoise => "within noise",
            Judged::Unknown => "one round",
            Judged::Shown => "",
        }
    }
}

/// The worst column of a goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Reached {
    /// A factor (more is better) or a plain number.
    pub value: f64,
    /// Its 95 % interval, if there were enough rounds.
    pub interval: Option<(f64, f64)>,
    /// The verdict.
    pub judged: Judged,
    /// The ratio to the requirement: 1 is just enough.
    pub margin: f64,
    /// The column, if there are several; or what the number belongs to.
    pub worst: String,
    /// The value of the goal's floor in that column, compared with the same peer.
    pub floor: Option<f64>,
    /// The unit of plain numbers.
    unit: Unit,
}

impl Reached {
    /// A plain number as text.
    pub fn text(&self, value: f64) -> String {
        format::value(self.unit, value)
    }
}

/// The verdict of a run on a goal; `None` if it has no such tests on the targets.
pub fn of(run: &RunResult, suite: &Suite, goal: &Goal, asked: &Asked) -> Option<Reached> {
    let purpose = Parameter::Text(goal.purpose.into());
    let chosen =
        |test: &&Test| test.parameters.get(PARAMETER) == Some(&purpose) && (goal.tests)(test);
    let tests: Vec<&Test> = suite.tests.iter().filter(chosen).collect();
    let mut columns: Vec<Vec<&Test>> = Vec::new();
    for test in tests {
        // Flatness is a property of all tests together.
        let same = |first: Option<&&Test>| {
            goal.measure == Measure::Flatness || first.is_some_and(|first| same_column(first, test))
        };
        match columns.iter_mut().find(|column| same(column.first())) {
            Some(column) => column.push(test),
            None => columns.push(vec![test]),
        }
    }
    let several = columns.len() > 1;
    let noise = run.noise.floor;
    let found = columns.iter().filter_map(|tests| {
        let (ratio, unit) = column(goal, asked, goal.on, tests)?;
        let floor = goal.floor.filter(|floor| asked.peer() != Some(*floor));
        let floor = floor.and_then(|target| Some(column(goal, asked, target, tests)?.0.value));
        Some(Reached {
            floor,
            ..judge(&ratio, unit, asked, noise, goal.measure, worst(tests, several))
        })
    });
    found.min_by(|one, other| one.margin.total_cmp(&other.margin))
}

/// Whether two tests differ only in the sizes of file and record.
fn same_column(one: &Test, other: &Test) -> bool {
    let rest = |test: &Test| {
        let mut parameters = test.parameters.clone();
        parameters.retain(|key, _| key != "file_size" && key != "record_size");
        parameters
    };
    one.name == other.name && rest(one) == rest(other)
}

/// The name of a column.
fn worst(tests: &[&Test], several: bool) -> String {
    let Some(first) = tests.first() else { return String::new() };
    match (several, tests.len()) {
        (true, 1) => format::parameters(first, &[PARAMETER]).split(", ").fold(
            first.title.clone(),
            |all, part| {
                if part.is_empty() { all } else { format!("{all}, {part}") }
            },
        ),
        (true, _) => first.title.clone(),
        (false, 1) => format::parameters(first, &[PARAMETER]),
        (false, count) => format!("{count} sizes"),
    }
}

/// The ratio or the number of a target in a column, with its interval.
fn column(goal: &Goal, asked: &Asked, target: &str, tests: &[&Test]) -> Option<(Ratio, Unit)> {
    let good = |test: &'_ Test, target: &str| -> Option<Measurement> {
        test.measurement(target)
            .filter(|found| found.status == Status::Ok && !found.samples.is_empty())
            .cloned()
    };
    let ours: Vec<(&Test, Measurement)> =
        tests.iter().filter_map(|test| Some((*test, good(test, target)?))).collect();
    let unit = ours.first()?.0.unit;
    let Asked::Beside { peer, .. } = asked else {
        return Some((plain(goal.measure, &ours)?, number_unit(goal.measure, unit)));
    };
    let pairs: Vec<(Better, Measurement, Measurement)> = ours
        .into_iter()
        .filter_map(|(test, ours)| Some((test.better, ours, good(test, peer)?)))
        .collect();
    let ratio = match goal.measure {
        Measure::P999 => {
            let logarithms = pairs.iter().filter_map(|(_, ours, theirs)| {
                let (ours, theirs) = (ours.latency.as_ref()?.p999, theirs.latency.as_ref()?.p999);
                (ours > 0.0 && theirs > 0.0).then(|| (theirs / ours).ln())
            });
            let logarithms: Vec<f64> = logarithms.collect();
            exactly((!logarithms.is_empty()).then(|| mean(&logarithms).exp())?)
        }
        _ => statistics::ratio_of_rounds(&rounds(&pairs))?,
    };
    Some((ratio, unit))
}

/// For each round that all have, the mean of the logarithms of "times better".
fn rounds(pairs: &[(Better, Measurement, Measurement)]) -> Vec<f64> {
    let Some((_, first, _)) = pairs.first() else { return Vec::new() };
    let round = |number: u32| -> Option<f64> {
        let value = |found: &Measurement| {
            let sample = found.samples.iter().find(|sample| sample.round == number)?;
            (sample.value > 0.0).then_some(sample.value)
        };
        let logarithms: Option<Vec<f64>> = pairs
            .iter()
            .map(|(better, ours, theirs)| {
                let logarithm = (value(ours)? / value(theirs)?).ln();
                Some(if *better == Better::Higher { logarithm } else { -logarithm })
            })
            .collect();
        Some(mean(&logarithms?))
    };
    first.samples.iter().filter_map(|sample| round(sample.round)).collect()
}

/// A number without a peer.
fn plain(measure: Measure, ours: &[(&Test, Measurement)]) -> Option<Ratio> {
    let (_, first) = ours.first()?;
    let operations = first.samples.iter().map(|sample| sample.operations as f64).sum::<f64>();
    match measure {
        Measure::Value => {
            let logarithms: Vec<f64> = first
                .samples
                .iter()
                .filter(|sample| sample.value > 0.0)
                .map(|sample| sample.value.ln())
                .collect();
            statistics::ratio_of_rounds(&logarithms)
        }
        Measure::P999 => Some(exactly(first.latency.as_ref()?.p999)),
        Measure::Writes => {
            // The kernel counts a flush without data, which FDATASYNC of a device causes, as an
            // empty write.
            let medium = first.medium?;
            let writes = medium.writes.saturating_sub(medium.flushes.unwrap_or(0));
            Some(exactly(writes as f64 / operations.max(1.0)))
        }
        Measure::Flushes => Some(exactly(first.medium?.flushes? as f64 / operations.max(1.0))),
        Measure::Memory => Some(exactly(first.memory?.resident_most as f64)),
        Measure::Flatness => {
            let medians: Vec<f64> =
                ours.iter().filter_map(|(_, found)| median(&found.values())).collect();
            let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
            let most = medians.iter().copied().fold(0.0, f64::max);
            (medians.len() > 1 && least > 0.0).then(|| exactly(most / least))
        }
    }
}

fn number_unit(measure: Measure, unit: Unit) -> Unit {
    match measure {
        Measure::Value => unit,
        Measure::P999 => Unit::Seconds,
        Measure::Memory => Unit::Bytes,
        Measure::Writes | Measure::Flushes | Measure::Flatness => Unit::Ratio,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn exactly(value: f64) -> Ratio {
    Ratio { value, low: value, high: value, has_interval: false }
}

fn judge(
    ratio: &Ratio,
    unit: Unit,
    asked: &Asked,
    noise: f64,
    measure: Measure,
    worst: String,
) -> Reached {
    // Both kinds are normalised so that more than 1 is enough.
    let (margin, ends) = match asked {
        Asked::Beside { factor, .. } => {
            (ratio.value / factor, (ratio.low / factor, ratio.high / factor))
        }
        Asked::AtMost(most) => (most / ratio.value, (most / ratio.high, most / ratio.low)),
        Asked::Shown(_) => (1.0, (1.0, 1.0)),
    };
    // Counts do not vary with the machine. A value from several medians or from a whole
    // distribution is precise enough.
    let counted = matches!(measure, Measure::Writes | Measure::Flushes | Measure::Memory);
    let noise = if counted { FLOOR_OF_COUNTS } else { noise };
    let distance = margin.max(1.0 / margin) - 1.0;
    let settled = match measure {
        Measure::Value => ratio.has_interval,
        _ => true,
    };
    let judged = match () {
        () if matches!(asked, Asked::Shown(_)) => Judged::Shown,
        () if !settled => Judged::Unknown,
        () if counted && margin >= 1.0 - noise => Judged::Met,
        () if distance <= noise || (ends.0 <= 1.0 && ends.1 >= 1.0) => Judged::WithinNoise,
        () if margin > 1.0 => Judged::Met,
        () => Judged::NotMet,
    };
    let interval = ratio.has_interval.then_some((ratio.low, ratio.high));
    Reached { value: ratio.value, interval, judged, margin, worst, floor: None, unit }
}
