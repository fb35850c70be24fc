//! `steadfast lab run`: builds a plan from the command line.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use steadfast_lab::report::terminal::ReportPart;
use steadfast_lab::result::{RunResult, Status};
use steadfast_lab::run::{self, Effort, Plan, PlannedSuite, RunError, Stop};
use steadfast_lab::target::{self, Backing, DirectoryTarget, Site, Target, cleanup};
use steadfast_lab::{Trouble, suite};

use crate::progress::Progress;
use crate::show;
use steadfast_cli::failure::{Exit, Failure, Outcome};
use steadfast_cli::{program, size};

/// Measure; the result is DIR/result.json, the report DIR/index.html
///
/// Targets of --on: steadfast (through FUSE), steadfast-manual (with transactions masked out),
/// ext4, xfs, btrfs, fuse2fs, bindfs and gocryptfs. The library in this process, with and without
/// the system's page cache: steadfast-lib and steadfast-lib-direct. The floor of FUSE, in memory
/// behind the same transport: null. In this process, on the device and on a file in a Steadfast
/// volume: fat and fat-on-steadfast. Each gets a fresh volume on an image file below --backing with
/// a loop device; that needs root. --dir takes any directory, and needs no privileges. What is
/// missing on this machine is skipped and reported.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites: b1, b2, b3, b4, b5, device, check, all of these, or goals
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required_unless_present = "iozone")]
    suite: Vec<String>,
    /// IOzone with options of its own command line, such as "-a -e -g 32m" or "-s 10m -r 8k -i 0 -i
    /// 2"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    iozone: Option<String>,
    /// File systems to make and measure
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    on: Vec<String>,
    /// Also measure this directory, whatever it is on
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Directory for the result
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Directory for the images of the volumes, or a block device, which all targets use in turn
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    backing: PathBuf,
    /// Everything on the block device of --backing may be lost
    #[arg(long, conflicts_with = "size")]
    erase: bool,
    /// Size of each volume [default: 512M with --quick, else 1G; a block device is used whole]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    size: Option<u64>,
    /// At most two minutes a suite (goals: ten): small files, three rounds
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything, seven rounds
    #[arg(long)]
    full: bool,
    /// How often each test is run on each target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The target to which ratios are given
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Continue the stopped run in --out
    #[arg(long)]
    resume: bool,
    /// Print only problems, on standard error
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// A wrong call; a result that cannot be written; a target that failed or returned a wrong byte.
pub fn run(args: &Args) -> Outcome {
    let effort = match (args.quick, args.full) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Default,
    };
    let suites = suites(args, effort)?;
    if args.on.is_empty() && args.dir.is_empty() {
        return Err(usage(
            "nothing to measure",
            "--on",
            "name file systems with --on, or directories with --dir",
        ));
    }
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::host(&error, "make", &args.out))?;
    let lab = std::env::current_exe()
        .map_err(|error| Failure::host(&error, "find", Path::new("steadfast-lab")))?;
    let refused = |trouble: Trouble| failed(&trouble, &args.backing);
    let backing = Backing::open(&args.backing, args.erase).map_err(refused)?;
    let scratch = target::scratch(&backing.directory()).map_err(refused)?;
    let site = Site {
        scratch: scratch.path().to_owned(),
        device: backing.device().map(|(path, _)| path.to_owned()),
        volume_size: match (backing.device(), args.size) {
            (Some((_, size)), _) | (None, Some(size)) => size,
            _ => effort.pick(512 << 20, 1 << 30, 1 << 30),
        },
        // Where there is none, the targets that it serves are skipped and say so.
        program: program::find("steadfast").unwrap_or_else(|| "steadfast".into()),
        lab: lab.clone(),
    };
    let plan = Plan {
        suites,
        targets: targets(args, &site)?,
        peer: peer(args)?,
        rounds: args.rounds.unwrap_or(effort.rounds()),
        seed: args.seed,
        effort,
        program: lab,
        backing: args.backing.clone(),
        result: args.out.join("result.json"),
        resume: args.resume,
    };
    let stop = Stop::new();
    watch_signals(&stop)
        .map_err(|error| Failure::host(&error, "watch signals of", Path::new("this process")))?;
    let mut progress = Progress::new(args.quiet);
    let ended = run::run(plan, &mut progress, &stop);
    progress.end();
    drop(scratch);
    let result = ended.map_err(|error| run_failure(&error, &args.out))?;
    if !args.quiet {
        show::print(&result, None, ReportPart::Summary, &args.out)?;
    }
    // A partial result is useful too; the failure is reported below.
    show::write_report(&result, None, &args.out)?;
    judge(&result, args, &stop)
}

fn suites(args: &Args, effort: Effort) -> Outcome<Vec<PlannedSuite>> {
    let mut names: Vec<&str> = args.suite.iter().map(String::as_str).collect();
    if names.contains(&"all") {
        names = suite::NAMES.to_vec();
    }
    let mut suites = Vec::new();
    for name in names {
        suites.push(
            suite::by_name(name, effort)
                .map_err(|trouble| usage(&trouble.to_string(), "--suite", "see --help"))?,
        );
    }
    if let Some(words) = &args.iozone {
        let parsed = suite::iozone(words);
        suites.push(
            parsed.map_err(|trouble| usage(&trouble.to_string(), "--iozone", "see docs/LAB.md"))?,
        );
    }
    Ok(suites)
}

fn targets(args: &Args, site: &Site) -> Outcome<Vec<Box<dyn Target>>> {
    let mut targets: Vec<Box<dyn Target>> = Vec::new();
    for name in &args.on {
        let target = target::by_name(name, site)
            .map_err(|trouble| usage(&trouble.to_string(), "--on", "see --help"))?;
        targets.push(target);
    }
    for directory in &args.dir {
        if !directory.is_dir() {
            return Err(usage(
                "not a directory",
                &directory.display().to_string(),
                "give a directory that exists",
            ));
        }
        targets.push(Box::new(DirectoryTarget::new(directory)));
    }
    let twice = targets
        .iter()
        .enumerate()
        .find(|(index, target)| targets.iter().take(*index).any(|other| other.id() == target.id()));
    match twice {
        Some((_, target)) => Err(usage("named twice", target.id(), "name each target once")),
        None => Ok(targets),
    }
}

fn peer(args: &Args) -> Outcome<Option<String>> {
    let Some(name) = &args.peer else { return Ok(None) };
    let known = args
        .on
        .iter()
        .cloned()
        .chain(args.dir.iter().map(|directory| format!("dir:{}", directory.display())));
    match known.into_iter().any(|known| known == *name) {
        true => Ok(Some(name.clone())),
        false => Err(usage("not one of the targets", name, "give --peer one of the names of --on")),
    }
}

/// The first Ctrl-C stops the run after the current operation. The second one removes everything
/// and ends at once.
fn watch_signals(stop: &Stop) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let flag = stop.flag();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if flag.swap(true, Ordering::Relaxed) {
                cleanup::everything();
                std::process::exit(130);
            }
            eprintln!("steadfast: stopping after this operation; again to stop at once");
        }
    })?;
    Ok(())
}

/// The result of the command: a failure on a target fails the command, but the result is written.
fn judge(result: &RunResult, args: &Args, stop: &Stop) -> Outcome {
    let place = args.out.join("result.json");
    let mut failures = result
        .targets
        .iter()
        .filter(|target| matches!(target.status, Status::Failed { .. }))
        .count();
    let tests = result.suites.iter().flat_map(|suite| &suite.tests);
    failures += tests
        .flat_map(|test| &test.measurements)
        .filter(|measurement| matches!(measurement.status, Status::Failed { .. }))
        .count();
    if failures > 0 {
        let what = format!("{failures} measurements failed");
        return Err(Failure::new(
            Exit::Failed,
            what,
            place.display(),
            "see the messages above; the result says which",
        ));
    }
    if stop.is_set() {
        let advice = "go on with the same command and --resume";
        return Err(Failure::new(Exit::Failed, "stopped", place.display(), advice));
    }
    if result.targets.iter().all(|target| target.status != Status::Ok) {
        return Err(Failure::new(
            Exit::Failed,
            "no target could be measured",
            place.display(),
            "see the messages above",
        ));
    }
    Ok(())
}

fn run_failure(error: &RunError, out: &Path) -> Failure {
    Failure::new(Exit::Failed, error.to_string(), out.display(), "see 'steadfast lab run --help'")
}

fn failed(trouble: &Trouble, place: &Path) -> Failure {
    Failure::new(Exit::Failed, trouble.to_string(), place.display(), "use another --backing")
}

fn usage(what: &str, place: &str, advice: &str) -> Failure {
    Failure::new(Exit::Usage, what, place, advice)
}
