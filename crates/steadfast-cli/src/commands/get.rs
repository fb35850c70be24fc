//! `steadfast get`: copies files from an image that is not mounted to the host.
//!
//! A file appears on the host under its name only after every byte of it was read and checked.
//! Names come from the image and may be hostile. So no link is followed, and nothing is written
//! outside the destination. The only exception is a link that the command line names.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, futimens, utimensat};
use steadfast::fs::{Attributes, FileKind};
use steadfast::{Error, Timestamp};
use steadfast_host::{Durability, Links, MODE_PRIVATE, Unfinished, WholeFile, hold_replaced};

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::transfer::{self, NOT_COPIED};
use crate::volume_path::{self, LastLink};
use crate::walk::{Step, Walk};
use crate::{ending, interrupt, open_failure};

/// Copy a file or directory from an image that is not mounted
///
/// Keeps permissions, modification times, holes and symbolic links. A file that is replaced gives
/// its owner and permissions to the new one. Otherwise owners, hard links, extended
/// attributes and special files are not copied; for those mount the volume and use a tool such as
/// rsync.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// File or directory on the volume
    path: OsString,
    /// File to write on the host, or a directory to put it into
    #[arg(default_value = ".")]
    destination: PathBuf,
    /// Copy directories with everything below
    #[arg(short, long)]
    recursive: bool,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image, the path or the destination. Completed copies stay.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let path = args.path.as_bytes();
    let found = volume_path::resolve(&image.volume, path, LastLink::Follow)
        .map_err(|error| image.failure(error, path))?;
    let mut destination = args.destination.clone();
    let name = volume_path::file_name(path);
    let has_name = !matches!(name, b"" | b"." | b"..");
    let into = destination.is_dir();
    if into && has_name {
        destination.push(OsStr::from_bytes(name));
    }
    if found.kind == FileKind::Directory {
        if !args.recursive {
            return Err(image.failure(Error::IsADirectory, path));
        }
        // Where this call makes the directory, the next one would copy into it.
        interrupt::leave_whole_files(&destination, into || !has_name);
        get_tree(&image, path, &found, &destination)?;
    } else {
        if !matches!(found.kind, FileKind::Regular | FileKind::Symlink) {
            let advice = "mount the volume to copy it";
            return Err(Failure::new(Exit::Failed, NOT_COPIED, image.place(path), advice));
        }
        interrupt::leave_nothing_half_done(&destination);
        get_one(&image, path, &found, &destination, Links::Follow)?;
    }
    image.close()
}

fn get_tree(image: &Image, path: &[u8], root: &Attributes, destination: &Path) -> Outcome {
    enter(destination)?;
    let mut walk = Walk::new(&image.volume, b"", *root);
    while let Some(step) =
        walk.step().map_err(|stop| stop.failure(image.place(&walk.path_below(path))))?
    {
        let place = match walk.path().strip_prefix(b"/") {
            Some(name) => destination.join(OsStr::from_bytes(name)),
            None => destination.to_owned(),
        };
        match step {
            Step::Entry(_, attributes) if attributes.kind == FileKind::Directory => enter(&place)?,
            Step::Entry(_, attributes) => {
                get_one(image, &walk.path_below(path), &attributes, &place, Links::Replace)?;
            }
            // Permissions and times are set when everything in the directory exists.
            Step::Left(attributes) => describe_directory(&place, &attributes)
                .map_err(|error| Failure::host(&error, "set the attributes of", &place))?,
        }
    }
    Ok(())
}

fn enter(destination: &Path) -> Outcome {
    match fs::create_dir(destination) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists && is_real_directory(destination) =>
        {
            Ok(())
        }
        other => other.map_err(|error| Failure::host(&error, "create", destination)),
    }
}

/// Whether the path is a directory itself, not a symbolic link to one.
fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn get_one(
    image: &Image,
    path: &[u8],
    attributes: &Attributes,
    destination: &Path,
    links: Links,
) -> Outcome {
    match attributes.kind {
        FileKind::Regular => get_file(image, path, attributes, destination, links),
        FileKind::Symlink => {
            let target = image
                .volume
                .read_link(attributes.inode)
                .map_err(|error| image.failure(error, path))?;
            refuse_what_is_no_file(destination)?;
            ending::wait_for(destination, || {
                put_link(OsStr::from_bytes(&target), destination)
                    .map_err(|error| open_failure::of_destination(&error, destination))
            })
        }
        _ => {
            eprintln!(
                "steadfast: warning: {NOT_COPIED}: {}: mount the volume to copy it",
                image.place(path)
            );
            Ok(())
        }
    }
}

/// Makes a symbolic link, which takes the place of a file or link in one step. A file that another
/// process has locked, such as a mounted image, is not replaced.
fn put_link(target: &OsStr, destination: &Path) -> io::Result<()> {
    let directory = destination.parent().unwrap_or(Path::new(""));
    let _held = hold_replaced(destination)?;
    let ((), link) = Unfinished::make(directory, |path| symlink(target, path))?;
    link.finish(|link| fs::rename(link, destination))
}

/// Fails if the destination is neither a file nor a link. Only these may be replaced by a name from
/// an image.
fn refuse_what_is_no_file(destination: &Path) -> Outcome {
    let what = match fs::symlink_metadata(destination).map(|there| there.file_type()) {
        Ok(kind) if kind.is_dir() => "a directory",
        Ok(kind) if !kind.is_file() && !kind.is_symlink() => "a device, FIFO or socket",
        _ => return Ok(()),
    };
    let advice = "remove it or choose another destination";
    Err(Failure::new(Exit::Failed, format!("{what} is in the way"), destination.display(), advice))
}

fn get_file(
    image: &Image,
    path: &[u8],
    attributes: &Attributes,
    destination: &Path,
    links: Links,
) -> Outcome {
    if links == Links::Replace {
        refuse_what_is_no_file(destination)?;
    }
    let on_host = |error: io::Error| open_failure::of_destination(&error, destination);
    // A new file gets its own permissions at the end.
    let whole = ending::wait_for(destination, || {
        WholeFile::create(destination, MODE_PRIVATE, links).map_err(on_host)
    })?;
    if whole.is_stream() {
        transfer::read_all(image, path, attributes, &mut |bytes| {
            (&whole).write_all(bytes).map_err(on_host)
        })?;
        return whole.finish(Durability::Cached).map_err(on_host);
    }
    let file = whole.file();
    transfer::read_data(image, path, attributes, &mut |bytes, offset| {
        file.write_all_at(bytes, offset).map_err(on_host)
    })?;
    file.set_len(attributes.size).map_err(on_host)?;
    // A file that replaces another keeps that one's permissions.
    if !whole.replaces() {
        file.set_permissions(permissions(attributes)).map_err(on_host)?;
    }
    futimens(file, &times(attributes)).map_err(|errno| on_host(errno.into()))?;
    // Files of a tree are not synced one by one: that would take longer than the rest of the copy.
    let durability = if links == Links::Follow { Durability::Synced } else { Durability::Cached };
    whole.finish(durability).map_err(on_host)
}

fn describe_directory(path: &Path, attributes: &Attributes) -> io::Result<()> {
    fs::set_permissions(path, permissions(attributes))?;
    Ok(utimensat(CWD, path, &times(attributes), AtFlags::empty())?)
}

/// The set-user-id bits are dropped, because the owner is not copied.
fn permissions(attributes: &Attributes) -> Permissions {
    Permissions::from_mode(attributes.permissions & 0o1777)
}

fn times(attributes: &Attributes) -> Timestamps {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps {
        last_access: time(attributes.accessed),
        last_modification: time(attributes.modified),
    }
}
