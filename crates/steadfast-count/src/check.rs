//! Compares measured rows with those of the committed table.

use crate::table::{Row, Table};

/// A count may grow by one part in this many.
const PART: f64 = 20.0;

/// What differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Counts that grew by more than 5 %, and rows that the table does not have.
    pub worse: Vec<String>,
    /// Counts that shrank by more than 5 %.
    pub better: Vec<String>,
}

/// The compared counts: name, value, and a difference that never counts. Small counts are means
/// over repetitions of which few differ.
fn compared(row: &Row) -> [(&'static str, f64, f64); 7] {
    [
        ("instructions", row.instructions as f64, 10.0),
        ("allocations", row.allocations, 0.05),
        ("bytes allocated", row.allocated_bytes as f64, 64.0),
        ("reads of the medium", row.reads, 0.05),
        ("writes to the medium", row.writes, 0.05),
        ("bytes written", row.written_bytes as f64, 64.0),
        ("flushes", row.flushes, 0.05),
    ]
}

/// Compares rows with those of the table.
pub fn check(table: &Table, measured: &[Row]) -> Findings {
    let mut findings = Findings::default();
    for row in measured {
        let Row { system, operation, files, aged, .. } = row;
        let place = format!("{operation}, {files} files{}", if *aged { ", aged" } else { "" });
        let Some(known) = table.row(system, operation, *files, *aged) else {
            findings.worse.push(format!("{place}: not in the table: run 'make count'"));
            continue;
        };
        for ((what, old, slack), (_, new, _)) in compared(known).into_iter().zip(compared(row)) {
            let change = new - old;
            if change.abs() <= slack.max(old / PART) {
                continue;
            }
            let percent = if old > 0.0 {
                format!(" ({:+.1} %)", 100.0 * change / old)
            } else {
                String::new()
            };
            let line = format!("{place}: {what}: {old} before, {new} now{percent}");
            if change > 0.0 { findings.worse.push(line) } else { findings.better.push(line) }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instructions: u64, allocations: f64) -> Row {
        let text = format!(
            r#"{{"system":"steadfast","operation":"mkdir","files":100,"aged":false,
            "instructions":{instructions},"checksum":0,"medium":0,"copying":0,"allocator":0,
            "allocations":{allocations},"allocated_bytes":0,"copied_bytes":null,"first_level_misses":null,
            "last_level_misses":null,"reads":0,"read_bytes":0,"writes":0,"written_bytes":0,
            "flushes":0,"discards":0,"stack":null}}"#
        );
        serde_json::from_str(&text).expect("a row")
    }

    fn found(old: Row, new: Row) -> (usize, usize) {
        let table = Table { rows: vec![old], ..Table::default() };
        let findings = check(&table, &[new]);
        (findings.worse.len(), findings.better.len())
    }

    #[test]
    fn more_than_a_twentieth() {
        assert_eq!(found(row(1000, 2.0), row(1050, 2.09)), (0, 0));
        assert_eq!(found(row(1000, 2.0), row(1051, 2.0)), (1, 0));
        assert_eq!(found(row(1000, 2.0), row(949, 1.8)), (0, 2));
        assert_eq!(found(row(1000, 0.0), row(1000, 1.0)), (1, 0));
    }

    #[test]
    fn unknown_rows_are_findings() {
        let mut other = row(1000, 2.0);
        other.files = 10_000;
        assert_eq!(found(row(1000, 2.0), other), (1, 0));
    }

    #[test]
    fn findings_name_the_count() {
        let table = Table { rows: vec![row(1000, 2.0)], ..Table::default() };
        let findings = check(&table, &[row(2000, 2.0)]);
        let line = "mkdir, 100 files: instructions: 1000 before, 2000 now (+100.0 %)";
        assert_eq!(findings.worse, [line]);
    }
}
