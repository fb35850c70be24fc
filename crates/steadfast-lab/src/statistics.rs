//! Medians, spreads, ratios with their confidence, and the rule for a difference.
//!
//! # The rule
//! A target is called better than a peer only if both are true:
//! 1. the whole 95 % interval of the ratio is on one side of 1, and
//! 2. the ratio differs from 1 by more than the noise of the machine
//!    ([`crate::result::Noise::floor`]). For counts a fixed share replaces the noise
//!    ([`FLOOR_OF_COUNTS`](crate::result::FLOOR_OF_COUNTS)).
//!
//! Rounds are interleaved (A B A B), so the samples of one round share the state of the machine. So
//! the ratio is taken round by round, and its logarithm is averaged: 2 and ½ are then equally far
//! from 1. The interval is Student's on these logarithms. With few rounds it is correspondingly
//! wide. With one round there is no interval and no verdict.

use crate::result::{Better, Measurement};

/// The middle value; for an even count, the mean of the two in the middle. `None` without values.
/// Values must be finite.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which this `share` (0 to 1) of the values lies, interpolated. `None` without
/// values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let low = *sorted.get(place.floor() as usize)?;
    let high = *sorted.get(place.ceil() as usize)?;
    Some(low + (high - low) * place.fract())
}

/// The summary of a set of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many rounds.
    pub count: usize,
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
    /// Half the distance between the quartiles divided by the median: 0.05 is ±5 %. It is 0 with
    /// one round.
    pub spread: f64,
}

/// Summarises finite values; `None` without values.
pub fn summarise(values: &[f64]) -> Option<Summary> {
    let median = median(values)?;
    let half = (quantile(values, 0.75)? - quantile(values, 0.25)?) / 2.0;
    let spread = if median == 0.0 { 0.0 } else { (half / median).abs() };
    Some(Summary {
        count: values.iter().filter(|value| value.is_finite()).count(),
        median,
        least: quantile(values, 0.0)?,
        most: quantile(values, 1.0)?,
        spread,
    })
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The geometric mean of the ratios of the rounds.
    pub value: f64,
    /// Lower end of the interval; equal to `value` if there is no interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether there is an interval: at least two rounds.
    pub has_interval: bool,
}

/// The verdict on a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better than the peer.
    Better,
    /// Worse than the peer.
    Worse,
    /// No difference larger than the noise.
    WithinNoise,
    /// Too few rounds for a verdict.
    Unknown,
}

/// The ratio of `measured` to `peer`, round by round: only rounds that both have count. `None` if
/// there is none, or if a value is not positive.
pub fn ratio_paired(measured: &Measurement, peer: &Measurement) -> Option<Ratio> {
    let mut logarithms = Vec::new();
    for sample in &measured.samples {
        if let Some(other) = peer.samples.iter().find(|other| other.round == sample.round) {
            logarithms.push(logarithm(sample.value)? - logarithm(other.value)?);
        }
    }
    ratio_of_rounds(&logarithms)
}

/// The ratio whose logarithms in the rounds are given. `None` without any.
pub fn ratio_of_rounds(logarithms: &[f64]) -> Option<Ratio> {
    let (mean, variance) = mean_and_variance(logarithms)?;
    let count = logarithms.len() as f64;
    Some(interval(mean, (variance / count).sqrt(), count - 1.0))
}

/// The ratio of two sets of rounds that were not taken side by side, such as two runs (Welch's
/// interval). `None` if one is empty or a value is not positive.
pub fn ratio_unpaired(measured: &[f64], peer: &[f64]) -> Option<Ratio> {
    let logarithms =
        |values: &[f64]| values.iter().map(|value| logarithm(*value)).collect::<Option<Vec<f64>>>();
    let (measured, peer) = (logarithms(measured)?, logarithms(peer)?);
    let (mean, variance) = mean_and_variance(&measured)?;
    let (mean_peer, variance_peer) = mean_and_variance(&peer)?;
    let (part, part_peer) = (variance / measured.len() as f64, variance_peer / peer.len() as f64);
    let together = part + part_peer;
    let degrees =
        |part: f64, count: usize| if count > 1 { part * part / (count - 1) as f64 } else { 0.0 };
    let below = degrees(part, measured.len()) + degrees(part_peer, peer.len());
    let freedom = if measured.len() < 2 || peer.len() < 2 {
        0.0
    } else if below == 0.0 {
        (measured.len() + peer.len() - 2) as f64
    } else {
        together * together / below
    };
    Some(interval(mean - mean_peer, together.sqrt(), freedom))
}

/// Judges a ratio by the rule of this module. `floor` is the noise of the machine as a share,
/// `better` the direction.
pub fn judge(ratio: &Ratio, better: Better, floor: f64) -> Verdict {
    if !ratio.has_interval {
        return Verdict::Unknown;
    }
    let distance = (ratio.value.max(1.0 / ratio.value)) - 1.0;
    if distance <= floor || (ratio.low <= 1.0 && ratio.high >= 1.0) {
        return Verdict::WithinNoise;
    }
    if (ratio.value > 1.0) == (better == Better::Higher) { Verdict::Better } else { Verdict::Worse }
}

fn logarithm(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then(|| value.ln())
}

/// Mean and sample variance (0 for a single value).
fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, if values.len() > 1 { squares / (count - 1.0) } else { 0.0 }))
}

/// The interval around the mean of logarithms with this standard error and these degrees of
/// freedom.
fn interval(mean: f64, error: f64, freedom: f64) -> Ratio {
    let has_interval = freedom >= 1.0;
    let reach = if has_interval { student(freedom) * error } else { 0.0 };
    Ratio { value: mean.exp(), low: (mean - reach).exp(), high: (mean + reach).exp(), has_interval }
}

/// Student's quantile for a two-sided 95 % interval; between whole degrees, the wider one.
fn student(freedom: f64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let index = (freedom.floor().max(1.0) as usize).saturating_sub(1);
    TABLE.get(index).copied().unwrap_or(2.042)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Sample, Status, Verification};

    fn measured(values: &[f64]) -> Measurement {
        let samples = values
            .iter()
            .enumerate()
            .map(|(round, value)| Sample {
                round: round as u32,
                value: *value,
                seconds: 1.0,
                operations: 1,
                bytes: 0,
            })
            .collect();
        Measurement {
            target: "x".into(),
            status: Status::Ok,
            samples,
            latency: None,
            cpu: None,
            memory: None,
            medium: None,
            verification: Verification::default(),
            cross_check: None,
        }
    }

    #[test]
    fn medians_and_quartiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        let summary = summarise(&[90.0, 100.0, 110.0]).unwrap();
        assert_eq!(
            (summary.median, summary.least, summary.most, summary.count),
            (100.0, 90.0, 110.0, 3)
        );
        assert!((summary.spread - 0.05).abs() < 1e-12);
    }

    #[test]
    fn what_all_rounds_share_is_no_noise() {
        // The speed of the machine halves from round to round; the ratio stays the same.
        let ratio = ratio_paired(&measured(&[200.0, 100.0, 50.0]), &measured(&[100.0, 50.0, 25.0]))
            .unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-9 && (ratio.low - 2.0).abs() < 1e-9);
        assert_eq!(judge(&ratio, Better::Higher, 0.02), Verdict::Better);
        assert_eq!(judge(&ratio, Better::Lower, 0.02), Verdict::Worse);
    }

    #[test]
    fn noise_is_no_win() {
        let ratio =
            ratio_paired(&measured(&[100.0, 140.0, 90.0]), &measured(&[98.0, 100.0, 110.0]))
                .unwrap();
        assert!(ratio.value > 1.0);
        assert_eq!(judge(&ratio, Better::Higher, 0.02), Verdict::WithinNoise);
        // A certain difference that is smaller than the variation of the machine itself.
        let ratio =
            ratio_paired(&measured(&[103.0, 103.1, 103.0]), &measured(&[100.0, 100.0, 100.1]))
                .unwrap();
        assert!(ratio.low > 1.0);
        assert_eq!(judge(&ratio, Better::Higher, 0.05), Verdict::WithinNoise);
        assert_eq!(judge(&ratio, Better::Higher, 0.02), Verdict::Better);
    }

    #[test]
    fn one_round_proves_nothing() {
        let ratio = ratio_paired(&measured(&[300.0]), &measured(&[100.0])).unwrap();
        assert_eq!(judge(&ratio, Better::Higher, 0.02), Verdict::Unknown);
        let ratio = ratio_unpaired(&[300.0], &[100.0, 100.0]).unwrap();
        assert_eq!(judge(&ratio, Better::Higher, 0.02), Verdict::Unknown);
    }

    #[test]
    fn rounds_that_only_one_has_do_not_count() {
        let mut other = measured(&[50.0, 100.0]);
        other.samples.remove(0);
        assert!((ratio_paired(&measured(&[7.0, 200.0]), &other).unwrap().value - 2.0).abs() < 1e-9);
        other.samples.clear();
        assert_eq!(ratio_paired(&measured(&[7.0]), &other), None);
        assert_eq!(ratio_paired(&measured(&[0.0]), &measured(&[1.0])), None);
    }

    #[test]
    fn the_interval_is_students() {
        // Logarithms 0, ln 2, 0 against 0: mean ln(2)/3, standard error ln(2)/3, two degrees of
        // freedom.
        let ratio = ratio_paired(&measured(&[1.0, 2.0, 1.0]), &measured(&[1.0, 1.0, 1.0])).unwrap();
        let third = 2f64.ln() / 3.0;
        assert!((ratio.high - (third + 4.303 * third).exp()).abs() < 1e-9);
        // Two runs: 95 % of equal sets contain 1.
        let ratio = ratio_unpaired(&[10.0, 11.0, 9.0], &[10.5, 9.5, 10.0]).unwrap();
        assert!(ratio.low < 1.0 && ratio.high > 1.0);
        let ratio = ratio_unpaired(&[20.0, 20.1, 19.9], &[10.0, 10.1, 9.9]).unwrap();
        assert_eq!(judge(&ratio, Better::Lower, 0.02), Verdict::Worse);
    }
}
