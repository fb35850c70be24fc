//! A result in a terminal, or in a file read with `less`.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, TableStyle};

use super::comparison::{View, sign};
use super::format::{self, one_line};
use super::table::{self, Table};
use super::{goals, iozone, published};
use crate::result::{RunResult, Status};
use crate::statistics::Verdict;

/// The style of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: u16,
    /// Whether to colour better and worse values.
    pub colour: bool,
}

/// The part to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportPart {
    /// One row for tests that differ only in their sizes; the published table; the failures.
    Summary,
    /// One row per test, and the costs.
    Full,
    /// The tables in IOzone's format.
    Iozone,
}

/// Prints a part of a result, with ratios to the peer of the run or to another target.
///
/// # Errors
/// A sentence, if the peer is not in the result.
pub fn print(
    run: &RunResult,
    peer: Option<&str>,
    part: ReportPart,
    style: Style,
) -> Result<String, String> {
    let view = View::new(run, peer)?;
    let mut text = String::new();
    if part == ReportPart::Iozone {
        for suite in &run.suites {
            for target in &view.targets {
                text.push_str(&iozone::tables(suite, target));
            }
        }
        if text.is_empty() {
            text.push_str("no test of this run belongs into IOzone's table\n");
        } else {
            text.insert_str(0, "Median throughput in kB/s (1 kB is 1024 bytes).\n\n");
        }
        return Ok(text);
    }
    head(&mut text, &view);
    for suite in &run.suites {
        let _ = writeln!(text, "\n{} · {}", one_line(&suite.id), one_line(&suite.title));
        if !suite.answers.is_empty() {
            let _ = writeln!(text, "answers: {}", one_line(&suite.answers));
        }
        if !suite.missing.is_empty() {
            let _ = writeln!(text, "not in this run: {}", one_line(&suite.missing.join("; ")));
        }
        let goals = if suite.id == goals::ID { goals::table(&view) } else { None };
        if let Some(table) = goals {
            lay_out(&mut text, &goals::fitting(&table, style.width), style);
            let _ = writeln!(text, "goals: {}; --full has the tests", goals::count(&table));
            if part == ReportPart::Summary {
                continue;
            }
        }
        if part == ReportPart::Summary {
            lay_out(&mut text, &table::summary(&view, suite), style);
            text.push_str(&beside(&view, suite, style));
        } else {
            lay_out(&mut text, &table::full(&view, suite), style);
            lay_out(&mut text, &table::cost(&view, suite), style);
        }
    }
    tail(&mut text, &view);
    Ok(text)
}

fn head(text: &mut String, view: &View) {
    let provenance = &view.run.provenance;
    let _ = writeln!(
        text,
        "steadfast lab {}: {}, {}, {}\n{}, {} processors, {} of memory, volumes on {}",
        one_line(&provenance.version),
        format::time(provenance.started),
        one_line(&provenance.host),
        one_line(&provenance.kernel),
        one_line(&provenance.cpu),
        provenance.cpus,
        format::bytes(provenance.memory as f64),
        one_line(&format!("{} {}", provenance.backing.file_system, provenance.backing.device))
            .trim()
    );
    if let Some(peer) = view.peer() {
        let _ = writeln!(
            text,
            "Factors are times better than {}: {} better, {} worse, {} within the noise of this machine ({}), {} too few rounds.",
            one_line(&peer.id),
            sign(Verdict::Better),
            sign(Verdict::Worse),
            sign(Verdict::WithinNoise),
            format::noise(view.run.noise.floor),
            sign(Verdict::Unknown)
        );
    }
    for warning in &view.warnings() {
        let _ = writeln!(text, "doubtful: {}", one_line(warning));
    }
}

fn tail(text: &mut String, view: &View) {
    for target in &view.run.targets {
        if let Status::Skipped { reason } = &target.status {
            let _ = writeln!(text, "\nskipped {}: {}", one_line(&target.id), one_line(reason));
        }
    }
    let failures = view.failures();
    if !failures.is_empty() {
        let _ =
            writeln!(text, "\n{}:", format::plural(failures.len() as u64, "failure", "failures"));
        for (target, test, reason) in failures {
            let test = if test.is_empty() { test } else { format!(", {}", one_line(&test)) };
            let _ = writeln!(text, "  {}{test}: {}", one_line(&target), one_line(&reason));
        }
    }
    if !view.run.progress.complete {
        let _ = writeln!(text, "\nThe run was stopped before its end; --resume goes on.");
    }
}

/// The published factors next to those of the run.
fn beside<'a>(view: &View<'a>, suite: &'a crate::result::Suite, style: Style) -> String {
    let Some(published) = published::of_suite(&suite.id) else { return String::new() };
    let lines = published.beside(view, suite);
    let name = |index: usize| published.columns.get(index).copied().unwrap_or_default();
    let said = published.factor.0 == published.factor.1;
    let mut head = vec![if said {
        name(0).to_owned()
    } else {
        format!("{} to {}", name(published.factor.0), name(published.factor.1))
    }];
    head.extend(view.others().map(|(_, target)| target.id.clone()));
    let rows = lines.into_iter().map(|line| {
        let there = match line.factor {
            Some(factor) => format::factor(factor),
            None => line.published.get(published.factor.0).cloned().unwrap_or_default(),
        };
        let mut cells = vec![table::TableCell { value: there, ..table::TableCell::default() }];
        let here = line.found.iter().skip(usize::from(view.peer().is_some()));
        cells.extend(here.map(|found| table::TableCell {
            value: if found.tally.is_none() { found.value.clone() } else { String::new() },
            comparison: found.tally.as_ref().map_or_else(String::new, table::of_tally),
            verdict: found.tally.map(|tally| tally.verdict()),
            ..table::TableCell::default()
        }));
        table::TableRow { name: line.test.to_owned(), cells }
    });
    let table = Table { corner: "published, and here".to_owned(), head, rows: rows.collect() };
    let mut text = String::new();
    lay_out(&mut text, &table, style);
    text
}

/// Lays a table out. Each target is a column if they fit, if necessary without the spread and in
/// two lines. Otherwise there is one row per target and test.
pub(crate) fn lay_out(text: &mut String, table: &Table, style: Style) {
    if table.rows.is_empty() {
        return;
    }
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let forms = [columns(table, &|entry| joined(entry, " ")), columns(table, &narrow)];
    let drawn = forms
        .iter()
        .map(|form| draw(form, style))
        .find(|drawn| widest(drawn) <= usize::from(style.width) || table.head.len() < 2)
        .unwrap_or_else(|| draw(&long(table), style));
    text.push_str(&painted(&drawn, style.colour));
    if let Some(note) = table.note() {
        let _ = writeln!(text, "{note}");
    }
    text.push('\n');
}

/// Header, and cells of text.
type Plain = (Vec<String>, Vec<Vec<String>>);

fn joined(entry: &table::TableCell, between: &str) -> String {
    let parts = [&entry.value, &entry.spread, &entry.comparison];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.map(|part| one_line(part)).collect::<Vec<_>>().join(between)
}

fn narrow(entry: &table::TableCell) -> String {
    let entry = table::TableCell { spread: String::new(), ..entry.clone() };
    joined(&entry, "\n")
}

fn columns(table: &Table, cell: &dyn Fn(&table::TableCell) -> String) -> Plain {
    let mut head = vec![table.corner.clone()];
    head.extend(table.head.iter().map(|name| one_line(name)));
    let rows = table.rows.iter().map(|row| {
        let mut cells = vec![one_line(&row.name)];
        cells.extend(row.cells.iter().map(cell));
        cells
    });
    (head, rows.collect())
}

fn long(table: &Table) -> Plain {
    let head =
        [table.corner.as_str(), "on", "median", "spread", "factor"].map(str::to_owned).to_vec();
    let rows = table.rows.iter().flat_map(|row| {
        row.cells.iter().zip(&table.head).enumerate().map(|(index, (cell, target))| {
            let name = if index == 0 { one_line(&row.name) } else { String::new() };
            vec![
                name,
                one_line(target),
                cell.value.clone(),
                cell.spread.clone(),
                cell.comparison.clone(),
            ]
        })
    });
    (head, rows.collect())
}

fn draw((head, rows): &Plain, style: Style) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    drawn.set_content_arrangement(ContentArrangement::Disabled);
    // The maximum width of a name is half of the terminal.
    let most = usize::from(style.width / 2).max(16);
    let cell = |index: usize, text: &String| {
        let align = if index == 0 { CellAlignment::Left } else { CellAlignment::Right };
        let lines: Vec<String> = text.split('\n').map(|line| shortened(line, most)).collect();
        Cell::new(lines.join("\n")).set_alignment(align)
    };
    drawn.set_header(head.iter().enumerate().map(|(index, text)| cell(index, text)));
    for row in rows {
        drawn.add_row(row.iter().enumerate().map(|(index, text)| cell(index, text)));
    }
    let lines: Vec<String> =
        drawn.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Both ends of a text, with an ellipsis for the part that does not fit.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let front: String = text.chars().take(most.div_ceil(2)).collect();
    let end: String = text.chars().skip(count - (most / 2).saturating_sub(1)).collect();
    format!("{front}…{end}")
}

/// Blue for better, orange for worse; the sign shows it too.
fn painted(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    text.replace('▲', "\u{1b}[34;1m▲\u{1b}[0m").replace('▼', "\u{1b}[33;1m▼\u{1b}[0m")
}
