//! The table in IOzone's format, for users and scripts that know it. The unit is kilobytes per
//! second (1 kB is 1024 bytes), with a row for each file size and record size, in kB.

use std::fmt::Write;

use super::comparison::Group;
use crate::result::{Status, Suite, TargetDescription, Test, Unit};
use crate::statistics;

/// Name of the lab's test, and the two header lines of IOzone's column; the columns are in IOzone's
/// order.
const COLUMNS: [(&str, &str, &str); 13] = [
    ("write", "", "write"),
    ("rewrite", "", "rewrite"),
    ("read", "", "read"),
    ("reread", "", "reread"),
    ("random-read", "random", "read"),
    ("random-write", "random", "write"),
    ("backward-read", "bkwd", "read"),
    ("record-rewrite", "record", "rewrite"),
    ("stride-read", "stride", "read"),
    ("fwrite", "", "fwrite"),
    ("refwrite", "", "frewrite"),
    ("fread", "", "fread"),
    ("refread", "", "freread"),
];

/// Further tests, for which IOzone has separate columns on request.
const FURTHER: [(&str, &str, &str); 4] = [
    ("pwrite", "", "pwrite"),
    ("repwrite", "", "repwrite"),
    ("pread", "", "pread"),
    ("repread", "", "repread"),
];

/// Whether a test belongs into the table: it measures throughput and has both sizes.
fn belongs(test: &Test) -> bool {
    test.workload == "iozone"
        && test.unit == Unit::BytesPerSecond
        && test.number("file_size").is_some()
        && test.number("record_size").is_some()
}

/// The tables of a suite for a target: one for each setting of the other parameters (threads,
/// O_SYNC, …), with the setting as its title. Empty if there is no such test.
#[must_use]
pub fn tables(suite: &Suite, target: &TargetDescription) -> String {
    let mut text = String::new();
    for group in settings(suite) {
        let setting = super::format::parameters(group.first, &["file_size", "record_size"]);
        let body = table(&group.tests, target);
        if !body.is_empty() {
            let comma = if setting.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let name = format!("{}: {}{comma}{setting}", suite.id, target.id);
            let _ = writeln!(text, "{}", super::format::one_line(&name));
            text.push_str(&body);
            text.push('\n');
        }
    }
    text
}

/// The tests, grouped by their other parameters.
fn settings(suite: &Suite) -> Vec<Group<'_>> {
    let other = |test: &Test| {
        let mut parameters = test.parameters.clone();
        // `open` says how files are opened for writing, so reads of the same setting do not have
        // it.
        parameters.retain(|key, _| !["file_size", "record_size", "open"].contains(&key.as_str()));
        parameters
    };
    let mut groups: Vec<Group> = Vec::new();
    for test in suite.tests.iter().filter(|test| belongs(test)) {
        match groups.iter_mut().find(|group| other(group.first) == other(test)) {
            Some(group) => group.tests.push(test),
            None => groups.push(Group { first: test, tests: vec![test] }),
        }
    }
    groups
}

fn table(tests: &[&Test], target: &TargetDescription) -> String {
    let kilobytes = |test: &&Test| {
        let measurement = test.measurement(&target.id).filter(|m| m.status == Status::Ok)?;
        Some(statistics::median(&measurement.values())? / 1024.0)
    };
    let further = FURTHER.iter().filter(|(name, ..)| tests.iter().any(|test| test.name == *name));
    let columns: Vec<_> = COLUMNS.iter().chain(further).collect();
    let known = |test: &Test| columns.iter().any(|(name, ..)| *name == test.name);
    let mut rows: Vec<(u64, u64)> = tests
        .iter()
        .filter(|test| known(test) && kilobytes(test).is_some())
        .filter_map(|test| test.number("file_size").zip(test.number("record_size")))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    let line = |text: &mut String, first: String, cells: Vec<String>| {
        let _ = write!(text, "{first}");
        for cell in cells {
            let _ = write!(text, "{cell:>10}");
        }
        while text.ends_with(' ') {
            text.pop();
        }
        text.push('\n');
    };
    line(
        &mut text,
        " ".repeat(24),
        columns.iter().map(|(_, over, _)| (*over).to_owned()).collect(),
    );
    let head = format!("{:>16}{:>8}", "kB", "reclen");
    line(&mut text, head, columns.iter().map(|(_, _, name)| (*name).to_owned()).collect());
    for (file, record) in rows {
        let cells = columns.iter().map(|(name, ..)| {
            let test = tests.iter().find(|test| {
                test.name == *name
                    && test.number("file_size") == Some(file)
                    && test.number("record_size") == Some(record)
            });
            test.and_then(kilobytes).map_or_else(String::new, |value| format!("{value:.0}"))
        });
        let sizes = format!("{:>16}{:>8}", kilo(file), kilo(record));
        line(&mut text, sizes, cells.collect());
    }
    text
}

/// A size in kB. A fraction is shown as such; IOzone shows none.
fn kilo(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) {
        (bytes / 1024).to_string()
    } else {
        format!("{:.2}", bytes as f64 / 1024.0)
    }
}
