//! The overview: the factor to the peer, test by test.

use super::{Figure, hue};
use crate::report::chart::PANEL_WIDTH;
use crate::report::chart::forest::{self, ForestPanel, Mark};
use crate::report::comparison::{Group, Tally, View};
use crate::report::table::group_name;
use crate::report::{format, goals};
use crate::result::Suite;
use crate::statistics::Verdict;

/// The picture.
pub fn figure(view: &View) -> Option<Figure> {
    let peer = view.peer()?;
    // The goals have a separate table with more detail and several peers.
    let suites = view.run.suites.iter().filter(|suite| suite.id != goals::ID);
    let suites: Vec<_> = suites.map(|suite| (suite, rows(view, suite))).collect();
    let suites: Vec<_> = suites.into_iter().filter(|(_, rows)| !rows.is_empty()).collect();
    let most = most_rows(&suites.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>());
    let panels: Vec<ForestPanel> =
        suites.into_iter().flat_map(|(suite, rows)| panels(view, suite, rows, most)).collect();
    if panels.is_empty() {
        return None;
    }
    Some(Figure {
        name: "overview".to_owned(),
        title: format!("Times better than {}", peer.name),
        caption: format!(
            "Right is better, left is worse; a full mark is more than noise, a hollow one is not. Bars: 95 % interval, or the range \
             over several sizes (mark: their geometric mean). Grey: noise of this machine, {}.",
            format::noise(view.run.noise.floor)
        ),
        alternative: format!("Ratios of every test to {}", peer.name),
        panels: panels.iter().map(ForestPanel::draw).collect(),
        columns: COLUMNS,
        first: true,
    })
}

/// Panels side by side on a screen.
const COLUMNS: usize = 3;
/// A panel with fewer rows than this is not divided.
const FEW_ROWS: usize = 8;

/// The most rows of a panel. One or two long suites are divided, so that they fill the width
/// instead of leaving it empty beside a long column.
fn most_rows(suites: &[usize]) -> usize {
    match suites.len() {
        0..COLUMNS => suites.iter().sum::<usize>().div_ceil(COLUMNS).max(FEW_ROWS),
        _ => usize::MAX,
    }
}

/// The tests of a suite with their marks.
fn rows(view: &View, suite: &Suite) -> Vec<(String, Vec<Mark>)> {
    view.groups(suite)
        .iter()
        .map(|group| {
            let marks = view.others().enumerate();
            let marks = marks.filter_map(|(series, (_, target))| {
                let tally = view.tally(group, target)?;
                Some(mark(view, group, series, &target.id, &tally))
            });
            (group_name(group), marks.collect::<Vec<_>>())
        })
        .filter(|(_, marks)| !marks.is_empty())
        .collect()
}

/// The panels of a suite: one, or several of about equal length with the same axis.
fn panels(
    view: &View,
    suite: &Suite,
    rows: Vec<(String, Vec<Mark>)>,
    most: usize,
) -> Vec<ForestPanel> {
    let Some(peer) = view.peer() else { return Vec::new() };
    let count = rows.len().div_ceil(most).max(1);
    let range = forest::range(&rows);
    let parts = rows.chunks(rows.len().div_ceil(count).max(1)).enumerate();
    parts
        .map(|(index, rows)| ForestPanel {
            title: match count {
                1 => format!("{} · {}", suite.id, suite.title),
                _ => format!("{} · {} ({} of {count})", suite.id, suite.title, index + 1),
            },
            baseline: peer.id.clone(),
            series: view
                .others()
                .map(|(_, target)| (target.id.clone(), hue(view, &target.id)))
                .collect(),
            rows: rows.to_vec(),
            range,
            noise: view.run.noise.floor,
            width: PANEL_WIDTH,
        })
        .collect()
}

fn mark(view: &View, group: &Group, series: usize, target: &str, tally: &Tally) -> Mark {
    let single = match group.tests.as_slice() {
        [only] => view.run.target(target).and_then(|target| view.cell(only, target).against),
        _ => None,
    };
    let interval = match single {
        Some(against) => against.interval,
        None => Some(tally.range),
    };
    let clear = matches!(tally.verdict(), Verdict::Better | Verdict::Worse);
    let said = match tally.verdict() {
        Verdict::Better | Verdict::Worse => "",
        Verdict::WithinNoise => ", not more than noise",
        Verdict::Unknown => ", too few rounds to say",
    };
    let tooltip = format!("{target}: {}{said}", format::factor(tally.factor));
    Mark { series, ratio: tally.factor, interval, clear, tooltip }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_suites_fill_the_width_and_many_stay_whole() {
        assert_eq!(most_rows(&[30]), 10);
        assert_eq!(most_rows(&[5, 11]), FEW_ROWS);
        assert_eq!(most_rows(&[30, 2, 2]), usize::MAX);
        assert_eq!(most_rows(&[]), FEW_ROWS);
    }
}
