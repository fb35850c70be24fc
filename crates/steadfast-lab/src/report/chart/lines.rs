//! A panel of lines over two axes: curves of throughput, percentiles, CPU over time.

use super::labels;
use super::scale::{Scale, ScaleKind};
use super::svg::{Anchor, Drawing};
use super::text;
use super::theme::Hue;

/// An axis: its label, its scale, and the format of its marks.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// The scale.
    pub kind: ScaleKind,
    /// Values that it must contain in addition to those of the lines; the same in all panels that
    /// are to be compared.
    pub include: Vec<f64>,
    /// Formats the value at a mark.
    pub format: fn(f64) -> String,
}

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// Text at its end.
    pub label: String,
    /// Its colour.
    pub hue: Hue,
    /// Its points, ascending; a value that is not finite makes a gap.
    pub points: Vec<(f64, f64)>,
    /// Texts shown on hover: one per point, or none.
    pub tooltips: Vec<String>,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct LinePanel {
    /// Text above the plot.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// Whether points have dots (few measured values) or not (many samples).
    pub dots: bool,
    /// Width in pixels.
    pub width: f64,
}

const LABEL_SIZE: f64 = 10.5;
/// Minimum distance of two labels.
const APART: f64 = 11.5;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;
const PLOT_HEIGHT: f64 = 190.0;

impl LinePanel {
    /// Draws the panel.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let label_room =
            self.lines.iter().map(|line| text::width(&line.label, LABEL_SIZE)).fold(0.0, f64::max);
        let label_room = label_room.min(self.width * 0.3) + 16.0;
        let plot_height = PLOT_HEIGHT.max(self.lines.len() as f64 * APART);
        let y_values = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let y = Scale::around(self.y.kind, y_values.chain(self.y.include.iter().copied()))
            .over(TOP + plot_height, TOP);
        let y_marks: Vec<(f64, String)> =
            y.marks(26.0).into_iter().map(|mark| (mark, (self.y.format)(mark))).collect();
        let left =
            y_marks.iter().map(|(_, mark)| text::width(mark, 11.0)).fold(20.0, f64::max) + 10.0;
        let right = (self.width - label_room).max(left + 60.0);
        let x_values = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let x = Scale::around(self.x.kind, x_values.chain(self.x.include.iter().copied()))
            .over(left + 4.0, right - 4.0);

        let mut drawing = Drawing::new(self.width, TOP + plot_height + BOTTOM);
        let title = text::fit(&self.title, 14.0, self.width - 4.0);
        drawing.text_with_tooltip("name", (2.0, 16.0), Anchor::Start, &title, &self.title);
        drawing.text("", (2.0, 33.0), Anchor::Start, &self.y.label);
        for (mark, name) in &y_marks {
            if let Some(place) = y.place(*mark) {
                drawing.line("grid", (left, place), (right, place));
                drawing.text("", (left - 6.0, place + 3.8), Anchor::End, name);
            }
        }
        for value in y.between() {
            if let Some(place) = y.place(value) {
                drawing.line("axis", (left, place), (left + 3.0, place));
            }
        }
        let bottom = TOP + plot_height;
        drawing.line("axis", (left, bottom), (right, bottom));
        for mark in x.marks(44.0) {
            if let Some(place) = x.place(mark) {
                drawing.line("axis", (place, bottom), (place, bottom + 4.0));
                drawing.text("", (place, bottom + 16.0), Anchor::Middle, &(self.x.format)(mark));
            }
        }
        drawing.text(
            "",
            (f64::midpoint(left, right), bottom + 33.0),
            Anchor::Middle,
            &self.x.label,
        );

        if self.lines.iter().all(|line| line.points.is_empty()) {
            let middle = (f64::midpoint(left, right), TOP + plot_height / 2.0);
            drawing.text("", middle, Anchor::Middle, "nothing was measured");
            return drawing;
        }
        self.draw_lines(&mut drawing, &x, &y);
        self.draw_labels(&mut drawing, &x, &y, right, bottom);
        drawing
    }

    fn draw_lines(&self, drawing: &mut Drawing, x: &Scale, y: &Scale) {
        for line in &self.lines {
            let points: Vec<Option<(f64, f64)>> =
                line.points.iter().map(|point| x.place(point.0).zip(y.place(point.1))).collect();
            drawing.path(&format!("line {}", line.hue.line()), &points, &line.label);
            // A single point would be invisible as a line.
            if self.dots || points.len() < 2 {
                let class = line.hue.fill();
                for (index, place) in points.iter().enumerate() {
                    if let Some(place) = place {
                        let tooltip = line.tooltips.get(index).unwrap_or(&line.label);
                        drawing.dot(&class, *place, 2.6, tooltip);
                    }
                }
            }
        }
    }

    fn draw_labels(&self, drawing: &mut Drawing, x: &Scale, y: &Scale, right: f64, bottom: f64) {
        let ends: Vec<(&Line, (f64, f64))> = self
            .lines
            .iter()
            .filter_map(|line| {
                let end = line
                    .points
                    .iter()
                    .rev()
                    .find_map(|point| x.place(point.0).zip(y.place(point.1)))?;
                Some((line, end))
            })
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, end)| end.1).collect();
        let places = labels::spread(&wanted, APART, TOP, bottom);
        for ((line, end), place) in ends.into_iter().zip(places) {
            drawing.line("leader", (end.0 + 3.5, end.1), (right + 6.0, place));
            drawing.rect(&line.hue.fill(), (right + 6.0, place - 2.0), (4.0, 4.0), 1.0, "");
            let room = self.width - right - 13.0;
            let label = text::fit(&line.label, LABEL_SIZE, room);
            let at = (right + 13.0, place + 3.6);
            drawing.text_with_tooltip("value", at, Anchor::Start, &label, &line.label);
        }
    }
}
