//! The program called as `fsck.steadfast`, by fsck(8), systemd-fsck or a user. Options and exit
//! codes are those of e2fsck.
//!
//! - `-a` and `-p` (preen, at boot) check the superblock, the metaroot and the intent log, which is
//!   all that opening needs. Only if these are damaged, or with `-f`, the whole volume is checked
//!   and repaired. Opening never scans, so preen does not scan either.
//! - `-n` checks everything and changes nothing. `-y` checks everything and repairs what is safe.
//!   Without any of these options the program acts as with `-n`. On a terminal it asks one question
//!   and acts as with `-y` if the answer is yes.
//! - A volume that a power cut has interrupted is clean: opening it replays its log.
//!
//! The repairs are those of `steadfast check --repair`. A volume that is mounted or in use is
//! refused (8).

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadfast::OpenOptions;
use steadfast::check::{CheckOptions, CheckReport, Severity, check, repair};
use steadfast_host::HostPlatform;

use crate::commands::check::{OLDER_STATE, print_repaired};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{host, mount_options};

/// Exit codes of fsck(8).
const CLEAN: u8 = 0;
const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const OPERATIONAL_ERROR: u8 = 8;
const USAGE: u8 = 16;
const CANCELLED: i32 = 32;

/// What to do about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Nothing.
    No,
    /// Repair what is safe.
    Yes,
    /// Repair what is safe, and check only what opening needs.
    Preen,
    /// Ask on a terminal, otherwise change nothing.
    Ask,
}

/// What fsck(8) requests.
#[derive(Debug, PartialEq, Eq)]
enum FsckCall {
    /// `-V`.
    Version,
    /// Check this.
    Check { image: PathBuf, answer: Answer, force: bool },
}

/// Whether this process was called by this name.
pub fn is_called(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    matches!(name.map(OsStr::as_bytes), Some(b"fsck.steadfast" | b"fsck.fuse.steadfast"))
}

/// Runs the check; the exit code is one of fsck(8).
pub fn run(arguments: &[OsString]) -> u8 {
    end_with_cancelled();
    let result = match parse(arguments) {
        Ok(FsckCall::Version) => {
            output::line(format_args!("fsck.steadfast {}", env!("CARGO_PKG_VERSION")))
                .map(|()| CLEAN)
        }
        Ok(FsckCall::Check { image, answer, force }) => fsck(&image, answer, force),
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        match failure.exit {
            Exit::Usage => USAGE,
            Exit::Damaged => UNCORRECTED,
            _ => OPERATIONAL_ERROR,
        }
    })
}

/// Ctrl-C ends the program with the exit code of fsck(8). A repair consists of transactions, so it
/// can end at any moment.
fn end_with_cancelled() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let _ = std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!(
                "steadfast: cancelled: fsck.steadfast: nothing is left half done, run it again"
            );
            std::process::exit(CANCELLED);
        }
    });
}

fn parse(arguments: &[OsString]) -> Outcome<FsckCall> {
    let wrong = |what: String| {
        Failure::new(
            Exit::Usage,
            what,
            "fsck.steadfast",
            "call it as: fsck.steadfast [-n|-p|-a|-y] [-fvV] IMAGE",
        )
    };
    let (mut images, mut answers, mut force) = (Vec::new(), Vec::new(), false);
    let mut rest = arguments.iter().skip(1).peekable();
    let mut options_end = false;
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        if options_end || !bytes.starts_with(b"-") || bytes == b"-" {
            images.push(PathBuf::from(argument));
            continue;
        }
        if bytes == b"--" {
            options_end = true;
            continue;
        }
        // Progress: the number of a descriptor follows, in the same word or in the next one.
        if let Some(number) = bytes.strip_prefix(b"-C") {
            let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
            match number {
                b"" => drop(rest.next_if(|next| is_number(next.as_bytes()))),
                number if is_number(number) => {}
                _ => return Err(wrong("-C takes the number of a descriptor".into())),
            }
            continue;
        }
        for letter in bytes.iter().skip(1) {
            match letter {
                b'n' => answers.push(Answer::No),
                b'y' => answers.push(Answer::Yes),
                b'p' | b'a' => answers.push(Answer::Preen),
                b'f' => force = true,
                b'V' => return Ok(FsckCall::Version),
                // fsck(8) may pass these on; they have no meaning here.
                b'v' | b't' | b'T' | b'M' | b'r' => {}
                _ => return Err(wrong(format!("unknown option {}", argument.display()))),
            }
        }
    }
    answers.dedup();
    let answer = match answers.as_slice() {
        [] => Answer::Ask,
        [answer] => *answer,
        _ => return Err(wrong("only one of -n, -p, -a and -y can be given".into())),
    };
    match <[PathBuf; 1]>::try_from(images) {
        Ok([image]) => Ok(FsckCall::Check { image, answer, force }),
        Err(_) => Err(wrong("one image or block device is needed".into())),
    }
}

fn fsck(image: &Path, answer: Answer, force: bool) -> Outcome<u8> {
    let shown = image.display();
    if answer == Answer::Preen && !force && opens_clean(image)? {
        output::line(format_args!(
            "{shown}: clean (every checksum: fsck.steadfast -f, or steadfast check)"
        ))?;
        return Ok(CLEAN);
    }
    let options = CheckOptions {
        cache_size: usize::try_from(mount_options::CACHE_SIZE_DEFAULT).unwrap_or(usize::MAX),
        ..CheckOptions::default()
    };
    let platform = HostPlatform::new();
    let mut yes = matches!(answer, Answer::Yes | Answer::Preen);
    if !yes {
        let report = host::with_medium(image, |medium| {
            check(medium.clone(), platform.clone(), &options, &mut |_| {})
        })?;
        let ask = answer == Answer::Ask && report.is_repairable() && std::io::stdin().is_terminal();
        yes = ask && {
            print(&report)?;
            confirmed(image)
        };
        if !yes {
            if !ask {
                print(&report)?;
            }
            return summary(image, &report, None);
        }
    }
    let report = host::with_medium_to_write(image, |medium| {
        repair(medium.clone(), platform.clone(), &options, &mut |_| {})
    })?;
    print_repaired(&report)?;
    print(&report.after)?;
    summary(image, &report.after, Some(report.changed()))
}

/// Whether everything that opening reads is in order, and both superblocks. The caller examines the
/// damage.
fn opens_clean(image: &Path) -> Outcome<bool> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = match host::open_volume(image, host::Way::Cached, options) {
        Err(failure) if failure.exit == Exit::Damaged => return Ok(false),
        opened => opened?,
    };
    let info = volume.info();
    let lost = volume.newer_state_lost().is_some();
    volume.close().map_err(|error| Failure::core(error, image.display()))?;
    Ok(!lost && !info.superblock_damaged && info.repaired_reads == 0)
}

fn print(report: &CheckReport) -> Outcome {
    let mut output = Output::new();
    for finding in &report.findings {
        let name = match finding.severity {
            Severity::Degraded => "degraded",
            Severity::Damaged => "damaged",
        };
        output.line(format_args!("{name}: {finding}"))?;
    }
    output.finish()
}

/// The last line, and the exit code. `changed`: what a repair did, if there was one.
fn summary(image: &Path, report: &CheckReport, changed: Option<bool>) -> Outcome<u8> {
    let image = image.display();
    let (text, code) = match (report.is_clean(), changed) {
        (true, None | Some(false)) => ("clean", CLEAN),
        (true, Some(true)) => ("repaired, and clean now", CORRECTED),
        (false, Some(true)) => {
            ("repaired in part; the rest needs 'steadfast check --salvage DIR'", UNCORRECTED)
        }
        (false, None) if report.is_repairable() => {
            ("errors left: 'fsck.steadfast -y' repairs what is safe", UNCORRECTED)
        }
        // The next line is the advice.
        (false, _) if report.newer_state_lost => {
            ("cannot be repaired safely, and -y changes nothing", UNCORRECTED)
        }
        (false, _) => {
            ("cannot be repaired safely; it needs 'steadfast check --salvage DIR'", UNCORRECTED)
        }
    };
    output::line(format_args!(
        "{image}: {text}: {} inodes ({} directories), {} blocks in use",
        report.inodes, report.directories, report.used_blocks
    ))?;
    if report.newer_state_lost {
        output::line(format_args!("{image}: the newest state is damaged: {OLDER_STATE}"))?;
    }
    // As in e2fsck, corrected and uncorrected are bits.
    Ok(if changed == Some(true) { code | CORRECTED } else { code })
}

fn confirmed(image: &Path) -> bool {
    eprint!("{}: repair what is safe? [y/N] ", image.display());
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<FsckCall, u8> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&words).map_err(|failure| failure.exit as u8)
    }

    #[test]
    fn the_calls_of_fsck_and_systemd_are_understood() {
        let check = |answer, force| Ok(FsckCall::Check { image: "/dev/x".into(), answer, force });
        assert_eq!(parsed("/sbin/fsck.steadfast -a /dev/x"), check(Answer::Preen, false));
        assert_eq!(parsed("fsck.steadfast -a -C0 /dev/x"), check(Answer::Preen, false));
        assert_eq!(parsed("fsck.steadfast -C 5 -fy /dev/x"), check(Answer::Yes, true));
        assert_eq!(parsed("fsck.steadfast -n -- /dev/x"), check(Answer::No, false));
        assert_eq!(parsed("fsck.steadfast /dev/x"), check(Answer::Ask, false));
        assert_eq!(parsed("fsck.steadfast -V"), Ok(FsckCall::Version));
        for wrong in ["-n -y /dev/x", "-z /dev/x", "-a", "/dev/x /dev/y", "-Cx /dev/x"] {
            assert_eq!(
                parsed(&format!("fsck.steadfast {wrong}")),
                Err(Exit::Usage as u8),
                "{wrong}"
            );
        }
    }
}
