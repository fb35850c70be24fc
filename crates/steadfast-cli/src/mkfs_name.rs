//! The program called as `mkfs.steadfast`, by mkfs(8) or by a user: `mkfs.steadfast [OPTIONS]
//! DEVICE [SIZE]`.
//!
//! The options are those of `steadfast mkfs`. As with mke2fs, a SIZE without a unit is in KiB, or
//! in blocks if the block size is given. The exit codes are 0 and 1, as mkfs(8) documents.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Parser;

use crate::commands::mkfs;
use crate::failure::{Exit, Failure, Outcome};
use crate::size;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "mkfs.steadfast",
    version,
    about = "Make a Steadfast volume",
    max_term_width = 110
)]
pub struct MkfsCall {
    #[command(flatten)]
    args: mkfs::Args,
    /// Size of the volume: with a unit, or in KiB, or in blocks if --block-size is given
    #[arg(value_name = "SIZE", conflicts_with = "size")]
    size_after: Option<String>,
    /// Accepted because mkfs(8) may pass it
    #[arg(short = 'v', hide = true)]
    verbose: bool,
}

/// Whether this process was called by this name.
pub fn is_called(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    matches!(name.map(OsStr::as_bytes), Some(b"mkfs.steadfast" | b"mkfs.fuse.steadfast"))
}

/// Makes the volume.
///
/// # Errors
/// As [`mkfs::run`], and an invalid size.
pub fn run(call: MkfsCall) -> Outcome {
    let MkfsCall { mut args, size_after, .. } = call;
    if let Some(text) = size_after {
        let unit = u64::from(args.volume.block_size.unwrap_or(1024));
        let bytes = match text.parse::<u64>() {
            Ok(count) => count.checked_mul(unit).ok_or_else(|| format!("'{text}' is too large")),
            Err(_) => size::parse(&text),
        };
        let wrong = |what| {
            Failure::new(Exit::Usage, what, args.image.display(), "write a size such as 64M")
        };
        args.size = Some(bytes.map_err(wrong)?);
    }
    mkfs::run(&args)
}
