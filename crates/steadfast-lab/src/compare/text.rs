//! A comparison of two runs in a terminal.

use std::fmt::Write;

use super::{Change, Comparison, Difference};
use crate::report::comparison::sign;
use crate::report::format;
use crate::report::format::one_line;
use crate::report::table::{Table, TableCell, TableRow};
use crate::report::terminal::{self, Style};
use crate::statistics::Verdict;

/// The changes as text; with `all`, also the tests that did not change.
#[must_use]
pub fn print(comparison: &Comparison, all: bool, style: Style) -> String {
    let mut text = String::new();
    let count = |verdict| comparison.count(verdict);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{}: {} {} better, {} {} worse, {} within the noise ({}), {} with too few rounds to say",
        format::plural(
            comparison.changes.len() as u64,
            "measurement in common",
            "measurements in common"
        ),
        sign(Verdict::Better),
        count(Verdict::Better),
        sign(Verdict::Worse),
        count(Verdict::Worse),
        count(Verdict::WithinNoise),
        format::noise(comparison.floor),
        count(Verdict::Unknown)
    );
    for circumstance in &comparison.circumstances {
        let _ = writeln!(text, "differs: {}", one_line(circumstance));
    }
    let mut shown: Vec<&Change> = comparison
        .changes
        .iter()
        .filter(|change| all || matches!(change.change.verdict, Verdict::Better | Verdict::Worse))
        .collect();
    if !all {
        // The worst change comes first, the best last.
        shown.sort_by(|a, b| a.change.factor.total_cmp(&b.change.factor));
    }
    text.push('\n');
    if shown.is_empty() {
        text.push_str("Nothing changed by more than noise.\n");
    } else {
        terminal::lay_out(&mut text, &table(comparison, &shown), style);
        text.push_str("Factors are times better than before, in brackets the 95 % interval. ");
        text.push_str("Of unchanged measurements one in twenty leaves its interval by chance.\n");
    }
    for (name, missing) in [("first", &comparison.only_before), ("second", &comparison.only_after)]
    {
        if !missing.is_empty() {
            let measurements = format::plural(missing.len() as u64, "measurement", "measurements");
            let _ = writeln!(text, "{measurements} in the {name} run only.");
        }
    }
    text
}

fn table(comparison: &Comparison, shown: &[&Change]) -> Table {
    let peer = comparison.peer.as_deref();
    let mut head = ["on", "before", "after", "change"].map(str::to_owned).to_vec();
    head.extend(peer.map(|peer| format!("beside {peer}")));
    let entry = |value: String| TableCell { value, ..TableCell::default() };
    let rows = shown.iter().map(|change| {
        let mut cells = vec![
            entry(change.target.clone()),
            entry(format::value(change.unit, change.before)),
            entry(format::value(change.unit, change.after)),
            entry(difference(&change.change)),
        ];
        if peer.is_some() {
            cells.push(entry(change.beside_peer.as_ref().map_or_else(String::new, difference)));
        }
        TableRow { name: format!("{}: {}", change.suite, change.title), cells }
    });
    Table { corner: "test".to_owned(), head, rows: rows.collect() }
}

fn difference(difference: &Difference) -> String {
    let interval = match (difference.low, difference.high) {
        (Some(low), Some(high)) => format!(" ({}–{})", format::factor(low), format::factor(high)),
        _ => String::new(),
    };
    format!("{} {}{interval}", format::factor(difference.factor), sign(difference.verdict))
}
