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
use crate::volume_path::{self, LastLink};
use crate::walk::{Step, Walk};

/// Show everything below a directory of an image that is not mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Directory on the volume
    #[arg(default_value = "/")]
    path: OsString,
    /// Go down at most this many levels
    #[arg(short = 'L', long, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Print JSON: one flat list with whole paths
    #[arg(long)]
    json: bool,
}

/// One entry of `steadfast tree --json`; `name` is the path from the given directory.
#[derive(Debug, Serialize)]
struct TreeEntry {
    #[serde(flatten)]
    name: JsonName,
    #[serde(flatten)]
    stat: stat_text::JsonStat,
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
    let mut walk = (root.kind == FileKind::Directory).then(|| Walk::new(&image.volume, b"", root));
    while let Some(walk) = &mut walk {
        let Some(step) =
            walk.step().map_err(|stop| stop.failure(image.place(&walk.path_below(path))))?
        else {
            break;
        };
        let Step::Entry(entry, attributes) = step else { continue };
        if args.json {
            json.push(TreeEntry {
                name: JsonName::new(walk.path().get(1..).unwrap_or_default()),
                stat: stat_text::JsonStat::new(&attributes),
            });
        } else {
            print_row(&mut output, walk, &image, &entry, &attributes)?;
        }
        if attributes.kind == FileKind::Directory {
            directories += 1;
            if args.depth.is_some_and(|limit| walk.depth() >= limit as usize) {
                walk.pass_by();
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

fn print_row(
    output: &mut Output,
    walk: &Walk<'_>,
    image: &Image,
    entry: &DirectoryEntry,
    attributes: &Attributes,
) -> Outcome {
    for (level, end) in walk.ends().enumerate() {
        let sign = match (level + 1 == walk.depth(), end) {
            (false, true) => "    ",
            (false, false) => "│   ",
            (true, true) => "└── ",
            (true, false) => "├── ",
        };
        output.bytes(sign.as_bytes())?;
    }
    output.name(&entry.name)?;
    match attributes.kind {
        FileKind::Directory => output.bytes(b"/")?,
        FileKind::Symlink => {
            let target = image
                .volume
                .read_link(attributes.inode)
                .map_err(|error| image.failure(error, walk.path()))?;
            output.bytes(b" -> ")?;
            output.name(&target)?;
        }
        _ => {}
    }
    output.bytes(b"\n")
}
