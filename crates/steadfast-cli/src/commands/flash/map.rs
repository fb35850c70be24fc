//! `steadfast flash map`: the erase blocks of a part by their state, as a picture.

use std::path::PathBuf;

use serde::Serialize;
use steadfast_flash::ftl::{BlockDetail, BlockUse};
use steadfast_host::write_whole;

use super::PlaceArgs;
use super::survey::PartSurvey;
use crate::failure::Outcome;
use crate::grid::{Cell, Grid, Kind, svg, text};
use crate::output::{self, Output};
use crate::{ending, open_failure};

/// Maximum number of cells of a picture in a file: 64 rows of 128.
const CELLS_SVG: usize = 8192;

/// Draw the erase blocks of a part by state: data, structures, journal, anchors, pending, free, bad
///
/// The strength of a block's colour shows how many of its pages are needed. Writes nothing; a
/// mounted volume may change during the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Write a picture into this file instead of text to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Print JSON: state, needed pages, erasures and reads of each block
    #[arg(long)]
    json: bool,
}

/// How each use is drawn, in the order of [`BlockUse::ALL`]. The last entry stands for unneeded
/// pages in blocks of data and structures.
const KINDS: [Kind; BlockUse::ALL.len() + 1] = [
    Kind { name: "free", mark: '·', color: 90, class: "f", light: "#e8ebf0", dark: "#2a303b" },
    Kind { name: "data", mark: '█', color: 34, class: "d", light: "#2b6cb0", dark: "#63a4e8" },
    Kind {
        name: "map, tables, spills",
        mark: '▓',
        color: 35,
        class: "m",
        light: "#8b3fa8",
        dark: "#c58be0",
    },
    Kind { name: "journal", mark: '≡', color: 32, class: "l", light: "#2f855a", dark: "#68d391" },
    Kind { name: "anchors", mark: '■', color: 37, class: "x", light: "#2d3748", dark: "#e2e8f0" },
    Kind { name: "pending", mark: '░', color: 33, class: "a", light: "#d99a00", dark: "#f6c445" },
    Kind { name: "bad", mark: '×', color: 31, class: "b", light: "#c53030", dark: "#fc8181" },
    Kind {
        name: "needed no more",
        mark: '-',
        color: 90,
        class: "g",
        light: "#cbd5e0",
        dark: "#4a5568",
    },
];
/// Index of the last entry.
const STALE: usize = BlockUse::ALL.len();

/// The index of a use in [`KINDS`].
fn index(usage: BlockUse) -> usize {
    BlockUse::ALL.iter().position(|other| *other == usage).unwrap_or(STALE)
}

/// Whether such a block is needed only by those of its pages that are referenced, and not as a
/// whole.
fn by_pages(usage: BlockUse) -> bool {
    matches!(usage, BlockUse::Data | BlockUse::Structures)
}

/// An erase block in JSON.
#[derive(Debug, Serialize)]
struct Block {
    block: u32,
    state: &'static str,
    valid_pages: u32,
    erases: u32,
    reads: u32,
}

/// Runs the command.
///
/// # Errors
/// There is no NAND, or it holds no readable translation layer; the file cannot be written.
pub fn run(args: &Args) -> Outcome {
    let survey = PartSurvey::take(&args.place.find()?)?;
    if args.json {
        let block = |(number, block): (u32, &BlockDetail)| Block {
            block: number,
            state: block.usage.name(),
            valid_pages: block.valid_pages,
            erases: block.erases,
            reads: block.reads,
        };
        return output::json(&(0..).zip(&survey.blocks).map(block).collect::<Vec<_>>());
    }
    let title = format!("{} ({})", args.place.target.display(), survey.part);
    let title = title.replace(|c: char| c.is_control(), "?");
    match &args.svg {
        Some(file) => {
            let drawn = svg::picture(&grid(&survey, CELLS_SVG), &title);
            ending::wait_for(file, || {
                write_whole(file, drawn.as_bytes())
                    .map_err(|error| open_failure::of_destination(&error, file))
            })
        }
        None => {
            let terminal = text::Terminal::here();
            let mut output = Output::new();
            for line in text::picture(&grid(&survey, terminal.cells()), &title, &terminal) {
                output.line(line)?;
            }
            output.finish()
        }
    }
}

/// Groups the blocks into at most `cells` cells.
fn grid(survey: &PartSurvey, cells: usize) -> Grid {
    let geometry = survey.report.geometry;
    let block_bytes = geometry.block_bytes();
    let pages = geometry.pages_per_block.max(1);
    let valid = |block: &BlockDetail| block.valid_pages.min(pages);
    let per_cell = survey.blocks.len().div_ceil(cells.max(1)).max(1);
    let mut bytes = vec![0; KINDS.len()];
    let mut add = |kind: usize, more: u64| {
        if let Some(bytes) = bytes.get_mut(kind) {
            *bytes += more;
        }
    };
    for block in &survey.blocks {
        let needed = match by_pages(block.usage) {
            true => u64::from(geometry.page_size) * u64::from(valid(block)),
            false => block_bytes,
        };
        add(index(block.usage), needed);
        add(STALE, block_bytes - needed);
    }
    let cell = |blocks: &[BlockDetail]| {
        let of = |usage: BlockUse| blocks.iter().filter(move |block| block.usage == usage);
        let count = |usage: BlockUse| of(usage).count();
        // A bad block always shows; a cell is free only if nothing else is in it.
        let most =
            BlockUse::ALL.into_iter().filter(|usage| *usage != BlockUse::Free && count(*usage) > 0);
        let most = most.max_by_key(|usage| count(*usage)).unwrap_or(BlockUse::Free);
        let usage = if count(BlockUse::Bad) > 0 { BlockUse::Bad } else { most };
        let filled = f64::from(of(usage).map(valid).sum::<u32>())
            / (count(usage).max(1) as f64 * f64::from(pages));
        Cell { kind: index(usage), fill: if by_pages(usage) { filled } else { 1.0 } }
    };
    Grid {
        kinds: &KINDS,
        ground: STALE,
        cell_bytes: block_bytes * per_cell as u64,
        cell_blocks: per_cell as u64,
        cells: survey.blocks.chunks(per_cell).map(cell).collect(),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::survey::tests::example;
    use super::*;

    #[test]
    fn every_byte_is_counted_once_and_bad_blocks_are_seen() {
        let survey = example(90);
        let whole = grid(&survey, 1000);
        assert_eq!(whole.total(), survey.report.geometry.bytes());
        assert_eq!(whole.cells.len(), 90);
        // A quarter of the pages of each data block is needed.
        let block = survey.report.geometry.block_bytes();
        assert_eq!((whole.bytes[1], whole.bytes[STALE]), (30 * block / 4, 30 * block * 3 / 4));
        assert_eq!(whole.cells[1], Cell { kind: 1, fill: 0.25 });
        // Three blocks per cell: each cell has a bad one.
        let coarse = grid(&survey, 30);
        assert_eq!((coarse.cells.len(), coarse.total()), (30, whole.total()));
        assert!(coarse.cells.iter().all(|cell| KINDS[cell.kind].name == "bad"));
        assert_eq!(coarse.cell_bytes, 3 * block);
    }
}
