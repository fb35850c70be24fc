//! Processor load over time: which part of the system works while a test runs.

use super::{Figure, file_name};
use crate::report::chart::lines::{Axis, Line, LinePanel};
use crate::report::chart::scale::ScaleKind;
use crate::report::chart::theme::Hue;
use crate::report::chart::{Drawing, PANEL_WIDTH};
use crate::report::comparison::{Group, View};
use crate::report::format;
use crate::result::{Cpu, CpuPoint, Suite, TargetDescription, Test};

/// The pictures of a suite: one per group of tests with curves, for the longest of its tests, with
/// one panel per file system.
pub fn figures(view: &View, suite: &Suite) -> Vec<Figure> {
    let groups = view.groups(suite);
    let chosen: Vec<(&Group, &Test)> =
        groups.iter().filter_map(|group| Some((group, longest(group)?))).collect();
    chosen
        .iter()
        .enumerate()
        .map(|(index, (group, test))| figure(view, suite, group, test, index < 2))
        .collect()
}

fn curve<'a>(test: &'a Test, target: &str) -> Option<&'a Cpu> {
    let cpu = test.measurement(target)?.cpu.as_ref()?;
    (cpu.curve.len() >= 2).then_some(cpu)
}

/// The test that runs longest, because a curve of two points shows nothing.
fn longest<'a>(group: &Group<'a>) -> Option<&'a Test> {
    let points = |test: &Test| {
        test.measurements
            .iter()
            .filter_map(|m| Some(curve(test, &m.target)?.curve.len()))
            .max()
            .unwrap_or(0)
    };
    group.tests.iter().copied().filter(|test| points(test) > 0).max_by_key(|test| points(test))
}

fn figure(view: &View, suite: &Suite, group: &Group, test: &Test, first: bool) -> Figure {
    let all = view.targets.iter().filter_map(|target| curve(test, &target.id));
    let points: Vec<&CpuPoint> = all.flat_map(|cpu| &cpu.curve).collect();
    let longest =
        points.iter().map(|point| point.at).filter(|at| at.is_finite()).fold(0.0, f64::max);
    let busiest = points
        .iter()
        .flat_map(|point| [point.process, point.file_system, point.machine])
        .filter(|share| share.is_finite())
        .fold(1.0, f64::max);
    let panels =
        view.targets.iter().filter_map(|target| panel(test, target, longest, busiest)).collect();
    Figure {
        name: file_name(&[&suite.id, "cpu", &group.first.name]),
        title: format!("{}: processor load, {}", suite.id, format::test(test)),
        caption: "1 is one processor kept busy. The file system is its daemon and kernel threads; system calls count to the \
                  process. The same axes in all panels."
            .to_owned(),
        alternative: format!("Processor load over time during {}", test.title),
        panels,
        columns: 3,
        first,
    }
}

fn panel(test: &Test, target: &TargetDescription, longest: f64, busiest: f64) -> Option<Drawing> {
    let cpu = curve(test, &target.id)?;
    let line = |label: &str, index: usize, value: fn(&CpuPoint) -> f64| Line {
        label: label.to_owned(),
        hue: Hue::Series(index),
        points: cpu.curve.iter().map(|point| (point.at, value(point))).collect(),
        tooltips: Vec::new(),
    };
    let panel = LinePanel {
        title: target.name.clone(),
        x: Axis {
            label: "seconds".to_owned(),
            kind: ScaleKind::Linear,
            include: vec![longest],
            format: format::mark,
        },
        y: Axis {
            label: "processors".to_owned(),
            kind: ScaleKind::Linear,
            include: vec![busiest],
            format: format::mark,
        },
        // Grey for the total, colours for the parts.
        lines: vec![
            line("machine", 6, |point| point.machine),
            line("process", 0, |point| point.process),
            line("file system", 1, |point| point.file_system),
        ],
        dots: false,
        width: PANEL_WIDTH,
    };
    Some(panel.draw())
}
