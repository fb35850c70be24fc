//! `steadfast tree`: everything below a directory of an image that is not mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;
use steadfast::fs::{Attributes, DirectoryEntry, FileKind};

use crate::failure::Outcome;
use crate::image::{Access, Image};
use crate::output::{JsonName, Output};
use crate::stat_text;
use crate::volume_path::{self, LastLink, join};

/// Show everything below a directory of an image that is not mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Directory on the volume
    #[arg(default_value = "/")]
    path: OsString,
    /// Go down this many levels at most
    #[arg(short = 'L', long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Print JSON: one flat list with whole paths
    #[arg(long)]
    json: bool,
}

/// One entry of `steadfast tree --json`; `name` is the path from the directory that was asked for.
#[derive(Debug, Serialize)]
struct JsonEntry {
    #[serde(flatten)]
    name: JsonName,
    #[serde(flatten)]
    stat: stat_text::JsonStat,
}

/// A directory on the way down: what is left of it.
struct Level {
    path: Vec<u8>,
    entries: std::vec::IntoIter<(DirectoryEntry, Attributes)>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image or a directory.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let path = args.path.as_bytes();
    let root = volume_path::resolve(&image.volume, path, LastLink::Follow)
        .map_err(|error| image.failure(error, path))?;
    let mut output = Output::new();
    let mut json = Vec::new();
    let (mut directories, mut others) = (0u64, 0u64);
    if !args.json {
        output.name(path)?;
        output.bytes(b"\n")?;
    }
    let mut levels = Vec::new();
    if root.kind == FileKind::Directory {
        levels.push(enter(&image, Vec::new(), root)?);
    }
    while let Some(level) = levels.last_mut() {
        let Some((entry, attributes)) = level.entries.next() else {
            levels.pop();
            continue;
        };
        let entry_path = join(&level.path, &entry.name);
        if args.json {
            json.push(JsonEntry {
                name: JsonName::new(&entry_path[1..]),
                stat: stat_text::JsonStat::new(&attributes),
            });
        } else {
            print_row(&mut output, &levels, &image, &entry, &attributes)?;
        }
        let depth = levels.len();
        if attributes.kind == FileKind::Directory {
            directories += 1;
            if args.depth.is_none_or(|limit| depth < limit as usize) {
                levels.push(enter(&image, entry_path, attributes)?);
            }
        } else {
            others += 1;
        }
    }
    if args.json {
        output.json(&json)?;
    } else {
        output.line(format_args!("\n{directories} directories, {others} files"))?;
    }
    output.finish()?;
    image.close()
}

fn enter(image: &Image, path: Vec<u8>, directory: Attributes) -> Outcome<Level> {
    let entries = volume_path::sorted_entries(&image.volume, directory.inode)
        .map_err(|error| image.failure(error, &path))?;
    Ok(Level { path, entries: entries.into_iter() })
}

fn print_row(
    output: &mut Output,
    levels: &[Level],
    image: &Image,
    entry: &DirectoryEntry,
    attributes: &Attributes,
) -> Outcome {
    let Some((last, above)) = levels.split_last() else { return Ok(()) };
    let more = |level: &Level| level.entries.as_slice().is_empty();
    for level in above {
        output.bytes(if more(level) { "    " } else { "│   " }.as_bytes())?;
    }
    output.bytes(if more(last) { "└── " } else { "├── " }.as_bytes())?;
    output.name(&entry.name)?;
    match attributes.kind {
        FileKind::Directory => output.bytes(b"/")?,
        FileKind::Symlink => {
            let target = image
                .volume
                .read_link(attributes.inode)
                .map_err(|error| image.failure(error, &join(&last.path, &entry.name)))?;
            output.bytes(b" -> ")?;
            output.name(&target)?;
        }
        _ => {}
    }
    output.bytes(b"\n")
}
