//! The goals of Steadfast, and the verdict of a run of the suite `goals` on each: reached, missed,
//! or too close to say.
//!
//! A goal requires a factor to a peer of the same run ("at least 0.95 × ext4"), or a plain number
//! ("at most 2.5"). For a factor, more is always better: half the time is 2 ×. If several tests
//! belong to one goal, those of one column (the same test in other sizes) are combined as a
//! geometric mean. The worst column counts, so no average hides a column.
//!
//! # The rule
//! *met* and *not met* need two conditions. The whole 95 % interval is on one side of the
//! requirement, and the distance is more than the noise of the machine. Anything else is *within
//! noise*; with one round there is no verdict. Counts (requests at the medium) are not times, and
//! need no interval.
//!
//! # The floor
//! Some goals also show the value of another target, compared with the same peer. That target has
//! the transport or the medium in common with Steadfast and does less. No code of Steadfast can
//! reach more than that.

mod list;
mod reached;

use super::comparison::View;
use super::format;
use super::table::{Table, TableCell, TableRow};
use crate::result::{RunResult, Suite};
use crate::statistics::Verdict;
pub use crate::suite::goals::ID;

use list::{Asked, Goal};
use reached::{Judged, Reached};

/// The table of the goals; `None` if the run has not measured them.
#[must_use]
pub fn table(view: &View) -> Option<Table> {
    let suite = suite(view.run)?;
    let rows: Vec<TableRow> =
        list::goals().iter().filter_map(|goal| row(view.run, suite, goal)).collect();
    let head = ["asked", "reached", "95 % interval", "", "floor", "worst of"];
    Some(Table { corner: "goal".into(), head: head.map(String::from).into(), rows })
}

/// The table without the columns that do not fit a terminal of this width.
#[must_use]
pub fn fitting(table: &Table, width: u16) -> Table {
    // Columns are dropped in this order: the worst column of a goal, the interval, the floor.
    let kept: &[usize] = match width {
        ..150 => &[0, 1, 3],
        150..170 => &[0, 1, 3, 4],
        170..200 => &[0, 1, 2, 3, 4],
        _ => &[0, 1, 2, 3, 4, 5],
    };
    fn only<T: Clone>(all: &[T], kept: &[usize]) -> Vec<T> {
        kept.iter().filter_map(|place| all.get(*place).cloned()).collect()
    }
    let rows = table
        .rows
        .iter()
        .map(|row| TableRow { name: row.name.clone(), cells: only(&row.cells, kept) });
    Table { corner: table.corner.clone(), head: only(&table.head, kept), rows: rows.collect() }
}

/// The number of goals, reached or not.
#[must_use]
pub fn all() -> usize {
    list::goals().len()
}

/// The number of goals that are met, not met, and within the noise.
#[must_use]
pub fn count(table: &Table) -> String {
    let of = |judged: Judged| {
        let said = table
            .rows
            .iter()
            .filter(|row| row.cells.get(3).is_some_and(|cell| cell.comparison == judged.text()));
        format!("{} {}", said.count(), judged.text())
    };
    [Judged::Met, Judged::NotMet, Judged::WithinNoise, Judged::Unknown].map(of).join(", ")
}

/// The suite of the goals, if the run contains it.
fn suite(run: &RunResult) -> Option<&Suite> {
    run.suites.iter().find(|suite| suite.id == ID)
}

/// A goal's row; `None` if its target did not take part.
fn row(run: &RunResult, suite: &Suite, goal: &Goal) -> Option<TableRow> {
    // Of several requirements, the one nearest to being met counts.
    let judged = goal.asked.iter().filter_map(|asked| {
        let reached = reached::of(run, suite, goal, asked)?;
        Some((asked, reached))
    });
    let (asked, best) =
        judged.max_by(|(_, one), (_, other)| one.margin.total_cmp(&other.margin))?;
    Some(TableRow { name: goal.name.into(), cells: cells(goal, asked, &best) })
}

fn cells(goal: &Goal, asked: &Asked, reached: &Reached) -> Vec<TableCell> {
    let plain = |value: String| TableCell { value, ..TableCell::default() };
    let wanted: Vec<String> = goal.asked.iter().map(Asked::text).collect();
    let number = |value: f64| match asked {
        Asked::Beside { .. } => format::factor(value),
        Asked::AtMost(_) | Asked::Shown(_) => reached.text(value),
    };
    let interval = match reached.interval {
        Some((low, high)) => format!("{} – {}", number(low), number(high)),
        None => String::new(),
    };
    let verdict = match reached.judged {
        Judged::Met => Some(Verdict::Better),
        Judged::NotMet => Some(Verdict::Worse),
        Judged::WithinNoise => Some(Verdict::WithinNoise),
        Judged::Unknown => Some(Verdict::Unknown),
        Judged::Shown => None,
    };
    let beside = match asked {
        Asked::Beside { peer, .. } if goal.asked.len() > 1 => {
            format!("{} ({peer})", number(reached.value))
        }
        _ => number(reached.value),
    };
    let floor = reached
        .floor
        .zip(goal.floor)
        .map(|(value, target)| format!("{} ({target})", number(value)));
    vec![
        plain(wanted.join(" or ")),
        plain(beside),
        plain(interval),
        TableCell { comparison: reached.judged.text().into(), verdict, ..TableCell::default() },
        plain(floor.unwrap_or_default()),
        plain(reached.worst.clone()),
    ]
}
