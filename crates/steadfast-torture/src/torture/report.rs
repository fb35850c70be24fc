//! The page about a campaign: the tries, the findings, and how much they prove.
//!
//! It is one self-contained file: style and picture are inside, there is no script, and it has a
//! light and a dark form.

use std::fmt::Write;

use askama::Template;

use super::campaign::{Cell, Outcome, Sample};
use crate::medium::MediumProfile;

/// Facts on the page in addition to the outcome.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Version of the program.
    pub version: String,
    /// The first seed.
    pub first_seed: u64,
    /// Threads.
    pub jobs: usize,
    /// The command that ran the campaign.
    pub command: String,
    /// The planted fault, if any.
    pub planted: Option<String>,
    /// Returns the command that replays a violation, given its name.
    pub replay: fn(&str) -> String,
}

/// A row of the table.
struct Row {
    profile: &'static str,
    medium: &'static str,
    sequences: String,
    operations: String,
    cuts: String,
    recovery_cuts: String,
    later_points: String,
    violations: u64,
}

/// A violation on the page.
struct Violation {
    name: String,
    what: String,
    world: String,
    command: String,
    shortened: String,
    cuts: Vec<String>,
    operations: Vec<String>,
}

#[derive(Template)]
#[template(path = "torture.html")]
struct Page<'a> {
    facts: &'a Facts,
    clean: bool,
    violations_count: u64,
    cuts: String,
    /// Worlds played.
    worlds: String,
    /// Seeds whose medium is too small for a volume; they are not worlds.
    too_small: u64,
    seconds: String,
    cuts_per_second: String,
    operations: String,
    recovery_cuts: String,
    later_points: String,
    no_space: String,
    bound: String,
    rows: Vec<Row>,
    total: Row,
    media: Vec<MediumProfile>,
    chart: Chart,
    violations: Vec<Violation>,
}

/// The page as HTML.
///
/// # Errors
/// Formatting fails, which does not happen when writing to memory.
pub fn render(facts: &Facts, outcome: &Outcome) -> Result<String, std::fmt::Error> {
    let violations_count = outcome.cells.values().map(|cell| cell.violations).sum();
    let seconds = outcome.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { outcome.total.cuts as f64 / seconds } else { 0.0 };
    let rows =
        outcome.cells.iter().map(|((profile, medium), cell)| row(profile, medium, cell)).collect();
    let total = Cell { tally: outcome.total, violations: violations_count };
    let page = Page {
        facts,
        clean: violations_count == 0,
        violations_count,
        cuts: grouped(outcome.total.cuts),
        worlds: grouped(outcome.total.sequences),
        too_small: outcome.seeds.saturating_sub(outcome.total.sequences),
        seconds: format!("{seconds:.1}"),
        cuts_per_second: grouped(rate as u64),
        operations: grouped(outcome.total.operations),
        recovery_cuts: grouped(outcome.total.recovery_cuts),
        later_points: grouped(outcome.total.later_points),
        no_space: grouped(outcome.total.no_space),
        bound: bound(outcome.total.sequences),
        rows,
        total: row("all", "all", &total),
        media: MediumProfile::ALL
            .into_iter()
            .filter(|medium| outcome.cells.keys().any(|(_, name)| *name == medium.name))
            .collect(),
        chart: Chart::new(&outcome.samples),
        violations: outcome
            .findings
            .iter()
            .map(|finding| Violation {
                name: finding.name.to_string(),
                what: finding.violation.what.clone(),
                world: finding.world.clone(),
                command: (facts.replay)(&finding.name.to_string()),
                shortened: format!(
                    "{} operations when it was found, {} with those of the recovery in the shortest \
                     sequence found that still fails",
                    finding.operations_found,
                    finding.violation.operations.len()
                ),
                cuts: finding
                    .violation
                    .cuts
                    .iter()
                    .map(|(event, survival)| format!("at I/O {event}; what survives: {survival:?}"))
                    .collect(),
                operations: finding
                    .violation
                    .operations
                    .iter()
                    .map(|operation| format!("{operation:?}"))
                    .collect(),
            })
            .collect(),
    };
    page.render().map_err(|_| std::fmt::Error)
}

fn row(profile: &'static str, medium: &'static str, cell: &Cell) -> Row {
    let tally = &cell.tally;
    Row {
        profile,
        medium,
        sequences: grouped(tally.sequences),
        operations: grouped(tally.operations),
        cuts: grouped(tally.cuts),
        recovery_cuts: grouped(tally.recovery_cuts),
        later_points: grouped(tally.later_points),
        violations: cell.violations,
    }
}

/// The share of worlds that could fail if this many were clean, at 95 % confidence: the rule of
/// three. The cuts of one world are too similar to be counted one by one.
fn bound(sequences: u64) -> String {
    if sequences < 30 {
        "too few were tried to say".to_owned()
    } else {
        format!("less than {:.3} %, at 95 % confidence", 300.0 / sequences as f64)
    }
}

/// A number with thin spaces between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Cuts over time as the pieces of an SVG picture.
struct Chart {
    line: String,
    area: String,
    /// Positions of violations: x, y.
    marks: Vec<(String, String)>,
    /// Height and text of each line of the grid.
    levels: Vec<(String, String)>,
    /// Position and text below the picture.
    times: Vec<(String, String)>,
}

const LEFT: f64 = 74.0;
const RIGHT: f64 = 786.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 222.0;

impl Chart {
    fn new(samples: &[Sample]) -> Chart {
        let last = samples.last().map_or((0.0, 0), |sample| (sample.seconds, sample.cuts));
        let (seconds, cuts) = (last.0.max(0.001), nice_above(last.1));
        let x = |at: f64| LEFT + (RIGHT - LEFT) * at / seconds;
        let y = |at: u64| BOTTOM - (BOTTOM - TOP) * at as f64 / cuts as f64;
        let mut line = String::new();
        let mut marks = Vec::new();
        let mut violations = 0;
        for sample in samples {
            // Writing to a string does not fail.
            let _ = write!(line, "{:.1},{:.1} ", x(sample.seconds), y(sample.cuts));
            if sample.violations > violations {
                violations = sample.violations;
                marks.push((format!("{:.1}", x(sample.seconds)), format!("{:.1}", y(sample.cuts))));
            }
        }
        let area = format!("{LEFT:.1},{BOTTOM:.1} {line}{:.1},{BOTTOM:.1}", x(last.0));
        let levels = (0..=4)
            .map(|part| cuts * part / 4)
            .map(|at| (format!("{:.1}", y(at)), grouped(at)))
            .collect();
        let times = (0..=4)
            .map(|part| last.0 * f64::from(part) / 4.0)
            .map(|at| {
                (
                    format!("{:.1}", x(at)),
                    if last.0 < 20.0 { format!("{at:.1} s") } else { format!("{at:.0} s") },
                )
            })
            .collect();
        Chart { line, area, marks, levels, times }
    }
}

/// The next number at or above `number` that divides well into four.
fn nice_above(number: u64) -> u64 {
    let mut scale = 1u64;
    loop {
        for step in [4, 8, 12, 20, 40] {
            match scale.checked_mul(step) {
                Some(nice) if nice >= number => return nice,
                Some(_) => {}
                None => return number,
            }
        }
        scale = scale.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::powercut::{Tally, Violation as Found};
    use crate::torture::finding::{Finding, Name};

    fn facts() -> Facts {
        Facts {
            version: "0".to_owned(),
            first_seed: 1,
            jobs: 1,
            command: "steadfast torture".to_owned(),
            planted: None,
            replay: |name| format!("steadfast torture --replay {name}"),
        }
    }

    fn outcome() -> Outcome {
        let total = Tally { sequences: 40, cuts: 1_234_567, ..Tally::default() };
        let cell = Cell { tally: total, violations: 0 };
        Outcome {
            seeds: 41,
            total,
            cells: [(("names", "disk-512"), cell)].into(),
            samples: vec![
                Sample { seconds: 0.0, cuts: 0, violations: 0 },
                Sample { seconds: 2.0, cuts: 1_234_567, violations: 0 },
            ],
            elapsed: Duration::from_secs(2),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_clean_page_says_so() {
        let page = render(&facts(), &outcome()).unwrap();
        assert!(page.contains("1\u{202f}234\u{202f}567") && page.contains("disk-512"));
        assert!(
            page.contains("40 worlds from seed 1 on (1 more, too small for a volume, left out)")
        );
        assert!(page.contains("<dt>worlds</dt><dd>40</dd>"));
        assert!(page.contains("No violation") && !page.contains("--replay"));
        assert!(
            page.matches("<svg").count() == 1 && !page.contains("NaN") && !page.contains("<script")
        );
    }

    #[test]
    fn a_violation_is_on_the_page_with_its_command_and_nothing_is_markup() {
        let mut outcome = outcome();
        if let Some(cell) = outcome.cells.values_mut().next() {
            cell.violations = 1;
        }
        let violation = Found {
            what: "<b>lost</b>".to_owned(),
            operations: vec![crate::operation::Operation::Transact],
            cuts: Vec::new(),
            events: Vec::new(),
            image: None,
        };
        let name: Name = "7:names".parse().unwrap();
        outcome.findings.push(Finding {
            name,
            world: "seed 7".to_owned(),
            operations_found: 9,
            violation,
        });
        let page = render(&facts(), &outcome).unwrap();
        assert!(page.contains("steadfast torture --replay 7:names") && page.contains("Transact"));
        assert!(!page.contains("<b>lost") && !page.contains("No violation"));
    }

    #[test]
    fn a_page_about_nothing_is_a_page() {
        let page = render(&facts(), &Outcome::default()).unwrap();
        assert!(!page.contains("NaN") && !page.contains("inf,"));
    }

    #[test]
    fn numbers() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_000), "1\u{202f}000");
        for number in [0, 1, 5, 399, 401, 1_234_567, u64::MAX] {
            assert!(nice_above(number) >= number && nice_above(number) > 0);
        }
    }
}
