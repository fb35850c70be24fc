//! Ratios to one file system: each test has one mark for each other file system, with the interval
//! from its samples.

use super::scale::{Scale, ScaleKind};
use super::svg::{Anchor, Drawing};
use super::text;
use super::theme::{Hue, SERIES};

/// A mark: a ratio with its interval.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its index in [`ForestPanel::series`].
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
pub struct ForestPanel {
    /// Text above the rows.
    pub title: String,
    /// The name at 1.
    pub baseline: String,
    /// Names and colours of the others.
    pub series: Vec<(String, Hue)>,
    /// Names of the tests with their marks.
    pub rows: Vec<(String, Vec<Mark>)>,
    /// The least and the largest ratio on the axis, from [`range`]. Panels that continue each
    /// other have the same.
    pub range: (f64, f64),
    /// Relative noise of the machine: the grey band around 1, as a share (0.05 is 5 %). The band
    /// ends with the axis.
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

/// The least and the largest ratio of some rows, intervals included, and at least ½ to 2. Ratios
/// that are not finite or absurd do not count.
#[must_use]
pub fn range(rows: &[(String, Vec<Mark>)]) -> (f64, f64) {
    let marks = rows.iter().flat_map(|(_, marks)| marks);
    let ratios = marks.flat_map(|mark| {
        let (low, high) = mark.interval.unwrap_or((mark.ratio, mark.ratio));
        [mark.ratio, low, high]
    });
    let within = ratios.filter(|ratio| ratio.is_finite() && *ratio > 1e-4 && *ratio < 1e4);
    within.fold((0.5, 2.0), |(least, most), ratio| (ratio.min(least), ratio.max(most)))
}

/// A factor as text.
fn factor(value: f64) -> String {
    // Marks are round; this removes errors of binary fractions.
    format!("{}×", (value * 1e6).round() / 1e6)
}

impl ForestPanel {
    /// Draws the panel.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let legend = self.legend();
        let legend_rows = legend.last().map_or(0, |(row, ..)| row + 1);
        let top = 30.0 + legend_rows as f64 * LEGEND_ROW + 22.0;
        let (left, right) = (6.0, self.width - 6.0);
        let (least, most) = self.range;
        // Powers of two, if there are few of them.
        let kind = if most / least > 100.0 { ScaleKind::Decades } else { ScaleKind::Doublings };
        let x = Scale::around(kind, [least, most]).over(left + 6.0, right - 6.0);
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
        for mark in x.marks(38.0) {
            if let Some(place) = x.place(mark) {
                drawing.text("", (place, bottom + 15.0), Anchor::Middle, &factor(mark));
            }
        }
        if let Some(one) = x.place(1.0) {
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
            self.ground(&mut drawing, &x, (left, right), (y + NAME + 2.0, y + height));
            self.row(&mut drawing, &x, (left, right), (y, height), name, marks);
            y += height;
        }
        drawing
    }

    /// The band of noise and the vertical lines behind the marks of a row. They leave out the row's
    /// name above the marks, which they would strike through.
    fn ground(
        &self,
        drawing: &mut Drawing,
        x: &Scale,
        (left, right): (f64, f64),
        (top, bottom): (f64, f64),
    ) {
        let noise = if self.noise.is_finite() { self.noise.max(0.0) } else { 0.0 };
        if let (Some(from), Some(to)) = (x.place(1.0 / (1.0 + noise)), x.place(1.0 + noise)) {
            let (from, to) = (from.max(left), to.min(right));
            let size = (to - from, bottom - top);
            drawing.rect("noise", (from, top), size, 0.0, "noise of this machine");
        }
        for place in x.marks(38.0).into_iter().filter_map(|mark| x.place(mark)) {
            drawing.line("grid", (place, top), (place, bottom));
        }
        if let Some(one) = x.place(1.0) {
            drawing.line("one", (one, top), (one, bottom));
        }
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
                drawing.text_with_tooltip("small clear", (at, middle + 3.2), anchor, &shown, name);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::PANEL_WIDTH;

    fn panel(noise: f64) -> ForestPanel {
        let mark = |ratio| Mark {
            series: 0,
            ratio,
            interval: Some((ratio * 0.9, ratio * 1.1)),
            clear: true,
            tooltip: String::new(),
        };
        let rows = vec![
            ("a name that reaches across the line of one".to_owned(), vec![mark(0.8)]),
            ("operations".to_owned(), vec![mark(2.5)]),
        ];
        ForestPanel {
            title: "b1".into(),
            baseline: "ext4".into(),
            series: vec![("steadfast".into(), Hue::Series(0))],
            range: range(&rows),
            rows,
            noise,
            width: PANEL_WIDTH,
        }
    }

    /// Attributes of the elements of a class.
    fn elements(noise: f64, class: &str) -> Vec<std::collections::HashMap<String, String>> {
        let text = panel(noise).draw().inline("");
        let document = resvg::usvg::roxmltree::Document::parse(&text).unwrap();
        let nodes = document.descendants().filter(|node| node.attribute("class") == Some(class));
        nodes
            .map(|node| {
                let all = node.attributes();
                all.map(|all| (all.name().to_owned(), all.value().to_owned())).collect()
            })
            .collect()
    }

    fn number(element: &std::collections::HashMap<String, String>, name: &str) -> f64 {
        element[name].parse().unwrap()
    }

    #[test]
    fn no_vertical_line_strikes_a_name_through() {
        let names: Vec<f64> = elements(0.05, "value")
            .iter()
            .filter(|element| number(element, "x") < 3.0)
            .map(|element| number(element, "y"))
            .collect();
        assert_eq!(names.len(), 2, "the names of two tests");
        let lines = [elements(0.05, "grid"), elements(0.05, "one")].concat();
        let upright = lines.iter().filter(|line| line["x1"] == line["x2"]);
        let mut count = 0;
        for line in upright {
            let (top, bottom) = (number(line, "y1"), number(line, "y2"));
            for base in &names {
                // Letters reach from 9 above the base line to 3 below it.
                assert!(bottom <= base - 9.0 || top >= base + 3.0, "{line:?} through {base}");
            }
            count += 1;
        }
        assert!(count >= 6, "lines at ½, 1 and 2 in each row: {count}");
    }

    #[test]
    fn names_beside_marks_interrupt_the_lines_below_them() {
        let mut panel = panel(0.05);
        panel.series = vec![("steadfast".into(), Hue::Series(0)); SERIES + 1];
        let drawn = panel.draw();
        assert_eq!(drawn.inline("").matches("<text class=\"small clear\"").count(), 2);
        let file = drawn.file("", crate::report::chart::theme::Use::Raster);
        assert!(file.contains(".clear{paint-order:stroke;stroke:#"), "in the colour of the card");
    }

    #[test]
    fn the_band_of_noise_is_as_wide_as_the_noise() {
        let width = |noise| {
            let bands = elements(noise, "noise");
            assert_eq!(bands.len(), 2, "one in each row");
            let (x, width) = (number(&bands[0], "x"), number(&bands[0], "width"));
            assert!(x >= 0.0 && x + width <= PANEL_WIDTH, "{x} {width}");
            width
        };
        assert!(width(0.05) > 5.0 && width(0.05) < width(0.5));
        assert!(width(0.9) + 20.0 < width(1.9), "90 % is no limit");
        assert!(width(6.37) > PANEL_WIDTH - 30.0, "all of this is noise");
        assert!((width(6.37) - width(1e300)).abs() < 1e-6 && width(f64::NAN) < 1.0);
    }
}
