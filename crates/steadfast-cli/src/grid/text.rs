//! A grid as text: one character per cell, colours on a terminal only, and a legend whose sizes add
//! up.

use std::io::IsTerminal;

use super::{Grid, Kind, share};
use crate::size;

/// Rows of the picture.
const ROWS: usize = 24;
/// Columns if standard output is not a terminal, and bounds if it is one.
const COLUMNS: usize = 64;
const COLUMNS_RANGE: std::ops::RangeInclusive<usize> = 32..=160;
const RESET: &str = "\x1b[0m";

/// The output that text is drawn for.
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

    /// The maximum number of cells in the picture.
    pub fn cells(&self) -> usize {
        self.columns * ROWS
    }
}

/// The lines of the picture.
pub fn picture(grid: &Grid, title: &str, terminal: &Terminal) -> Vec<String> {
    let mut lines = vec![
        format!("{title}: {}", size::human(grid.total())),
        format!("one character is {}", size::human(grid.cell_bytes)),
        String::new(),
    ];
    for row in grid.cells.chunks(terminal.columns) {
        let mut line = String::new();
        let mut color = None;
        for kind in row.iter().filter_map(|cell| grid.kind(cell.kind)) {
            if terminal.colors && color != Some(kind.color) {
                line.push_str(&format!("\x1b[{}m", kind.color));
                color = Some(kind.color);
            }
            line.push(kind.mark);
        }
        if color.is_some() {
            line.push_str(RESET);
        }
        lines.push(line);
    }
    lines.push(String::new());
    lines.extend(legend(grid, terminal));
    lines
}

fn legend(grid: &Grid, terminal: &Terminal) -> Vec<String> {
    let all = grid.total();
    let row = |mark: String, name: &str, bytes: u64| {
        let share = share(bytes, all);
        format!("{mark} {name:<24}{:>10} {bytes:>20} bytes {share:>6.2} %", size::human(bytes))
    };
    let mark = |kind: &Kind| match terminal.colors {
        true => format!("\x1b[{}m{}{RESET}", kind.color, kind.mark),
        false => kind.mark.to_string(),
    };
    let mut lines: Vec<String> =
        grid.legend().map(|(kind, bytes)| row(mark(kind), kind.name, bytes)).collect();
    lines.push(row(" ".into(), "all", all));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_legend_adds_up_and_colours_are_for_terminals() {
        let grid = example();
        let lines = picture(&grid, "x.img", &Terminal { columns: 64, colors: false });
        let row = |name: &str| -> u64 {
            let line = lines
                .iter()
                .find(|line| line.chars().skip(2).collect::<String>().starts_with(name))
                .unwrap();
            let bytes = line.split(" bytes").next().unwrap().rsplit(' ').next().unwrap();
            bytes.parse().unwrap()
        };
        let sum: u64 = grid.kinds.iter().map(|kind| row(kind.name)).sum();
        assert_eq!((sum, row("all ")), (100 * 65_536, 100 * 65_536));
        assert_eq!(lines[3].chars().count(), 64);
        assert_eq!(lines[4].chars().count(), 36);
        assert!(lines[3].starts_with("≡█··"), "{}", lines[3]);
        assert!(!lines.join("").contains('\x1b'));
        let colored = picture(&grid, "x.img", &Terminal { columns: 64, colors: true });
        assert!(colored[3].starts_with("\x1b[32m≡\x1b[34m█\x1b[90m·"), "{:?}", colored[3]);
        assert!(colored[3].ends_with(RESET));
    }
}
