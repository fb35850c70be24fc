//! The statements of a result about each test: medians, factors to the peer, and whether they are
//! more than noise.
//!
//! All parts of the report use this module, so tables, pictures and sentences never disagree. A
//! factor is always "times better": 2 means twice the throughput, or half the time. The rule for a
//! difference is that of [`crate::statistics`].

use crate::result::{Better, Measurement, RunResult, Status, Suite, TargetDescription, Test};
use crate::statistics::{self, Summary, Verdict};

/// A result and the target to which ratios are given.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The result.
    pub run: &'a RunResult,
    /// Targets with at least one measurement, the peer first.
    pub targets: Vec<&'a TargetDescription>,
    /// Whether the first of the targets is a peer for ratios.
    has_peer: bool,
}

/// A factor between a target and the peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Against {
    /// How many times better (more than 1) or worse.
    pub factor: f64,
    /// Its 95 % interval, if there were enough rounds.
    pub interval: Option<(f64, f64)>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The result of one test on one target.
#[derive(Debug, Clone)]
pub struct ComparisonCell<'a> {
    /// The measurement, if the target took part.
    pub measurement: Option<&'a Measurement>,
    /// Its rounds.
    pub summary: Option<Summary>,
    /// The comparison with the peer; `None` for the peer itself.
    pub against: Option<Against>,
    /// The factor that the two medians alone give, if a reader that divides them would doubt
    /// `against`. The factor is taken round by round, so the two may differ.
    pub of_medians: Option<f64>,
}

/// Tests of one name that differ only in their [`SIZES`].
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The first of them, for their common properties.
    pub first: &'a Test,
    /// All of them.
    pub tests: Vec<&'a Test>,
}

/// The tests of a group together, on one target compared with the peer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// Geometric mean of the factors.
    pub factor: f64,
    /// The smallest and the largest factor.
    pub range: (f64, f64),
    /// Tests in which the target is better.
    pub better: usize,
    /// Tests without a difference that is more than noise.
    pub same: usize,
    /// Tests in which it is worse.
    pub worse: usize,
    /// Tests without a verdict.
    pub unknown: usize,
}

/// Parameters that may vary inside a group.
pub const SIZES: [&str; 4] = ["file_size", "record_size", "files", "file_bytes"];

impl<'a> View<'a> {
    /// Prepares a result, with ratios to the peer that it names or to another target.
    ///
    /// # Errors
    /// A sentence, if no target has this id.
    pub fn new(run: &'a RunResult, peer: Option<&str>) -> Result<Self, String> {
        let took_part = |target: &TargetDescription| {
            let mut tests = run.suites.iter().flat_map(|suite| &suite.tests);
            tests.any(|test| test.measurement(&target.id).is_some())
        };
        let mut targets: Vec<&TargetDescription> =
            run.targets.iter().filter(|target| took_part(target)).collect();
        let place = |peer: &str| targets.iter().position(|target| target.id == peer);
        let position = match peer {
            // The peer of the run may have been skipped; then there are no factors.
            None => run.peer.as_deref().and_then(place),
            Some(peer) => Some(place(peer).ok_or_else(|| {
                let ids: Vec<&str> = targets.iter().map(|target| target.id.as_str()).collect();
                format!("'{peer}' was not measured in this run; it has {}", ids.join(", "))
            })?),
        };
        if let Some(position) = position {
            // The others keep their order.
            targets[..=position].rotate_right(1);
        }
        Ok(Self { run, has_peer: position.is_some() && targets.len() > 1, targets })
    }

    /// The peer, if there is one and something to compare with it.
    #[must_use]
    pub fn peer(&self) -> Option<&'a TargetDescription> {
        if self.has_peer { self.targets.first().copied() } else { None }
    }

    /// The targets that are compared with the peer, with their index in [`View::targets`].
    pub fn others(&self) -> impl Iterator<Item = (usize, &'a TargetDescription)> {
        self.targets.iter().copied().enumerate().skip(usize::from(self.has_peer))
    }

    /// The result of a test on a target.
    #[must_use]
    pub fn cell(&self, test: &'a Test, target: &TargetDescription) -> ComparisonCell<'a> {
        let measurement = test.measurement(&target.id);
        let good = measurement.filter(|measurement| measurement.status == Status::Ok);
        let summary = good.and_then(|measurement| statistics::summarise(&measurement.values()));
        let peer = self.peer().filter(|peer| peer.id != target.id);
        let against = peer.and_then(|peer| against(test, good?, &peer.id, self.run.noise.floor));
        let of_medians = against.and_then(|against| {
            let theirs = statistics::median(&test.measurement(&peer?.id)?.values())?;
            let quotient = summary?.median / theirs;
            let quotient = if test.better == Better::Higher { quotient } else { 1.0 / quotient };
            against.is_doubted_by(quotient).then_some(quotient)
        });
        ComparisonCell { measurement, summary, against, of_medians }
    }

    /// The tests of a suite in groups, in their order.
    #[must_use]
    pub fn groups(&self, suite: &'a Suite) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for test in &suite.tests {
            match groups.iter_mut().find(|group| belongs(group.first, test)) {
                Some(group) => group.tests.push(test),
                None => groups.push(Group { first: test, tests: vec![test] }),
            }
        }
        groups
    }

    /// A group on a target compared with the peer; `None` if none of its tests can be compared.
    #[must_use]
    pub fn tally(&self, group: &Group<'a>, target: &TargetDescription) -> Option<Tally> {
        let found: Vec<Against> =
            group.tests.iter().filter_map(|test| self.cell(test, target).against).collect();
        Tally::of(&found)
    }

    /// The reasons to doubt the figures, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.run.noise.warnings.clone();
        let profile = &self.run.provenance.profile;
        if profile != "release" {
            warnings
                .push(format!("steadfast itself is a {profile} build: its figures say nothing"));
        }
        warnings
    }

    /// Every failure of the run, as (target, test, reason). A target that failed as a whole has no
    /// test.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String, String)> {
        let reason = |status: &Status| match status {
            Status::Failed { reason } => Some(reason.clone()),
            _ => None,
        };
        let targets = self.run.targets.iter();
        let whole = targets.filter_map(|target| {
            Some((target.name.clone(), String::new(), reason(&target.status)?))
        });
        let tests = self.run.suites.iter().flat_map(|suite| &suite.tests);
        let single = tests.flat_map(|test| {
            test.measurements.iter().filter_map(move |measurement| {
                Some((
                    measurement.target.clone(),
                    super::format::test(test),
                    reason(&measurement.status)?,
                ))
            })
        });
        whole.chain(single).collect()
    }
}

impl Group<'_> {
    /// The parameters common to all of its tests, as text; empty if there are none.
    #[must_use]
    pub fn others(&self) -> String {
        super::format::parameters(self.first, &[SIZES.as_slice(), &["seed"]].concat())
    }
}

/// Whether two tests differ only in their [`SIZES`].
fn belongs(a: &Test, b: &Test) -> bool {
    let other = |test: &'_ Test| {
        let mut parameters = test.parameters.clone();
        parameters.retain(|key, _| !SIZES.contains(&key.as_str()));
        parameters
    };
    (&a.workload, &a.name, a.unit, a.better, a.cache)
        == (&b.workload, &b.name, b.unit, b.better, b.cache)
        && other(a) == other(b)
}

/// A measurement compared with that of the peer in the same test.
fn against(test: &Test, measured: &Measurement, peer: &str, floor: f64) -> Option<Against> {
    let peer = test.measurement(peer).filter(|measurement| measurement.status == Status::Ok)?;
    let ratio = statistics::ratio_paired(measured, peer)?;
    let verdict = statistics::judge(&ratio, test.better, test.floor(floor));
    Some(Against::from_ratio(&ratio, test.better, verdict))
}

impl Against {
    /// A ratio of values as "times better".
    #[must_use]
    pub fn from_ratio(ratio: &statistics::Ratio, better: Better, verdict: Verdict) -> Self {
        let interval = ratio.has_interval.then_some((ratio.low, ratio.high));
        match better {
            Better::Higher => Self { factor: ratio.value, interval, verdict },
            Better::Lower => Self {
                factor: 1.0 / ratio.value,
                interval: interval.map(|(low, high)| (1.0 / high, 1.0 / low)),
                verdict,
            },
        }
    }

    /// Whether the factor that two medians give contradicts this one: it is more than 10 % away,
    /// or says better where this says worse. Less than 2 % is rounding.
    #[must_use]
    pub fn is_doubted_by(&self, of_medians: f64) -> bool {
        let apart = (of_medians / self.factor).max(self.factor / of_medians);
        let opposite = (of_medians > 1.0) != (self.factor > 1.0);
        apart.is_finite() && (apart > 1.1 || (opposite && apart > 1.02))
    }

    /// Whether this is more than noise.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }
}

impl Tally {
    /// Several comparisons together; `None` without any.
    #[must_use]
    pub fn of(found: &[Against]) -> Option<Self> {
        let finite: Vec<f64> = found
            .iter()
            .map(|against| against.factor)
            .filter(|f| f.is_finite() && *f > 0.0)
            .collect();
        if finite.is_empty() {
            return None;
        }
        let mean = finite.iter().map(|factor| factor.ln()).sum::<f64>() / finite.len() as f64;
        let count = |verdict| found.iter().filter(|against| against.verdict == verdict).count();
        Some(Self {
            factor: mean.exp(),
            range: (
                finite.iter().copied().fold(f64::INFINITY, f64::min),
                finite.iter().copied().fold(0.0, f64::max),
            ),
            better: count(Verdict::Better),
            same: count(Verdict::WithinNoise),
            worse: count(Verdict::Worse),
            unknown: count(Verdict::Unknown),
        })
    }

    /// The verdict on all of them together. It is better or worse only if more than half of them
    /// are, and the opposite ones do not outweigh that.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let count = self.better + self.same + self.worse + self.unknown;
        match () {
            () if self.better * 2 > count && self.factor > 1.0 => Verdict::Better,
            () if self.worse * 2 > count && self.factor < 1.0 => Verdict::Worse,
            () if self.unknown * 2 > count => Verdict::Unknown,
            () => Verdict::WithinNoise,
        }
    }
}

/// The sign of a verdict.
#[must_use]
pub const fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "▲",
        Verdict::Worse => "▼",
        Verdict::WithinNoise => "≈",
        Verdict::Unknown => "?",
    }
}

/// The reason why there is no value, in one word.
#[must_use]
pub fn why_not(measurement: Option<&Measurement>) -> &'static str {
    match measurement.map(|measurement| &measurement.status) {
        Some(Status::Failed { .. }) => "failed",
        Some(Status::Skipped { .. }) => "skipped",
        Some(Status::Ok) | None => "–",
    }
}
