//! `steadfast get`: copies files from an image that is not mounted to the host.
//!
//! A file appears on the host under its name only when every byte of it was read and checked. Names come from the
//! image, which may be anybody's: nothing is followed or written outside the destination.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use steadfast::fs::{Attributes, FileKind};
use steadfast::{Error, Timestamp};

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::transfer;
use crate::volume_path::{self, LastLink, join};

/// Copy a file or directory from an image that is not mounted
///
/// Keeps permissions, modification times, holes and symbolic links. Owners, hard links, extended attributes and
/// special files are not copied; for those mount the volume and use a tool such as rsync.
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
/// What is wrong with the image, the path or the destination. What was complete by then stays.
pub fn run(args: &Args) -> Outcome {
    let image = Image::open(&args.image, Access::Read)?;
    let path = args.path.as_bytes();
    let found = volume_path::resolve(&image.volume, path, LastLink::Follow)
        .map_err(|error| image.failure(error, path))?;
    let mut destination = args.destination.clone();
    let name = volume_path::file_name(path);
    if destination.is_dir() && !matches!(name, b"" | b"." | b"..") {
        destination.push(OsStr::from_bytes(name));
    }
    if found.kind == FileKind::Directory {
        if !args.recursive {
            return Err(image.failure(Error::IsADirectory, path));
        }
        get_tree(&image, path, &found, &destination)?;
    } else {
        get_one(&image, path, &found, &destination)?;
    }
    image.close()
}

/// A directory on the way: finished (permissions, times) when everything in it is there.
struct Level {
    path: Vec<u8>,
    destination: PathBuf,
    attributes: Attributes,
    entries: std::vec::IntoIter<(steadfast::fs::DirectoryEntry, Attributes)>,
}

fn get_tree(image: &Image, path: &[u8], root: &Attributes, destination: &Path) -> Outcome {
    let mut levels = vec![enter(image, path.to_vec(), *root, destination.to_owned())?];
    while let Some(level) = levels.last_mut() {
        let Some((entry, attributes)) = level.entries.next() else {
            let level = levels.pop();
            if let Some(level) = level {
                finish(&level.destination, &level.attributes)
                    .map_err(|error| Failure::host(&error, "set the attributes of", &level.destination))?;
            }
            continue;
        };
        let entry_path = join(&level.path, &entry.name);
        if entry.name.contains(&b'/') || entry.name.contains(&0) || entry.name.is_empty() {
            return Err(image.failure(Error::InvalidName, &entry_path));
        }
        let entry_destination = level.destination.join(OsStr::from_bytes(&entry.name));
        if attributes.kind == FileKind::Directory {
            levels.push(enter(image, entry_path, attributes, entry_destination)?);
        } else {
            get_one(image, &entry_path, &attributes, &entry_destination)?;
        }
    }
    Ok(())
}

fn enter(image: &Image, path: Vec<u8>, attributes: Attributes, destination: PathBuf) -> Outcome<Level> {
    match fs::create_dir(&destination) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_real_directory(&destination) => {}
        other => other.map_err(|error| Failure::host(&error, "create", &destination))?,
    }
    let entries = volume_path::sorted_entries(&image.volume, attributes.inode)
        .map_err(|error| image.failure(error, &path))?;
    Ok(Level { path, destination, attributes, entries: entries.into_iter() })
}

/// A directory itself, not a symbolic link to one.
fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn get_one(image: &Image, path: &[u8], attributes: &Attributes, destination: &Path) -> Outcome {
    match attributes.kind {
        FileKind::Regular => get_file(image, path, attributes, destination),
        FileKind::Symlink => {
            let target =
                image.volume.read_link(attributes.inode).map_err(|error| image.failure(error, path))?;
            match fs::remove_file(destination) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::host(&error, "replace", destination));
                }
                _ => {}
            }
            symlink(OsStr::from_bytes(&target), destination)
                .map_err(|error| Failure::host(&error, "create", destination))
        }
        _ => {
            eprintln!(
                "steadfast: warning: a special file is not copied: {}: mount the volume to copy it",
                image.place(path)
            );
            Ok(())
        }
    }
}

/// Writes beside the destination and renames over it at the end.
fn get_file(image: &Image, path: &[u8], attributes: &Attributes, destination: &Path) -> Outcome {
    if is_real_directory(destination) {
        return Err(Failure::new(
            Exit::Failed,
            "a directory is in the way",
            destination.display(),
            "remove it or choose another destination",
        ));
    }
    let partial = partial_name(destination);
    let result = (|| {
        let on_host = |error: io::Error| Failure::host(&error, "write", destination);
        let file = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(on_host)?;
        transfer::read_data(image, path, attributes, &mut |bytes, offset| {
            file.write_all_at(bytes, offset).map_err(on_host)
        })?;
        file.set_len(attributes.size).map_err(on_host)?;
        drop(file);
        finish(&partial, attributes).map_err(on_host)?;
        fs::rename(&partial, destination).map_err(on_host)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}

fn partial_name(destination: &Path) -> PathBuf {
    // Not derived from the name, which may already be as long as the host allows.
    destination.with_file_name(format!(".steadfast-get.{}", std::process::id()))
}

/// Sets what a copy keeps of the attributes.
fn finish(path: &Path, attributes: &Attributes) -> io::Result<()> {
    // The set-user-id bits belong to an owner that is not copied.
    fs::set_permissions(path, Permissions::from_mode(attributes.permissions & 0o1777))?;
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times =
        Timestamps { last_access: time(attributes.accessed), last_modification: time(attributes.modified) };
    utimensat(CWD, path, &times, AtFlags::empty())?;
    Ok(())
}
