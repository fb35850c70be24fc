//! The knowledge about a run that is kept elsewhere: lines of text, so that a terminal, a file or a
//! socket can be the witness.
//!
//! ```text
//! steadfast-witness 1 0f3a…
//! flushed 1
//! committed 1
//! ```
//!
//! A line is reported only after it is true. The last one may be cut short or missing: that loses
//! knowledge, but never states a falsehood.

use std::fmt;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The run of the following lines.
    Run([u8; 16]),
    /// The raw record of this transaction was written, and the medium has acknowledged a flush
    /// after it.
    Flushed(u64),
    /// The volume has acknowledged the transaction point of this transaction.
    Committed(u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Run(run) => {
                f.write_str("steadfast-witness 1 ")?;
                run.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Line::Flushed(number) => write!(f, "flushed {number}"),
            Line::Committed(number) => write!(f, "committed {number}"),
        }
    }
}

impl Line {
    /// Parses a line; terminals and pipes may have added other text around it.
    pub fn parse(text: &str) -> Option<Line> {
        let mut words = text.split_whitespace();
        let line = match (words.next()?, words.next()?) {
            ("steadfast-witness", "1") => Line::Run(run_from_text(words.next()?)?),
            ("flushed", number) => Line::Flushed(number.parse().ok()?),
            ("committed", number) => Line::Committed(number.parse().ok()?),
            _ => return None,
        };
        words.next().is_none().then_some(line)
    }
}

fn run_from_text(text: &str) -> Option<[u8; 16]> {
    let mut run = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in run.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(run)
}

/// The witness's knowledge of the last run in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witness {
    /// The run.
    pub run: Option<[u8; 16]>,
    /// The last raw record acknowledged as flushed; 0 if none.
    pub flushed: u64,
    /// The last acknowledged transaction point; 0 if none.
    pub committed: u64,
}

impl Witness {
    /// Adds a line.
    pub fn hear(&mut self, line: Line) {
        match line {
            // The same run continues after a restart; another run starts with no knowledge.
            Line::Run(run) if self.run == Some(run) => {}
            Line::Run(run) => *self = Witness { run: Some(run), ..Witness::default() },
            Line::Flushed(number) => self.flushed = self.flushed.max(number),
            Line::Committed(number) => self.committed = self.committed.max(number),
        }
    }

    /// The lines of a text. A last line without its end may be cut short and is left out: half of
    /// `committed 120` is `committed 12`.
    pub fn lines(text: &str) -> impl Iterator<Item = Line> {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(Line::parse)
    }

    /// The knowledge in a text.
    pub fn from_text(text: &str) -> Witness {
        let mut witness = Witness::default();
        Self::lines(text).for_each(|line| witness.hear(line));
        witness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_read_back() {
        for line in [Line::Run([0xa7; 16]), Line::Flushed(1), Line::Committed(u64::MAX)] {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        for text in [
            "",
            "flushed",
            "flushed x",
            "committed 1 2",
            "steadfast-witness 2 00",
            "steadfast-witness 1 é",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_witness_knows_the_last_run_and_no_half_line() {
        let text = format!(
            "{}\nflushed 9\ncommitted 9\nnoise\n{}\nflushed 3\ncommitted 2\ncommitted 3",
            Line::Run([1; 16]),
            Line::Run([2; 16])
        );
        let witness = Witness::from_text(&text);
        assert_eq!(witness, Witness { run: Some([2; 16]), flushed: 3, committed: 2 });
        assert_eq!(Witness::from_text(&format!("{text}\n")).committed, 3);
        assert_eq!(Witness::from_text(""), Witness::default());
    }
}
