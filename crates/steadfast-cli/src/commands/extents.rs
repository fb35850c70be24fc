//! `steadfast extents`: where the data of a file is stored, as filefrag shows for other file
//! systems.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;
use steadfast::fs::FileExtent;

use crate::failure::Outcome;
use crate::image::{Access, Image};
use crate::output::{self, Output};
use crate::volume_path::{self, LastLink};

/// Extents requested at a time.
const EXTENTS: usize = 1024;

/// Show where the data of files lies on an image that is not mounted
///
/// One line per run of adjacent blocks: first block in the file, first block on the volume, number
/// of blocks. A small file has none: its data is kept with its attributes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Files on the volume
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print JSON: one document, a list
    #[arg(long)]
    json: bool,
}

/// `steadfast extents --json`. Numbers are blocks, except for sizes.
#[derive(Debug, Serialize)]
struct File {
    path: String,
    size: u64,
    block_size: u32,
    extents: Vec<Run>,
}

#[derive(Debug, Clone, Serialize)]
struct Run {
    file_block: u64,
    block: u64,
    blocks: u64,
    unwritten: bool,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image or the first file.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let mut files = Vec::new();
    for path in &args.paths {
        let path = path.as_bytes();
        files.push(file(&image, path).map_err(|error| image.failure(error, path))?);
    }
    image.close()?;
    if args.json {
        return output::json(&files);
    }
    let mut output = Output::new();
    for file in &files {
        let (count, s) = (file.extents.len(), if file.extents.len() == 1 { "" } else { "s" });
        output.line(format_args!(
            "{}: {count} extent{s}, {} bytes, blocks of {} bytes",
            file.path, file.size, file.block_size
        ))?;
        for run in &file.extents {
            let unwritten = if run.unwritten { "  unwritten" } else { "" };
            output.line(format_args!(
                "{:>12} {:>12} {:>9}{unwritten}",
                run.file_block, run.block, run.blocks
            ))?;
        }
    }
    output.finish()
}

fn file(image: &Image, path: &[u8]) -> steadfast::Result<File> {
    let volume = &image.volume;
    let attributes = volume_path::resolve(volume, path, LastLink::Follow)?;
    let mut extents: Vec<Run> = Vec::new();
    let mut from = 0;
    loop {
        let found = volume.file_extents(attributes.inode, from, EXTENTS)?;
        let Some(last) = found.last() else { break };
        from = last.index + last.blocks;
        found.iter().for_each(|extent| join(&mut extents, extent));
    }
    Ok(File {
        path: String::from_utf8_lossy(path).into_owned(),
        size: attributes.size,
        block_size: volume.info().block_size,
        extents,
    })
}

/// Adds an extent. If it continues the last one, in the file and on the volume, both become one
/// run.
fn join(runs: &mut Vec<Run>, next: &FileExtent) {
    match runs.last_mut() {
        Some(last)
            if last.file_block + last.blocks == next.index
                && last.block + last.blocks == next.address.0
                && last.unwritten == next.unwritten =>
        {
            last.blocks += next.blocks;
        }
        _ => runs.push(Run {
            file_block: next.index,
            block: next.address.0,
            blocks: next.blocks,
            unwritten: next.unwritten,
        }),
    }
}
