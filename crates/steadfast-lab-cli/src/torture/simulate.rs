//! Power cuts in the simulator: a campaign, the replay of one run, the self-test.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use steadfast_host::{Durability, Links, MODE_PUBLIC, WholeFile};
use steadfast_torture::powercut::PowercutTally;
use steadfast_torture::tape::Lie;
use steadfast_torture::torture::campaign::{self, Plan, Sample};
use steadfast_torture::torture::finding::{self, RunName};
use steadfast_torture::torture::report::{self, Facts};
use steadfast_torture::torture::self_test::{self, Planted, SEEDS_MAX};

use super::Args;
use super::words::{
    CampaignJson, FindingText, JsonCaught, campaign_of_one, counted, replay_command,
};
use steadfast_cli::failure::{Exit, Failure, Outcome, text_os};
use steadfast_cli::output::{self, Output};

/// The default duration of a campaign.
const TIME_DEFAULT: Duration = Duration::from_secs(60);
/// Number of violations that ends a campaign, because more of them add little.
const VIOLATIONS_MAX: usize = 3;

/// Runs seed after seed.
///
/// # Errors
/// Violations, and a report that cannot be written.
pub fn campaign(args: &Args) -> Outcome {
    let lie = args.lie.unwrap_or_default();
    let report = args.report.as_deref().map(create).transpose()?;
    let plan = Plan {
        first_seed: match args.seed {
            Some(seed) => seed,
            None => random_seed()?,
        },
        profile: args.profile,
        medium: args.medium,
        time_max: match (args.time, args.cuts) {
            (None, None) => Some(TIME_DEFAULT),
            (time, _) => time.map(|ms| Duration::from_millis(ms.into())),
        },
        cuts_max: args.cuts,
        violations_max: VIOLATIONS_MAX,
        jobs: args.jobs.map_or_else(processors, usize::from),
        lie,
    };
    let stop = stop_on_signal();
    let bar = progress_bar(args, &plan);
    let outcome = quietly(|| {
        campaign::run(&plan, &stop, &mut |sample, seeds| show(&bar, &plan, sample, seeds))
    });
    bar.finish_and_clear();
    if let (Some(file), Some(path)) = (report, &args.report) {
        write_report(file, path, &plan, &outcome)?;
    }
    print(args, &outcome, plan.first_seed, lie)
}

/// Replays one run.
///
/// # Errors
/// The violation.
pub fn replay(args: &Args, name: RunName) -> Outcome {
    let lie = args.lie.unwrap_or_default();
    let (started, mut tally) = (Instant::now(), PowercutTally::default());
    let found = quietly(|| finding::replay(name, lie, &mut tally));
    let outcome = campaign_of_one(name, tally, found, started.elapsed());
    print(args, &outcome, name.seed, lie)
}

/// Plants faults; the campaign must find each of them.
///
/// # Errors
/// Faults that went unnoticed.
pub fn self_test(args: &Args) -> Outcome {
    let first_seed = args.seed.unwrap_or(0);
    let mut output = Output::new();
    let mut json = Vec::new();
    let mut missed = 0;
    for planted in Planted::all() {
        // The first fault is printed in full, the others by name.
        let example = planted == Planted::Medium(Lie::Flush) && !args.quiet && !args.json;
        let caught = quietly(|| self_test::hunt(planted, first_seed, example));
        missed += u64::from(caught.finding.is_none());
        if args.json {
            json.push(JsonCaught::new(&caught));
            continue;
        }
        match &caught.finding {
            None => {
                output.line(format_args!("MISSED: {}: {} seeds", planted.text(), caught.seeds))?
            }
            Some(_) if args.quiet => {}
            Some(finding) => {
                let seeds = counted(caught.seeds, "seed", "seeds");
                let what: Vec<&str> =
                    finding.violation.what.lines().take(2).map(str::trim).collect();
                let what = what.join(" ");
                output.line(format_args!(
                    "caught: {} ({seeds}, {} cuts): {what}",
                    planted.text(),
                    caught.cuts
                ))?;
                if example {
                    let text = FindingText(finding, Lie::Flush).to_string();
                    output.line(format_args!("this is what a violation looks like:\n{text}\n"))?;
                }
            }
        }
    }
    if args.json {
        output.json(&json)?;
    }
    output.finish()?;
    if missed == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failed,
        format!("{} not found", counted(missed, "planted fault was", "planted faults were")),
        format!("seeds {first_seed} to {}", first_seed.saturating_add(SEEDS_MAX - 1)),
        "please report it: a clean campaign says nothing about faults of this kind",
    ))
}

fn print(args: &Args, outcome: &campaign::CampaignOutcome, first_seed: u64, lie: Lie) -> Outcome {
    let violations: u64 = outcome.cells.values().map(|cell| cell.violations).sum();
    let cuts = outcome.total.cuts;
    if args.json {
        output::json(&CampaignJson::new(outcome, first_seed, lie))?;
    } else {
        let mut output = Output::new();
        for found in &outcome.findings {
            output.line(FindingText(found, lie))?;
        }
        if !args.quiet {
            let seconds = outcome.elapsed.as_secs_f64();
            output.line(format_args!(
                "{} power cuts ({} during recovery) in {} from seed {first_seed} on, {:.1} s, {} cuts/s: {}",
                HumanCount(cuts),
                HumanCount(outcome.total.recovery_cuts),
                counted(outcome.total.sequences, "world", "worlds"),
                seconds,
                HumanCount(if seconds > 0.0 { (cuts as f64 / seconds) as u64 } else { 0 }),
                if violations == 0 {
                    "no violation".to_owned()
                } else {
                    counted(violations, "VIOLATION", "VIOLATIONS")
                },
            ))?;
        }
        output.finish()?;
    }
    if violations == 0 {
        return Ok(());
    }
    let name = outcome
        .findings
        .first()
        .map_or_else(|| first_seed.to_string(), |found| found.name.to_string());
    Err(Failure::new(
        Exit::Failed,
        format!("{} in {cuts} power cuts", counted(violations, "violation", "violations")),
        format!("seed {name}"),
        format!("play it again with '{}' and report it", replay_command(&name, lie)),
    ))
}

fn create(path: &Path) -> Outcome<WholeFile> {
    // The file is made before the campaign: a missing directory must be reported now and not an
    // hour later.
    let created = WholeFile::create(path, MODE_PUBLIC, Links::Follow);
    created.map_err(|error| Failure::host(&error, "write", path))
}

fn write_report(
    file: WholeFile,
    path: &Path,
    plan: &Plan,
    outcome: &campaign::CampaignOutcome,
) -> Outcome {
    let replay = match plan.lie {
        Lie::None => |name: &str| replay_command(name, Lie::None),
        Lie::Flush => |name: &str| replay_command(name, Lie::Flush),
        Lie::Fua => |name: &str| replay_command(name, Lie::Fua),
    };
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        first_seed: plan.first_seed,
        jobs: plan.jobs,
        command: format!("steadfast {}", words.join(" ")),
        planted: (plan.lie != Lie::None).then(|| Planted::Medium(plan.lie).text()),
        replay,
    };
    let failed = |error: &std::io::Error| Failure::host(error, "write", path);
    let page = report::render(&facts, outcome)
        .map_err(|_| failed(&std::io::Error::other("formatting failed")))?;
    let written = (&file).write_all(page.as_bytes()).and_then(|()| file.finish(Durability::Synced));
    written.map_err(|error| failed(&error))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A random seed, short enough to type.
///
/// # Errors
/// The system has no random bytes.
pub fn random_seed() -> Outcome<u64> {
    let bytes = steadfast_host::random_uuid().map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("no random bytes: {}", text_os(&error)),
            "this machine",
            "give a --seed, or make /dev/urandom available",
        )
    })?;
    Ok(bytes.iter().take(4).fold(0, |seed, byte| seed << 8 | u64::from(*byte)))
}

/// A panic of the volume is reported as a finding, and prints nothing else.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = work();
    std::panic::set_hook(hook);
    result
}

/// The first interrupt ends the campaign in an orderly way, the second one ends the program.
pub fn stop_on_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Without a handler the signal ends the program, as it does by default.
        let _ = flag::register_conditional_shutdown(signal, 128 + signal, stop.clone());
        let _ = flag::register(signal, stop.clone());
    }
    stop
}

/// The bar is hidden if standard error is not a terminal.
fn progress_bar(args: &Args, plan: &Plan) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    let length = plan.time_max.map_or(plan.cuts_max, |time| Some(time.as_millis() as u64));
    let bar = ProgressBar::new(length.unwrap_or(0));
    match ProgressStyle::with_template("{bar:20} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, plan: &Plan, sample: &Sample, seeds: u64) {
    bar.set_position(match plan.time_max {
        Some(_) => (sample.seconds * 1000.0) as u64,
        None => sample.cuts,
    });
    let rate = if sample.seconds > 0.0 { sample.cuts as f64 / sample.seconds } else { 0.0 };
    bar.set_message(format!(
        "{:.0} s, {} cuts ({} a second), {} seeds, {}",
        sample.seconds,
        HumanCount(sample.cuts),
        HumanCount(rate as u64),
        HumanCount(seeds),
        counted(sample.violations, "violation", "violations"),
    ));
}
