//! A heat map: a number in each cell, coloured by its distance from "the same".

use super::svg::{Anchor, Drawing};
use super::{text, theme};

/// A cell.
#[derive(Debug, Clone)]
pub struct HeatCell {
    /// How many times better (more than 1) or worse.
    pub ratio: f64,
    /// Whether that is more than noise. A cell within the noise has the colour of "the same",
    /// whatever its number.
    pub clear: bool,
    /// Shown on hover.
    pub tooltip: String,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct HeatPanel {
    /// Text above the cells.
    pub title: String,
    /// Text below the title.
    pub subtitle: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The meaning of the columns.
    pub columns_are: String,
    /// Names of the rows with their cells; `None` for a cell that was not measured.
    pub rows: Vec<(String, Vec<Option<HeatCell>>)>,
    /// Minimum width in pixels.
    pub width: f64,
}

const TOP: f64 = 62.0;
const CELL_HEIGHT: f64 = 20.0;
const CELL_WIDTH: (f64, f64) = (25.0, 56.0);

/// A ratio in about three characters.
fn short(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "?".to_owned(),
        ratio if ratio >= 9.95 => format!("{:.0}", ratio.min(9999.0)),
        ratio if ratio >= 0.095 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}").trim_start_matches('0').to_owned(),
    }
}

impl HeatPanel {
    /// Draws the panel.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let left = self
            .rows
            .iter()
            .map(|(name, _)| text::width(name, 11.0))
            .fold(20.0, f64::max)
            .min(120.0)
            + 8.0;
        let columns = self.columns.len().max(1) as f64;
        let cell = ((self.width - left) / columns).clamp(CELL_WIDTH.0, CELL_WIDTH.1);
        let width = self.width.max(left + cell * columns);
        let mut drawing = Drawing::new(width, TOP + self.rows.len() as f64 * CELL_HEIGHT + 24.0);
        let title = text::fit(&self.title, 14.0, width - 4.0);
        drawing.text_with_tooltip("name", (2.0, 16.0), Anchor::Start, &title, &self.title);
        let subtitle = text::fit(&self.subtitle, 11.0, width - 4.0);
        drawing.text_with_tooltip("", (2.0, 33.0), Anchor::Start, &subtitle, &self.subtitle);
        let widest = self.columns.iter().map(|name| text::width(name, 11.0)).fold(0.0, f64::max);
        let every = ((widest + 6.0) / cell).ceil().max(1.0) as usize;
        for (index, name) in self.columns.iter().enumerate().step_by(every) {
            let middle = left + (index as f64 + 0.5) * cell;
            drawing.text("", (middle, TOP - 6.0), Anchor::Middle, name);
        }
        for (row, (name, cells)) in self.rows.iter().enumerate() {
            let y = TOP + row as f64 * CELL_HEIGHT;
            let shown = text::fit(name, 11.0, left - 8.0);
            drawing.text_with_tooltip("", (left - 6.0, y + 13.8), Anchor::End, &shown, name);
            for (column, content) in cells.iter().enumerate().take(self.columns.len()) {
                let x = left + column as f64 * cell;
                let Some(content) = content else { continue };
                let step = if content.clear { theme::heat(content.ratio) } else { theme::HEAT / 2 };
                let size = (cell - 1.0, CELL_HEIGHT - 1.0);
                drawing.rect(&format!("h{step}"), (x, y), size, 1.0, &content.tooltip);
                let number = short(content.ratio);
                drawing.text(
                    &format!("t{step}"),
                    (x + size.0 / 2.0, y + 13.2),
                    Anchor::Middle,
                    &number,
                );
            }
        }
        let bottom = TOP + self.rows.len() as f64 * CELL_HEIGHT;
        let middle = left + cell * columns / 2.0;
        drawing.text("", (middle, bottom + 16.0), Anchor::Middle, &self.columns_are);
        drawing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_short() {
        for (ratio, text) in [
            (1.0, "1.0"),
            (0.3, "0.3"),
            (0.04, ".04"),
            (12.4, "12"),
            (9.96, "10"),
            (1e9, "9999"),
            (f64::NAN, "?"),
            (0.0, ".00"),
        ] {
            assert_eq!(short(ratio), text);
        }
    }
}
