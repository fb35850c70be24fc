//! Reading and writing a result as a JSON file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use steadfast_host::{Durability, Links, MODE_PUBLIC, WholeFile};

use super::{KIND, RunResult, SCHEMA};

/// Maximum size of a result, bytes; a larger file is not a result of the lab.
const SIZE_MOST: u64 = 1 << 30;

/// The reason why a result could not be read or written. The text names the file once, at its end;
/// [`path`](ResultError::path) and [`reason`](ResultError::reason) are its parts.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The operating system reported an error.
    #[error("{}: {}", self.reason(), path.display())]
    Io {
        /// `read`, `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Not JSON, or not a result.
    #[error("{}: {}", self.reason(), path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Written by another version of the program.
    #[error("{}: {}", self.reason(), path.display())]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
    },
}

impl ResultError {
    /// What is wrong, without the name of the file.
    pub fn reason(&self) -> String {
        match self {
            ResultError::Io { doing, error, .. } => format!("cannot {doing}: {error}"),
            ResultError::NotAResult { reason, .. } => {
                format!("not a result of 'steadfast lab run' ({reason})")
            }
            ResultError::OtherSchema { found, .. } => {
                format!("its schema is {found}, this program reads {SCHEMA}")
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            ResultError::Io { path, .. }
            | ResultError::NotAResult { path, .. }
            | ResultError::OtherSchema { path, .. } => path,
        }
    }
}

/// The fields that identify a result, whatever its version.
#[derive(Deserialize)]
struct Head {
    kind: String,
    schema: u32,
}

/// Reads a result.
///
/// # Errors
/// The file cannot be read, is not a result, or has another schema.
pub fn read(path: &Path) -> Result<RunResult, ResultError> {
    let io_error = |error| ResultError::Io { doing: "read", path: path.to_owned(), error };
    let refuse = |reason: String| ResultError::NotAResult { path: path.to_owned(), reason };
    let size = std::fs::metadata(path).map_err(io_error)?.len();
    if size > SIZE_MOST {
        return Err(refuse("it is too large".into()));
    }
    let bytes = std::fs::read(path).map_err(io_error)?;
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
    if head.kind != KIND {
        return Err(refuse("it is of another kind".into()));
    }
    if head.schema != SCHEMA {
        return Err(ResultError::OtherSchema { path: path.to_owned(), found: head.schema });
    }
    serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))
}

/// Writes a result so that the file is always complete.
///
/// # Errors
/// The operating system reports an error; an older file is unchanged then.
pub fn write(result: &RunResult, path: &Path) -> Result<(), ResultError> {
    let attempt = || -> io::Result<()> {
        let whole = WholeFile::create(path, MODE_PUBLIC, Links::Follow)?;
        let mut file = io::BufWriter::new(&whole);
        serde_json::to_writer_pretty(&mut file, result)?;
        file.write_all(b"\n")?;
        file.flush()?;
        drop(file);
        whole.finish(Durability::Synced)
    };
    attempt().map_err(|error| ResultError::Io { doing: "write", path: path.to_owned(), error })
}
