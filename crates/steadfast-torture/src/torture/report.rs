//! The page about a campaign: the tries, the findings, and how much they prove.
//!
//! It is one self-contained file: style and picture are inside, there is no script, and it has a
//! light and a dark form.

use std::fmt::Write;

use askama::Template;

use super::campaign::{CampaignOutcome, Cell, Sample};
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
struct ReportRow {
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
struct ReportViolation {
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
struct TorturePage<'a> {
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
    rows: Vec<ReportRow>,
    total: ReportRow,
    media: Vec<MediumProfile>,
    /// The same picture for a screen and for a phone.
    charts: [Chart; 2],
    violations: Vec<ReportViolation>,
}

/// The page as HTML.
///
/// # Errors
/// Formatting fails, which does not happen when writing to memory.
pub fn render(facts: &Facts, outcome: &CampaignOutcome) -> Result<String, std::fmt::Error> {
    let violations_count = outcome.cells.values().map(|cell| cell.violations).sum();
    let seconds = outcome.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { outcome.total.cuts as f64 / seconds } else { 0.0 };
    // A cell may have nothing but media that are too small.
    let tried = outcome.cells.iter().filter(|(_, cell)| cell.tally.sequences > 0);
    let rows = tried.map(|((profile, medium), cell)| row(profile, medium, cell)).collect();
    let total = Cell { tally: outcome.total, violations: violations_count };
    let page = TorturePage {
        facts,
        clean: violations_count == 0,
        violations_count,
        cuts: grouped(outcome.total.cuts),
        worlds: grouped(outcome.total.sequences),
        too_small: outcome.total.too_small,
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
        charts: [
            Chart::new(&outcome.samples, "on-screen", 800.0),
            Chart::new(&outcome.samples, "on-phone", 340.0),
        ],
        violations: outcome
            .findings
            .iter()
            .map(|finding| ReportViolation {
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

fn row(profile: &'static str, medium: &'static str, cell: &Cell) -> ReportRow {
    let tally = &cell.tally;
    ReportRow {
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
    class: &'static str,
    width: f64,
    /// End of the lines of the grid.
    right: f64,
    line: String,
    area: String,
    /// Positions of violations: x, y.
    marks: Vec<(String, String)>,
    /// Height and text of each line of the grid.
    levels: Vec<(String, String)>,
    /// Position and text below the picture, and the side at which the text is anchored.
    times: Vec<(String, String, &'static str)>,
}

const LEFT: f64 = 74.0;
/// Room beside the end of the line.
const BESIDE: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 222.0;

impl Chart {
    fn new(samples: &[Sample], class: &'static str, width: f64) -> Chart {
        let right = width - BESIDE;
        let last = samples.last().map_or((0.0, 0), |sample| (sample.seconds, sample.cuts));
        let (seconds, cuts) = (last.0.max(0.001), nice_above(last.1));
        let x = |at: f64| LEFT + (right - LEFT) * at / seconds;
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
        let step = round_step(seconds / if width < 500.0 { 2.0 } else { 4.0 });
        // A text in the middle below its mark would leave the picture at its end.
        let anchor = |at: f64| if x(at) + 20.0 > width { "end" } else { "middle" };
        let marks_of_time = (0..=10).map(|index| step * f64::from(index));
        let times = marks_of_time
            .take_while(|at| *at <= seconds)
            .map(|at| (format!("{:.1}", x(at)), format!("{} s", plain(at)), anchor(at)))
            .collect();
        Chart { class, width, right, line, area, marks, levels, times }
    }
}

/// The largest of 1, 2 and 5 times a power of ten that is not above `most`.
fn round_step(most: f64) -> f64 {
    let power = 10f64.powf(most.log10().floor());
    let steps = [5.0, 2.0, 1.0];
    steps.into_iter().map(|step| step * power).find(|step| *step <= most).unwrap_or(power)
}

/// A time without errors of binary fractions.
fn plain(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
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
    use crate::powercut::{PowercutTally, Violation as Found};
    use crate::torture::finding::{Finding, RunName};

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

    fn outcome() -> CampaignOutcome {
        let total = PowercutTally {
            sequences: 40,
            too_small: 1,
            cuts: 1_234_567,
            ..PowercutTally::default()
        };
        let cell = Cell { tally: total, violations: 0 };
        CampaignOutcome {
            seeds: 41,
            total,
            cells: [(("names", "disk-512"), cell)].into(),
            samples: vec![
                Sample { seconds: 0.0, cuts: 0, violations: 0 },
                Sample { seconds: 2.0, cuts: 1_234_567, violations: 0 },
            ],
            elapsed: Duration::from_secs(2),
            ..CampaignOutcome::default()
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
            page.matches("<svg").count() == 2 && !page.contains("NaN") && !page.contains("<script")
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
        let name: RunName = "7:names".parse().unwrap();
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
    fn worlds_are_counted_apart_from_media_that_are_too_small() {
        let mut outcome = outcome();
        let small = PowercutTally { too_small: 3, ..PowercutTally::default() };
        outcome.cells.insert(("full", "nand-2048"), Cell { tally: small, violations: 0 });
        outcome.total.too_small += 3;
        // Another thread may have taken a seed that it has not played yet.
        outcome.seeds = 99;
        let page = render(&facts(), &outcome).unwrap();
        assert!(page.contains("(4 more, too small for a volume, left out)"), "{page}");
        assert!(!page.contains("nand-2048</td>"), "a row without a world");
    }

    #[test]
    fn times_are_round_and_inside_the_picture() {
        for (seconds, last) in
            [(15.4, "14 s"), (0.07, "0.07 s"), (60.0, "60 s"), (3601.0, "3500 s")]
        {
            let samples = [
                Sample { seconds: 0.0, cuts: 0, violations: 0 },
                Sample { seconds, cuts: 9, violations: 0 },
            ];
            let chart = Chart::new(&samples, "on-screen", 800.0);
            let texts: Vec<&str> = chart.times.iter().map(|(_, text, _)| text.as_str()).collect();
            assert_eq!(texts.last(), Some(&last), "{texts:?}");
            assert!((4..=11).contains(&texts.len()), "{texts:?}");
        }
        let samples = [Sample { seconds: 60.0, cuts: 9, violations: 0 }];
        let chart = Chart::new(&samples, "on-screen", 800.0);
        assert_eq!(chart.times.last().map(|time| time.2), Some("end"), "at the edge");
    }

    #[test]
    fn a_page_about_nothing_is_a_page() {
        let page = render(&facts(), &CampaignOutcome::default()).unwrap();
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
