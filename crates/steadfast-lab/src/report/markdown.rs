//! A result as Markdown: tables for a README, an issue, or docs/performance/measured.md.

use std::fmt::Write;

use super::comparison::{View, sign};
use super::table::{self, Table};
use super::{format, goals};
use crate::result::{RunResult, Status};
use crate::statistics::Verdict;

/// The place, the time and the command of the run, then a summary and the costs of each suite.
/// Ratios are to the peer of the run or to another target.
///
/// # Errors
/// A sentence, if the peer is not in the result.
pub fn print(run: &RunResult, peer: Option<&str>) -> Result<String, String> {
    let view = View::new(run, peer)?;
    let mut text = String::new();
    head(&mut text, &view);
    for suite in &run.suites {
        let _ = writeln!(text, "\n### {}: {}\n", cell(&suite.id), cell(&suite.title));
        if suite.id == goals::ID
            && let Some(table) = goals::table(&view)
        {
            lay_out(&mut text, &table);
            let _ = writeln!(text, "\nGoals: {}.\n", goals::count(&table));
        }
        lay_out(&mut text, &table::summary(&view, suite));
        let cost = table::cost(&view, suite);
        if !cost.rows.is_empty() {
            text.push('\n');
            lay_out(&mut text, &cost);
        }
    }
    if !run.progress.complete {
        text.push_str("\nStopped before its end: what is missing was not measured.\n");
    }
    for (target, test, reason) in view.failures() {
        let place = if test.is_empty() { target } else { format!("{target}, {test}") };
        let _ = writeln!(text, "\nFailed: {}: {}.", cell(&place), cell(&reason));
    }
    for target in &run.targets {
        if let Status::Skipped { reason } = &target.status {
            let _ = writeln!(text, "\nNot measured: {}: {}.", cell(&target.id), cell(reason));
        }
    }
    Ok(text)
}

fn head(text: &mut String, view: &View) {
    let provenance = &view.run.provenance;
    let commit =
        provenance.commit.as_ref().map_or_else(|| "unknown commit".to_owned(), String::clone);
    let mut command = provenance.command.clone();
    if let Some(program) = command.first_mut() {
        // The install path of the program does not matter.
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let _ = writeln!(text, "`{}`\n", command.join(" ").replace('`', "'"));
    let _ = writeln!(
        text,
        "steadfast {}, {}, {} build; {}; {}; {}, {} processors, {} of memory; volumes on {} {}; {}.",
        cell(&provenance.version),
        cell(&commit),
        cell(&provenance.profile),
        format::time(provenance.started),
        cell(&provenance.kernel),
        cell(&provenance.cpu),
        provenance.cpus,
        format::bytes(provenance.memory as f64),
        cell(&provenance.backing.file_system),
        cell(&provenance.backing.device),
        cell(provenance.virtualisation.as_deref().unwrap_or("no hypervisor"))
    );
    if let Some(peer) = view.peer() {
        let _ = writeln!(
            text,
            "Factors are times better than {}: {} better, {} worse, {} within the noise of the machine ({}).",
            cell(&peer.id),
            sign(Verdict::Better),
            sign(Verdict::Worse),
            sign(Verdict::WithinNoise),
            format::noise(view.run.noise.floor)
        );
    }
    for warning in &view.warnings() {
        let _ = writeln!(text, "Doubtful: {}.", cell(warning));
    }
}

fn lay_out(text: &mut String, table: &Table) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = std::iter::once(&table.corner).chain(&table.head);
    text.push_str(&line(names.map(|name| cell(name)).collect()));
    text.push_str(&line(vec!["---".into(); table.head.len() + 1]));
    for row in &table.rows {
        let mut cells = vec![cell(&row.name)];
        cells.extend(row.cells.iter().map(|entry| {
            let comparison = entry.comparison.replace('*', "\\*");
            let words = [entry.value.as_str(), comparison.as_str()];
            cell(
                words
                    .iter()
                    .filter(|word| !word.is_empty())
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", ")
                    .as_str(),
            )
        }));
        text.push_str(&line(cells));
    }
    if let Some(note) = table.note() {
        let _ = writeln!(text, "\n{}", note.replace('*', "\\*"));
    }
}

/// Escapes text so that it stays in its cell and its line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}
