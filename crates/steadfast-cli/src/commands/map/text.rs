//! The map as text: a character a cell, colours on a terminal only, and a legend whose sizes add up.

use std::io::IsTerminal;

use super::survey::{Survey, Use};
use crate::size;

/// Rows of the picture.
const ROWS: usize = 24;
/// Columns where standard output is no terminal, and bounds where it is one.
const COLUMNS: usize = 64;
const COLUMNS_RANGE: std::ops::RangeInclusive<usize> = 32..=160;
const RESET: &str = "\x1b[0m";

/// What text is drawn for.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    columns: usize,
    colors: bool,
}

impl Terminal {
    /// Standard output of this process. Colours need a terminal, and `NO_COLOR` turns them off.
    pub fn here() -> Terminal {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let columns = match rustix::termios::tcgetwinsize(stdout) {
            Ok(size) if terminal && size.ws_col > 0 => usize::from(size.ws_col).saturating_sub(2),
            _ => COLUMNS,
        };
        Terminal {
            columns: columns.clamp(*COLUMNS_RANGE.start(), *COLUMNS_RANGE.end()),
            colors: terminal && !no_color,
        }
    }

    /// How many cells the picture has, at most.
    pub fn cells(&self) -> usize {
        self.columns * ROWS
    }
}

/// A character that is told from the others without colour, and a colour of the 16 that every terminal has its own way of.
fn mark(what: Use) -> (char, u8) {
    match what {
        Use::Data => ('█', 34),
        Use::Metadata => ('▓', 35),
        Use::Snapshots => ('▒', 36),
        Use::AlmostFree => ('░', 33),
        Use::Reserved => ('▚', 31),
        Use::Log => ('≡', 32),
        Use::Fixed => ('■', 37),
        Use::Free => ('·', 90),
    }
}

/// The lines of the picture.
pub fn picture(survey: &Survey, title: &str, terminal: &Terminal) -> Vec<String> {
    let mut lines = vec![
        format!("{title}: {}", size::human(survey.total().total().saturating_mul(survey.block_size))),
        format!("one character is {}", size::human(survey.cell_blocks.saturating_mul(survey.block_size))),
        String::new(),
    ];
    for row in survey.cells.chunks(terminal.columns) {
        let mut line = String::new();
        let mut color = None;
        for cell in row {
            let (mark, wanted) = mark(cell.shows());
            if terminal.colors && color != Some(wanted) {
                line.push_str(&format!("\x1b[{wanted}m"));
                color = Some(wanted);
            }
            line.push(mark);
        }
        if color.is_some() {
            line.push_str(RESET);
        }
        lines.push(line);
    }
    lines.push(String::new());
    lines.extend(legend(survey, terminal));
    lines
}

fn legend(survey: &Survey, terminal: &Terminal) -> Vec<String> {
    let total = survey.total();
    let all = total.total();
    let row = |mark: String, name: &str, blocks: u64| {
        let bytes = blocks.saturating_mul(survey.block_size);
        let share = blocks as f64 / all.max(1) as f64 * 100.0;
        format!("{mark} {name:<24}{:>10} {bytes:>20} bytes {share:>6.2} %", size::human(bytes))
    };
    let mut lines: Vec<String> = Use::ALL
        .into_iter()
        .map(|what| {
            let (mark, color) = mark(what);
            let mark = if terminal.colors { format!("\x1b[{color}m{mark}{RESET}") } else { mark.to_string() };
            row(mark, what.name(), total.of(what))
        })
        .collect();
    lines.push(row(" ".into(), "all", all));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::survey::Cell;
    use super::*;

    #[test]
    fn the_legend_adds_up_and_colours_are_for_terminals() {
        let mut cells = vec![Cell([0, 0, 0, 0, 0, 0, 0, 16]); 100];
        cells[0] = Cell([0, 0, 0, 0, 0, 10, 6, 0]);
        cells[1] = Cell([9, 3, 1, 1, 1, 0, 0, 1]);
        let survey = Survey { block_size: 4096, cell_blocks: 16, cells };
        let lines = picture(&survey, "x.img", &Terminal { columns: 64, colors: false });
        let row = |name: &str| -> u64 {
            let line =
                lines.iter().find(|line| line.chars().skip(2).collect::<String>().starts_with(name)).unwrap();
            let bytes = line.split(" bytes").next().unwrap().rsplit(' ').next().unwrap();
            bytes.parse().unwrap()
        };
        let sum: u64 = Use::ALL.into_iter().map(|what| row(what.name())).sum();
        assert_eq!((sum, row("all ")), (100 * 16 * 4096, 100 * 16 * 4096));
        assert_eq!(lines[3].chars().count(), 64);
        assert_eq!(lines[4].chars().count(), 36);
        assert!(lines[3].starts_with("≡█··"), "{}", lines[3]);
        assert!(!lines.join("").contains('\x1b'));
        let colored = picture(&survey, "x.img", &Terminal { columns: 64, colors: true });
        assert!(colored[3].starts_with("\x1b[32m≡\x1b[34m█\x1b[90m·"), "{:?}", colored[3]);
        assert!(colored[3].ends_with(RESET));
    }
}
