//! A grid as a picture file: no scripts, no external fonts or styles, light or dark as the reader's
//! system is set.
//!
//! A cell has the colour of its kind, and the strength of the colour shows how full it is.
//! Neighbours that look the same are one rectangle. The number of the first block stands beside
//! every fourth row.

use std::fmt::Write;

use super::{Cell, Grid, share};
use crate::size;

/// Side of a cell, and the margin around the picture.
const SIDE: usize = 7;
const MARGIN: usize = 20;
/// Maximum number of cells in a row.
const COLUMNS: usize = 128;
/// Height of a row of the legend, and where the map begins.
const ROW: usize = 22;
const TOP: usize = 66;
/// Width of the numbers beside the rows: room for twelve digits.
const GUTTER: usize = 76;
/// Rows from one number to the next: a number is as high as two rows.
const NUMBERED: usize = 4;
/// Number of colour strengths.
const STEPS: f64 = 5.0;

/// The whole file.
pub fn picture(grid: &Grid, title: &str) -> String {
    let columns = COLUMNS.min(grid.cells.len().max(1));
    let rows = grid.cells.len().div_ceil(columns);
    let width = (GUTTER + columns * SIDE).max(620) + 2 * MARGIN;
    let legend_top = TOP + rows * SIDE + 30;
    let height = legend_top + (grid.kinds.len() + 1) * ROW + MARGIN;
    let title = escape(title);
    let all = grid.total();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Space of {title}\">\n<title>Space of {title}</title>\n{}\
         <rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"h\" x=\"{MARGIN}\" y=\"34\">{title}</text>\n\
         <text class=\"n\" x=\"{MARGIN}\" y=\"54\">{}, one square is {}; beside a row: its first block</text>\n",
        sheet(grid),
        size::human(all),
        size::human(grid.cell_bytes),
    );
    for (row, cells) in grid.cells.chunks(columns).enumerate() {
        let y = TOP + row * SIDE;
        if row % NUMBERED == 0 {
            let block = (row * columns) as u64 * grid.cell_blocks;
            let (x, base) = (MARGIN + GUTTER - 6, y + SIDE);
            let _ = writeln!(text, "<text class=\"r\" x=\"{x}\" y=\"{base}\">{block}</text>");
        }
        draw_row(&mut text, grid, cells, y);
    }
    for (index, (kind, bytes)) in grid.legend().enumerate() {
        let y = legend_top + index * ROW;
        let class = kind.class;
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"2\"/>"
        );
        legend_row(&mut text, y, kind.name, bytes, share(bytes, all));
    }
    legend_row(&mut text, legend_top + grid.kinds.len() * ROW, "all", all, share(all, all));
    text.push_str("</svg>\n");
    text
}

fn legend_row(text: &mut String, y: usize, name: &str, bytes: u64, share: f64) {
    let y = y + 12;
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{y}\">{name}</text><text class=\"e\" x=\"310\" y=\"{y}\">{}</text>\
         <text class=\"e n\" x=\"510\" y=\"{y}\">{bytes} bytes</text><text class=\"e\" x=\"600\" y=\"{y}\">{share:.2} %</text>",
        MARGIN + 24,
        size::human(bytes),
    );
}

fn sheet(grid: &Grid) -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for kind in grid.kinds {
        let _ = write!(light, ".{}{{fill:{}}}", kind.class, kind.light);
        let _ = write!(dark, ".{}{{fill:{}}}", kind.class, kind.dark);
    }
    format!(
        "<style>\n.bg{{fill:#ffffff}}text{{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1a202c}}\
         .h{{font-size:17px;font-weight:600}}.n{{fill:#4a5568}}.e,.r{{text-anchor:end;font-variant-numeric:tabular-nums}}.r{{font-size:10px;fill:#4a5568}}\n\
         {light}\n@media (prefers-color-scheme:dark){{.bg{{fill:#161a21}}text{{fill:#edf2f7}}.n,.r{{fill:#a0aec0}}{dark}}}\n\
         </style>\n"
    )
}

/// The appearance of a cell: kind and strength, 1 to [`STEPS`].
fn look(grid: &Grid, cell: &Cell) -> (usize, u8) {
    let ground = cell.kind == grid.ground;
    let strength = if ground { STEPS } else { (cell.fill * STEPS).ceil().clamp(1.0, STEPS) };
    (cell.kind, strength as u8)
}

fn draw_row(text: &mut String, grid: &Grid, cells: &[Cell], y: usize) {
    let class = |kind: usize| grid.kind(kind).map_or("", |kind| kind.class);
    let mut at = 0;
    while let Some(cell) = cells.get(at) {
        let same =
            cells[at..].iter().take_while(|other| look(grid, other) == look(grid, cell)).count();
        let (kind, strength) = look(grid, cell);
        let (x, width, side) = (MARGIN + GUTTER + at * SIDE, same * SIDE - 1, SIDE - 1);
        let mut rect = |class: &str, opacity: &str| {
            let _ = writeln!(
                text,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{side}\"{opacity}/>"
            );
        };
        if f64::from(strength) < STEPS {
            rect(class(grid.ground), "");
            let opacity = 0.25 + 0.75 * f64::from(strength) / STEPS;
            rect(class(kind), &format!(" opacity=\"{opacity:.2}\""));
        } else {
            rect(class(kind), "");
        }
        at += same;
    }
}

/// Escapes text for use between tags and in attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_picture_is_self_contained_and_escaped() {
        let text = picture(&example(), "a<b>&\"c\".img");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;&amp;&quot;c&quot;.img") && !text.contains("a<b"));
        assert!(text.contains("prefers-color-scheme:dark"));
        for outside in ["href", "url(", "<script", "@import"] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        assert!(text.contains(&format!("{} bytes", 100 * 65_536)));
        // One row of 100 squares, of which the first begins with block 0.
        assert_eq!(text.matches("class=\"r\"").count(), 1);
        // Each element is closed where it begins, or has an end tag.
        let opened =
            text.matches('<').count() - text.matches("</").count() - text.matches("/>").count();
        assert_eq!(opened, text.matches("</").count());
    }

    #[test]
    fn every_fourth_row_has_the_number_of_its_first_block() {
        let grid = Grid { cells: vec![Cell { kind: 1, fill: 1.0 }; 9 * COLUMNS + 1], ..example() };
        let text = picture(&grid, "rows");
        let numbers: Vec<&str> = text
            .split("class=\"r\"")
            .skip(1)
            .filter_map(|rest| rest.split(['>', '<']).nth(1))
            .collect();
        assert_eq!(numbers, ["0", "8192", "16384"]);
    }
}
