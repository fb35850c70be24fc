//! The published comparisons, as they were published, and which of our tests answers which of their
//! rows.
//!
//! Figures belong to their hardware, which is ten to twenty-five years old; what can be compared
//! with ours is their shape: who is ahead of whom, by what factor. So a row has the factor between
//! the two columns that the publication is about, and beside it ours between each target and the
//! peer of the run.

mod tables;

use super::comparison::{Tally, View, why_not};
use super::format;
use crate::result::{Better, Parameter, Suite, Target, Test};

/// A published comparison.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// The suite that answers it.
    pub suite: &'static str,
    /// What was compared.
    pub title: &'static str,
    /// Where it is from: what, on which machine, with which tool.
    pub source: &'static str,
    /// The columns.
    pub columns: &'static [&'static str],
    /// The column that the publication is about, and the one beside which it is put.
    pub factor: (usize, usize),
    /// The rows.
    pub rows: &'static [Row],
    /// What one learns from it.
    pub lesson: &'static str,
}

/// A row of it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The test, in the publication's words.
    pub test: &'static str,
    /// Unit of its figures; nothing for words.
    pub unit: &'static str,
    /// In which direction they are better.
    pub better: Better,
    /// A value for each column.
    pub values: &'static [Value],
    /// Which tests of ours answer it.
    pub answer: Answer,
}

/// What a publication says.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// A figure, in the row's unit, digit for digit.
    Is(&'static str),
    /// Words: some publications have curves only.
    Said(&'static str),
    /// Nothing.
    Nothing,
}

/// Which of our tests answers a row.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The family of tests.
    pub workload: &'static str,
    /// The tests.
    pub names: &'static [&'static str],
    /// The parameters of the original: of several tests the nearest one answers. Without any, all
    /// of them together do.
    pub near: &'static [(&'static str, u64)],
    /// Words that the condition must contain; "half full" is not "full".
    pub condition: &'static str,
    /// Only tests with a limit of memory, or only those without.
    pub limited: Option<bool>,
}

/// A published row beside ours.
#[derive(Debug, Clone)]
pub struct Line {
    /// The test, in the publication's words.
    pub test: &'static str,
    /// What the publication has, column by column.
    pub published: Vec<String>,
    /// The factor of the publication's subject to what it is compared with: "times better".
    pub factor: Option<f64>,
    /// Which of our tests answers, with its parameters; nothing if none was run.
    pub ours: String,
    /// Of each target of the view: its value, and how it compares with the peer.
    pub found: Vec<Found>,
}

/// What a target has to say in a row.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The value with its unit; empty if several tests answer, or none.
    pub value: String,
    /// Together with the peer.
    pub tally: Option<Tally>,
}

/// The comparison that a suite answers.
#[must_use]
pub fn of_suite(suite: &str) -> Option<&'static Published> {
    tables::ALL.iter().find(|published| published.suite == suite)
}

impl Published {
    /// The rows beside what a suite has found.
    #[must_use]
    pub fn beside<'a>(&self, view: &View<'a>, suite: &'a Suite) -> Vec<Line> {
        let line = |row: &Row| {
            let tests = row.answer.tests(suite);
            Line {
                test: row.test,
                published: (0..self.columns.len()).map(|index| row.text(index)).collect(),
                factor: self.row_factor(row),
                ours: describe(&tests),
                found: view.targets.iter().map(|target| found(view, &tests, target)).collect(),
            }
        };
        self.rows.iter().map(line).collect()
    }

    /// How many times better the publication's subject is, where it has figures.
    #[must_use]
    pub fn row_factor(&self, row: &Row) -> Option<f64> {
        let figure = |index: usize| match row.values.get(index) {
            Some(Value::Is(value)) => value.parse::<f64>().ok(),
            _ => None,
        };
        let (subject, other) = (figure(self.factor.0)?, figure(self.factor.1)?);
        Some(match row.better {
            Better::Higher => subject / other,
            Better::Lower => other / subject,
        })
    }
}

impl Row {
    /// What a column says.
    fn text(&self, column: usize) -> String {
        match self.values.get(column) {
            Some(Value::Is(value)) => format!("{value} {}", self.unit).trim_end().to_owned(),
            Some(Value::Said(words)) => (*words).to_owned(),
            Some(Value::Nothing) | None => "–".to_owned(),
        }
    }
}

impl Answer {
    /// The tests of a suite that answer.
    fn tests<'a>(&self, suite: &'a Suite) -> Vec<&'a Test> {
        let fits = |test: &&Test| {
            let condition = match test.parameters.get("condition") {
                Some(Parameter::Text(text)) => text.as_str(),
                _ => "",
            };
            test.workload == self.workload
                && self
                    .limited
                    .is_none_or(|limited| limited == test.parameters.contains_key("memory_limit"))
                && self.names.contains(&test.name.as_str())
                && (self.condition.is_empty()
                    || condition.contains(self.condition) && !condition.contains("half"))
        };
        let fitting = suite.tests.iter().filter(fits);
        if self.near.is_empty() && self.condition.is_empty() {
            return fitting.collect();
        }
        let distance = |test: &Test| -> f64 {
            let far = |(key, wanted): &(&str, u64)| match test.number(key) {
                Some(value) => ((value.max(1)) as f64 / *wanted as f64).log2().abs(),
                None => 100.0,
            };
            // Of tests that are as near, the plain one: with fewer parameters.
            self.near.iter().map(far).sum::<f64>() + test.parameters.len() as f64 * 1e-3
        };
        fitting.min_by(|a, b| distance(a).total_cmp(&distance(b))).into_iter().collect()
    }
}

/// Which of our tests these are.
fn describe(tests: &[&Test]) -> String {
    if let [only] = tests {
        return format::test(only);
    }
    let mut titles: Vec<&str> = Vec::new();
    for test in tests {
        if !titles.contains(&test.title.as_str()) {
            titles.push(&test.title);
        }
    }
    if titles.is_empty() {
        String::new()
    } else {
        format!("{}: {} tests", titles.join(", "), tests.len())
    }
}

fn found<'a>(view: &View<'a>, tests: &[&'a Test], target: &Target) -> Found {
    let cells: Vec<_> = tests.iter().map(|test| view.cell(test, target)).collect();
    let against: Vec<_> = cells.iter().filter_map(|cell| cell.against).collect();
    let value = match (tests, cells.as_slice()) {
        ([test], [cell]) => match cell.summary {
            Some(summary) => format::value(test.unit, summary.median),
            None => why_not(cell.measurement).to_owned(),
        },
        _ => String::new(),
    };
    Found { value, tally: Tally::of(&against) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_whole() {
        for published in tables::ALL {
            assert!(!published.rows.is_empty() && !published.source.is_empty());
            assert!(
                published.factor.0 < published.columns.len()
                    && published.factor.1 < published.columns.len()
            );
            for row in published.rows {
                assert_eq!(
                    row.values.len(),
                    published.columns.len(),
                    "{}: {}",
                    published.suite,
                    row.test
                );
                for value in row.values {
                    assert!(
                        !matches!(value, Value::Is(text) if text.parse::<f64>().is_err()),
                        "{value:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn factors_are_times_better() {
        let published = of_suite("b1").unwrap();
        let factor = |test: &str| {
            published
                .row_factor(published.rows.iter().find(|row| row.test.starts_with(test)).unwrap())
                .unwrap()
        };
        assert!((factor("sequential write") - 2.04 / 1.47).abs() < 1e-9);
        assert!(factor("general") < 1.0, "dosFs was ahead");
        assert!((factor("boot") - 4.0).abs() < 1e-9, "less is better");
        assert!(of_suite("b9").is_none());
    }
}
