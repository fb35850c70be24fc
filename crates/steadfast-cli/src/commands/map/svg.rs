//! The map as a picture of its own: no scripts, no fonts or styles from elsewhere, light or dark as the reader's system is.
//!
//! A cell is drawn in the colour of what it mostly holds, as strongly as it is filled; neighbours that look the same are one
//! rectangle.

use std::fmt::Write;

use super::survey::{Cell, Survey, Use};
use crate::size;

/// Side of a cell, and the margin around the picture.
const SIDE: usize = 7;
const MARGIN: usize = 20;
/// Cells of a row at most.
const COLUMNS: usize = 128;
/// Height of a row of the legend, and where the map begins.
const ROW: usize = 22;
const TOP: usize = 66;
/// Steps of strength.
const STEPS: f64 = 5.0;

/// Class and colours (light, dark) of a use: apart in lightness as well as in hue.
fn style(what: Use) -> (&'static str, &'static str, &'static str) {
    match what {
        Use::Data => ("d", "#2b6cb0", "#63a4e8"),
        Use::Metadata => ("m", "#8b3fa8", "#c58be0"),
        Use::Snapshots => ("s", "#0f8b8d", "#4fd1c5"),
        Use::AlmostFree => ("a", "#d99a00", "#f6c445"),
        Use::Reserved => ("r", "#c53030", "#fc8181"),
        Use::Log => ("l", "#2f855a", "#68d391"),
        Use::Fixed => ("x", "#2d3748", "#e2e8f0"),
        Use::Free => ("f", "#e8ebf0", "#2a303b"),
    }
}

/// The whole file.
pub fn picture(survey: &Survey, title: &str) -> String {
    let columns = COLUMNS.min(survey.cells.len().max(1));
    let rows = survey.cells.len().div_ceil(columns);
    let width = (columns * SIDE).max(620) + 2 * MARGIN;
    let legend_top = TOP + rows * SIDE + 30;
    let height = legend_top + (Use::COUNT + 1) * ROW + MARGIN;
    let title = escape(title);
    let total = survey.total();
    let all = total.total();
    let bytes = |blocks: u64| blocks.saturating_mul(survey.block_size);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Space of {title}\">\n<title>Space of {title}</title>\n{}\
         <rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"h\" x=\"{MARGIN}\" y=\"34\">{title}</text>\n\
         <text class=\"n\" x=\"{MARGIN}\" y=\"54\">{}, one square is {}</text>\n",
        sheet(),
        size::human(bytes(all)),
        size::human(bytes(survey.cell_blocks)),
    );
    for (row, cells) in survey.cells.chunks(columns).enumerate() {
        draw_row(&mut text, cells, TOP + row * SIDE);
    }
    for (index, what) in Use::ALL.into_iter().enumerate() {
        let y = legend_top + index * ROW;
        let (class, ..) = style(what);
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"2\"/>"
        );
        legend_row(&mut text, y, what.name(), bytes(total.of(what)), share(total.of(what), all));
    }
    legend_row(&mut text, legend_top + Use::COUNT * ROW, "all", bytes(all), share(all, all));
    text.push_str("</svg>\n");
    text
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64 * 100.0
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

fn sheet() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for what in Use::ALL {
        let (class, day, night) = style(what);
        let _ = write!(light, ".{class}{{fill:{day}}}");
        let _ = write!(dark, ".{class}{{fill:{night}}}");
    }
    format!(
        "<style>\n.bg{{fill:#ffffff}}text{{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1a202c}}\
         .h{{font-size:17px;font-weight:600}}.n{{fill:#4a5568}}.e{{text-anchor:end;font-variant-numeric:tabular-nums}}\n\
         {light}\n@media (prefers-color-scheme:dark){{.bg{{fill:#161a21}}text{{fill:#edf2f7}}.n{{fill:#a0aec0}}{dark}}}\n\
         </style>\n"
    )
}

/// What a cell looks like: use and strength, 1 to [`STEPS`].
fn look(cell: &Cell) -> (Use, u8) {
    let what = cell.shows();
    let strength = if what == Use::Free { STEPS } else { (cell.fill() * STEPS).ceil().clamp(1.0, STEPS) };
    (what, strength as u8)
}

fn draw_row(text: &mut String, cells: &[Cell], y: usize) {
    let mut at = 0;
    while let Some(cell) = cells.get(at) {
        let same = cells[at..].iter().take_while(|other| look(other) == look(cell)).count();
        let (what, strength) = look(cell);
        let (x, width, side) = (MARGIN + at * SIDE, same * SIDE - 1, SIDE - 1);
        let mut rect = |class: &str, opacity: &str| {
            let _ = writeln!(
                text,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{side}\"{opacity}/>"
            );
        };
        if f64::from(strength) < STEPS {
            // What is left of the cell is free.
            rect(style(Use::Free).0, "");
            let opacity = 0.25 + 0.75 * f64::from(strength) / STEPS;
            rect(style(what).0, &format!(" opacity=\"{opacity:.2}\""));
        } else {
            rect(style(what).0, "");
        }
        at += same;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_self_contained_and_escaped() {
        let mut cells = vec![Cell([0, 0, 0, 0, 0, 0, 0, 16]); 300];
        cells[0] = Cell([0, 0, 0, 0, 0, 10, 6, 0]);
        cells[1] = Cell([1, 0, 0, 0, 0, 0, 0, 15]);
        let survey = Survey { block_size: 4096, cell_blocks: 16, cells };
        let text = picture(&survey, "a<b>&\"c\".img");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;&amp;&quot;c&quot;.img") && !text.contains("a<b"));
        assert!(text.contains("prefers-color-scheme:dark"));
        for outside in ["href", "url(", "<script", "@import"] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        assert!(text.contains(&format!("{} bytes", 300 * 16 * 4096)));
        // Each element is closed where it begins, or named at its end.
        let opened = text.matches('<').count() - text.matches("</").count() - text.matches("/>").count();
        assert_eq!(opened, text.matches("</").count());
    }
}
