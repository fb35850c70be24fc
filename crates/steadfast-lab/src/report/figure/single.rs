//! Bars: tests with one value per file system, including mount times.

use super::curves::{is_matrix, is_on_a_curve};
use super::{Figure, file_name, hue};
use crate::report::chart::bars::{Bar, BarPanel};
use crate::report::chart::{Drawing, PANEL_WIDTH};
use crate::report::comparison::{Against, View, sign, why_not};
use crate::report::format;
use crate::result::{Better, Suite, Test};
use crate::statistics::Verdict;

/// The pictures of a suite: one per workload, with one panel per test.
pub fn figures(view: &View, suite: &Suite) -> Vec<Figure> {
    let mut by_workload: Vec<(&str, Vec<&Test>)> = Vec::new();
    for group in view.groups(suite) {
        for test in group.tests.iter().copied() {
            if is_matrix(&group) || is_on_a_curve(suite, test) {
                continue;
            }
            match by_workload.iter_mut().find(|(workload, _)| *workload == test.workload) {
                Some((_, tests)) => tests.push(test),
                None => by_workload.push((&test.workload, vec![test])),
            }
        }
    }
    by_workload.into_iter().map(|(workload, tests)| figure(view, suite, workload, &tests)).collect()
}

fn figure(view: &View, suite: &Suite, workload: &str, tests: &[&Test]) -> Figure {
    let is_mount = workload == "mount";
    // Mount times show the influence of the volume's contents, so all of them share one axis.
    let all = tests
        .iter()
        .flat_map(|test| &test.measurements)
        .flat_map(|measurement| measurement.values());
    let include = if is_mount {
        vec![all.filter(|value| value.is_finite()).fold(0.0, f64::max)]
    } else {
        Vec::new()
    };
    let panels: Vec<Drawing> =
        tests.iter().map(|test| panel(view, test, include.clone()).draw()).collect();
    let (title, caption) = if is_mount {
        (
            "time to mount",
            "Bars begin at zero and have one axis in all panels; lines at their ends: least and largest round.",
        )
    } else {
        (workload, "Bars begin at zero; lines at their ends: least and largest round.")
    };
    Figure {
        name: file_name(&[&suite.id, workload]),
        title: format!("{}: {title}", suite.id),
        caption: caption.to_owned(),
        alternative: format!("{workload}: a bar for each file system and test"),
        first: panels.len() <= 12,
        panels,
        columns: 3,
    }
}

fn panel(view: &View, test: &Test, include: Vec<f64>) -> BarPanel {
    let bars = view.targets.iter().map(|target| {
        let cell = view.cell(test, target);
        let value = cell.summary.map(|summary| summary.median);
        let text = match (value, cell.against) {
            (None, _) => why_not(cell.measurement).to_owned(),
            (Some(value), None) => format::value(test.unit, value),
            (Some(value), Some(against)) => {
                let drawn = if against.is_clear() { "" } else { sign(against.verdict) };
                let factor = format::factor(against.factor);
                format!("{} · {factor} {drawn}", format::value(test.unit, value))
                    .trim_end()
                    .to_owned()
            }
        };
        Bar {
            label: target.id.clone(),
            hue: hue(view, &target.id),
            value,
            spread: cell.summary.map(|summary| (summary.least, summary.most)),
            better: cell
                .against
                .filter(Against::is_clear)
                .map(|against| against.verdict == Verdict::Better),
            tooltip: format!("{}: {text}", target.name),
            text,
        }
    });
    let direction = match test.better {
        Better::Higher => "longer is better",
        Better::Lower => "shorter is better",
    };
    BarPanel {
        title: format::test(test),
        subtitle: format!("{}, {direction}", format::unit(test.unit)),
        bars: bars.collect(),
        include,
        width: PANEL_WIDTH,
    }
}
