//! The wear of a part as a picture file. It has the histogram of erasures with its axes, and a map
//! that shows how worn each erase block is.
//!
//! The file has no scripts and no external fonts or styles, and is light or dark as the reader's
//! system is set. The ranges of colour of the map cover all erasures of good blocks; a bad block
//! has a colour of its own.

use std::fmt::Write;

use steadfast_flash::ftl::{BlockDetail, BlockUse};

use super::histogram::{Bar, bars, range};
use crate::grid::svg::escape;

/// Width of the picture, and the margin around it.
const WIDTH: usize = 720;
const MARGIN: usize = 20;
/// Room for the numbers at the left of both parts.
const LABEL: usize = 110;
/// Where the bars and the squares begin.
const LEFT: usize = MARGIN + LABEL;
/// Height of the title, of a bar, and of the histogram's axis with its name.
const TOP: usize = 92;
const ROW: usize = 20;
const AXIS: usize = 48;
/// Maximum number of squares in a row, and of all squares: more blocks share one.
const COLUMNS: usize = 128;
const SQUARES: usize = 8192;
/// Colours of the map from the least to the most worn block, light and dark.
const SHADES: [(&str, &str); 6] = [
    ("#d6e6f4", "#1d3a57"),
    ("#abcfe6", "#28557f"),
    ("#73b2d8", "#3a77a8"),
    ("#4292c6", "#5e9fce"),
    ("#1c6cb1", "#92c4e8"),
    ("#08306b", "#d6ebff"),
];

/// A square of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Square {
    /// A bad block is in it.
    Bad,
    /// The shade of its most worn block.
    Worn(usize),
}

impl Square {
    /// Its colour where the map has this many shades. Few of them reach from end to end too.
    fn class(self, shades: usize) -> String {
        match self {
            Square::Bad => "b".to_owned(),
            Square::Worn(shade) => {
                format!("w{}", shade * (SHADES.len() - 1) / shades.saturating_sub(1).max(1))
            }
        }
    }
}

/// The picture of a part whose good blocks have the erasures `sorted`, in rising order.
pub fn picture(
    ranges: &[Bar],
    sorted: &[u32],
    blocks: &[BlockDetail],
    title: &str,
    about: &str,
) -> String {
    let title = escape(title);
    let shades = bars(sorted, SHADES.len() as u32);
    let per_square = blocks.len().div_ceil(SQUARES).max(1);
    let squares: Vec<Square> =
        blocks.chunks(per_square).map(|blocks| square(blocks, &shades)).collect();
    let histogram_end = TOP + ranges.len() * ROW;
    let map_top = histogram_end + AXIS + 62;
    let columns = columns(squares.len());
    let side = (WIDTH - LEFT - MARGIN) / columns.max(16);
    let map_end = map_top + squares.len().div_ceil(columns) * side;
    let height = map_end + 54 + MARGIN;

    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Wear of {title}\">\n<title>Wear of {title}</title>\n{}\
         <rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"h\" x=\"{MARGIN}\" y=\"34\">{title}</text>\n\
         <text class=\"n\" x=\"{MARGIN}\" y=\"54\">{}</text>\n",
        sheet(),
        escape(about),
    );
    draw_histogram(&mut text, ranges, histogram_end);
    let shared = match per_square {
        1 => "one square is one erase block".to_owned(),
        _ => format!("one square is {per_square} erase blocks, with the colour of the most worn"),
    };
    let _ = writeln!(
        text,
        "<text class=\"s\" x=\"{MARGIN}\" y=\"{}\">Erasures by block</text>\
         <text class=\"n\" x=\"{LEFT}\" y=\"{}\">{shared}</text>",
        map_top - 34,
        map_top - 16,
    );
    let _ = writeln!(
        text,
        "<text class=\"e n\" x=\"{}\" y=\"{}\">block</text>",
        LEFT - 10,
        map_top - 16
    );
    draw_map(&mut text, &squares, shades.len(), per_square, (map_top, columns, side));
    draw_legend(&mut text, &shades, squares.contains(&Square::Bad), map_end + 22);
    text.push_str("</svg>\n");
    text
}

/// The bars with the numbers of blocks on a line below them.
fn draw_histogram(text: &mut String, ranges: &[Bar], end: usize) {
    let most = ranges.iter().map(|bar| bar.blocks).max().unwrap_or(0).max(1);
    let step = round_step(most);
    let room = WIDTH - LEFT - MARGIN - 50;
    let place = |blocks: u32| LEFT + (u64::from(blocks) * room as u64 / u64::from(most)) as usize;
    let _ = writeln!(
        text,
        "<text class=\"e n\" x=\"{}\" y=\"{}\">erasures</text>",
        LEFT - 10,
        TOP - 10,
    );
    for blocks in (0..=most / step).map(|index| index * step) {
        let x = place(blocks);
        let _ = writeln!(
            text,
            "<line class=\"g\" x1=\"{x}\" x2=\"{x}\" y1=\"{TOP}\" y2=\"{end}\"/>\
             <text class=\"m n\" x=\"{x}\" y=\"{}\">{blocks}</text>",
            end + 17,
        );
    }
    for (index, bar) in ranges.iter().enumerate() {
        let y = TOP + index * ROW + 3;
        let width = place(bar.blocks) - LEFT;
        let width = if bar.blocks > 0 { width.max(1) } else { 0 };
        let _ = writeln!(
            text,
            "<text class=\"e n\" x=\"{}\" y=\"{}\">{}</text><rect class=\"w\" x=\"{LEFT}\" y=\"{y}\" width=\"{width}\" \
             height=\"14\"/><text x=\"{}\" y=\"{}\">{}</text>",
            LEFT - 10,
            y + 12,
            range(bar),
            LEFT + width + 6,
            y + 12,
            bar.blocks,
        );
    }
    let _ = writeln!(
        text,
        "<line class=\"a\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{TOP}\" y2=\"{end}\"/>\
         <text class=\"n\" x=\"{LEFT}\" y=\"{}\">good erase blocks</text>",
        end + 36,
    );
}

/// The squares, with the number of the first block of some rows.
fn draw_map(
    text: &mut String,
    squares: &[Square],
    shades: usize,
    per_square: usize,
    (top, columns, side): (usize, usize, usize),
) {
    // A number needs the height of its letters.
    let labelled = 16usize.div_ceil(side.max(1));
    for (row, cells) in squares.chunks(columns).enumerate() {
        let y = top + row * side;
        if row % labelled == 0 {
            let _ = writeln!(
                text,
                "<text class=\"e n\" x=\"{}\" y=\"{}\">{}</text>",
                LEFT - 10,
                y + 11,
                row * columns * per_square,
            );
        }
        for (column, square) in cells.iter().enumerate() {
            let (x, side) = (LEFT + column * side, side - 1);
            let _ = writeln!(
                text,
                "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\"/>",
                square.class(shades),
            );
        }
    }
}

/// The erasures of each colour.
fn draw_legend(text: &mut String, shades: &[Bar], has_bad: bool, y: usize) {
    let mut x = LEFT;
    let mut entry = |class: &str, name: &str| {
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            x + 20,
            y + 12,
        );
        x += 34 + name.len() * 8;
    };
    for (shade, bar) in shades.iter().enumerate() {
        entry(&Square::Worn(shade).class(shades.len()), &range(bar));
    }
    if has_bad {
        entry(&Square::Bad.class(shades.len()), "bad");
    }
    let _ =
        writeln!(text, "<text class=\"e n\" x=\"{}\" y=\"{}\">erasures</text>", LEFT - 10, y + 12);
}

/// The square of some blocks.
fn square(blocks: &[BlockDetail], shades: &[Bar]) -> Square {
    if blocks.iter().any(|block| block.usage == BlockUse::Bad) {
        return Square::Bad;
    }
    let most = blocks.iter().map(|block| block.erases).max().unwrap_or(0);
    let shade = shades.iter().position(|shade| most <= shade.erases_max);
    Square::Worn(shade.unwrap_or(shades.len().saturating_sub(1)))
}

/// Squares in a row: a power of two, so that the first numbers of rows are round, and about twice
/// as many as rows.
fn columns(squares: usize) -> usize {
    let mut columns = 16;
    while columns < COLUMNS && columns * columns / 2 < squares {
        columns *= 2;
    }
    columns
}

/// The smallest of 1, 2 and 5 times a power of ten that reaches `most` in at most five steps.
fn round_step(most: u32) -> u32 {
    let mut power = 1u32;
    loop {
        for step in [1, 2, 5] {
            match power.checked_mul(step) {
                Some(step) if step.saturating_mul(5) >= most => return step,
                Some(_) => {}
                None => return most,
            }
        }
        power = power.saturating_mul(10);
    }
}

fn sheet() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (shade, (day, night)) in SHADES.iter().enumerate() {
        let _ = write!(light, ".w{shade}{{fill:{day}}}");
        let _ = write!(dark, ".w{shade}{{fill:{night}}}");
    }
    format!(
        "<style>\n.bg{{fill:#ffffff}}text{{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1a202c}}\
         .h{{font-size:17px;font-weight:600}}.s{{font-size:14px;font-weight:600}}.n{{fill:#4a5568}}\
         .e{{text-anchor:end;font-variant-numeric:tabular-nums}}.m{{text-anchor:middle}}\
         .g{{stroke:#e2e8f0}}.a{{stroke:#4a5568}}.w{{fill:#2b6cb0}}.b{{fill:#c53030}}{light}\n\
         @media (prefers-color-scheme:dark){{.bg{{fill:#161a21}}text{{fill:#edf2f7}}.n{{fill:#a0aec0}}\
         .g{{stroke:#2a303b}}.a{{stroke:#a0aec0}}.w{{fill:#63a4e8}}.b{{fill:#fc8181}}{dark}}}\n</style>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::histogram::BARS_MAX;
    use super::*;
    use crate::commands::flash::survey::tests::example;

    fn drawn(blocks: u32, title: &str, about: &str) -> String {
        let survey = example(blocks);
        let sorted = survey.erases_sorted();
        picture(&bars(&sorted, BARS_MAX), &sorted, &survey.blocks, title, about)
    }

    #[test]
    fn the_picture_is_self_contained() {
        let text = drawn(90, "a<b>.bin", "erasures & blocks");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;.bin") && text.contains("erasures &amp; blocks"));
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        let opened =
            text.matches('<').count() - text.matches("</").count() - text.matches("/>").count();
        assert_eq!(opened, text.matches("</").count());
    }

    #[test]
    fn both_axes_are_named_and_every_block_has_its_square() {
        let text = drawn(90, "nand.bin", "");
        assert!(text.contains(">erasures</text>") && text.contains(">good erase blocks</text>"));
        assert!(text.contains("one square is one erase block"));
        // Each third block is bad; one more square of each colour is in the legend.
        assert_eq!(text.matches("<rect class=\"b\"").count(), 30 + 1);
        let worn: usize = (0..SHADES.len())
            .map(|shade| text.matches(&format!("<rect class=\"w{shade}\"")).count())
            .sum();
        assert_eq!(worn, 60 + SHADES.len());
        assert!(text.contains(">32</text>"), "the first block of a later row");
    }

    #[test]
    fn a_square_has_the_shade_of_its_most_worn_block() {
        let survey = example(90);
        let shades = bars(&survey.erases_sorted(), SHADES.len() as u32);
        // Blocks 1 and 2 have the fewest erasures, 88 and 89 the most.
        assert_eq!(square(&survey.blocks[1..2], &shades), Square::Worn(0));
        assert_eq!(square(&survey.blocks[88..90], &shades), Square::Worn(shades.len() - 1));
        let mixed = [survey.blocks[1], survey.blocks[89]];
        assert_eq!(square(&mixed, &shades), Square::Worn(shades.len() - 1));
        assert_eq!(square(&survey.blocks[2..4], &shades), Square::Bad);
    }

    #[test]
    fn parts_of_every_size_fit() {
        let example = example(90);
        for count in [0, 1, 1024, 8192, 100_000] {
            let block = |index: usize| example.blocks[index % 90];
            let blocks: Vec<BlockDetail> = (0..count).map(block).collect();
            let text = picture(&[], &[], &blocks, "part", "");
            let squares = text.matches("<rect").count();
            assert!(squares <= SQUARES + 2, "{count}: {squares}");
        }
        for most in [1, 5, 6, 99, 1023, u32::MAX] {
            let step = round_step(most);
            assert!(step > 0 && u64::from(most.div_ceil(step)) <= 6, "{most}: {step}");
        }
    }
}
