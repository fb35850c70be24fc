//! `steadfast torture`: cuts the power, in a simulator or for real, and judges the result.
//!
//! The lab does the work. This module has the command line, the progress, the messages and the exit
//! code. That is 0 if nothing was found, 1 for a violation, 2 for a wrong call.

mod consent;
mod device;
mod simulate;
mod tell;
mod words;

use std::path::PathBuf;

use steadfast_torture::medium::MediumProfile;
use steadfast_torture::tape::Lie;
use steadfast_torture::torture::finding::RunName;
use steadfast_torture::world::Profile;

use steadfast_cli::failure::Outcome;
use steadfast_cli::interval;

/// Cut the power at every moment, in a simulator or on a real device, and judge what is left
///
/// By default on a simulated medium: each seed draws a volume and a sequence of operations. The
/// power is cut at its I/Os and again during recovery. Each image must be exactly a state that the
/// contract allows. Exit code 0: no violation; 1: a violation, printed with the command that shows
/// it again. See docs/TESTING.md for the method.
///
/// With --device on an image file or a block device, WHICH IS OVERWRITTEN: a process that writes
/// acknowledged transactions is killed again and again. The result is judged. Software cannot cut
/// the power of a real device, so --until-power-fails writes until you do. Meanwhile it tells a
/// witness what was acknowledged. --verify judges afterwards.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").args(["replay", "self_test", "device"])))]
pub struct Args {
    /// Run for this time, such as 10m or 2h; the default is one minute if --cuts is not given
    #[arg(long = "for", value_name = "TIME", value_parser = interval::parse_ms)]
    time: Option<u32>,
    /// Run until this many power cuts are tried
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cuts: Option<u64>,
    /// The first seed; the default is a random one, which is printed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Operations that are likely: mixed, names, data, full (volume), transactions; the default is
    /// all in turn
    #[arg(long, value_parser = parse_profile)]
    profile: Option<Profile>,
    /// What a cut may leave on the medium: sector, disk-512, disk-4096, emmc, sd-512, nand-2048;
    /// the default is all in turn
    #[arg(long, value_parser = parse_medium)]
    medium: Option<MediumProfile>,
    /// Threads; the default is one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Write a report
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Play the run of a violation again
    #[arg(long, value_name = "SEED[:PROFILE[:MEDIUM]]", conflicts_with_all = ["time", "cuts", "seed", "profile", "medium", "report"])]
    replay: Option<RunName>,
    /// Overwrite this image file or block device with a torture run of its own
    #[arg(long, value_name = "PATH", conflicts_with_all = ["profile", "medium", "jobs", "report", "replay", "self_test", "lie"])]
    device: Option<PathBuf>,
    /// Do not ask before a device is overwritten
    #[arg(long, requires = "device")]
    yes: bool,
    /// Write acknowledged transactions to the device until the power is cut
    #[arg(long, requires = "device", conflicts_with_all = ["cuts", "json"])]
    until_power_fails: bool,
    /// Judge the device after the power is back: is anything missing that was acknowledged?
    #[arg(long, requires = "device", conflicts_with_all = ["until_power_fails", "time", "cuts", "seed", "yes"])]
    verify: bool,
    /// Witness of what was acknowledged: a file (best on another machine), tcp:HOST:PORT, or - for
    /// standard output, or standard input with --verify
    #[arg(long, requires = "device", value_name = "WHERE")]
    witness: Option<String>,
    /// The process that is killed
    #[arg(long, hide = true, requires = "device")]
    writer: bool,
    /// Plant a lying medium and bugs, and fail if one of them goes unnoticed
    #[arg(long, conflicts_with_all = ["time", "cuts", "profile", "medium", "report", "lie"])]
    self_test: bool,
    /// Let the simulated medium lie, to see what a violation looks like: flush or fua
    #[arg(long, hide = true, value_parser = parse_lie)]
    lie: Option<Lie>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only violations, show no progress
    #[arg(short, long)]
    quiet: bool,
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    Profile::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = Profile::ALL.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is not a profile: use one of {}", known.join(", "))
    })
}

fn parse_medium(text: &str) -> Result<MediumProfile, String> {
    MediumProfile::from_name(text).ok_or_else(|| {
        let known = MediumProfile::ALL.map(|medium| medium.name);
        format!("'{text}' is not a kind of medium: use one of {}", known.join(", "))
    })
}

fn parse_lie(text: &str) -> Result<Lie, String> {
    match text {
        "flush" => Ok(Lie::Flush),
        "fua" => Ok(Lie::Fua),
        _ => Err(format!("'{text}' is not a lie: use flush or fua")),
    }
}

/// Runs the command.
///
/// # Errors
/// Violations, a planted fault that went unnoticed, and failures with files.
pub fn run(args: &Args) -> Outcome {
    if let Some(path) = &args.device {
        return device::run(args, path);
    }
    match args.replay {
        Some(name) => simulate::replay(args, name),
        None if args.self_test => simulate::self_test(args),
        None => simulate::campaign(args),
    }
}
