//! `steadfast top`: the activity of a mounted volume, on a terminal, updated every second.
//!
//! [`history`] keeps the counters and derives rates, [`frame`] draws them, [`screen`] handles the
//! terminal and the keys. `--once` draws the same frame into memory and prints it as text.

pub mod format;
mod frame;
mod history;
mod report;
pub mod screen;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::failure::{Exit, Failure, Outcome};
use crate::interval;
use crate::live::Live;
use crate::output::{self, Output};
use crate::target::Target;
use frame::View;
use history::{Sample, VolumeHistory};

/// Smallest and largest time between two samples, milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 100..=60_000;
/// Columns of the narrowest frame.
const COLUMNS_MIN: u16 = frame::SIZE_MIN.0;
/// Size of the text of `--once` if standard output is not a terminal, columns and rows.
const PLAIN_SIZE: (u16, u16) = (80, 24);
/// Largest size of that text.
const PLAIN_MAX: (u16, u16) = (200, 60);

/// Show what a mounted volume is doing: operations, latencies, log, space, device
///
/// Keys: q quit, p pause, r count from now on, tab (or 1 2 3) another page. Key w: latencies of the
/// last ten seconds or of all. Up and down choose a kind of operation on the page of latencies.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point, or the image or block device that is mounted
    #[arg(value_name = "DIR|IMAGE")]
    target: PathBuf,
    /// Time between two samples
    #[arg(long, default_value = "1s", value_parser = interval::parse_ms, value_name = "INTERVAL")]
    interval: u32,
    /// Print one frame as text: rates over one interval, latencies since the mount. COLUMNS sets
    /// its width
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print JSON: everything counted since the mount
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The volume is not mounted, the daemon has ended, or standard output is not a terminal.
pub fn run(args: &Args) -> Outcome {
    let every = time_between(args.interval, &args.target)?;
    let live = Target::find_mounted(&args.target)?;
    if args.json {
        return output::json(&report::TopReport::new(&live, &live.readings()?));
    }
    if args.once {
        return once(&live, every);
    }
    needs_terminal(&args.target)?;
    screen::run(live, every)
}

/// The time between two samples.
///
/// # Errors
/// It is too short or too long.
pub fn time_between(interval_ms: u32, target: &Path) -> Outcome<Duration> {
    if INTERVAL_MS.contains(&interval_ms) {
        return Ok(Duration::from_millis(u64::from(interval_ms)));
    }
    let what = format!("an interval of {} is not possible", interval::human_ms(interval_ms));
    Err(Failure::new(Exit::Usage, what, target.display(), "use 100ms to 1min"))
}

/// Fails if there is no screen to draw on or no keyboard to read.
///
/// # Errors
/// Standard input or output is not a terminal.
pub fn needs_terminal(target: &Path) -> Outcome {
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Usage,
        "standard input and output are no terminal",
        target.display(),
        "use --once for a frame of text, or --json",
    ))
}

fn once(live: &Live, every: Duration) -> Outcome {
    let mut history = VolumeHistory::new(title(live));
    history.push(Sample { at: Instant::now(), readings: live.readings()? });
    std::thread::sleep(every);
    history.push(Sample { at: Instant::now(), readings: live.readings()? });
    let view = View { window: frame::Window::SinceMount, keys: false, ..View::default() };
    print_frame(COLUMNS_MIN, |buffer| frame::draw(buffer, &history, &view))
}

/// Prints a frame as text, as wide as COLUMNS says or the terminal is, but not below `columns_min`.
/// Without either it has a size that fits everywhere.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_frame(columns_min: u16, draw: impl FnOnce(&mut Buffer)) -> Outcome {
    let here = std::io::stdout().is_terminal();
    let terminal = ratatui::crossterm::terminal::size().ok().filter(|_| here);
    let wanted = std::env::var("COLUMNS").ok().and_then(|text| columns_of(&text));
    let (columns, rows) = match (wanted, terminal) {
        (None, None) => PLAIN_SIZE,
        (Some(columns), terminal) => {
            frame_size((columns, terminal.map_or(0, |size| size.1)), columns_min)
        }
        (None, Some(size)) => frame_size(size, columns_min),
    };
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    draw(&mut buffer);
    let mut output = Output::new();
    for line in text_of(&buffer) {
        output.line(line)?;
    }
    output.finish()
}

/// The width that COLUMNS requests; `None` if it is no number of columns.
fn columns_of(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|columns| *columns > 0)
}

/// The size of a frame of text for a terminal. A line that is wider would be broken. Rows that do
/// not fit scroll, so there are always enough of them.
fn frame_size((columns, rows): (u16, u16), columns_min: u16) -> (u16, u16) {
    (
        columns.clamp(columns_min, PLAIN_MAX.0),
        // One row is left for the prompt that follows.
        rows.saturating_sub(1).clamp(PLAIN_SIZE.1, PLAIN_MAX.1),
    )
}

/// The lines of a frame, without colours and trailing spaces.
pub fn text_of(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

/// The name of the volume, for the first line.
fn title(live: &Live) -> String {
    let image = live.mount.source.file_name().unwrap_or(live.mount.source.as_os_str());
    let text = format!("{} on {}", image.display(), live.directory().display());
    text.replace(|c: char| c.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_text_is_as_wide_as_the_terminal() {
        assert_eq!(frame_size((60, 40), 40), (60, 39));
        assert_eq!(frame_size((100, 10), 40), (100, 24));
        assert_eq!(frame_size((20, 10), 40), (40, 24), "the narrowest frame that there is");
        assert_eq!(frame_size((999, 999), 40), PLAIN_MAX);
        assert_eq!(
            (columns_of(" 120 "), columns_of("0"), columns_of("wide")),
            (Some(120), None, None)
        );
    }
}
