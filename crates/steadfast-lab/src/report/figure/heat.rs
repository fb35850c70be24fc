//! Heat maps over the matrix of sizes: the factor to the peer.

use super::curves::{distinct, is_matrix};
use super::{Figure, file_name};
use crate::report::chart::heat::{HeatCell, HeatPanel};
use crate::report::chart::{Drawing, PANEL_WIDTH};
use crate::report::comparison::{Group, View};
use crate::report::format;
use crate::result::{Suite, TargetDescription};

/// The pictures of a suite: one for each file system except the peer, with one panel per test.
pub fn figures(view: &View, suite: &Suite) -> Vec<Figure> {
    let Some(peer) = view.peer() else { return Vec::new() };
    let groups = view.groups(suite);
    let matrices: Vec<&Group> = groups.iter().filter(|group| is_matrix(group)).collect();
    if matrices.is_empty() {
        return Vec::new();
    }
    let figure = |index: usize, target: &TargetDescription| {
        let panels: Vec<Drawing> = matrices
            .iter()
            .filter_map(|group| panel(view, group, target))
            .map(|panel| panel.draw())
            .collect();
        (!panels.is_empty()).then(|| Figure {
            name: file_name(&[&suite.id, "ratio", &target.id]),
            title: format!("{}: {} beside {}", suite.id, target.name, peer.name),
            caption: format!(
                "How many times better (blue, more than 1) or worse (orange) than {}. Cells without colour are within the noise.",
                peer.name
            ),
            alternative: format!("Ratio of {} to {} by file size and record size", target.name, peer.name),
            panels,
            columns: 3,
            first: index == 0,
        })
    };
    view.others().enumerate().filter_map(|(index, (_, target))| figure(index, target)).collect()
}

fn panel(view: &View, group: &Group, target: &TargetDescription) -> Option<HeatPanel> {
    let files = distinct(&group.tests, "file_size");
    let records = distinct(&group.tests, "record_size");
    let mut any = false;
    let mut cell = |file: u64, record: u64| {
        let test = group.tests.iter().find(|test| {
            test.number("file_size") == Some(file) && test.number("record_size") == Some(record)
        })?;
        let against = view.cell(test, target).against?;
        any = true;
        Some(HeatCell {
            ratio: against.factor,
            clear: against.is_clear(),
            tooltip: format!(
                "file {}, record {}: {}{}",
                format::bytes(file as f64),
                format::bytes(record as f64),
                format::factor(against.factor),
                if against.is_clear() { "" } else { ", not more than noise" }
            ),
        })
    };
    let rows = records
        .iter()
        .map(|record| {
            (
                format::bytes_short(*record as f64),
                files.iter().map(|file| cell(*file, *record)).collect(),
            )
        })
        .collect();
    let other = group.others();
    let title = if other.is_empty() {
        group.first.title.clone()
    } else {
        format!("{}, {other}", group.first.title)
    };
    any.then(|| HeatPanel {
        title,
        subtitle: "rows: record size".to_owned(),
        columns: files.iter().map(|file| format::bytes_short(*file as f64)).collect(),
        columns_are: "file size".to_owned(),
        rows,
        width: PANEL_WIDTH,
    })
}
