//! Reading and writing a result as a JSON file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use steadfast_host::{Durability, Links, MODE_PUBLIC, WholeFile};

use super::{KIND, RunResult, SCHEMA};

/// The most that a result may be, bytes: more is not one of ours.
const SIZE_MOST: u64 = 1 << 30;

/// Why a result could not be read or written. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The operating system refused.
    #[error("cannot {doing}: {}: {error}", path.display())]
    Io {
        /// `read`, `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Not JSON, or not of our kind.
    #[error("not a result of 'steadfast lab run' ({reason}): {}", path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Written by another version of the program.
    #[error("its schema is {found}, this program reads {SCHEMA}: {}", path.display())]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
    },
}

/// What tells one of our files from any other, whatever its version.
#[derive(Deserialize)]
struct Head {
    kind: String,
    schema: u32,
}

/// Reads a result.
///
/// # Errors
/// The file cannot be read, is no result, or has another schema.
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

/// Writes a result so that the file is always a whole one.
///
/// # Errors
/// The operating system refuses; an older file is then still there.
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
