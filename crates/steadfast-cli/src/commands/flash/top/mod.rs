//! `steadfast flash top`: the wear of a part, on a terminal, as text, as JSON or as a picture.
//!
//! [`watch`] keeps the surveys, [`frame`] draws them, [`histogram`] has the ranges, [`picture`]
//! draws them into a file, [`screen`] is the terminal.

mod frame;
mod histogram;
mod picture;
mod screen;
mod watch;

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use steadfast_host::write_whole;

use super::PlaceArgs;
use super::survey::{PartSurvey, Wear};
use crate::commands::top;
use crate::failure::Outcome;
use crate::{ending, interval, open_failure, output};
use watch::PartHistory;

/// Show how the erase blocks of a part wear, live: histogram of erasures, states, erasures a second
///
/// Works on a mounted volume too: it reads the journal on the part again and again, and writes
/// nothing. Keys: q quit, p pause, r count from now on.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Time between two surveys
    #[arg(long, default_value = "1s", value_parser = interval::parse_ms, value_name = "INTERVAL")]
    interval: u32,
    /// Print one frame as text; the rate is that of one interval
    #[arg(long, conflicts_with_all = ["json", "svg"])]
    once: bool,
    /// Write a picture into this file: the histogram, and a map of the erasures by block
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct FlashTopJson {
    target: String,
    part: String,
    in_use: bool,
    blocks: serde_json::Map<String, serde_json::Value>,
    wear: Wear,
    histogram: Vec<histogram::Bar>,
}

/// Runs the command.
///
/// # Errors
/// There is no NAND, or it holds no readable translation layer; no terminal.
pub fn run(args: &Args) -> Outcome {
    let target = args.place.target.as_path();
    let every = top::time_between(args.interval, target)?;
    let place = args.place.find()?;
    let survey = PartSurvey::take(&place)?;
    let title = target.display().to_string().replace(|c: char| c.is_control(), "?");
    let bars = histogram::bars(&survey.erases_sorted(), histogram::BARS_MAX);
    if args.json {
        return output::json(&FlashTopJson {
            target: target.display().to_string(),
            part: survey.part.clone(),
            in_use: survey.live,
            blocks: survey.uses_json(),
            wear: survey.wear(),
            histogram: bars,
        });
    }
    if let Some(file) = &args.svg {
        let wear = survey.wear();
        let about = format!(
            "{}: of {} rated erasures a block, {:.3} % are used, and the spread is {:.3} %",
            survey.part, wear.cycles_rated, wear.used_percent, wear.spread_percent
        );
        let sorted = survey.erases_sorted();
        let drawn = picture::picture(&bars, &sorted, &survey.blocks, &title, &about);
        return ending::wait_for(file, || {
            write_whole(file, drawn.as_bytes())
                .map_err(|error| open_failure::of_destination(&error, file))
        });
    }
    if !args.once {
        top::needs_terminal(target)?;
    }
    let mut history = PartHistory::new(title, survey, Instant::now());
    if args.once {
        std::thread::sleep(every);
        history.push(PartSurvey::take(&place)?, Instant::now());
        return top::print_frame(frame::SIZE_MIN.0, |buffer| {
            frame::draw(buffer, &history, false, false)
        });
    }
    screen::run(place, history, every)
}
