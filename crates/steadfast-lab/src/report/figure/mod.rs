//! The pictures of a run and their contents.
//!
//! A [`Figure`] is a set of panels with a title and a sentence that explains how to read it. Its
//! contents follow from the result alone: a suite whose tests have no latencies has no picture of
//! latencies.

mod cpu;
mod curves;
mod heat;
mod latency;
mod overview;
mod single;

use super::chart::Drawing;
use super::chart::sheet::sheet;
use super::chart::theme::Hue;
use super::comparison::View;
use super::format;
use crate::result::Suite;

/// A picture.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Name of its files, unique in the run: letters, digits and hyphens.
    pub name: String,
    /// Its title.
    pub title: String,
    /// How to read it, in one or two sentences.
    pub caption: String,
    /// The text for screen readers.
    pub alternative: String,
    /// Its panels.
    pub panels: Vec<Drawing>,
    /// Maximum number of panels in a row, in a separate file.
    pub columns: usize,
    /// Whether the page shows it at once, or only on request.
    pub first: bool,
}

impl Figure {
    /// The figure as one drawing, for a separate file.
    #[must_use]
    pub fn sheet(&self, view: &View) -> Drawing {
        let provenance = &view.run.provenance;
        let source = format!(
            "steadfast lab {} · {} · {} · {}",
            provenance.version,
            format::time(provenance.started),
            provenance.cpu,
            provenance.kernel
        );
        sheet(&self.title, &self.caption, &self.panels, self.columns, &source)
    }
}

/// The picture over all suites, if there is a peer.
fn overview(view: &View) -> Option<Figure> {
    overview::figure(view)
}

/// The pictures of a suite, the most important ones first.
fn of_suite(view: &View, suite: &Suite) -> Vec<Figure> {
    let mut figures = curves::figures(view, suite);
    figures.extend(heat::figures(view, suite));
    figures.extend(single::figures(view, suite));
    figures.extend(latency::figures(view, suite));
    figures.extend(cpu::figures(view, suite));
    figures
}

/// All pictures of a run: the one over everything, and those of each suite. Their names differ,
/// whatever the tests are called.
#[must_use]
pub fn all(view: &View) -> (Option<Figure>, Vec<Vec<Figure>>) {
    let overview = overview(view);
    let mut suites: Vec<Vec<Figure>> =
        view.run.suites.iter().map(|suite| of_suite(view, suite)).collect();
    let mut taken: Vec<String> = overview.iter().map(|figure| figure.name.clone()).collect();
    for figure in suites.iter_mut().flatten() {
        let plain = figure.name.clone();
        let mut number = 2;
        while taken.contains(&figure.name) {
            figure.name = format!("{plain}-{number}");
            number += 1;
        }
        taken.push(figure.name.clone());
    }
    (overview, suites)
}

/// The colour of a target: the same in all pictures of a run, whichever target is the peer.
fn hue(view: &View, target: &str) -> Hue {
    Hue::Series(view.run.targets.iter().position(|other| other.id == target).unwrap_or(0))
}

/// Words as a file name: at most 80 letters, digits and single hyphens.
fn file_name(words: &[&str]) -> String {
    let mut name = String::new();
    for c in words.join("-").chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    name.truncate(80);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "figure".to_owned() } else { name.to_owned() }
}

/// Joins names to "a, b and c".
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_harmless() {
        assert_eq!(file_name(&["b5", "../../etc/passwd"]), "b5-etc-passwd");
        assert_eq!(file_name(&["<ä>"]), "figure");
        assert!(file_name(&[&"x y".repeat(100)]).len() <= 80);
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    }
}
