//! The distribution of the times of single operations; users notice its tail.

use super::{Figure, file_name, hue};
use crate::report::chart::lines::{Axis, Line, LinePanel};
use crate::report::chart::scale::ScaleKind;
use crate::report::chart::{Drawing, PANEL_WIDTH};
use crate::report::comparison::View;
use crate::report::format;
use crate::result::{Latency, Suite, Test};

/// The pictures of a suite: one per workload, with one panel per test.
pub fn figures(view: &View, suite: &Suite) -> Vec<Figure> {
    let mut by_workload: Vec<(&str, Vec<Drawing>)> = Vec::new();
    for test in &suite.tests {
        let Some(panel) = panel(view, test) else { continue };
        match by_workload.iter_mut().find(|(workload, _)| *workload == test.workload) {
            Some((_, panels)) => panels.push(panel.draw()),
            None => by_workload.push((&test.workload, vec![panel.draw()])),
        }
    }
    by_workload
        .into_iter()
        .map(|(workload, panels)| Figure {
            name: file_name(&[&suite.id, workload, "latency"]),
            title: format!("{}: {workload}, how long single operations take", suite.id),
            caption: "Read: at 99 %, all but one operation in a hundred take no longer. Lower is better. Both axes are \
                      logarithmic; a line ends at its slowest operation."
                .to_owned(),
            alternative: format!("{workload}: percentiles of the time of single operations"),
            first: panels.len() <= 6,
            panels,
            columns: 3,
        })
        .collect()
}

fn panel(view: &View, test: &Test) -> Option<LinePanel> {
    let lines: Vec<Line> = view
        .targets
        .iter()
        .filter_map(|target| {
            let latency = test.measurement(&target.id)?.latency.as_ref()?;
            let tooltip = format!(
                "{}: half within {}, 99 % within {}, all within {}",
                target.id,
                format::seconds(latency.p50),
                format::seconds(latency.p99),
                format::seconds(latency.most)
            );
            let points = points(latency);
            let tooltips = vec![tooltip; points.len()];
            Some(Line { label: target.id.clone(), hue: hue(view, &target.id), points, tooltips })
        })
        .collect();
    (!lines.is_empty()).then(|| LinePanel {
        title: format::test(test),
        x: Axis {
            label: "share of the operations that take no longer".to_owned(),
            kind: ScaleKind::Nines,
            include: vec![0.0, 0.99],
            format: nines,
        },
        y: Axis {
            label: "time of one operation".to_owned(),
            kind: ScaleKind::Decades,
            include: Vec::new(),
            format: format::mark_seconds,
        },
        lines,
        dots: false,
        width: PANEL_WIDTH,
    })
}

/// Share of the operations against time. The last point is the slowest operation, at the share that
/// a single operation of the total can show.
fn points(latency: &Latency) -> Vec<(f64, f64)> {
    let total: u64 = latency.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count));
    let mut points = vec![(0.0, latency.least)];
    if total == 0 {
        points.extend([
            (0.5, latency.p50),
            (0.9, latency.p90),
            (0.99, latency.p99),
            (0.999, latency.p999),
        ]);
        return points;
    }
    let mut below = 0u64;
    for bucket in &latency.buckets {
        below = below.saturating_add(bucket.count);
        let share = below as f64 / total as f64;
        // A share of 1 has no position on this axis, so the last point is half an operation below
        // it.
        points.push((share.min(1.0 - 0.5 / total as f64), bucket.upper.min(latency.most)));
    }
    points
}

/// A percentile as text.
fn nines(share: f64) -> String {
    // 0.999 × 100 is 99.9 only after rounding.
    let percent = (share * 1e7).round() / 1e5;
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Bucket;

    #[test]
    fn the_slowest_operation_is_on_the_axis() {
        let latency = Latency {
            count: 10,
            mean: 1.5,
            least: 1.0,
            p50: 1.0,
            p90: 1.0,
            p99: 7.0,
            p999: 7.0,
            most: 7.0,
            buckets: vec![Bucket { upper: 1.1, count: 9 }, Bucket { upper: 7.2, count: 1 }],
        };
        assert_eq!(points(&latency), [(0.0, 1.0), (0.9, 1.1), (0.95, 7.0)]);
        assert_eq!(nines(0.999), "99.9 %");
        let overflowing = Latency {
            buckets: vec![
                Bucket { upper: 1.0, count: u64::MAX },
                Bucket { upper: 2.0, count: u64::MAX },
            ],
            ..latency
        };
        assert_eq!(points(&overflowing).len(), 3);
    }
}
