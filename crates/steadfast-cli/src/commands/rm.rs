//! `steadfast rm`: removes files from an image that is not mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use steadfast::fs::FileKind;
use steadfast::{Error, InodeNumber};

use crate::failure::{Failure, Outcome};
use crate::image::{Access, Image};
use crate::volume_path::{self, join};
use crate::walk::Visited;

/// Entries read at a time.
const ENTRIES: usize = 128;

/// Remove files of an image that is not mounted
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Files on the volume
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Remove directories with everything below
    #[arg(short, long)]
    recursive: bool,
    /// Ignore missing files
    #[arg(short, long)]
    force: bool,
}

/// Runs the command. It works on a full volume: it frees space as it goes, so a large tree takes
/// several transactions.
///
/// # Errors
/// What is wrong with the image, or with the first path that cannot be removed. The paths before it
/// are removed.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Write)?;
    let result = args.paths.iter().try_for_each(|path| remove(&image, path.as_bytes(), args));
    let at_image = |error| Failure::core(error, args.image.display());
    let settled = settle(&image).map_err(at_image);
    image.close().and(result).and(settled)
}

/// Frees the space and makes the removal durable.
fn settle(image: &Image) -> steadfast::Result<()> {
    while image.volume.background()? {}
    image.volume.transact()
}

fn remove(image: &Image, path: &[u8], args: &Args) -> Outcome {
    let volume = &image.volume;
    let fail = |error| image.failure(error, path);
    let (parent, name) = volume_path::resolve_parent(volume, path).map_err(fail)?;
    let found = match volume.lookup(parent.inode, name) {
        Err(Error::NotFound) if args.force => return Ok(()),
        found => found.map_err(fail)?,
    };
    if found.kind != FileKind::Directory {
        if path.ends_with(b"/") {
            return Err(fail(Error::NotADirectory));
        }
        return volume.unlink(parent.inode, name).map_err(fail);
    }
    if args.recursive {
        remove_below(image, path, found.inode)?;
    }
    volume.remove_directory(parent.inode, name).map_err(fail)
}

/// Empties a directory, depth first, without recursion: names in an image may be nested as deeply
/// as its space allows.
fn remove_below(image: &Image, path: &[u8], root: InodeNumber) -> Outcome {
    let volume = &image.volume;
    let mut visited = Visited::default();
    // Each directory on the path, with the length of its path.
    let mut path = path.to_vec();
    let mut above = vec![(root, path.len())];
    visited.enter(root, 0).map_err(|stop| stop.failure(image.place(&path)))?;
    while let Some((directory, length)) = above.last() {
        path.truncate(*length);
        // The loop removes entries, so each read starts at the front again.
        let entries = volume
            .read_directory(*directory, 0, ENTRIES)
            .map_err(|error| image.failure(error, &path))?;
        let mut next = None;
        let mut removed = 0;
        for entry in entries {
            if matches!(entry.name.as_slice(), b"." | b"..") {
                continue;
            }
            let result = match entry.kind {
                FileKind::Directory => volume.remove_directory(*directory, &entry.name),
                _ => volume.unlink(*directory, &entry.name),
            };
            match result {
                Ok(()) => removed += 1,
                Err(Error::DirectoryNotEmpty) => {
                    next = Some(entry);
                    break;
                }
                Err(error) => return Err(image.failure(error, &join(&path, &entry.name))),
            }
        }
        match next {
            Some(entry) => {
                path = join(&path, &entry.name);
                // The depth is not limited here, because a tree that is too deep could never be
                // removed.
                visited.enter(entry.inode, 0).map_err(|stop| stop.failure(image.place(&path)))?;
                above.push((entry.inode, path.len()));
            }
            None if removed == 0 => {
                above.pop();
            }
            None => {}
        }
    }
    Ok(())
}
