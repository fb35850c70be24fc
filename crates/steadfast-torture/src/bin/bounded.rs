//! `bounded --length N`: runs every short sequence with every persistence call, with a power cut at
//! every I/O.

use std::process::ExitCode;
use std::time::Instant;

use steadfast_torture::bounded::{Bounded, Calls};
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::powercut::{CutEffort, JudgedImages, PowercutTally};
use steadfast_torture::subject::LabVolume;

const USAGE: &str = "\
usage: bounded [--length 1|2|3] [--shard I/N] [--medium NAME] [--only NUMBER] [--every N]
               [--calls all|few] [--survivals N] [--recovery N,M,O] [--seconds N] [--list]

  --length     operations in a sequence (default 1); those of three are over a pruned set
  --calls      which persistence calls: all, or few, which differ in more than their name (default few for three, else all)
  --shard      only part I of N (0/4, 1/4 …): for several processes
  --every      only every Nth sequence: a sample
  --only       only this sequence
  --medium     kind of medium (default sector; see powercut --list)
  --survivals  random choices of what survives each cut, beside the three fixed ones (default 2)
  --recovery   cuts in each recovery, in the recovery from that, and in the one from that (default 0,0,0)
  --seconds    begin no sequence after so many seconds
  --list       print the sequences and end";

struct BoundedArguments {
    length: usize,
    calls: Option<Calls>,
    shard: (u64, u64),
    every: u64,
    only: Option<u64>,
    medium: MediumProfile,
    effort: CutEffort,
    seconds: u64,
    list: bool,
}

fn arguments() -> Result<BoundedArguments, String> {
    let mut parsed = BoundedArguments {
        length: 1,
        calls: None,
        shard: (0, 1),
        every: 1,
        only: None,
        medium: MediumProfile::SECTOR,
        effort: CutEffort { operations: 0, cuts: None, survivals: 2, recovery_cuts: [0; 3] },
        seconds: u64::MAX,
        list: false,
    };
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("'{text}' is not a number"))
    }
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--length" => parsed.length = number(&value()?)?,
            "--calls" => {
                parsed.calls = Some(match value()?.as_str() {
                    "all" => Calls::All,
                    "few" => Calls::Few,
                    other => return Err(format!("--calls takes all or few, not '{other}'")),
                });
            }
            "--shard" => {
                let text = value()?;
                let (part, parts) = text.split_once('/').ok_or(format!("'{text}' is not I/N"))?;
                parsed.shard = (number(part)?, number(parts)?);
                if parsed.shard.0 >= parsed.shard.1 {
                    return Err(format!("there is no part {text}"));
                }
            }
            "--every" => parsed.every = number::<u64>(&value()?)?.max(1),
            "--only" => parsed.only = Some(number(&value()?)?),
            "--medium" => {
                let name = value()?;
                parsed.medium =
                    MediumProfile::from_name(&name).ok_or(format!("no medium '{name}'"))?;
            }
            "--survivals" => parsed.effort.survivals = number(&value()?)?,
            "--recovery" => {
                let text = value()?;
                for (count, text) in parsed.effort.recovery_cuts.iter_mut().zip(text.split(',')) {
                    *count = number(text)?;
                }
            }
            "--seconds" => parsed.seconds = number(&value()?)?,
            "--list" => parsed.list = true,
            other => return Err(format!("unknown option '{other}'")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let prepared = arguments().and_then(|arguments| {
        let calls =
            arguments.calls.unwrap_or(if arguments.length == 3 { Calls::Few } else { Calls::All });
        let bounded = Bounded::new::<LabVolume>(arguments.length, calls, arguments.medium)?;
        Ok((arguments, bounded))
    });
    let (arguments, bounded) = match prepared {
        Ok(prepared) => prepared,
        Err(what) => {
            eprintln!("bounded: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic of the volume is a finding. It is reported as such, with its place.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let (mut seen, mut tally, mut violations) =
        (JudgedImages::default(), PowercutTally::default(), Vec::new());
    let (part, parts) = arguments.shard;
    let (first, step) = match arguments.only {
        Some(only) => (only, u64::MAX),
        None => (part * arguments.every, parts * arguments.every),
    };
    let mut index = first;
    while let Some(sequence) = bounded.sequence(index) {
        if started.elapsed().as_secs() >= arguments.seconds {
            break;
        }
        if arguments.list {
            println!("{index} {}", sequence.name);
        } else if let Err(violation) =
            bounded.run::<LabVolume>(index, &sequence, &arguments.effort, &mut seen, &mut tally)
        {
            println!("VIOLATION in sequence {index}, {}\n{violation}", sequence.name);
            violations.push(index);
        }
        let Some(next) = index.checked_add(step) else { break };
        index = next;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "length {}: {} sequences enumerated; {tally}, {seconds:.1} s, {:.0} cuts/s, {} violations",
        arguments.length,
        bounded.count(),
        tally.cuts as f64 / seconds,
        violations.len()
    );
    if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("violations in sequences {violations:?}");
        ExitCode::FAILURE
    }
}
