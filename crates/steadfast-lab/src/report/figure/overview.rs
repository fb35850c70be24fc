//! The overview: the factor to the peer, test by test.

use super::{Figure, hue};
use crate::report::chart::PANEL_WIDTH;
use crate::report::chart::forest::{Mark, Panel};
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
    let panels: Vec<_> = suites.filter_map(|suite| panel(view, suite)).collect();
    if panels.is_empty() {
        return None;
    }
    Some(Figure {
        name: "overview".to_owned(),
        title: format!("Times better than {}", peer.name),
        caption: format!(
            "Right is better, left is worse; a full mark is more than noise, a hollow one is not. Bars: 95 % interval, or the range \
             over several sizes (mark: their geometric mean). Grey: noise of this machine, {}.",
            format::percent(view.run.noise.floor)
        ),
        alternative: format!("Ratios of every test to {}", peer.name),
        panels: panels.iter().map(Panel::draw).collect(),
        columns: 3,
        first: true,
    })
}

fn panel(view: &View, suite: &Suite) -> Option<Panel> {
    let peer = view.peer()?;
    let rows: Vec<(String, Vec<Mark>)> = view
        .groups(suite)
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
        .collect();
    if rows.is_empty() {
        return None;
    }
    Some(Panel {
        title: format!("{} · {}", suite.id, suite.title),
        baseline: peer.id.clone(),
        series: view
            .others()
            .map(|(_, target)| (target.id.clone(), hue(view, &target.id)))
            .collect(),
        rows,
        noise: view.run.noise.floor,
        width: PANEL_WIDTH,
    })
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
