//! `steadfast dump`: the structures of an image, field by field. For debugging volumes and for
//! writing a reader of the format.

use std::path::PathBuf;

use steadfast::dump::{Key, Kind};
use steadfast::{BlockAddress, Error, InodeNumber, Lsn, dump};
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::image::{Access, Image};
use crate::output::Output;

/// Show structures of an image that is not mounted (see docs/FORMAT.md)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The superblock, and whether both copies are good
    Superblock,
    /// Both copies of both metaroots
    Metaroot,
    /// The tree: every node with its place
    Tree,
    /// A tree node, by the block address of its first copy
    Node {
        /// Block address
        address: u64,
    },
    /// One key
    Key {
        /// Inode number; 0 for what belongs to the volume
        inode: u64,
        /// Kind: inode, dirent, xattr, symlink, inline, extent, group, orphan, shared, dead-list,
        /// snapshot, or its number
        #[arg(value_parser = parse_kind)]
        kind: u8,
        /// Suffix, decimal or 0x...
        #[arg(value_parser = parse_number)]
        suffix: u64,
    },
    /// Every key of an inode
    Inode {
        /// Inode number, as `ls -i` shows it
        number: u64,
    },
    /// The records of the intent log, or the mutations of one
    Log {
        /// Number of the record
        lsn: Option<u64>,
    },
}

fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number"))
}

fn parse_kind(text: &str) -> Result<u8, String> {
    let kind = match text {
        "inode" => Kind::Inode,
        "dirent" => Kind::Dirent,
        "xattr" => Kind::Xattr,
        "symlink" => Kind::Symlink,
        "inline" => Kind::Inline,
        "extent" => Kind::Extent,
        "group" => Kind::Group,
        "orphan" => Kind::Orphan,
        "shared" => Kind::SharedExtent,
        "dead-list" => Kind::DeadList,
        "snapshot" => Kind::Snapshot,
        _ => return text.parse().map_err(|_| format!("'{text}' is no kind of key")),
    };
    Ok(kind as u8)
}

/// Runs the command.
///
/// # Errors
/// The image cannot be opened, or does not have the requested structure.
pub fn run(args: &Args) -> Outcome {
    let mut output = Output::new();
    let mut printed = Ok(());
    let mut lines = |line: String| {
        if printed.is_ok() {
            printed = output.line(&line);
        }
    };
    match &args.what {
        What::Superblock => {
            host::with_medium(&args.image, |medium| {
                dump::superblocks(medium, &HostPlatform::new(), &mut lines)
            })?;
        }
        What::Metaroot => {
            host::with_medium(&args.image, |medium| {
                dump::metaroots(medium, &HostPlatform::new(), &mut lines)
            })?;
        }
        what => {
            let image = Image::open(&args.image, Access::Read)?;
            of_volume(&image, what, &mut lines).map_err(|error| failure(error, args))?;
            image.close()?;
        }
    }
    printed?;
    output.finish()
}

fn of_volume(image: &Image, what: &What, lines: &mut dump::Lines<'_>) -> steadfast::Result<()> {
    let volume = &image.volume;
    match what {
        What::Tree => dump::tree(volume, lines),
        What::Node { address } => dump::node(volume, BlockAddress(*address), lines),
        What::Key { inode, kind, suffix } => {
            let mut key = Key::new(InodeNumber(*inode), Kind::Inode, *suffix);
            key.0[8] = *kind;
            dump::key(volume, &key, lines)
        }
        What::Inode { number } => dump::inode(volume, InodeNumber(*number), lines),
        What::Log { lsn } => dump::log(volume, lsn.map(Lsn), lines),
        What::Superblock | What::Metaroot => Ok(()),
    }
}

fn failure(error: Error, args: &Args) -> Failure {
    let mut failure = Failure::core(error, args.image.display());
    match (&args.what, error) {
        (What::Node { address }, Error::CorruptMetadata { reason, .. }) => {
            failure.exit = Exit::Failed;
            failure.what = format!("no node of this volume at block {address}: {reason}");
            failure.advice = "see 'steadfast dump IMAGE tree' for where nodes are".into();
        }
        (What::Key { .. }, Error::NotFound) => {
            failure.what = "no such key".into();
            failure.advice =
                "see 'steadfast dump IMAGE inode NUMBER' for the keys of an inode".into();
        }
        (What::Inode { number }, Error::Stale(_)) => {
            failure.what = format!("no inode {number}");
            failure.advice =
                "numbers are shown by 'ls -i' on the mount, and 'steadfast dump IMAGE tree'".into();
        }
        (What::Log { .. }, Error::NotFound) => {
            failure.what = "no such record in the log".into();
            failure.advice = "see 'steadfast dump IMAGE log' for the records".into();
        }
        _ => {}
    }
    failure
}
