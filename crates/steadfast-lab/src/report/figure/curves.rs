//! Curves over a size: IOzone's picture, and similar ones.
//!
//! A matrix of file and record sizes has one panel per file system and one line per record size.
//! All panels have the same axes. A test over only one parameter is one panel with one line per
//! file system.

use std::collections::BTreeSet;

use super::{Figure, file_name, hue, listed};
use crate::report::chart::lines::{Axis, Line, LinePanel};
use crate::report::chart::scale::ScaleKind;
use crate::report::chart::theme::Hue;
use crate::report::chart::{Drawing, PANEL_WIDTH};
use crate::report::comparison::{Group, View};
use crate::report::format;
use crate::result::{Status, Suite, TargetDescription, Test, Unit};
use crate::statistics;

/// The parameters that a curve may have as its axis, in the order of preference.
const AXES: [&str; 6] = ["file_size", "files", "threads", "processes", "record_size", "file_bytes"];

/// The pictures of a suite.
pub fn figures(view: &View, suite: &Suite) -> Vec<Figure> {
    let groups = view.groups(suite);
    let matrices: Vec<&Group> = groups.iter().filter(|group| is_matrix(group)).collect();
    let mut figures: Vec<Figure> = matrices
        .iter()
        .enumerate()
        .map(|(index, group)| matrix(view, suite, group, index < 2))
        .collect();
    let rest: Vec<&Test> = groups
        .iter()
        .filter(|group| !is_matrix(group))
        .flat_map(|group| group.tests.iter().copied())
        .collect();
    figures.extend(over_one(view, suite, &rest));
    figures
}

/// Whether both sizes vary.
pub fn is_matrix(group: &Group) -> bool {
    ["file_size", "record_size"].iter().all(|key| distinct(&group.tests, key).len() >= 2)
}

/// Whether a test is a point of a curve in this suite, and so needs no bar.
pub fn is_on_a_curve(suite: &Suite, test: &Test) -> bool {
    let tests: Vec<&Test> = suite.tests.iter().collect();
    axis_of(&tests, test).is_some()
}

/// The different values of a parameter, ascending.
pub fn distinct(tests: &[&Test], key: &str) -> BTreeSet<u64> {
    tests.iter().filter_map(|test| test.number(key)).collect()
}

/// The median of a test on a target.
fn median(test: &Test, target: &TargetDescription) -> Option<f64> {
    let measurement =
        test.measurement(&target.id).filter(|measurement| measurement.status == Status::Ok)?;
    statistics::median(&measurement.values())
}

/// The format for marks of a vertical axis in this unit.
pub fn writer(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::BytesPerSecond => format::mark_rate,
        Unit::Seconds | Unit::SecondsPerOperation | Unit::CpuSecondsPerOperation => {
            format::mark_seconds
        }
        Unit::Bytes => format::bytes,
        _ => format::mark,
    }
}

fn matrix(view: &View, suite: &Suite, group: &Group, first: bool) -> Figure {
    let records = distinct(&group.tests, "record_size");
    let all = group
        .tests
        .iter()
        .flat_map(|test| view.targets.iter().filter_map(|target| median(test, target)));
    let include: Vec<f64> = all.collect();
    let files: Vec<f64> =
        distinct(&group.tests, "file_size").into_iter().map(|size| size as f64).collect();
    let unit = group.first.unit;
    let panel = |target: &TargetDescription| {
        let lines = records.iter().enumerate().map(|(index, record)| {
            let mut points: Vec<(f64, f64, String)> = group
                .tests
                .iter()
                .filter(|test| test.number("record_size") == Some(*record))
                .filter_map(|test| {
                    let (size, value) = (test.number("file_size")? as f64, median(test, target)?);
                    let tooltip = format!(
                        "{}, record {}, file {}: {}",
                        target.id,
                        format::bytes(*record as f64),
                        format::bytes(size),
                        format::value(unit, value)
                    );
                    Some((size, value, tooltip))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line {
                label: format::bytes_short(*record as f64),
                hue: Hue::Step(index, records.len()),
                points: points.iter().map(|(size, value, _)| (*size, *value)).collect(),
                tooltips: points.into_iter().map(|(.., tooltip)| tooltip).collect(),
            }
        });
        LinePanel {
            title: target.name.clone(),
            x: Axis {
                label: "file size".to_owned(),
                kind: ScaleKind::Doublings,
                include: files.clone(),
                format: format::bytes_short,
            },
            y: Axis {
                label: format::unit(unit).to_owned(),
                kind: ScaleKind::Decades,
                include: include.clone(),
                format: writer(unit),
            },
            lines: lines.collect(),
            dots: true,
            width: PANEL_WIDTH,
        }
        .draw()
    };
    let other = group.others();
    let title = if other.is_empty() {
        group.first.title.clone()
    } else {
        format!("{}, {other}", group.first.title)
    };
    Figure {
        name: file_name(&[&suite.id, "curves", &group.first.name, &other]),
        title: format!("{}: {} over file size", suite.id, title),
        caption:
            "One line a record size, named at its end. Both axes are logarithmic, and the same in all panels."
                .to_owned(),
        alternative: format!(
            "{title}: {} over file size for {}",
            format::unit(unit),
            listed(&view.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>())
        ),
        panels: view.targets.iter().map(|target| panel(target)).collect(),
        columns: 3,
        first,
    }
}

/// The parameter of the curve that contains a test, if at least three points form one.
fn axis_of(tests: &[&Test], test: &Test) -> Option<&'static str> {
    AXES.into_iter().find(|key| {
        test.number(key).is_some() && {
            let siblings: Vec<&Test> =
                tests.iter().copied().filter(|other| is_sibling(other, test, key)).collect();
            distinct(&siblings, key).len() >= 3
        }
    })
}

/// Whether two tests differ in only this parameter.
fn is_sibling(a: &Test, b: &Test, key: &str) -> bool {
    let without = |test: &Test| {
        let mut parameters = test.parameters.clone();
        parameters.remove(key);
        parameters
    };
    (&a.workload, &a.name, a.unit, a.cache) == (&b.workload, &b.name, b.unit, b.cache)
        && without(a) == without(b)
}

/// Curves over one parameter: one figure per workload, one panel per test, one line per file
/// system.
fn over_one(view: &View, suite: &Suite, tests: &[&Test]) -> Vec<Figure> {
    let mut taken: Vec<&str> = Vec::new();
    let mut by_workload: Vec<(&str, &'static str, Vec<Drawing>)> = Vec::new();
    for test in tests {
        if taken.contains(&test.id.as_str()) {
            continue;
        }
        let Some(key) = axis_of(tests, test) else { continue };
        let siblings: Vec<&Test> =
            tests.iter().copied().filter(|other| is_sibling(other, test, key)).collect();
        taken.extend(siblings.iter().map(|sibling| sibling.id.as_str()));
        let drawing = over(view, test, &siblings, key).draw();
        match by_workload
            .iter_mut()
            .find(|(workload, axis, _)| *workload == test.workload && *axis == key)
        {
            Some((.., panels)) => panels.push(drawing),
            None => by_workload.push((&test.workload, key, vec![drawing])),
        }
    }
    by_workload
        .into_iter()
        .map(|(workload, key, panels)| Figure {
            name: file_name(&[&suite.id, workload, "over", key]),
            title: format!("{}: {workload} over {}", suite.id, axis_name(key)),
            caption: "One line a file system, named at its end. Both axes are logarithmic."
                .to_owned(),
            alternative: format!("{workload} over {}", axis_name(key)),
            panels,
            columns: 3,
            first: true,
        })
        .collect()
}

/// The label of an axis over a parameter.
fn axis_name(key: &str) -> &'static str {
    match key {
        "file_size" => "file size",
        "files" => "number of files",
        "threads" => "number of threads",
        "processes" => "number of processes",
        "record_size" => "record size",
        _ => "bytes of a file",
    }
}

fn over(view: &View, first: &Test, tests: &[&Test], key: &str) -> LinePanel {
    let lines = view.targets.iter().map(|target| {
        let mut points: Vec<(f64, f64)> = tests
            .iter()
            .filter_map(|test| Some((test.number(key)? as f64, median(test, target)?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let tooltips = points
            .iter()
            .map(|(_, value)| format!("{}: {}", target.id, format::value(first.unit, *value)));
        Line {
            label: target.id.clone(),
            hue: hue(view, &target.id),
            tooltips: tooltips.collect(),
            points,
        }
    });
    let other = format::parameters(first, &[key, "seed"]);
    let is_size = matches!(key, "file_size" | "record_size" | "file_bytes");
    LinePanel {
        title: if other.is_empty() {
            first.title.clone()
        } else {
            format!("{}, {other}", first.title)
        },
        x: Axis {
            label: axis_name(key).to_owned(),
            kind: ScaleKind::Doublings,
            include: Vec::new(),
            format: if is_size { format::bytes_short } else { format::mark },
        },
        y: Axis {
            label: format::unit(first.unit).to_owned(),
            kind: ScaleKind::Decades,
            include: Vec::new(),
            format: writer(first.unit),
        },
        lines: lines.collect(),
        dots: true,
        width: PANEL_WIDTH,
    }
}
