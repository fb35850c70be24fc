//! Tables of a run, for the terminal and for the page.

use super::comparison::{ComparisonCell, Group, Tally, View, sign, why_not};
use super::format;
use crate::result::{Status, Suite, Test};
use crate::statistics::Verdict;

/// A table with one row per test and one column per target.
#[derive(Debug, Clone)]
pub struct Table {
    /// Heading of the row names.
    pub corner: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<TableRow>,
}

/// A row.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// One cell per column.
    pub cells: Vec<TableCell>,
}

/// The contents of a cell.
#[derive(Debug, Clone, Default)]
pub struct TableCell {
    /// The value with its unit, or the reason why there is none.
    pub value: String,
    /// The spread of the rounds: `±2 %`.
    pub spread: String,
    /// The comparison with the peer: `0.82× ▼`.
    pub comparison: String,
    /// The verdict of the comparison, if there is one.
    pub verdict: Option<Verdict>,
    /// Whether the values shown give another factor than the comparison. It then ends with a
    /// [`STAR`], and [`Table::note`] explains it.
    pub is_starred: bool,
    /// Further information, shown on hover.
    pub tooltip: String,
}

/// The sign after a factor that the two values beside it do not give.
pub const STAR: &str = "*";

/// The explanation of the [`STAR`].
pub const NOTE: &str = "* Taken round by round. The two medians alone give another factor, \
    because the rounds differ.";

impl Table {
    /// The cells of a row with the names of their columns.
    pub fn named<'t>(
        &'t self,
        row: &'t TableRow,
    ) -> impl Iterator<Item = (&'t str, &'t TableCell)> {
        self.head.iter().map(String::as_str).zip(&row.cells)
    }

    /// The sentence below the table, if one of its factors needs it.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        let mut cells = self.rows.iter().flat_map(|row| &row.cells);
        cells.any(|cell| cell.is_starred).then_some(NOTE)
    }
}

impl TableCell {
    /// A word for use in style sheets.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self.verdict {
            Some(Verdict::Better) => "better",
            Some(Verdict::Worse) => "worse",
            Some(Verdict::WithinNoise) => "same",
            Some(Verdict::Unknown) => "unknown",
            None => "plain",
        }
    }
}

fn head(view: &View) -> Vec<String> {
    view.targets.iter().map(|target| target.id.clone()).collect()
}

/// One row per group of tests, for a summary. Tests that differ only in sizes share a row.
#[must_use]
pub fn summary<'a>(view: &View<'a>, suite: &'a Suite) -> Table {
    let groups = view.groups(suite);
    let rows = groups.iter().map(|group| match group.tests.as_slice() {
        [only] => row(view, only),
        _ => TableRow {
            name: group_name(group),
            cells: view.targets.iter().map(|target| over_sizes(view, group, target)).collect(),
        },
    });
    Table { corner: "test".to_owned(), head: head(view), rows: rows.collect() }
}

/// One row per test.
#[must_use]
pub fn full<'a>(view: &View<'a>, suite: &'a Suite) -> Table {
    let rows = suite.tests.iter().map(|test| row(view, test)).collect();
    Table { corner: "test".to_owned(), head: head(view), rows }
}

/// Name of a group, with the number of its sizes.
#[must_use]
pub fn group_name(group: &Group) -> String {
    match group.tests.as_slice() {
        [only] => format::test(only),
        tests => {
            let other = group.others();
            let comma = if other.is_empty() { "" } else { ", " };
            format!("{}{comma}{other} ({} sizes)", group.first.title, tests.len())
        }
    }
}

fn row<'a>(view: &View<'a>, test: &'a Test) -> TableRow {
    let cells = view.targets.iter().map(|target| entry(test, &view.cell(test, target)));
    TableRow { name: format::test(test), cells: cells.collect() }
}

fn entry(test: &Test, cell: &ComparisonCell) -> TableCell {
    let Some(summary) = cell.summary else {
        let tooltip = match cell.measurement.map(|measurement| &measurement.status) {
            Some(Status::Skipped { reason } | Status::Failed { reason }) => reason.clone(),
            _ => String::new(),
        };
        return TableCell {
            value: why_not(cell.measurement).to_owned(),
            tooltip,
            ..TableCell::default()
        };
    };
    let value = |value| format::value(test.unit, value);
    let mut tooltip = format!(
        "{}: median {}, least {}, most {}",
        format::plural(summary.count as u64, "round", "rounds"),
        value(summary.median),
        value(summary.least),
        value(summary.most)
    );
    if let Some((low, high)) = cell.against.and_then(|against| against.interval) {
        tooltip += &format!("; 95 % interval {} to {}", format::factor(low), format::factor(high));
    }
    if let Some(factor) = cell.of_medians {
        tooltip += &format!("; the two medians alone give {}", format::factor(factor));
    }
    let star = if cell.of_medians.is_some() { STAR } else { "" };
    TableCell {
        value: value(summary.median),
        spread: if summary.count > 1 {
            format!("±{}", format::percent(summary.spread))
        } else {
            String::new()
        },
        comparison: cell.against.map_or_else(String::new, |against| {
            format!("{} {}{star}", format::factor(against.factor), sign(against.verdict))
        }),
        verdict: cell.against.map(|against| against.verdict),
        is_starred: cell.of_medians.is_some(),
        tooltip,
    }
}

/// All sizes of a group on a target.
fn over_sizes(view: &View, group: &Group, target: &crate::result::TargetDescription) -> TableCell {
    let medians: Vec<f64> = group
        .tests
        .iter()
        .filter_map(|test| view.cell(test, target).summary)
        .map(|summary| summary.median)
        .collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let most = medians.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if medians.is_empty() {
        let first = group.tests.first().and_then(|test| test.measurement(&target.id));
        return TableCell { value: why_not(first).to_owned(), ..TableCell::default() };
    }
    let unit = group.first.unit;
    let range = format!("{} – {}", format::value(unit, least), format::value(unit, most));
    match view.tally(group, target) {
        None => TableCell { value: range, ..TableCell::default() },
        Some(tally) => TableCell {
            tooltip: format!(
                "factors from {} to {}, geometric mean {}",
                format::factor(tally.range.0),
                format::factor(tally.range.1),
                format::factor(tally.factor)
            ),
            value: range,
            spread: String::new(),
            comparison: of_tally(&tally),
            verdict: Some(tally.verdict()),
            is_starred: false,
        },
    }
}

/// A tally in short: `0.82× ▼ (▲2 ≈1 ▼3)`.
#[must_use]
pub fn of_tally(tally: &Tally) -> String {
    let counts: Vec<String> = [
        (tally.better, Verdict::Better),
        (tally.same, Verdict::WithinNoise),
        (tally.worse, Verdict::Worse),
        (tally.unknown, Verdict::Unknown),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, verdict)| format!("{}{count}", sign(verdict)))
    .collect();
    let single = tally.better + tally.same + tally.worse + tally.unknown <= 1;
    let counts = if single { String::new() } else { format!(" ({})", counts.join(" ")) };
    format!("{} {}{counts}", format::factor(tally.factor), sign(tally.verdict()))
}

/// The costs of the tests other than time: processor, memory, bytes at the medium. Rows without a
/// value on any target are left out.
#[must_use]
pub fn cost<'a>(view: &View<'a>, suite: &'a Suite) -> Table {
    let mut rows = Vec::new();
    for group in view.groups(suite) {
        let name = group_name(&group);
        for (what, measure) in MEASURES {
            let cells: Vec<TableCell> = view
                .targets
                .iter()
                .map(|target| {
                    let value = measure(&group, &target.id).unwrap_or_else(|| "–".to_owned());
                    TableCell { value, ..TableCell::default() }
                })
                .collect();
            if cells.iter().any(|cell| cell.value != "–") {
                rows.push(TableRow { name: format!("{name}: {what}"), cells });
            }
        }
    }
    Table { corner: "cost of".to_owned(), head: head(view), rows }
}

/// A cost of a group of tests on a target, if it was counted.
type CostOf = fn(&Group, &str) -> Option<String>;

const MEASURES: [(&str, CostOf); 3] = [
    ("processor time", |group, target| {
        let (mut seconds, mut bytes, mut operations) = (0.0, 0.0, 0.0);
        for measurement in group.tests.iter().filter_map(|test| test.measurement(target)) {
            let Some(cpu) = &measurement.cpu else { continue };
            seconds += cpu.total();
            bytes += measurement.samples.iter().map(|sample| sample.bytes as f64).sum::<f64>();
            operations +=
                measurement.samples.iter().map(|sample| sample.operations as f64).sum::<f64>();
        }
        const GIB: f64 = 1_073_741_824.0;
        match () {
            () if seconds == 0.0 => None,
            () if bytes > 0.0 => Some(format!("{}/GiB", format::seconds(seconds / (bytes / GIB)))),
            () if operations > 0.0 => Some(format!("{}/op", format::seconds(seconds / operations))),
            () => None,
        }
    }),
    ("memory at most", |group, target| {
        let found = group.tests.iter().filter_map(|test| test.measurement(target)?.memory);
        found.map(|memory| memory.resident_most).max().map(|most| format::bytes(most as f64))
    }),
    ("bytes at the medium for one asked", |group, target| {
        let media = group.tests.iter().filter_map(|test| test.measurement(target)?.medium);
        let (asked, written) = media.fold((0.0, 0.0), |(asked, written), medium| {
            (asked + medium.bytes_asked as f64, written + medium.bytes_written as f64)
        });
        (asked > 0.0).then(|| format!("{:.2}", written / asked))
    }),
];
