//! The goals of Steadfast, and what a run of the suite `goals` says of each: reached, missed, or
//! too close to say.
//!
//! A goal asks for a factor beside a peer of the same run ("at least 0.95 × ext4", where more is
//! always better: half the time is 2 ×), or for a plain number ("at most 2.5"). Where several tests
//! belong to one goal, those of one column (the same test in other sizes) are taken together as a
//! geometric mean, and the worst column counts: no average hides a column.
//!
//! # The rule
//!
//! *met* and *not met* need the whole 95 % interval on one side of what is asked, and a distance of
//! more than the noise of the machine. Anything else is *within noise*; with one round nothing is
//! said. What is counted and not timed (requests at the medium) needs no interval.
//!
//! # The floor
//!
//! Beside some goals stands what another target reaches of the same, beside the same peer: one that
//! has the transport or the medium in common with ours and does less. What is asked beyond it no
//! code of ours can reach.

mod list;
mod reached;

use super::comparison::View;
use super::format;
use super::table::{Entry, Row, Table};
use crate::result::{RunResult, Suite};
use crate::statistics::Verdict;
pub use crate::suite::goals::ID;

use list::{Asked, Goal};
use reached::{Judged, Reached};

/// The table of the goals; nothing where the run has not measured them.
#[must_use]
pub fn table(view: &View) -> Option<Table> {
    let suite = suite(view.run)?;
    let rows: Vec<Row> =
        list::goals().iter().filter_map(|goal| row(view.run, suite, goal)).collect();
    let head = ["asked", "reached", "95 % interval", "", "floor", "worst of"];
    Some(Table { corner: "goal".into(), head: head.map(String::from).into(), rows })
}

/// The table without the columns for which a terminal of this width has no room.
#[must_use]
pub fn fitting(table: &Table, width: u16) -> Table {
    // The worst column of a goal goes first, then the interval, then the floor.
    let kept: &[usize] = match width {
        ..150 => &[0, 1, 3],
        150..170 => &[0, 1, 3, 4],
        170..200 => &[0, 1, 2, 3, 4],
        _ => &[0, 1, 2, 3, 4, 5],
    };
    fn only<T: Clone>(all: &[T], kept: &[usize]) -> Vec<T> {
        kept.iter().filter_map(|place| all.get(*place).cloned()).collect()
    }
    let rows =
        table.rows.iter().map(|row| Row { name: row.name.clone(), cells: only(&row.cells, kept) });
    Table { corner: table.corner.clone(), head: only(&table.head, kept), rows: rows.collect() }
}

/// How many goals there are, reached or not.
#[must_use]
pub fn all() -> usize {
    list::goals().len()
}

/// How many goals are met, are not, and are within the noise.
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

/// The suite of the goals, if it is in the run.
fn suite(run: &RunResult) -> Option<&Suite> {
    run.suites.iter().find(|suite| suite.id == ID)
}

/// A goal's row; nothing if no target that it is about took part.
fn row(run: &RunResult, suite: &Suite, goal: &Goal) -> Option<Row> {
    // Of alternatives the one that is nearest to being met.
    let judged = goal.asked.iter().filter_map(|asked| {
        let reached = reached::of(run, suite, goal, asked)?;
        Some((asked, reached))
    });
    let (asked, best) =
        judged.max_by(|(_, one), (_, other)| one.margin.total_cmp(&other.margin))?;
    Some(Row { name: goal.name.into(), cells: cells(goal, asked, &best) })
}

fn cells(goal: &Goal, asked: &Asked, reached: &Reached) -> Vec<Entry> {
    let plain = |value: String| Entry { value, ..Entry::default() };
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
        Entry { comparison: reached.judged.text().into(), verdict, ..Entry::default() },
        plain(floor.unwrap_or_default()),
        plain(reached.worst.clone()),
    ]
}
