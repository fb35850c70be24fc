//! Runs seed after seed, on several threads, until a limit is reached.
//!
//! Threads share only the number of the next seed and the counts. The speed of the machine decides
//! which seeds a campaign plays, but not their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::finding::{Finding, RunName, play, profile_name, shorten};
use crate::bug::Bug;
use crate::medium::MediumProfile;
use crate::powercut::PowercutTally;
use crate::subject::LabVolume;
use crate::tape::Lie;
use crate::world::Profile;

/// The plan and its limits. A started seed is always finished.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first seed; the others follow it.
    pub first_seed: u64,
    /// One profile, or all in turn.
    pub profile: Option<Profile>,
    /// One kind of medium, or all in turn.
    pub medium: Option<MediumProfile>,
    /// After this time, no new seed is started.
    pub time_max: Option<Duration>,
    /// After this many cuts, no new seed is started.
    pub cuts_max: Option<u64>,
    /// After this many violations, no new seed is started, because shortening each one takes time.
    pub violations_max: usize,
    /// Threads, at least one.
    pub jobs: usize,
    /// A medium that breaks its promises, to show a violation.
    pub lie: Lie,
}

/// A cell of the table: worlds of one profile on one kind of medium.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    /// Counts of the tries.
    pub tally: PowercutTally,
    /// Seeds that showed a violation.
    pub violations: u64,
}

/// The progress at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Seconds since the start.
    pub seconds: f64,
    /// Power cuts so far.
    pub cuts: u64,
    /// Violations so far.
    pub violations: u64,
}

/// The tries and findings of a campaign.
#[derive(Debug, Clone, Default)]
pub struct CampaignOutcome {
    /// Seeds played, including those whose medium is too small for a volume.
    pub seeds: u64,
    /// The sum of everything.
    pub total: PowercutTally,
    /// By profile and kind of medium.
    pub cells: BTreeMap<(&'static str, &'static str), Cell>,
    /// The findings in the order of discovery.
    pub findings: Vec<Finding>,
    /// Cuts over time, including the end.
    pub samples: Vec<Sample>,
    /// Duration of the campaign.
    pub elapsed: Duration,
}

/// Samples kept for the picture. If there are more, they are thinned out; the first and the last
/// stay.
const SAMPLES_MAX: usize = 400;
/// Time between two checks of the counts.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a campaign. It calls `watch` about ten times a second, and ends early when `stop` is set.
pub fn run(plan: &Plan, stop: &AtomicBool, watch: &mut dyn FnMut(&Sample, u64)) -> CampaignOutcome {
    let started = Instant::now();
    let next = AtomicU64::new(plan.first_seed);
    let shared = Mutex::new(CampaignOutcome::default());
    let working = AtomicU64::new(plan.jobs.max(1) as u64);
    let mut samples = vec![Sample { seconds: 0.0, cuts: 0, violations: 0 }];
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && !enough(plan, started, &shared.lock()) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    play_one(plan, RunName::new(seed, plan.profile, plan.medium), &shared);
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

fn enough(plan: &Plan, started: Instant, shared: &CampaignOutcome) -> bool {
    plan.time_max.is_some_and(|time| started.elapsed() >= time)
        || plan.cuts_max.is_some_and(|cuts| shared.total.cuts >= cuts)
        || shared.findings.len() >= plan.violations_max
}

fn play_one(plan: &Plan, name: RunName, shared: &Mutex<CampaignOutcome>) {
    let world = name.world(plan.lie, Bug::None);
    let mut tally = PowercutTally::default();
    let result = play::<LabVolume>(&world, &mut tally);
    {
        let mut shared = shared.lock();
        shared.seeds += 1;
        shared.total.add(&tally);
        let cell = shared.cells.entry((profile_name(name.profile), name.medium.name)).or_default();
        cell.tally.add(&tally);
        cell.violations += u64::from(result.is_err());
    }
    // Shortening takes a while, so it runs without the lock.
    if let Err(violation) = result {
        let finding = shorten::<LabVolume>(name, &world, *violation);
        shared.lock().findings.push(finding);
    }
}

fn sample(started: Instant, shared: &CampaignOutcome) -> Sample {
    let violations = shared.cells.values().map(|cell| cell.violations).sum();
    Sample { seconds: started.elapsed().as_secs_f64(), cuts: shared.total.cuts, violations }
}

/// Adds a sample; if there are too many, every second one is dropped.
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
