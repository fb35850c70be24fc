//! The output of a salvage: the report file, and the summary.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use serde::Serialize;
use steadfast::salvage::Problem;

use super::REPORT;
use crate::size;

/// `steadfast check --salvage --json`. Fields are added over time and never change their meaning.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Regular files written. A file with several names counts once.
    pub files: u64,
    /// Directories written.
    pub directories: u64,
    /// Symbolic links, additional names, FIFOs, sockets and devices written.
    pub others: u64,
    /// Bytes of file data written.
    pub bytes: u64,
    /// Bytes of file data that are lost; the copies hold zeros there.
    pub bytes_lost: u64,
    /// Files and directories with missing or doubtful parts.
    pub incomplete: u64,
    /// Names whose file is lost entirely.
    pub lost: u64,
    /// Files and directories below lost+found.
    pub lost_and_found: u64,
    /// The condition of the volume, and what the host could not store.
    pub notes: Vec<String>,
}

impl Summary {
    /// Whether nothing is missing or doubtful.
    pub fn is_complete(&self) -> bool {
        self.incomplete == 0
    }

    /// The summary in one line.
    pub fn line(&self, directory: &Path) -> String {
        let copied = format!(
            "{} files, {} directories and {} others with {} copied to {}",
            self.files,
            self.directories,
            self.others,
            size::human(self.bytes),
            directory.display()
        );
        let mut line = if self.is_complete() { format!("{copied}, all complete") } else { copied };
        if !self.is_complete() {
            line += &format!(
                "; {} incomplete or doubtful, {} lost, {} of names only",
                self.incomplete,
                size::human(self.bytes_lost),
                self.lost
            );
        }
        if self.lost_and_found > 0 {
            line += &format!("; {} below lost+found", self.lost_and_found);
        }
        line
    }
}

/// The report file.
pub struct SalvageReport {
    file: BufWriter<File>,
}

impl SalvageReport {
    /// Makes the report for an image, or for a snapshot in it, in `directory`. This comes before
    /// any entry of the volume can take its name.
    ///
    /// # Errors
    /// The host's.
    pub fn create(
        directory: &Path,
        image: &Path,
        snapshot: Option<&str>,
    ) -> io::Result<SalvageReport> {
        let mut file = BufWriter::new(File::create_new(directory.join(REPORT))?);
        write!(file, "Salvage of {}", image.display())?;
        if let Some(name) = snapshot {
            write!(file, ", snapshot {name},")?;
        }
        writeln!(file, " by steadfast {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(file, "Lost bytes are zeros in the copies; the last number is included.\n")?;
        Ok(SalvageReport { file })
    }

    /// Adds a note that does not concern one file.
    ///
    /// # Errors
    /// The host's.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.file, "note: {}", one_line(text))
    }

    /// Adds a problem of one file.
    ///
    /// # Errors
    /// The host's.
    pub fn problem(&mut self, path: &str, problem: Problem) -> io::Result<()> {
        let text = match problem {
            Problem::Lost => "lost: only its name is left".to_owned(),
            Problem::AttributesLost => "owner, permissions, times and size are lost".to_owned(),
            Problem::EntriesMissing(count) => {
                format!("{count} entries of this directory are missing")
            }
            Problem::XattrsIncomplete => "extended attributes are missing".to_owned(),
            Problem::TargetLost => "the target of the link is lost".to_owned(),
            Problem::MayBeOutdated => {
                "found by searching: parts may be out of date, and removed names may be back"
                    .to_owned()
            }
        };
        self.line(path, &text)
    }

    /// Adds the lost bytes of a file.
    ///
    /// # Errors
    /// The host's.
    pub fn lost(&mut self, path: &str, ranges: &[Range<u64>]) -> io::Result<()> {
        for range in ranges {
            let text = format!("bytes {} to {} are lost", range.start, range.end.saturating_sub(1));
            self.line(path, &text)?;
        }
        Ok(())
    }

    fn line(&mut self, path: &str, text: &str) -> io::Result<()> {
        writeln!(self.file, "{}: {text}", one_line(path))
    }

    /// Ends the report with the line `last`.
    ///
    /// # Errors
    /// The host's.
    pub fn finish(mut self, last: &str) -> io::Result<()> {
        writeln!(self.file, "\n{last}")?;
        self.file.flush()
    }
}

/// Replaces control characters, so that a name cannot break the line.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}
