//! `steadfast cat`: the contents of files on an image that is not mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::failure::Outcome;
use crate::image::{Access, Image};
use crate::output::Output;
use crate::transfer;

/// Print files of an image that is not mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Files on the volume
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image, or with the first file that cannot be read. The data read before
/// it is printed.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let mut output = Output::new();
    for path in &args.paths {
        let copied =
            transfer::read_file(&image, path.as_bytes(), &mut |bytes, _| output.bytes(bytes));
        if let Err(failure) = copied {
            // The bytes before a damaged block are good, so they are printed first.
            output.finish()?;
            return Err(failure);
        }
    }
    output.finish()?;
    image.close()
}
