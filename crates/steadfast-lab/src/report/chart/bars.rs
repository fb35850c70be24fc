//! A panel of bars from zero, each with its value and the spread of its samples.

use super::scale::{Scale, ScaleKind};
use super::svg::{Anchor, Drawing};
use super::text;
use super::theme::Hue;

/// A bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// Its colour.
    pub hue: Hue,
    /// Its length; `None` if it was not measured.
    pub value: Option<f64>,
    /// Least and largest sample.
    pub spread: Option<(f64, f64)>,
    /// Text at its end: the value with unit, or the reason why there is none.
    pub text: String,
    /// Whether it is better (or worse) than its counterpart by more than noise; shown as a triangle
    /// after the text.
    pub better: Option<bool>,
    /// Shown on hover.
    pub tooltip: String,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct BarPanel {
    /// Text above the bars.
    pub title: String,
    /// Text below the title: the measured quantity, and whether more or less is better.
    pub subtitle: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// Values that the axis must contain in addition to those of the bars.
    pub include: Vec<f64>,
    /// Width in pixels.
    pub width: f64,
}

const TOP: f64 = 46.0;
const ROW: f64 = 22.0;

impl BarPanel {
    /// Draws the panel.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let widest = |texts: &mut dyn Iterator<Item = &String>, most: f64| {
            texts.map(|label| text::width(label, 11.0)).fold(0.0, f64::max).min(most)
        };
        let left = widest(&mut self.bars.iter().map(|bar| &bar.label), self.width * 0.34) + 10.0;
        let right = self.width
            - widest(&mut self.bars.iter().map(|bar| &bar.text), self.width * 0.4)
            - 22.0;
        let right = right.max(left + 30.0);
        let values = self.bars.iter().flat_map(|bar| {
            [bar.value, bar.spread.map(|spread| spread.1)]
                .into_iter()
                .flatten()
                .filter(|v| v.is_finite())
        });
        let longest = values.chain(self.include.iter().copied()).fold(0.0, f64::max);
        // The longest bar ends at the edge, so a round end of the axis wastes no room.
        let share =
            |value: f64| if longest > 0.0 { (value / longest).clamp(0.0, 1.0) } else { 0.0 };
        let place = |value: f64| left + share(value) * (right - left);

        let mut drawing = Drawing::new(self.width, TOP + self.bars.len() as f64 * ROW + 6.0);
        let title = text::fit(&self.title, 14.0, self.width - 4.0);
        drawing.text_with_tooltip("name", (2.0, 16.0), Anchor::Start, &title, &self.title);
        let subtitle = text::fit(&self.subtitle, 11.0, self.width - 4.0);
        drawing.text_with_tooltip("", (2.0, 33.0), Anchor::Start, &subtitle, &self.subtitle);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = TOP + index as f64 * ROW;
            let middle = y + ROW / 2.0;
            let label = text::fit(&bar.label, 11.0, left - 8.0);
            drawing.text_with_tooltip(
                "value",
                (left - 6.0, middle + 3.8),
                Anchor::End,
                &label,
                &bar.label,
            );
            let room = self.width - left - 8.0;
            let Some(value) = bar.value.filter(|value| value.is_finite()) else {
                let text = text::fit(&bar.text, 11.0, room);
                drawing.text_with_tooltip(
                    "",
                    (left + 4.0, middle + 3.8),
                    Anchor::Start,
                    &text,
                    &bar.text,
                );
                continue;
            };
            // A value that is too small to see gets a visible sliver.
            let width = (place(value) - left).max(1.0);
            drawing.rect(&bar.hue.fill(), (left, y + 4.0), (width, ROW - 8.0), 1.5, &bar.tooltip);
            let mut end = left + width;
            if let Some((low, high)) =
                bar.spread.filter(|(low, high)| low.is_finite() && high > low)
            {
                let (low, high) = (place(low), place(high));
                if high - low > 2.0 {
                    drawing.line("spread", (low, middle), (high, middle));
                    for x in [low, high] {
                        drawing.line("spread", (x, middle - 3.0), (x, middle + 3.0));
                    }
                }
                end = end.max(high);
            }
            let text = text::fit(&bar.text, 11.0, self.width - end - 18.0);
            drawing.text_with_tooltip(
                "value",
                (end + 5.0, middle + 3.8),
                Anchor::Start,
                &text,
                &bar.text,
            );
            if let Some(better) = bar.better {
                let place = (end + 9.0 + text::width(&text, 11.0), middle + 3.8);
                drawing.triangle(if better { "up" } else { "down" }, place, better);
            }
        }
        let bottom = TOP + self.bars.len() as f64 * ROW;
        drawing.line("axis", (left, TOP), (left, bottom.max(TOP + 1.0)));
        drawing
    }
}

/// An axis of whole steps, for a panel whose bars are compared with those of another one.
#[must_use]
pub fn common_end(values: impl IntoIterator<Item = f64>) -> f64 {
    let scale = Scale::around(ScaleKind::Linear, values);
    scale.marks(0.0).last().copied().unwrap_or(1.0)
}
