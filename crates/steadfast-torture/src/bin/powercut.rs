//! `powercut --seeds A..B`: cuts the power at every I/O of random sequences and prints the result.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::minimise::minimise;
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, Violation, torture};
use steadfast_torture::subject::LabVolume;
use steadfast_torture::sweep::{Combination, Table};
use steadfast_torture::tape::Lie;
use steadfast_torture::world::{Profile, World};

const USAGE: &str = "\
usage: powercut [--seeds A..B] [--profile NAME|all] [--operations N] [--cuts N|all]
                [--survivals N] [--recovery N,M,O] [--jobs N] [--minimise N] [--seconds N]
                [--medium NAME|all] [--sweep] [--keep-going] [--dump DIR] [--lie flush|fua] [--list]

  --seeds       seeds to run (default 0..100)
  --profile     mixed, names, data, full, transactions, or all in turn (default all)
  --operations  operations in a sequence (default 80)
  --cuts        I/Os of each sequence at which the power is cut, or all (default 150)
  --survivals   random choices of what survives each cut, beside the three fixed ones (default 2)
  --recovery    cuts in each recovery, in the recovery from that, and in the one from that (default 1,1,1)
  --medium      kind of medium, or all in turn (default all); --list shows them
  --sweep       instead of what --profile and --medium say: each seed one combination of profile, medium and mask (no
                event, each alone, the default, all), in turn; prints a table
  --list        show the kinds of media and end
  --jobs        threads (default 1)
  --seconds     begin no seed after so many seconds
  --minimise    attempts at making a violation's sequence shorter (default 60)
  --keep-going  go on after a violation
  --dump        keep the image after the cut of each violation in this directory
  --lie         let the medium break its promises; violations must be found";

struct PowercutArguments {
    seeds: std::ops::Range<u64>,
    profile: Option<Profile>,
    medium: Option<MediumProfile>,
    effort: CutEffort,
    jobs: u64,
    minimise: usize,
    seconds: u64,
    keep_going: bool,
    dump: Option<std::path::PathBuf>,
    lie: Lie,
    list: bool,
    sweep: bool,
}

fn arguments() -> Result<PowercutArguments, String> {
    let mut parsed = PowercutArguments {
        seeds: 0..100,
        profile: None,
        medium: None,
        effort: CutEffort {
            operations: 80,
            cuts: Some(150),
            survivals: 2,
            recovery_cuts: [1, 1, 1],
        },
        jobs: 1,
        minimise: 60,
        seconds: u64::MAX,
        keep_going: false,
        dump: None,
        lie: Lie::None,
        list: false,
        sweep: false,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{option} needs a value"));
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("'{text}' is not a number"))
        }
        match option.as_str() {
            "--seeds" => {
                let text = value()?;
                let (from, to) =
                    text.split_once("..").ok_or(format!("'{text}' is not a range A..B"))?;
                parsed.seeds = number(from)?..number(to)?;
            }
            "--profile" => {
                let name = value()?;
                parsed.profile = match name.as_str() {
                    "all" => None,
                    name => Some(Profile::from_name(name).ok_or(format!("no profile '{name}'"))?),
                };
            }
            "--medium" => {
                let name = value()?;
                parsed.medium = match name.as_str() {
                    "all" => None,
                    name => {
                        Some(MediumProfile::from_name(name).ok_or(format!("no medium '{name}'"))?)
                    }
                };
            }
            "--list" => parsed.list = true,
            "--sweep" => parsed.sweep = true,
            "--operations" => parsed.effort.operations = number(&value()?)?,
            "--cuts" => {
                let text = value()?;
                parsed.effort.cuts = if text == "all" { None } else { Some(number(&text)?) };
            }
            "--survivals" => parsed.effort.survivals = number(&value()?)?,
            "--recovery" => {
                let text = value()?;
                let mut counts = text.split(',');
                for count in &mut parsed.effort.recovery_cuts {
                    *count = counts.next().map_or(Ok(0), number)?;
                }
                if counts.next().is_some() {
                    return Err(format!("'{text}' is not N,M,O"));
                }
            }
            "--jobs" => parsed.jobs = number::<u64>(&value()?)?.clamp(1, 64),
            "--minimise" => parsed.minimise = number(&value()?)?,
            "--seconds" => parsed.seconds = number(&value()?)?,
            "--dump" => parsed.dump = Some(value()?.into()),
            "--keep-going" => parsed.keep_going = true,
            "--lie" => {
                parsed.lie = match value()?.as_str() {
                    "flush" => Lie::Flush,
                    "fua" => Lie::Fua,
                    other => return Err(format!("no lie '{other}'")),
                };
            }
            other => return Err(format!("unknown option '{other}'")),
        }
    }
    if parsed.sweep && (parsed.profile.is_some() || parsed.medium.is_some()) {
        return Err("--sweep takes every profile and every medium in turn".to_owned());
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("powercut: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.list {
        for medium in MediumProfile::ALL {
            println!("{:10} {}", medium.name, medium.about);
        }
        return ExitCode::SUCCESS;
    }
    // A panic of the volume is a finding. It is reported as such, with its place.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let next = AtomicU64::new(arguments.seeds.start);
    let total = Mutex::new(PowercutTally::default());
    let table = Mutex::new(Table::default());
    let violations = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stop = started.elapsed().as_secs() >= arguments.seconds
                        || (!arguments.keep_going && !violations.lock().is_empty());
                    if seed >= arguments.seeds.end || stop {
                        return;
                    }
                    let combination = Combination::of_seed(seed);
                    let mut world = if arguments.sweep {
                        combination.world(seed)
                    } else {
                        let profile = arguments
                            .profile
                            .unwrap_or(Profile::ALL[(seed % Profile::ALL.len() as u64) as usize].1);
                        let medium = arguments.medium.unwrap_or(MediumProfile::of_seed(seed));
                        World::new(seed, profile).on(medium).with_extras()
                    };
                    world.lie = arguments.lie;
                    let (mut tally, begun) = (PowercutTally::default(), Instant::now());
                    let result =
                        torture::<LabVolume>(&world, &Script::Drawn, &arguments.effort, &mut tally);
                    total.lock().add(&tally);
                    let seconds = begun.elapsed().as_secs_f64();
                    table.lock().add(&combination, &tally, result.is_err(), seconds);
                    if let Err(violation) = result {
                        report(&world, &arguments, &violation);
                        violations.lock().push(seed);
                    }
                }
            });
        }
    });
    let (tally, violations) = (total.into_inner(), violations.into_inner());
    let seconds = started.elapsed().as_secs_f64();
    if arguments.sweep {
        println!("{}\n{} combinations", table.into_inner(), steadfast_torture::sweep::count());
    }
    println!(
        "{tally}, {seconds:.1} s, {:.0} cuts/s, {} violations",
        tally.cuts as f64 / seconds,
        violations.len()
    );
    if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("violations in seeds {violations:?}");
        ExitCode::FAILURE
    }
}

/// Shortens a violation as far as possible and prints it.
fn report(world: &World, arguments: &PowercutArguments, found: &Violation) {
    let effort = &arguments.effort;
    println!("VIOLATION in {world}\n{found}");
    let mut best = found.clone();
    let sequence_end = found.operations.len().min(effort.operations);
    let short = minimise(&found.operations[..sequence_end], arguments.minimise, |operations| {
        let script = Script::Given(operations.to_vec());
        match torture::<LabVolume>(world, &script, effort, &mut PowercutTally::default()) {
            Err(violation) => {
                best = *violation;
                true
            }
            Ok(()) => false,
        }
    });
    println!("MINIMISED to {} operations, in {world}\n{best}\n", short.len());
    if let (Some(directory), Some(image)) = (&arguments.dump, &best.image) {
        let path = directory.join(format!("violation-{}.img", world.seed));
        match std::fs::write(&path, image.to_vec()) {
            Ok(()) => println!("the image is in {}", path.display()),
            Err(error) => eprintln!("powercut: {}: {error}", path.display()),
        }
    }
}
