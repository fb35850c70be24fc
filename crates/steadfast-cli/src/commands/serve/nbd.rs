//! `steadfast serve nbd`: serves an image, or a file inside a volume, to NBD clients.

use std::path::PathBuf;
use std::sync::Arc;

use steadfast::TransactionMask;
use steadfast_host::BackgroundThread;
use steadfast_remote::export::{MediumExport, Single};

use super::Listening;
use super::file_export::FileExport;
use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::image::{Access, Image};
use crate::{host, mask_text, size};

/// Serve an image as it is, or with --file a file inside the volume in it
///
/// With --file every NBD flush is a transaction point of the volume, and nothing else is. So after
/// a power cut, a file system on the export is as it was at its last flush. While the volume is
/// served, no other program can open it or roll it back.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image file or block device
    image: PathBuf,
    /// Path of a file inside the volume
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Make the file, sparse, with this size if it does not exist
    #[arg(
        long,
        value_parser = size::parse,
        allow_hyphen_values = true,
        value_name = "SIZE",
        requires = "file"
    )]
    create: Option<u64>,
    /// What sets transaction points besides flushes (see 'steadfast mask set --help')
    #[arg(long, value_parser = parse_mask, value_name = "EVENTS", requires = "file")]
    mask: Option<TransactionMask>,
    /// Refuse writes
    #[arg(short, long)]
    read_only: bool,
    #[command(flatten)]
    listening: Listening,
}

fn parse_mask(text: &str) -> Result<TransactionMask, String> {
    mask_text::parse(&[text], TransactionMask::MANUAL)
}

/// Runs the command.
///
/// # Errors
/// Those of opening the source, of listening, and of the last transaction point.
pub fn run(args: &Args) -> Outcome {
    // An invalid address is refused before anything is opened.
    args.listening.address()?;
    match &args.file {
        Some(path) => serve_file(args, path),
        None => serve_image(args),
    }
}

fn serve_image(args: &Args) -> Outcome {
    let medium = host::open_medium(&args.image, args.read_only, host::Way::Cached)?;
    let export = Arc::new(MediumExport::new(medium, args.read_only));
    let name = args.image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    args.listening.serve(
        Arc::new(Single::new(name, export)),
        &args.image.display().to_string(),
        |_| Ok(()),
    )
}

fn serve_file(args: &Args, path: &str) -> Outcome {
    let access = if args.read_only { Access::Read } else { Access::Write };
    let image = Image::open(&args.image, access)?;
    let place = image.place(path.as_bytes()).to_string();
    let mask = image.volume.mask();
    let volume = Arc::new(image.volume);
    let at_place = |error| Failure::core(error, &place);
    if !args.read_only {
        volume.set_mask(args.mask.unwrap_or(TransactionMask::MANUAL)).map_err(at_place)?;
    }
    let export =
        FileExport::open(Arc::clone(&volume), path.as_bytes(), args.create, args.read_only);
    let served = export.map_err(at_place).and_then(|export| {
        let _background = match args.read_only {
            true => None,
            false => {
                let spawned =
                    BackgroundThread::spawn(Arc::clone(&volume), |failure| eprintln!("{failure}"));
                Some(spawned.map_err(|error| {
                    Failure::new(
                        Exit::Failed,
                        text_os(&error),
                        "the background thread",
                        "free some memory",
                    )
                })?)
            }
        };
        args.listening.serve(Arc::new(Single::new(path, Arc::new(export))), &place, |_| Ok(()))
    });
    let restored = match args.read_only {
        true => Ok(()),
        // Writes after a client's last flush were never promised to be durable. Closing keeps them
        // if the mask says so.
        false => volume.set_mask(mask),
    };
    let closed = restored.and_then(|()| volume.close()).map_err(at_place);
    served.and(closed)
}
