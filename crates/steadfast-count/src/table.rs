//! The committed table: one row for each operation and volume.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;

/// What a repetition costs, as a mean over all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `steadfast`, or a peer.
    pub system: String,
    /// The operation.
    pub operation: String,
    /// Files of the volume.
    pub files: u64,
    /// Whether the volume is aged.
    pub aged: bool,
    /// Instructions in user space.
    pub instructions: u64,
    /// Of them: in checksums.
    pub checksum: u64,
    /// Of them: in the medium.
    pub medium: u64,
    /// Of them: in functions that copy bytes, those of the medium included.
    pub copying: u64,
    /// Of them: in the allocator.
    pub allocator: u64,
    /// Allocations and reallocations.
    pub allocations: f64,
    /// Bytes that they ask for.
    pub allocated_bytes: u64,
    /// Bytes copied by functions of the C library.
    pub copied_bytes: Option<u64>,
    /// Misses of the first-level caches, for data.
    pub first_level_misses: Option<f64>,
    /// Misses of the last-level cache, for instructions and data.
    pub last_level_misses: Option<f64>,
    /// Reads of the medium.
    pub reads: f64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Writes to the medium.
    pub writes: f64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Flushes of the medium.
    pub flushes: f64,
    /// Discards of the medium.
    pub discards: f64,
    /// Deepest stack, bytes.
    pub stack: Option<u64>,
}

/// All rows, and what they were measured with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Version of valgrind.
    pub valgrind: String,
    /// Version of the compiler.
    pub compiler: String,
    /// Version of the C library.
    pub c_library: String,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no table.
    pub fn read(path: &Path) -> Result<Table> {
        let text = fs::read_to_string(path).map_err(|error| {
            format!("{}: {error}: make the table with 'make count'", path.display())
        })?;
        serde_json::from_str(&text).map_err(|error| {
            format!("{}: {error}: make the table with 'make count'", path.display())
        })
    }

    /// Writes the file, a row a line, so that a change shows as the rows that it changes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let head = Table { rows: Vec::new(), ..self.clone() };
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let rows: std::result::Result<Vec<_>, _> =
            self.rows.iter().map(serde_json::to_string).collect();
        let rows = rows.map_err(|error| told(&error))?.join(",\n");
        let head = serde_json::to_string(&head).map_err(|error| told(&error))?;
        let text = head.replace("\"rows\":[]", &format!("\"rows\":[\n{rows}\n]"));
        fs::write(path, text + "\n").map_err(|error| told(&error))
    }

    /// The row of an operation on a volume.
    pub fn row(&self, system: &str, operation: &str, files: u64, aged: bool) -> Option<&Row> {
        self.rows.iter().find(|row| row.is(system, operation, files, aged))
    }

    /// Replaces rows, or adds them.
    pub fn put(&mut self, new: Row) {
        let same = |row: &&mut Row| row.is(&new.system, &new.operation, new.files, new.aged);
        match self.rows.iter_mut().find(same) {
            Some(row) => *row = new,
            None => self.rows.push(new),
        }
    }
}

impl Row {
    fn is(&self, system: &str, operation: &str, files: u64, aged: bool) -> bool {
        (&*self.system, &*self.operation, self.files, self.aged) == (system, operation, files, aged)
    }
}
