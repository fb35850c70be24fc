//! The display while the lab runs: the current workload, and the time left.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use steadfast_lab::run::{Observer, StepReport};

/// A line on standard error that is updated in place; without a terminal, one line per workload.
pub struct Progress {
    bar: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// Starts without a line; with `quiet`, only messages are ever shown.
    pub fn new(quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) =
                ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress { bar, last: if quiet { "quiet".into() } else { String::new() } }
    }

    /// Removes the line.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn step(&mut self, report: &StepReport) {
        let left = report.left.map_or_else(String::new, |left| format!(", {} left", human(left)));
        match &self.bar {
            Some(bar) => {
                bar.set_length(report.count as u64);
                bar.set_position(report.number as u64 - 1);
                bar.set_message(format!(
                    "{} on {} round {}{left}",
                    report.label,
                    report.target,
                    report.round + 1
                ));
            }
            None if self.last != "quiet" && self.last != report.label => {
                eprintln!("{}/{} {}{left}", report.number, report.count, report.label);
                self.last.clone_from(&report.label);
            }
            None => {}
        }
    }

    fn message(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("steadfast: {text}")),
            None => eprintln!("steadfast: {text}"),
        }
    }
}

/// A time as text: `1 h 5 min`, `3 min 20 s`, `12 s`.
fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_people() {
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")]
        {
            assert_eq!(human(Duration::from_secs(seconds)), text);
        }
    }
}
