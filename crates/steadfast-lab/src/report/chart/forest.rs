//! Ratios to one file system: each test has one mark for each other file system, with the interval
//! from its samples.

use super::scale::{Kind, Scale};
use super::svg::{Anchor, Drawing};
use super::text;
use super::theme::{Hue, SERIES};

/// A mark: a ratio with its interval.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its index in [`Panel::series`].
    pub series: usize,
    /// How many times better (more than 1) or worse.
    pub ratio: f64,
    /// The interval in which the true ratio lies.
    pub interval: Option<(f64, f64)>,
    /// Whether the difference is more than noise. The mark is then filled, otherwise hollow.
    pub clear: bool,
    /// Shown on hover.
    pub tooltip: String,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Text above the rows.
    pub title: String,
    /// The name at 1.
    pub baseline: String,
    /// Names and colours of the others.
    pub series: Vec<(String, Hue)>,
    /// Names of the tests with their marks.
    pub rows: Vec<(String, Vec<Mark>)>,
    /// Relative noise of the machine: the grey band around 1, as a share (0.05 is 5 %).
    pub noise: f64,
    /// Width in pixels.
    pub width: f64,
}

const LEGEND_ROW: f64 = 16.0;
/// Height of a mark, and of a mark with its name beside it.
const MARK: f64 = 9.0;
const NAMED_MARK: f64 = 11.5;
/// Height of a test's name. It is above the marks, so the scale has the whole width even on a
/// phone.
const NAME: f64 = 15.0;

/// A factor as text.
fn factor(value: f64) -> String {
    // Marks are round; this removes errors of binary fractions.
    format!("{}×", (value * 1e6).round() / 1e6)
}

impl Panel {
    /// Draws the panel.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let legend = self.legend();
        let legend_rows = legend.last().map_or(0, |(row, ..)| row + 1);
        let top = 30.0 + legend_rows as f64 * LEGEND_ROW + 22.0;
        let (left, right) = (6.0, self.width - 6.0);
        let ratios = self.rows.iter().flat_map(|(_, marks)| {
            marks.iter().flat_map(|mark| {
                let (low, high) = mark.interval.unwrap_or((mark.ratio, mark.ratio));
                [mark.ratio, low, high]
            })
        });
        let within = ratios.filter(|ratio| ratio.is_finite() && *ratio > 1e-4 && *ratio < 1e4);
        let within: Vec<f64> = within.chain([0.5, 2.0]).collect();
        let (least, most) = within
            .iter()
            .fold((1.0f64, 1.0f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
        // Powers of two, if there are few of them.
        let kind = if most / least > 100.0 { Kind::Decades } else { Kind::Doublings };
        let x = Scale::around(kind, within).over(left + 6.0, right - 6.0);
        let heights: Vec<f64> = self
            .rows
            .iter()
            .map(|(_, marks)| marks.len() as f64 * self.mark() + NAME + 6.0)
            .collect();
        let bottom = top + heights.iter().sum::<f64>();

        let mut drawing = Drawing::new(self.width, bottom + 40.0);
        let title = text::fit(&self.title, 14.0, self.width - 4.0);
        drawing.text_with_tooltip("name", (2.0, 16.0), Anchor::Start, &title, &self.title);
        for (row, at, (name, hue)) in &legend {
            let y = 32.0 + *row as f64 * LEGEND_ROW;
            drawing.dot(&hue.fill(), (at + 4.0, y), 4.0, "");
            let shown = text::fit(name, 11.0, self.width - at - 14.0);
            drawing.text_with_tooltip("value", (at + 12.0, y + 3.8), Anchor::Start, &shown, name);
        }
        let noise = self.noise.clamp(0.0, 0.9);
        if let (Some(from), Some(to)) = (x.place(1.0 / (1.0 + noise)), x.place(1.0 + noise)) {
            drawing.rect(
                "noise",
                (from, top),
                (to - from, bottom - top),
                0.0,
                "noise of this machine",
            );
        }
        for mark in x.marks(38.0) {
            if let Some(place) = x.place(mark) {
                drawing.line("grid", (place, top), (place, bottom));
                drawing.text("", (place, bottom + 15.0), Anchor::Middle, &factor(mark));
            }
        }
        if let Some(one) = x.place(1.0) {
            drawing.line("one", (one, top - 4.0), (one, bottom));
            let name = text::fit(&self.baseline, 11.0, (one - left).min(right - one) * 2.0);
            drawing.text_with_tooltip(
                "strong",
                (one, top - 9.0),
                Anchor::Middle,
                &name,
                &self.baseline,
            );
        }
        drawing.text("", (left, bottom + 32.0), Anchor::Start, "worse");
        drawing.text("", (right, bottom + 32.0), Anchor::End, "better");
        let mut y = top;
        for ((name, marks), height) in self.rows.iter().zip(heights) {
            self.row(&mut drawing, &x, (left, right), (y, height), name, marks);
            y += height;
        }
        drawing
    }

    fn row(
        &self,
        drawing: &mut Drawing,
        x: &Scale,
        (left, right): (f64, f64),
        (y, height): (f64, f64),
        name: &str,
        marks: &[Mark],
    ) {
        drawing.line("grid", (2.0, y + height), (right, y + height));
        let shown = text::fit(name, 11.0, right - left);
        drawing.text_with_tooltip("value", (2.0, y + 13.0), Anchor::Start, &shown, name);
        for (index, mark) in marks.iter().enumerate() {
            let Some(hue) = self.series.get(mark.series).map(|(_, hue)| *hue) else { continue };
            let Some(place) = x.place(mark.ratio) else { continue };
            let middle = y + NAME + 2.0 + (index as f64 + 0.5) * self.mark();
            if let Some((low, high)) =
                mark.interval.and_then(|(low, high)| x.place(low).zip(x.place(high)))
            {
                drawing.line(&format!("whisker {}", hue.line()), (low, middle), (high, middle));
            }
            let class = if mark.clear {
                hue.fill()
            } else {
                format!("hollow {}", hue.line().replace(" dash", ""))
            };
            drawing.dot(&class, (place, middle), 3.4, &mark.tooltip);
            if self.is_named() {
                let ends = mark.interval.and_then(|(low, high)| x.place(low).zip(x.place(high)));
                let (low, high) = ends.unwrap_or((place, place));
                let name = self.series.get(mark.series).map_or("", |(name, _)| name);
                let fits = high.max(place) + 8.0 + text::width(name, 9.5) < right;
                let (at, anchor) = if fits {
                    (high.max(place) + 6.0, Anchor::Start)
                } else {
                    (low.min(place) - 6.0, Anchor::End)
                };
                let shown = text::fit(name, 9.5, self.width / 2.0 - 10.0);
                drawing.text_with_tooltip("small", (at, middle + 3.2), anchor, &shown, name);
            }
        }
    }

    /// Whether marks have their names beside them, because there are more series than colours.
    const fn is_named(&self) -> bool {
        self.series.len() > SERIES
    }

    /// Height of a mark.
    const fn mark(&self) -> f64 {
        if self.is_named() { NAMED_MARK } else { MARK }
    }

    /// Row and horizontal place of each entry of the legend.
    fn legend(&self) -> Vec<(usize, f64, &(String, Hue))> {
        let (mut row, mut at) = (0, 2.0);
        let mut entries = Vec::new();
        for entry in self.series.iter().filter(|_| !self.is_named()) {
            let width = text::width(&entry.0, 11.0).min(self.width - 20.0) + 26.0;
            if at > 2.0 && at + width > self.width {
                (row, at) = (row + 1, 2.0);
            }
            entries.push((row, at, entry));
            at += width;
        }
        entries
    }
}
