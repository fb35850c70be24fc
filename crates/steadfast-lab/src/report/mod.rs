//! The presentation of a result: tables for the terminal, IOzone's table, pictures, and one page.
//!
//! Everything reads only a [`crate::result::RunResult`], so a report can be made again elsewhere,
//! years later. [`comparison`] decides on the statements; the rest only shows them. A result is
//! untrusted input. The report is well formed and escapes names, whatever the result contains.

pub mod chart;
pub mod comparison;
pub mod figure;
pub mod format;
pub mod goals;
pub mod iozone;
pub mod markdown;
mod page;
pub mod published;
pub mod table;
pub mod terminal;

use std::io;
use std::path::{Path, PathBuf};

use steadfast_host::write_whole;

use crate::result::RunResult;
use chart::{png, theme};
use comparison::View;

/// The file name of the page, in the directory of a report.
pub const PAGE: &str = "index.html";
/// The directory of its pictures.
pub const PICTURES: &str = "pictures";

/// The reason why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The requested peer is not in the result.
    #[error("{0}")]
    Peer(String),
    /// The operating system reported an error.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The renderer of pictures failed.
    #[error("cannot draw {name}: {reason}")]
    Picture {
        /// Name of the picture.
        name: String,
        /// The reason.
        reason: String,
    },
}

/// Writes the page and its pictures, as SVG and PNG, below a directory, which is made if it does
/// not exist. Returns the path of the page. Files of an older report are replaced.
///
/// # Errors
/// The peer is unknown, a file cannot be written, or a picture cannot be drawn.
pub fn write(
    run: &RunResult,
    peer: Option<&str>,
    directory: &Path,
) -> Result<PathBuf, ReportError> {
    let view = View::new(run, peer).map_err(ReportError::Peer)?;
    let (overview, figures) = figure::all(&view);
    let pictures = directory.join(PICTURES);
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |error| ReportError::Io { path, error }
    };
    std::fs::create_dir_all(&pictures).map_err(io_error(&pictures))?;
    for figure in overview.iter().chain(figures.iter().flatten()) {
        let sheet = figure.sheet(&view);
        let refuse = |reason| ReportError::Picture { name: figure.name.clone(), reason };
        let svg = pictures.join(format!("{}.svg", figure.name));
        let drawing = sheet.file(&figure.alternative, theme::Use::File);
        write_whole(&svg, drawing.as_bytes()).map_err(io_error(&svg))?;
        let png = pictures.join(format!("{}.png", figure.name));
        write_whole(&png, &png::render(&sheet).map_err(refuse)?).map_err(io_error(&png))?;
    }
    let page = directory.join(PAGE);
    let text = page::render(&view, overview.as_ref(), &figures).map_err(|error| {
        ReportError::Io { path: page.clone(), error: io::Error::other(error.to_string()) }
    })?;
    write_whole(&page, text.as_bytes()).map_err(io_error(&page))?;
    Ok(page)
}
