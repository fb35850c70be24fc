//! A picture of an object that is divided into cells: a volume, or a NAND part. Each cell has a
//! kind and a degree of filling.
//!
//! [`text`] draws it for a terminal, [`svg`] into a file of its own.

pub mod svg;
pub mod text;

/// A kind of cell and how it is drawn. Kinds differ without colour too, and in lightness as well as
/// in hue.
#[derive(Debug)]
pub struct Kind {
    /// The name in the legend.
    pub name: &'static str,
    /// The character in text.
    pub mark: char,
    /// The colour on a terminal: the number in the escape sequence of one of the 16 colours that
    /// each terminal defines itself.
    pub color: u8,
    /// The class in a picture file.
    pub class: &'static str,
    /// The colour on a light background.
    pub light: &'static str,
    /// The colour on a dark background.
    pub dark: &'static str,
}

/// A cell: its kind, and the share of it that is full, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Index of the kind.
    pub kind: usize,
    /// The share that is full, which sets the strength of the colour.
    pub fill: f64,
}

/// The content of a picture.
#[derive(Debug)]
pub struct Grid {
    /// The kinds, in the order of the legend.
    pub kinds: &'static [Kind],
    /// The kind that stands for empty space.
    pub ground: usize,
    /// Bytes per cell; the last one may be smaller.
    pub cell_bytes: u64,
    /// Blocks per cell, for the numbers beside the rows of a picture file.
    pub cell_blocks: u64,
    /// The cells in order.
    pub cells: Vec<Cell>,
    /// Bytes of each kind.
    pub bytes: Vec<u64>,
}

impl Grid {
    /// The sum of the bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Each kind with its bytes.
    fn legend(&self) -> impl Iterator<Item = (&'static Kind, u64)> + '_ {
        self.kinds.iter().zip(self.bytes.iter().copied())
    }

    /// The kind with this index; an unknown index stands for empty space.
    fn kind(&self, index: usize) -> Option<&'static Kind> {
        self.kinds.get(index).or_else(|| self.kinds.get(self.ground))
    }
}

/// The share of a part in all, percent.
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64 * 100.0
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [
        Kind {
            name: "live data",
            mark: '█',
            color: 34,
            class: "d",
            light: "#2b6cb0",
            dark: "#63a4e8",
        },
        Kind {
            name: "intent log",
            mark: '≡',
            color: 32,
            class: "l",
            light: "#2f855a",
            dark: "#68d391",
        },
        Kind { name: "free", mark: '·', color: 90, class: "f", light: "#e8ebf0", dark: "#2a303b" },
    ];

    /// A log cell, a little data, and 98 free cells of 64 KiB.
    pub fn example() -> Grid {
        let mut cells = vec![Cell { kind: 2, fill: 0.0 }; 100];
        cells[0] = Cell { kind: 1, fill: 1.0 };
        cells[1] = Cell { kind: 0, fill: 0.3 };
        let bytes = vec![20_000, 65_536, 99 * 65_536 - 20_000];
        Grid { kinds: &KINDS, ground: 2, cell_bytes: 65_536, cell_blocks: 16, cells, bytes }
    }
}
