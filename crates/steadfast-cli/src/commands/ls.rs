//! `steadfast ls`: directories of an image that is not mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;
use steadfast::fs::{Attributes, FileKind};

use crate::failure::Outcome;
use crate::image::{Access, Image};
use crate::output::{JsonName, Output, printable};
use crate::stat_text;
use crate::volume_path::{self, LastLink};

/// List a directory of an image that is not mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Directory or file on the volume
    #[arg(default_value = "/")]
    path: OsString,
    /// Show mode, links, owner, size and time of each entry
    #[arg(short, long)]
    long: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One entry of `steadfast ls --json`.
#[derive(Debug, Serialize)]
struct ListedEntry {
    #[serde(flatten)]
    name: JsonName,
    #[serde(flatten)]
    stat: stat_text::JsonStat,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// Runs the command. Entries are sorted by their bytes.
///
/// # Errors
/// What is wrong with the image or the path.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let path = args.path.as_bytes();
    let found = volume_path::resolve(&image.volume, path, LastLink::Keep)
        .map_err(|error| image.failure(error, path))?;
    let entries: Vec<(Vec<u8>, Attributes)> = if found.kind == FileKind::Directory {
        volume_path::sorted_entries(&image.volume, found.inode)
            .map_err(|error| image.failure(error, path))?
            .into_iter()
            .map(|(entry, attributes)| (entry.name, attributes))
            .collect()
    } else {
        vec![(path.to_vec(), found)]
    };

    let mut output = Output::new();
    let mut json = Vec::new();
    for (name, attributes) in &entries {
        let target = if attributes.kind == FileKind::Symlink && (args.long || args.json) {
            Some(
                image
                    .volume
                    .read_link(attributes.inode)
                    .map_err(|error| image.failure(error, name))?,
            )
        } else {
            None
        };
        if args.json {
            json.push(ListedEntry {
                name: JsonName::new(name),
                stat: stat_text::JsonStat::new(attributes),
                target: target.map(|target| String::from_utf8_lossy(&target).into_owned()),
            });
            continue;
        }
        if args.long {
            output.bytes(stat_text::long(attributes).as_bytes())?;
            output.bytes(b" ")?;
        }
        output.name(name)?;
        if let Some(target) = target {
            output.bytes(format!(" -> {}", printable(&target)).as_bytes())?;
        }
        output.bytes(b"\n")?;
    }
    if args.json {
        output.json(&json)?;
    }
    output.finish()?;
    image.close()
}
