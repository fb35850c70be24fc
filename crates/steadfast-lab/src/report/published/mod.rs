//! The published comparisons, as they were published, and the lab's tests that answer their rows.
//!
//! The published figures belong to hardware that is ten to twenty-five years old. Only their shape
//! can be compared: which system is ahead, and by what factor. So a row has the factor between the
//! two columns that the publication is about. Next to it is the factor between each target of the
//! run and the peer.

mod tables;

use super::comparison::{Tally, View, why_not};
use super::format;
use crate::result::{Better, Parameter, Suite, TargetDescription, Test};

/// A published comparison.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// The suite that answers it.
    pub suite: &'static str,
    /// The subject of the comparison.
    pub title: &'static str,
    /// Its source: publication, machine and tool.
    pub source: &'static str,
    /// The columns.
    pub columns: &'static [&'static str],
    /// The column that the publication is about, and the column that it is compared with.
    pub factor: (usize, usize),
    /// The rows.
    pub rows: &'static [PublishedRow],
    /// The conclusion from it.
    pub lesson: &'static str,
}

/// A row of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct PublishedRow {
    /// The test, in the words of the publication.
    pub test: &'static str,
    /// Unit of its figures; empty for words.
    pub unit: &'static str,
    /// The direction in which they are better.
    pub better: Better,
    /// A value for each column.
    pub values: &'static [Value],
    /// The tests that answer it.
    pub answer: TestSelection,
}

/// A value of a publication.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// A figure, in the row's unit, digit for digit.
    Is(&'static str),
    /// Words, because some publications have only curves.
    Said(&'static str),
    /// No value.
    Nothing,
}

/// The test that answers a row.
#[derive(Debug, Clone, Copy)]
pub struct TestSelection {
    /// The family of tests.
    pub workload: &'static str,
    /// The names of the tests.
    pub names: &'static [&'static str],
    /// The parameters of the original: the nearest of several tests answers. Without parameters,
    /// all of them answer together.
    pub near: &'static [(&'static str, u64)],
    /// Words that the condition must contain; "half full" does not count as "full".
    pub condition: &'static str,
    /// Only tests with a memory limit, or only those without.
    pub limited: Option<bool>,
}

/// A published row next to the lab's results.
#[derive(Debug, Clone)]
pub struct AnsweredRow {
    /// The test, in the words of the publication.
    pub test: &'static str,
    /// The published values, column by column.
    pub published: Vec<String>,
    /// The published factor of the subject to its counterpart: "times better".
    pub factor: Option<f64>,
    /// The test that answers, with its parameters; empty if none was run.
    pub ours: String,
    /// For each target of the view: its value, and its comparison with the peer.
    pub found: Vec<Found>,
}

/// The result of a target in a row.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The value with its unit; empty if several tests answer, or none.
    pub value: String,
    /// The comparison with the peer.
    pub tally: Option<Tally>,
    /// Whether the medians of the row give another factor; see [`super::table::STAR`].
    pub is_starred: bool,
}

/// The comparison that a suite answers.
#[must_use]
pub fn of_suite(suite: &str) -> Option<&'static Published> {
    tables::ALL.iter().find(|published| published.suite == suite)
}

impl Published {
    /// The rows next to the results of a suite.
    #[must_use]
    pub fn beside<'a>(&self, view: &View<'a>, suite: &'a Suite) -> Vec<AnsweredRow> {
        let line = |row: &PublishedRow| {
            let tests = row.answer.tests(suite);
            AnsweredRow {
                test: row.test,
                published: (0..self.columns.len()).map(|index| row.text(index)).collect(),
                factor: self.row_factor(row),
                ours: describe(&tests),
                found: view.targets.iter().map(|target| found(view, &tests, target)).collect(),
            }
        };
        self.rows.iter().map(line).collect()
    }

    /// How many times better the publication's subject is, if it has figures.
    #[must_use]
    pub fn row_factor(&self, row: &PublishedRow) -> Option<f64> {
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

impl PublishedRow {
    /// The text of a column.
    fn text(&self, column: usize) -> String {
        match self.values.get(column) {
            Some(Value::Is(value)) => format!("{value} {}", self.unit).trim_end().to_owned(),
            Some(Value::Said(words)) => (*words).to_owned(),
            Some(Value::Nothing) | None => "–".to_owned(),
        }
    }
}

impl TestSelection {
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
            // Among equally near tests, the one with fewer parameters wins.
            self.near.iter().map(far).sum::<f64>() + test.parameters.len() as f64 * 1e-3
        };
        fitting.min_by(|a, b| distance(a).total_cmp(&distance(b))).into_iter().collect()
    }
}

/// A description of these tests.
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

fn found<'a>(view: &View<'a>, tests: &[&'a Test], target: &TargetDescription) -> Found {
    let cells: Vec<_> = tests.iter().map(|test| view.cell(test, target)).collect();
    let against: Vec<_> = cells.iter().filter_map(|cell| cell.against).collect();
    let value = match (tests, cells.as_slice()) {
        ([test], [cell]) => match cell.summary {
            Some(summary) => format::value(test.unit, summary.median),
            None => why_not(cell.measurement).to_owned(),
        },
        _ => String::new(),
    };
    let is_starred = matches!(cells.as_slice(), [only] if only.of_medians.is_some());
    Found { value, tally: Tally::of(&against), is_starred }
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
