//! Seed after seed, on several threads, until enough is tried.
//!
//! Threads share nothing but the number of the next seed and the counts: which seeds a campaign
//! plays depends on how fast the machine is, what a seed shows does not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::finding::{Finding, Name, play, profile_name, shorten};
use crate::medium::MediumProfile;
use crate::powercut::Tally;
use crate::sabotage::Bug;
use crate::subject::LabVolume;
use crate::tape::Lie;
use crate::world::Profile;

/// What to try, and when it is enough. The seed in hand is always finished.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first seed; the others follow.
    pub first_seed: u64,
    /// One profile, or all in turn.
    pub profile: Option<Profile>,
    /// One kind of medium, or all in turn.
    pub medium: Option<MediumProfile>,
    /// No seed is begun after so long.
    pub time_max: Option<Duration>,
    /// No seed is begun after so many cuts.
    pub cuts_max: Option<u64>,
    /// No seed is begun after so many violations: each costs the time to shorten it.
    pub violations_max: usize,
    /// Threads, at least one.
    pub jobs: usize,
    /// A medium that breaks its promises, to see what a violation looks like.
    pub lie: Lie,
}

/// A cell of the table: worlds of one profile on one kind of medium.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    /// What was tried.
    pub tally: Tally,
    /// Seeds that showed a violation.
    pub violations: u64,
}

/// A moment of a campaign.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Since the start.
    pub seconds: f64,
    /// Power cuts until then.
    pub cuts: u64,
    /// Violations until then.
    pub violations: u64,
}

/// What a campaign tried and found.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Seeds played, those whose medium is too small for a volume included.
    pub seeds: u64,
    /// Everything together.
    pub total: Tally,
    /// By profile and kind of medium.
    pub cells: BTreeMap<(&'static str, &'static str), Cell>,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// Cuts over time, the end included.
    pub samples: Vec<Sample>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Moments kept for the picture; more are thinned out, the first and the last stay.
const SAMPLES_MAX: usize = 400;
/// Between two looks at the counts.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a campaign. `watch` is called about ten times a second, and the campaign ends early when
/// `stop` is set.
pub fn run(plan: &Plan, stop: &AtomicBool, watch: &mut dyn FnMut(&Sample, u64)) -> Outcome {
    let started = Instant::now();
    let next = AtomicU64::new(plan.first_seed);
    let shared = Mutex::new(Outcome::default());
    let working = AtomicU64::new(plan.jobs.max(1) as u64);
    let mut samples = vec![Sample { seconds: 0.0, cuts: 0, violations: 0 }];
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !enough(plan, started, &shared.lock()) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    play_one(plan, Name::new(seed, plan.profile, plan.medium), &shared);
                }
                working.fetch_sub(1, Ordering::Release);
            });
        }
        while working.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LOOK);
            let (sample, seeds) = {
                let shared = shared.lock();
                (sample(started, &shared), shared.seeds)
            };
            keep(&mut samples, sample);
            watch(&sample, seeds);
        }
    });
    let mut outcome = shared.into_inner();
    samples.push(sample(started, &outcome));
    outcome.elapsed = started.elapsed();
    outcome.samples = samples;
    outcome
}

fn enough(plan: &Plan, started: Instant, shared: &Outcome) -> bool {
    plan.time_max.is_some_and(|time| started.elapsed() >= time)
        || plan.cuts_max.is_some_and(|cuts| shared.total.cuts >= cuts)
        || shared.findings.len() >= plan.violations_max
}

fn play_one(plan: &Plan, name: Name, shared: &Mutex<Outcome>) {
    let world = name.world(plan.lie, Bug::None);
    let mut tally = Tally::default();
    let result = play::<LabVolume>(&world, &mut tally);
    {
        let mut shared = shared.lock();
        shared.seeds += 1;
        shared.total.add(&tally);
        let cell = shared.cells.entry((profile_name(name.profile), name.medium.name)).or_default();
        cell.tally.add(&tally);
        cell.violations += u64::from(result.is_err());
    }
    // Shortening takes a while: not under the lock.
    if let Err(violation) = result {
        let finding = shorten::<LabVolume>(name, &world, *violation);
        shared.lock().findings.push(finding);
    }
}

fn sample(started: Instant, shared: &Outcome) -> Sample {
    let violations = shared.cells.values().map(|cell| cell.violations).sum();
    Sample { seconds: started.elapsed().as_secs_f64(), cuts: shared.total.cuts, violations }
}

/// Adds a moment; every second one goes when there are too many.
fn keep(samples: &mut Vec<Sample>, sample: Sample) {
    samples.push(sample);
    if samples.len() > SAMPLES_MAX {
        let mut index = 0;
        samples.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            first_seed: 3,
            profile: None,
            medium: None,
            time_max: None,
            cuts_max: Some(1),
            violations_max: 1,
            jobs: 2,
            lie: Lie::None,
        }
    }

    #[test]
    fn counts_add_up() {
        let outcome = run(&plan(), &AtomicBool::new(false), &mut |_, _| ());
        let first = outcome.findings.first().map(|finding| finding.violation.to_string());
        assert_eq!(first, None);
        assert!(outcome.total.cuts >= 1);
        assert_eq!(
            outcome.cells.values().map(|cell| cell.tally.cuts).sum::<u64>(),
            outcome.total.cuts
        );
        assert_eq!(outcome.samples.last().map(|sample| sample.cuts), Some(outcome.total.cuts));
    }

    #[test]
    fn a_lie_is_found_and_ends_the_campaign() {
        let plan = Plan { cuts_max: None, lie: Lie::Flush, ..plan() };
        let outcome = run(&plan, &AtomicBool::new(false), &mut |_, _| ());
        assert!(!outcome.findings.is_empty());
        assert!(outcome.cells.values().any(|cell| cell.violations > 0));
    }

    #[test]
    fn a_campaign_can_be_stopped_before_it_starts() {
        let outcome =
            run(&Plan { cuts_max: None, ..plan() }, &AtomicBool::new(true), &mut |_, _| ());
        assert_eq!((outcome.seeds, outcome.total.cuts), (0, 0));
    }

    #[test]
    fn moments_are_thinned_out() {
        let mut samples = Vec::new();
        for index in 0..10_000 {
            keep(&mut samples, Sample { seconds: f64::from(index), cuts: 0, violations: 0 });
        }
        assert!(samples.len() <= SAMPLES_MAX && samples.len() > SAMPLES_MAX / 3);
        assert_eq!(samples.first().map(|sample| sample.seconds), Some(0.0));
        assert!(samples.is_sorted_by(|a, b| a.seconds < b.seconds));
    }
}
