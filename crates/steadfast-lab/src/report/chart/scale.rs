//! Axes: from values to pixels, and the positions of the marks.

/// The kind of a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with marks at 1, 2, 5 and powers of ten.
    Decades,
    /// Logarithmic, with marks at powers of two, for sizes.
    Doublings,
    /// Percentiles (0 to 1), by the share above them: 90 %, 99 %, 99.9 % at equal distances.
    Nines,
}

/// An axis between two values, mapped to pixels.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// The smallest distance from 1 that [`ScaleKind::Nines`] can show. Anything closer needs more
/// samples than a test takes.
const NINES_LIMIT: f64 = 1e-7;

impl ScaleKind {
    /// The position of a value on the axis, before scaling to pixels.
    fn even(self, value: f64) -> Option<f64> {
        let even = match self {
            Self::Linear => value,
            Self::Decades => value.log10(),
            Self::Doublings => value.log2(),
            Self::Nines => -(1.0 - value).max(NINES_LIMIT).log10(),
        };
        // The limit is half of the number range, so that a span is finite too.
        (even.abs() < f64::MAX / 4.0).then_some(even)
    }
}

impl Scale {
    /// An axis that contains all values that it can show. Its ends are whole marks if that costs
    /// little room. Without any value, the axis is 0 to 1, or 1 to 10.
    #[must_use]
    pub fn around(kind: ScaleKind, values: impl IntoIterator<Item = f64>) -> Self {
        let even = values.into_iter().filter_map(|value| kind.even(value));
        let bounds = even.fold(None, |bounds: Option<(f64, f64)>, value| match bounds {
            Some((low, high)) => Some((low.min(value), high.max(value))),
            None => Some((value, value)),
        });
        let (low, high) = bounds.unwrap_or((0.0, 1.0));
        let (low, high) = match kind {
            ScaleKind::Linear => {
                let high = if high > 0.0 { high } else { 1.0 };
                let step = step(high - low.min(0.0));
                ((low.min(0.0) / step).floor() * step, (high / step).ceil() * step)
            }
            // At least half a decade, so that a small difference does not look large.
            ScaleKind::Decades => {
                let (low, high) = (floor_of_decade(low - 0.02), ceiling_of_decade(high + 0.02));
                if high - low < 0.9 { (low - (0.9 - (high - low)), high) } else { (low, high) }
            }
            ScaleKind::Doublings if high - low < 1.0 => (low - 0.5, high + 0.5),
            ScaleKind::Doublings => (low, high),
            ScaleKind::Nines => (low.min(0.0), high.max(1.0)),
        };
        Self { kind, low, high, from: 0.0, to: 1.0 }
    }

    /// The same axis over these pixels. `from` may be larger than `to`, because the vertical axis
    /// grows upwards.
    #[must_use]
    pub const fn over(mut self, from: f64, to: f64) -> Self {
        self.from = from;
        self.to = to;
        self
    }

    /// The position of a value, if the axis can show it; values beyond the ends are at the end.
    #[must_use]
    pub fn place(&self, value: f64) -> Option<f64> {
        let even = self.kind.even(value)?;
        let span = if self.high > self.low { self.high - self.low } else { 1.0 };
        Some(
            self.from + (even.clamp(self.low, self.high) - self.low) / span * (self.to - self.from),
        )
    }

    /// Values to mark, ascending, at least `apart` pixels from each other.
    #[must_use]
    pub fn marks(&self, apart: f64) -> Vec<f64> {
        let candidates: Vec<f64> = match self.kind {
            ScaleKind::Linear => {
                let step = step(self.high - self.low);
                let count = ((self.high - self.low) / step).round().clamp(0.0, 50.0) as u32;
                (0..=count).map(|index| self.low + f64::from(index) * step).collect()
            }
            ScaleKind::Decades => {
                let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
                let within = |value: f64| {
                    self.kind
                        .even(value)
                        .is_some_and(|e| e >= self.low - 1e-9 && e <= self.high + 1e-9)
                };
                let powers: Vec<f64> = (first..=last).map(|power| 10f64.powi(power)).collect();
                let all: Vec<f64> = powers
                    .iter()
                    .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| power * digit))
                    .collect();
                let powers: Vec<f64> = powers.into_iter().filter(|value| within(*value)).collect();
                if powers.len() >= 3 {
                    powers
                } else {
                    all.into_iter().filter(|value| within(*value)).collect()
                }
            }
            ScaleKind::Doublings => {
                let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
                (first..=last).map(|power| 2f64.powi(power)).collect()
            }
            ScaleKind::Nines => [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999]
                .into_iter()
                .filter(|value| {
                    self.kind.even(*value).is_some_and(|e| e >= self.low && e <= self.high + 1e-9)
                })
                .collect(),
        };
        if self.kind == ScaleKind::Nines {
            // These marks have unequal distances, so each is taken from the left if it has room.
            let mut last = f64::NEG_INFINITY;
            let has_room = |value: &f64| match self.place(*value) {
                Some(place) if place - last >= apart => {
                    last = place;
                    true
                }
                _ => false,
            };
            return candidates.into_iter().filter(has_room).collect();
        }
        // Every second, third, … mark is taken, so that the marks are regular.
        let length = (self.to - self.from).abs();
        let mut every = 1;
        while every < candidates.len()
            && length / (candidates.len() as f64 / f64::from(every as u32)) < apart
        {
            every += 1;
        }
        candidates.into_iter().step_by(every).collect()
    }
}

impl Scale {
    /// Values between the marks of a logarithmic axis, at 2 to 9 times a power of ten. They show
    /// that the axis is logarithmic. There are few, or none.
    #[must_use]
    pub fn between(&self) -> Vec<f64> {
        if self.kind != ScaleKind::Decades || self.high - self.low > 4.5 {
            return Vec::new();
        }
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        let all = (first..=last)
            .flat_map(|power| (2..10).map(move |digit| f64::from(digit) * 10f64.powi(power)));
        all.filter(|value| value.log10() >= self.low && value.log10() <= self.high).collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides the span into four to ten.
fn step(span: f64) -> f64 {
    if !(span.is_finite() && span > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf((span / 4.0).log10().floor());
    let digit =
        [5.0, 2.0].into_iter().find(|digit| power * digit * 4.0 <= span * 1.0001).unwrap_or(1.0);
    let step = power * digit;
    if step.is_normal() { step } else { 1.0 }
}

/// The logarithm of the next 1, 2 or 5 times a power of ten, at or below.
fn floor_of_decade(even: f64) -> f64 {
    let whole = even.floor();
    let part = even - whole;
    whole + [5f64.log10(), 2f64.log10()].into_iter().find(|digit| *digit <= part).unwrap_or(0.0)
}

/// The logarithm of the next 1, 2 or 5 times a power of ten, at or above.
fn ceiling_of_decade(even: f64) -> f64 {
    let whole = even.floor();
    let part = even - whole;
    whole
        + [0.0, 2f64.log10(), 5f64.log10()].into_iter().find(|digit| *digit >= part).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_begins_at_zero() {
        let scale = Scale::around(ScaleKind::Linear, [95.0, 100.0]).over(0.0, 100.0);
        assert_eq!(scale.place(0.0), Some(0.0));
        assert_eq!(scale.place(100.0), Some(100.0));
        assert_eq!(scale.marks(10.0).first(), Some(&0.0));
        assert_eq!(scale.place(f64::NAN), None);
    }

    #[test]
    fn a_small_difference_does_not_fill_a_logarithmic_axis() {
        let scale = Scale::around(ScaleKind::Decades, [100.0, 104.0]).over(0.0, 100.0);
        let (a, b) = (scale.place(100.0).unwrap(), scale.place(104.0).unwrap());
        assert!(b - a < 3.0 && b > a, "{a} {b}");
        assert_eq!(scale.place(0.0), None, "zero has no logarithm");
    }

    #[test]
    fn sizes_are_marked_at_powers_of_two() {
        let sizes = (6..=20).map(|power| 2f64.powi(power));
        let scale = Scale::around(ScaleKind::Doublings, sizes).over(0.0, 250.0);
        let marks = scale.marks(40.0);
        assert!(marks.len() >= 4 && marks.len() <= 7, "{marks:?}");
        assert!(marks.iter().all(|mark| mark.log2().fract() == 0.0));
    }

    #[test]
    fn nines_are_equally_far_apart() {
        let scale = Scale::around(ScaleKind::Nines, [0.5, 0.999]).over(0.0, 300.0);
        let place = |value| scale.place(value).unwrap();
        assert!((place(0.99) - place(0.9) - (place(0.999) - place(0.99))).abs() < 1e-6);
        assert!(scale.place(1.0).is_some());
    }

    #[test]
    fn hostile_values_make_an_axis_all_the_same() {
        for kind in [ScaleKind::Linear, ScaleKind::Decades, ScaleKind::Doublings, ScaleKind::Nines]
        {
            for values in [
                vec![],
                vec![f64::NAN],
                vec![f64::INFINITY, 1.0],
                vec![-5.0, -1.0],
                vec![0.0, 0.0],
                vec![1e-308, 1e308],
                vec![f64::MAX, f64::MIN],
                vec![5e-324],
            ] {
                let scale = Scale::around(kind, values.iter().copied()).over(10.0, 110.0);
                assert!(scale.marks(20.0).len() < 60, "{kind:?} {values:?}");
                for value in values.iter().copied().chain(scale.marks(20.0)) {
                    if let Some(place) = scale.place(value) {
                        assert!((9.9..=110.1).contains(&place), "{kind:?} {values:?}: {place}");
                    }
                }
            }
        }
    }
}
