//! The page of a run: one self-contained file.
//!
//! Style, fonts and pictures are inside; there are no scripts and no external addresses. It follows
//! the reader's choice of light or dark, prints on a light background, and fits a phone as well as
//! a screen.

mod origin;

use askama::Template;
use base64::Engine;

use super::chart::png::FONTS;
use super::chart::svg;
use super::chart::theme::{self, Use};
use super::comparison::{View, sign};
use super::figure::Figure;
use super::published::{self, AnsweredRow, Found};
use super::table::{self, Table};
use super::{format, goals};
use crate::result::Suite;
use crate::statistics::Verdict;

/// A picture on the page.
struct Picture {
    name: String,
    title: String,
    caption: String,
    panels: Vec<String>,
}

/// A published table next to the results of the run.
struct Beside {
    source: &'static str,
    lesson: &'static str,
    columns: &'static [&'static str],
    factor_head: String,
    has_factors: bool,
    note: &'static str,
    /// The targets that have anything to show: the peer has no factor.
    head: Vec<String>,
    rows: Vec<BesideRow>,
}

struct BesideRow {
    test: &'static str,
    ours: String,
    /// Names of columns, and values.
    published: Vec<(&'static str, String)>,
    factor: String,
    cells: Vec<BesideCell>,
}

struct BesideCell {
    head: String,
    value: String,
    comparison: String,
    class: &'static str,
}

/// A suite on the page.
struct Section {
    id: String,
    title: String,
    answers: String,
    missing: Vec<String>,
    beside: Option<Beside>,
    /// The goals of Steadfast, and whether they were reached.
    goals: Option<(Table, String)>,
    summary: Table,
    full: Option<Table>,
    cost: Table,
    pictures: Vec<Picture>,
    more: Vec<Picture>,
}

/// How often a target is better than the peer and how often worse.
struct Score {
    name: String,
    sentence: String,
    /// The count of each verdict.
    parts: Vec<ScoreShare>,
}

/// A part of the bar of a score: class, share in percent, number, and whether the number fits into
/// it.
struct ScoreShare {
    class: &'static str,
    share: String,
    count: usize,
    wide: bool,
}

#[derive(Template)]
#[template(path = "lab.html")]
struct Page {
    title: String,
    subtitle: String,
    style: String,
    fonts: Vec<(&'static str, String)>,
    peer: String,
    floor: String,
    complete: bool,
    failures: Vec<(String, String, String)>,
    warnings: Vec<String>,
    scores: Vec<Score>,
    facts: Vec<(&'static str, String)>,
    overview: Option<Picture>,
    sections: Vec<Section>,
    subjects: Vec<origin::Subject>,
    checks: Vec<origin::Check>,
    probes: Vec<(String, String, String)>,
    provenance: Vec<(&'static str, String)>,
    command: String,
}

/// The page, with the pictures of [`super::figure::all`].
///
/// # Errors
/// Formatting fails, which does not happen when writing to memory.
pub fn render(
    view: &View,
    overview: Option<&Figure>,
    figures: &[Vec<Figure>],
) -> Result<String, std::fmt::Error> {
    let run = view.run;
    let provenance = &run.provenance;
    let names: Vec<&str> = view.targets.iter().map(|target| target.id.as_str()).collect();
    let suites: Vec<&str> = run.suites.iter().map(|suite| suite.id.as_str()).collect();
    let page = Page {
        title: match names.as_slice() {
            [] => "Nothing was measured".to_owned(),
            [only] => (*only).to_owned(),
            [front @ .., last] => format!("{} and {last}, side by side", front.join(", ")),
        },
        subtitle: format!(
            "{} · {} · suites {} ({})",
            format::time(provenance.started),
            provenance.host,
            suites.join(", "),
            provenance.effort
        ),
        style: theme::sheet(Use::Page),
        fonts: FONTS
            .iter()
            .map(|(weight, font)| (*weight, base64::engine::general_purpose::STANDARD.encode(font)))
            .collect(),
        peer: view.peer().map_or_else(String::new, |peer| peer.name.clone()),
        floor: format::noise(run.noise.floor),
        complete: run.progress.complete,
        failures: view.failures(),
        warnings: view.warnings(),
        scores: scores(view),
        facts: origin::facts(view),
        overview: overview.map(picture),
        sections: run
            .suites
            .iter()
            .zip(figures)
            .map(|(suite, figures)| section(view, suite, figures))
            .collect(),
        subjects: origin::subjects(view),
        checks: origin::checks(view),
        probes: run
            .noise
            .probes
            .iter()
            .map(|probe| {
                let median = crate::statistics::median(&probe.seconds)
                    .map_or_else(String::new, format::seconds);
                (probe.title.clone(), median, format!("±{}", format::percent(probe.spread)))
            })
            .collect(),
        provenance: origin::provenance(view),
        command: format::command(&provenance.command),
    };
    // Invisible characters could hide text or change its direction.
    let text = page.render().map_err(|_| std::fmt::Error)?;
    Ok(text.chars().map(|c| if c == '\n' { c } else { svg::harmless(c) }).collect())
}

fn picture(figure: &Figure) -> Picture {
    let alternative = |index: usize| match figure.panels.len() {
        1 => figure.alternative.clone(),
        count => format!("{} (panel {} of {count})", figure.alternative, index + 1),
    };
    Picture {
        name: figure.name.clone(),
        title: figure.title.clone(),
        caption: figure.caption.clone(),
        panels: figure
            .panels
            .iter()
            .enumerate()
            .map(|(index, panel)| panel.inline(&alternative(index)))
            .collect(),
    }
}

fn section<'a>(view: &View<'a>, suite: &'a Suite, figures: &[Figure]) -> Section {
    let summary = table::summary(view, suite);
    let has_more = summary.rows.len() < suite.tests.len();
    Section {
        id: suite.id.clone(),
        title: suite.title.clone(),
        answers: suite.answers.clone(),
        missing: suite.missing.clone(),
        beside: published::of_suite(&suite.id).map(|published| beside(view, suite, published)),
        goals: goals::table(view).filter(|_| suite.id == goals::ID).map(|table| {
            let count = goals::count(&table);
            (table, count)
        }),
        full: has_more.then(|| table::full(view, suite)),
        cost: table::cost(view, suite),
        summary,
        pictures: figures.iter().filter(|figure| figure.first).map(picture).collect(),
        more: figures.iter().filter(|figure| !figure.first).map(picture).collect(),
    }
}

fn beside<'a>(
    view: &View<'a>,
    suite: &'a Suite,
    published: &'static published::Published,
) -> Beside {
    let (subject, other) = published.factor;
    let name = |index: usize| published.columns.get(index).copied().unwrap_or_default();
    let lines = published.beside(view, suite);
    let is_starred = lines.iter().flat_map(|line| &line.found).any(|found| found.is_starred);
    let says = |found: &Found| found.tally.is_some() || !found.value.is_empty();
    let shown = |index: &usize| lines.iter().any(|line| line.found.get(*index).is_some_and(says));
    let shown: Vec<usize> = (0..view.targets.len()).filter(shown).collect();
    let row = |mut line: AnsweredRow| BesideRow {
        test: line.test,
        ours: line.ours,
        published: published.columns.iter().copied().zip(line.published).collect(),
        factor: line.factor.map_or_else(|| "–".to_owned(), format::factor),
        cells: shown
            .iter()
            .map(|index| (std::mem::take(&mut line.found[*index]), &view.targets[*index]))
            .map(|(found, target)| BesideCell {
                head: target.id.clone(),
                comparison: found.tally.as_ref().map_or_else(String::new, |tally| {
                    let star = if found.is_starred { table::STAR } else { "" };
                    format!("{}{star}", table::of_tally(tally))
                }),
                class: match found.tally.map(|tally| tally.verdict()) {
                    Some(Verdict::Better) => "better",
                    Some(Verdict::Worse) => "worse",
                    Some(_) => "same",
                    None => "plain",
                },
                value: found.value,
            })
            .collect(),
    };
    Beside {
        source: published.source,
        lesson: published.lesson,
        columns: published.columns,
        factor_head: format!("{} to {}", name(subject), name(other)),
        has_factors: subject != other,
        note: if is_starred { table::NOTE } else { "" },
        head: shown.iter().map(|index| view.targets[*index].id.clone()).collect(),
        rows: lines.into_iter().map(row).collect(),
    }
}

fn scores(view: &View) -> Vec<Score> {
    let Some(peer) = view.peer() else { return Vec::new() };
    let score = |target: &crate::result::TargetDescription| {
        let tests = view.run.suites.iter().flat_map(|suite| &suite.tests);
        let found: Vec<Verdict> =
            tests.filter_map(|test| Some(view.cell(test, target).against?.verdict)).collect();
        if found.is_empty() {
            return None;
        }
        let count = |verdict| found.iter().filter(|other| **other == verdict).count();
        let part = |class: &'static str, verdict| {
            let count = count(verdict);
            let share = count as f64 / found.len() as f64;
            ScoreShare { class, share: format!("{:.2}", share * 100.0), count, wide: share >= 0.04 }
        };
        let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
        let (same, unknown) = (count(Verdict::WithinNoise), count(Verdict::Unknown));
        let unknown = match unknown {
            0 => String::new(),
            _ => format!(" {} {unknown} with too few rounds to say.", sign(Verdict::Unknown)),
        };
        Some(Score {
            name: target.name.clone(),
            sentence: format!(
                "beside {}: {} better in {better}, {} worse in {worse}, {} within the noise in {same} of {}.{unknown}",
                peer.name,
                sign(Verdict::Better),
                sign(Verdict::Worse),
                sign(Verdict::WithinNoise),
                format::plural(found.len() as u64, "test", "tests")
            ),
            parts: vec![
                part("better", Verdict::Better),
                part("same", Verdict::WithinNoise),
                part("unknown", Verdict::Unknown),
                part("worse", Verdict::Worse),
            ],
        })
    };
    view.others().filter_map(|(_, target)| score(target)).collect()
}
