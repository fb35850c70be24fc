//! The output of `steadfast torture`: lines for users, JSON for programs.

use std::fmt;

use serde::Serialize;
use steadfast_torture::tape::Lie;
use steadfast_torture::torture::campaign;
use steadfast_torture::torture::finding::{Finding, profile_name};
use steadfast_torture::torture::self_test::Caught;

/// The command that replays a run.
pub fn replay_command(name: &str, lie: Lie) -> String {
    match lie {
        Lie::None => format!("steadfast torture --replay {name}"),
        Lie::Flush => format!("steadfast torture --replay {name} --lie flush"),
        Lie::Fua => format!("steadfast torture --replay {name} --lie fua"),
    }
}

/// `1 violation`, `2 violations`.
pub fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// A violation as text.
pub struct FindingText<'a>(pub &'a Finding, pub Lie);

impl fmt::Display for FindingText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FindingText(finding, lie) = self;
        writeln!(f, "VIOLATION in {}", finding.world)?;
        writeln!(
            f,
            "shortest sequence found that still fails ({} operations when it was found):",
            finding.operations_found
        )?;
        writeln!(f, "{}", finding.violation)?;
        write!(f, "play it again: {}", replay_command(&finding.name.to_string(), *lie))
    }
}

/// The document of `--json` of a campaign and of a replay.
#[derive(Debug, Serialize)]
pub struct CampaignJson {
    version: &'static str,
    /// Power cuts: images after a cut that were opened and judged.
    cuts: u64,
    /// Of these, cuts during a recovery.
    recovery_cuts: u64,
    /// Worlds that showed a violation.
    violations: u64,
    seeds: u64,
    first_seed: u64,
    operations: u64,
    seconds: f64,
    cuts_per_second: f64,
    /// The planted fault of the simulated medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    planted: Option<&'static str>,
    cells: Vec<JsonCell>,
    findings: Vec<JsonFinding>,
}

#[derive(Debug, Serialize)]
struct JsonCell {
    profile: &'static str,
    medium: &'static str,
    sequences: u64,
    cuts: u64,
    violations: u64,
}

#[derive(Debug, Serialize)]
struct JsonFinding {
    run: String,
    what: String,
    world: String,
    replay: String,
    operations: Vec<String>,
    cuts: Vec<String>,
}

impl CampaignJson {
    /// The report of a campaign.
    pub fn new(outcome: &campaign::CampaignOutcome, first_seed: u64, lie: Lie) -> CampaignJson {
        let seconds = outcome.elapsed.as_secs_f64();
        let cells = outcome.cells.iter().map(|((profile, medium), cell)| JsonCell {
            profile,
            medium,
            sequences: cell.tally.sequences,
            cuts: cell.tally.cuts,
            violations: cell.violations,
        });
        CampaignJson {
            version: env!("CARGO_PKG_VERSION"),
            cuts: outcome.total.cuts,
            recovery_cuts: outcome.total.recovery_cuts,
            violations: outcome.cells.values().map(|cell| cell.violations).sum(),
            seeds: outcome.seeds,
            first_seed,
            operations: outcome.total.operations,
            seconds,
            cuts_per_second: if seconds > 0.0 { outcome.total.cuts as f64 / seconds } else { 0.0 },
            planted: match lie {
                Lie::None => None,
                Lie::Flush => Some("flush"),
                Lie::Fua => Some("fua"),
            },
            cells: cells.collect(),
            findings: outcome
                .findings
                .iter()
                .map(|finding| JsonFinding::new(finding, lie))
                .collect(),
        }
    }
}

impl JsonFinding {
    fn new(finding: &Finding, lie: Lie) -> JsonFinding {
        let violation = &finding.violation;
        JsonFinding {
            run: finding.name.to_string(),
            what: violation.what.clone(),
            world: finding.world.clone(),
            replay: replay_command(&finding.name.to_string(), lie),
            operations: violation
                .operations
                .iter()
                .map(|operation| format!("{operation:?}"))
                .collect(),
            cuts: violation
                .cuts
                .iter()
                .map(|(event, kept)| format!("I/O {event}, surviving {kept:?}"))
                .collect(),
        }
    }
}

/// The outcome of one run, as a campaign of one seed.
pub fn campaign_of_one(
    name: steadfast_torture::torture::finding::RunName,
    tally: steadfast_torture::powercut::PowercutTally,
    finding: Option<Finding>,
    elapsed: std::time::Duration,
) -> campaign::CampaignOutcome {
    let cell = campaign::Cell { tally, violations: u64::from(finding.is_some()) };
    campaign::CampaignOutcome {
        seeds: 1,
        total: tally,
        cells: [((profile_name(name.profile), name.medium.name), cell)].into(),
        findings: finding.into_iter().collect(),
        samples: Vec::new(),
        elapsed,
    }
}

/// The result of one planted fault of `--self-test`.
#[derive(Debug, Serialize)]
pub struct JsonCaught {
    planted: String,
    caught: bool,
    seeds: u64,
    cuts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
}

impl JsonCaught {
    /// The result of a planted fault.
    pub fn new(caught: &Caught) -> JsonCaught {
        JsonCaught {
            planted: caught.planted.text(),
            caught: caught.finding.is_some(),
            seeds: caught.seeds,
            cuts: caught.cuts,
            what: caught.finding.as_ref().map(|finding| finding.violation.what.clone()),
        }
    }
}
