//! Several panels side by side, as one picture with a title and a source.

use super::svg::{Anchor, Drawing};
use super::text;

const MARGIN: f64 = 20.0;
const GAP: f64 = 22.0;

/// Puts panels into rows of at most `columns`, below a title and above a line that names the source
/// of the figures.
#[must_use]
pub fn sheet(
    title: &str,
    subtitle: &str,
    panels: &[Drawing],
    columns: usize,
    source: &str,
) -> Drawing {
    let columns = columns.clamp(1, panels.len().max(1));
    let column = panels.iter().map(|panel| panel.width).fold(200.0, f64::max);
    let width = 2.0 * MARGIN + columns as f64 * column + (columns - 1) as f64 * GAP;
    let mut sheet = Drawing::new(width, 0.0);
    let room = width - 2.0 * MARGIN;
    // Bold text is a little wider than the measured text.
    sheet.text("head", (MARGIN, MARGIN + 16.0), Anchor::Start, &text::fit(title, 21.0, room));
    let mut y = MARGIN + 38.0;
    for line in text::wrap(subtitle, 13.0, room) {
        sheet.text("sub", (MARGIN, y), Anchor::Start, &text::fit(&line, 13.0, room));
        y += 17.0;
    }
    y += 3.0;
    for row in panels.chunks(columns) {
        for (index, panel) in row.iter().enumerate() {
            sheet.place((MARGIN + index as f64 * (column + GAP), y), panel);
        }
        y += row.iter().map(|panel| panel.height).fold(0.0, f64::max) + GAP;
    }
    sheet.text("", (MARGIN, y + 6.0), Anchor::Start, &text::fit(source, 11.0, room));
    sheet.height = y + MARGIN;
    sheet
}
