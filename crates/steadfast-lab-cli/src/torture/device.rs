//! Torture of an image file or a real device: prepares it, writes to it until an interruption, and
//! judges the result.
//!
//! There are three modes. The first runs rounds of kill -9 of a writing process, the hardest cut
//! that software can make. `--until-power-fails` writes until the power is cut. `--verify` gives
//! the verdict afterwards.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use steadfast_host::{HostPlatform, random_uuid};
use steadfast_media::Medium;
use steadfast_torture::random::Random;
use steadfast_torture::torture::device::layout::Layout;
use steadfast_torture::torture::device::verify::{DeviceVerdict, verify};
use steadfast_torture::torture::device::witness::{Line, Witness};
use steadfast_torture::torture::device::{DeviceError, latency, writer};

use super::Args;
use super::consent;
use super::tell::Teller;
use super::words::counted;
use steadfast_cli::failure::{Exit, Failure, Outcome, text_os};
use steadfast_cli::output::{self, Output};
use steadfast_cli::{host, size};

/// The default duration of the rounds.
const TIME_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest and longest life of a writing process, milliseconds.
const LIFE_MS: std::ops::RangeInclusive<u64> = 20..=1500;

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct DeviceJson {
    version: &'static str,
    device: String,
    /// Killed processes; 1 for a verdict after a power cut.
    cuts: u64,
    violations: u64,
    seed: u64,
    /// The last acknowledged transaction.
    committed: u64,
    /// The last transaction that the volume contains.
    found: Option<u64>,
    /// Raw records checked, and records that a cut has torn between units. Every medium may tear
    /// those.
    records: u64,
    records_mixed: u64,
    seconds: f64,
    suspicion: Option<String>,
    /// The component at fault, if any.
    blame: Option<&'static str>,
    faults: Vec<String>,
}

/// Runs the mode that the arguments select.
///
/// # Errors
/// Violations; a medium that must not be overwritten; what the operating system reports.
pub fn run(args: &Args, path: &Path) -> Outcome {
    if args.writer {
        return write_for_parent(path);
    }
    if args.verify {
        return judge(args, path);
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => super::simulate::random_seed()?,
    };
    consent::ask(path, args.yes)?;
    let suspicion = prepare(path, seed)?;
    if !args.quiet
        && let Some(suspicion) = &suspicion
    {
        eprintln!(
            "steadfast: suspicion: {}: {suspicion}: only pulling the plug can tell",
            path.display()
        );
    }
    if args.until_power_fails {
        until_power_fails(args, path)
    } else {
        rounds(args, path, seed, suspicion)
    }
}

fn failed(error: DeviceError, path: &Path) -> Failure {
    match error {
        DeviceError::TooSmall { size: found, needed } => Failure::new(
            Exit::NoSpace,
            format!("{} are too few", size::human(found)),
            path.display(),
            format!("use at least {}", size::human(needed)),
        ),
        DeviceError::NotPrepared => Failure::new(
            Exit::NotAVolume,
            "holds no torture run, or another one than the witness has seen",
            path.display(),
            "check the path and the witness; --until-power-fails begins a run",
        ),
        DeviceError::Core(error) => Failure::core(error, path.display()),
        DeviceError::Witness(error) => Failure::new(
            Exit::Failed,
            format!("the witness cannot be told: {}", text_os(&error)),
            path.display(),
            "look at the file or the connection given with --witness",
        ),
    }
}

/// Measures flushes, and makes the volume and the ring.
fn prepare(path: &Path, seed: u64) -> Outcome<Option<String>> {
    let run =
        random_uuid().map_err(|error| Failure::host(&error, "read", Path::new("/dev/urandom")))?;
    let medium = host::open_medium(path, false, host::Way::Cached)?;
    let layout = Layout::new(medium.geometry(), run, seed).map_err(|error| failed(error, path))?;
    let kind = consent::device_kind(path);
    let suspicion = match kind {
        Some(kind) => {
            let times =
                latency::measure(&medium, layout.end()).map_err(|error| failed(error, path))?;
            latency::suspicion(&times, kind)
        }
        // The flush of a file is as reliable as the file system and the device below it, so there
        // is nothing to measure.
        None => None,
    };
    writer::prepare(&medium, &HostPlatform::new(), run, seed)
        .map_err(|error| failed(error, path))?;
    Ok(suspicion)
}

/// Repeats rounds: a process writes and is killed, and the result is judged.
fn rounds(args: &Args, path: &Path, seed: u64, suspicion: Option<String>) -> Outcome {
    let stop = super::simulate::stop_on_signal();
    let time_max = match (args.time, args.cuts) {
        (None, None) => Some(TIME_DEFAULT),
        (time, _) => time.map(|ms| Duration::from_millis(ms.into())),
    };
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let started = Instant::now();
    let mut random = Random::new(seed);
    let (mut witness, mut cuts) = (Witness::default(), 0);
    let mut total = DeviceVerdict::default();
    while total.faults.is_empty()
        && !stop.load(std::sync::atomic::Ordering::Relaxed)
        && time_max.is_none_or(|time| started.elapsed() < time)
        && args.cuts.is_none_or(|most| cuts < most)
    {
        let life = Duration::from_millis(random.between(*LIFE_MS.start(), *LIFE_MS.end()));
        write_and_kill(path, life, &mut witness)?;
        cuts += 1;
        let verdict = look(path, &witness)?;
        bar.set_message(format!("{cuts} kills, {} transactions acknowledged", witness.committed));
        bar.tick();
        total = DeviceVerdict {
            records: total.records + verdict.records,
            records_mixed: total.records_mixed + verdict.records_mixed,
            ..verdict
        };
    }
    bar.finish_and_clear();
    let what = format!("{} of the writing process", counted(cuts, "kill", "kills"));
    report(
        args,
        path,
        seed,
        &Judged { what, cuts, witness, verdict: total, seconds: started.elapsed(), suspicion },
    )
}

/// Starts this program as a writer, reads its reports, and kills it.
fn write_and_kill(path: &Path, life: Duration, witness: &mut Witness) -> Outcome {
    let cannot = |error: io::Error| Failure::host(&error, "run", Path::new("/proc/self/exe"));
    let mut child = Command::new("/proc/self/exe")
        .args(["torture", "--writer", "--device"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let stdout = child.stdout.take();
    let heard = std::thread::scope(|scope| {
        let listener = scope.spawn(move || {
            let mut text = String::new();
            if let Some(stdout) = stdout {
                // Bytes that are not text end the report.
                let _ = BufReader::new(stdout).read_to_string(&mut text);
            }
            text
        });
        let deadline = Instant::now() + life;
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(Some(status)),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        // After kill -9 the process runs no further instruction.
        let _ = child.kill();
        let _ = child.wait();
        ended.map(|status| (status, listener.join().unwrap_or_default()))
    });
    let (ended, text) = heard.map_err(cannot)?;
    for line in Witness::lines(&text) {
        witness.hear(line);
    }
    if ended.is_none() {
        return Ok(());
    }
    // The writer should never end by itself. Its last line gives the reason.
    let mut message = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = BufReader::new(stderr).read_line(&mut message);
    }
    let message =
        message.trim().strip_prefix("steadfast: ").unwrap_or("the writing process has ended");
    let mut parts = message.rsplitn(3, ": ");
    let advice = parts.next().unwrap_or("see the kernel log").to_owned();
    let _place = parts.next();
    Err(Failure::new(Exit::Failed, parts.next().unwrap_or(message), path.display(), advice))
}

/// The child of [`write_and_kill`]; its standard output is the witness.
fn write_for_parent(path: &Path) -> Outcome {
    let medium = host::open_medium(path, false, host::Way::Cached)?;
    let mut teller = Teller::standard_output();
    writer::write(&medium, &HostPlatform::new(), &mut |line| teller.tell(line).map(|()| true))
        .map(drop)
        .map_err(|error| failed(error, path))
}

/// Writes until the power, the medium or the time is gone.
fn until_power_fails(args: &Args, path: &Path) -> Outcome {
    let mut teller = Teller::open(args.witness.as_deref())?;
    let stop = super::simulate::stop_on_signal();
    let time_max = args.time.map(|ms| Duration::from_millis(ms.into()));
    let started = Instant::now();
    let medium = host::open_medium(path, false, host::Way::Cached)?;
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let mut last = 0;
    let result = writer::write(&medium, &HostPlatform::new(), &mut |line| {
        teller.tell(line)?;
        if let Line::Committed(number) = line {
            last = number;
            bar.set_message(format!(
                "{number} transactions acknowledged: pull the plug at any moment"
            ));
            bar.tick();
        }
        let late = time_max.is_some_and(|time| started.elapsed() >= time);
        Ok(!late && !stop.load(std::sync::atomic::Ordering::Relaxed))
    });
    bar.finish_and_clear();
    let advice = format!(
        "when the power is back, run 'steadfast torture --device {} --verify --witness FILE'",
        path.display()
    );
    match result {
        Ok(number) => {
            if !args.quiet {
                eprintln!(
                    "steadfast: ended after transaction {number}: {}: {advice}",
                    path.display()
                );
            }
            Ok(())
        }
        Err(DeviceError::Core(error)) => Err(Failure::new(
            Exit::Failed,
            format!("the medium has failed after transaction {last}: {error}"),
            path.display(),
            advice,
        )),
        Err(error) => Err(failed(error, path)),
    }
}

/// Runs `--verify`.
fn judge(args: &Args, path: &Path) -> Outcome {
    let started = Instant::now();
    let witness = match &args.witness {
        None => Witness::default(),
        Some(place) => {
            let bytes = if place == "-" {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
            } else {
                fs::read(place)
            };
            let bytes = bytes.map_err(|error| Failure::host(&error, "read", Path::new(place)))?;
            let witness = Witness::from_text(&String::from_utf8_lossy(&bytes));
            if witness.run.is_none() {
                return Err(Failure::new(
                    Exit::Failed,
                    "has not seen a run",
                    place,
                    "give what --until-power-fails has told, from its first line on",
                ));
            }
            witness
        }
    };
    let medium = host::open_medium(path, true, host::Way::Cached)?;
    let seed = Layout::read(&medium).map_err(|error| failed(error, path))?.seed;
    drop(medium);
    let verdict = look(path, &witness)?;
    let what = "one cut".to_owned();
    report(
        args,
        path,
        seed,
        &Judged { what, cuts: 1, witness, verdict, seconds: started.elapsed(), suspicion: None },
    )
}

fn look(path: &Path, witness: &Witness) -> Outcome<DeviceVerdict> {
    let medium = host::open_medium(path, true, host::Way::Cached)?;
    verify(&medium, &HostPlatform::new(), witness).map_err(|error| failed(error, path))
}

/// The facts known at the end.
struct Judged {
    what: String,
    cuts: u64,
    witness: Witness,
    verdict: DeviceVerdict,
    seconds: Duration,
    suspicion: Option<String>,
}

fn report(args: &Args, path: &Path, seed: u64, judged: &Judged) -> Outcome {
    let Judged { what, cuts, witness, verdict, seconds, suspicion } = judged;
    let violations = verdict.faults.len() as u64;
    if args.json {
        output::json(&DeviceJson {
            version: env!("CARGO_PKG_VERSION"),
            device: path.display().to_string(),
            cuts: *cuts,
            violations,
            seed,
            committed: witness.committed,
            found: verdict.found,
            records: verdict.records,
            records_mixed: verdict.records_mixed,
            seconds: seconds.as_secs_f64(),
            suspicion: suspicion.clone(),
            blame: verdict.blame(),
            faults: verdict.faults.iter().map(ToString::to_string).collect(),
        })?;
    } else {
        let mut output = Output::new();
        for fault in &verdict.faults {
            output.line(format_args!("VIOLATION: {fault}"))?;
        }
        if !args.quiet {
            let found = verdict.found.map_or("unknown".to_owned(), |number| number.to_string());
            output.line(format_args!(
                "{what}, {} acknowledged, the volume is after {found}, {} raw records checked: {}",
                counted(witness.committed, "transaction", "transactions"),
                verdict.records,
                if violations == 0 { "nothing is missing" } else { "see above" },
            ))?;
            if violations == 0 && witness.run.is_none() {
                output.line("without a --witness only the volume itself was checked: whether something acknowledged is missing is not known")?;
            }
        }
        output.finish()?;
    }
    match verdict.blame() {
        None => Ok(()),
        Some(blame) => Err(Failure::new(
            Exit::Failed,
            counted(violations, "violation", "violations"),
            path.display(),
            blame,
        )),
    }
}
