//! Ctrl-C while a command makes something: the unfinished result is removed, one line says so, and
//! the program ends.

use std::fs;
use std::path::Path;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Exit, Failure};

const AGAIN: &str = "run it again";

/// From now on, a signal that ends the program first removes every [unfinished
/// file](steadfast_host::Unfinished). `place` is the target that is being made. A device or a pipe
/// keeps what was already written to it.
pub fn leave_nothing_half_done(place: &Path) {
    leave(place, Made::Nothing, "nothing is left half done", AGAIN);
}

/// The same for a command that has made the directory `place` itself: it goes, too, if it is empty.
pub fn leave_no_directory(place: &Path) {
    leave(place, Made::Directory, "nothing is left half done", AGAIN);
}

/// The same for a command that makes one file after the other. `goes_on` says whether the same
/// command, run again, copies to the same place.
pub fn leave_whole_files(place: &Path, goes_on: bool) {
    let advice = if goes_on { AGAIN } else { "remove it and run the command again" };
    leave(place, Made::Nothing, "what was copied so far stays, each file whole", advice);
}

/// What a command has made before it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Nothing,
    Directory,
}

fn leave(place: &Path, made: Made, what: &'static str, advice: &'static str) {
    if fs::metadata(place).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return;
    }
    let place = place.to_owned();
    let wanted = [(SIGINT, "Ctrl-C"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];
    // Signals that the caller made the program ignore (nohup, a background job) stay ignored.
    let ignored = ignored();
    let wanted = wanted.into_iter().filter(|(signal, _)| ignored & 1 << (signal - 1) == 0);
    let wanted: Vec<_> = wanted.collect();
    // Without a thread or a handler the signal still ends the program, and leaves a file under its
    // temporary name.
    let Ok(mut signals) = Signals::new(wanted.iter().map(|(signal, _)| signal)) else { return };
    let _ = std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        let _held = steadfast_host::remove_unfinished();
        if made == Made::Directory {
            let _ = fs::remove_dir(&place);
        }
        let name = wanted
            .iter()
            .find(|(wanted, _)| *wanted == signal)
            .map_or("a signal", |(_, name)| *name);
        let what = format!("interrupted by {name}, {what}");
        eprintln!("{}", Failure::new(Exit::Failed, what, place.display(), advice));
        let _ = emulate_default_handler(signal);
        std::process::exit(128 + signal);
    });
}

/// The signals that this process ignores, bit 0 for signal 1.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
