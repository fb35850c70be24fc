//! `steadfast map`: the use of each part of a volume, as a picture.
//!
//! [`survey`] counts the blocks of each cell, from an image or through a mount. [`crate::grid`]
//! draws the cells.

mod survey;

use std::path::PathBuf;

use steadfast_host::write_whole;

use crate::failure::Outcome;
use crate::grid::{Grid, svg, text};
use crate::image::{Access, Image};
use crate::output::Output;
use crate::target::Target;
use crate::{ending, open_failure};
use survey::{MapSource, MapSurvey};

/// Maximum number of cells of a picture in a file: 64 rows of 128.
const CELLS_SVG: usize = 8192;

/// Draw what each part of a volume is used for: live data and metadata, snapshots, freed, log, free
///
/// A mounted volume may change while it is drawn, so the picture may miss changes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image, block device or mount point
    #[arg(value_name = "IMAGE|DIR")]
    target: PathBuf,
    /// Write a picture into this file instead of text to standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the target or the file; damaged metadata.
pub fn run(args: &Args) -> Outcome {
    let terminal = text::Terminal::here();
    let cells = if args.svg.is_some() { CELLS_SVG } else { terminal.cells() };
    let place = args.target.display().to_string();
    let (survey, title) = match Target::find(&args.target)? {
        Target::Mounted(live) => {
            let survey = MapSurvey::make(&MapSource::Mounted(&live), cells)?;
            (survey, format!("{} on {}", live.mount.source.display(), live.directory().display()))
        }
        Target::Image(path) => {
            let image = Image::open(&path, Access::Read)?;
            let survey = MapSurvey::make(&MapSource::Image(&image.volume, &place), cells)?;
            image.close()?;
            (survey, place)
        }
    };
    let title = title.replace(|c: char| c.is_control(), "?");
    match &args.svg {
        Some(file) => {
            let drawn = svg::picture(&Grid::from(&survey), &title);
            ending::wait_for(file, || {
                write_whole(file, drawn.as_bytes())
                    .map_err(|error| open_failure::of_destination(&error, file))
            })
        }
        None => {
            let mut output = Output::new();
            for line in text::picture(&Grid::from(&survey), &title, &terminal) {
                output.line(line)?;
            }
            output.finish()
        }
    }
}
