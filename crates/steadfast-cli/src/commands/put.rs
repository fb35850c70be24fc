//! `steadfast put`: copies files from the host to an image that is not mounted, as one transaction.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use steadfast::fs::{Attributes, Caller, FileKind, NewNode, SetAttributes, SetTime};
use steadfast::{Error, InodeNumber, Timestamp};

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::owner::{self, Owner};
use crate::transfer::{self, NOT_COPIED};
use crate::volume_path::{self, LastLink, join};

/// Copy a file or directory to an image that is not mounted, all of it or nothing
///
/// One transaction: after an error or a power cut in the middle the volume is as it was before.
/// Keeps permissions, modification times, holes and symbolic links. Hard links, extended attributes
/// and special files are not copied; for those mount the volume and use a tool such as rsync.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// File or directory on the host; '-' is standard input
    source: PathBuf,
    /// File to write on the volume, or a directory to put it into
    #[arg(default_value = "/", value_name = "PATH")]
    destination: OsString,
    /// Copy directories with everything below
    #[arg(short, long)]
    recursive: bool,
    /// Make missing directories on the path to PATH
    #[arg(short, long)]
    parents: bool,
    /// Owner and group of new files, as numbers; the default is the calling user
    #[arg(long, value_name = "UID:GID", value_parser = owner::parse)]
    owner: Option<Owner>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image, the source or the destination; the volume is unchanged then.
pub fn run(args: &Args) -> Outcome {
    // The source is checked first, so that a mistake does not open the image for writing.
    let source = if args.source.as_os_str() == "-" { None } else { Some(inspect(&args.source)?) };
    if source.as_ref().is_some_and(Metadata::is_dir) && !args.recursive {
        return Err(Failure::new(
            Exit::Failed,
            "is a directory",
            args.source.display(),
            "use -r to copy directories",
        ));
    }
    if source.as_ref().is_some_and(|source| !source.is_dir() && !source.is_file()) {
        let advice = "mount the volume to copy it; '-' copies standard input";
        return Err(Failure::new(Exit::Failed, NOT_COPIED, args.source.display(), advice));
    }
    let owner = args.owner.unwrap_or_else(Owner::of_this_process);
    let caller = Caller { uid: owner.uid, gid: owner.gid, umask: 0 };
    Image::open(&args.image, Access::Write)?.atomically(|image| {
        let putter = Putter { image, caller };
        let path = putter.destination(args)?;
        match &source {
            None => {
                let file = putter.regular(&path, 0o644)?;
                putter.contents(&path, &file, &mut io::stdin().lock(), Path::new("standard input"))
            }
            Some(metadata) if metadata.is_dir() => putter.tree(&args.source, metadata, &path),
            Some(metadata) => putter.one(&args.source, metadata, &path),
        }
    })
}

fn inspect(source: &Path) -> Outcome<Metadata> {
    // A link named on the command line is followed; links below it are copied as links.
    fs::metadata(source).map_err(|error| Failure::host(&error, "read", source))
}

struct Putter<'a> {
    image: &'a Image,
    caller: Caller,
}

/// A host directory being copied. Its attributes are set when everything in it exists.
struct PutLevel {
    source: PathBuf,
    metadata: Metadata,
    path: Vec<u8>,
    inode: InodeNumber,
    names: std::vec::IntoIter<OsString>,
}

impl Putter<'_> {
    /// The path on the volume that the source becomes.
    fn destination(&self, args: &Args) -> Outcome<Vec<u8>> {
        let path = args.destination.as_bytes();
        if args.parents {
            self.make_parents(path)?;
        }
        let name = match args.source.as_os_str() == "-" {
            true => None,
            // `put image .` gives no name: the contents go into the destination.
            false => fs::canonicalize(&args.source)
                .ok()
                .and_then(|_| args.source.file_name().map(|name| name.as_bytes().to_vec())),
        };
        match volume_path::resolve(&self.image.volume, path, LastLink::Follow) {
            Ok(found) if found.kind == FileKind::Directory => Ok(match name {
                Some(name) => join(path, &name),
                None => path.to_vec(),
            }),
            Ok(_) | Err(Error::NotFound) => Ok(path.to_vec()),
            Err(error) => Err(self.image.failure(error, path)),
        }
    }

    /// Makes every missing directory above the last component of `path`. If a slash follows the
    /// last component, it is made too.
    fn make_parents(&self, path: &[u8]) -> Outcome {
        let mut end = 0;
        while let Some(slash) = path[end..].iter().position(|byte| *byte == b'/') {
            end += slash + 1;
            if path[..end].iter().any(|byte| *byte != b'/') {
                self.directory(&path[..end], 0o755)?;
            }
        }
        Ok(())
    }

    fn tree(&self, source: &Path, metadata: &Metadata, path: &[u8]) -> Outcome {
        let mut levels = vec![self.enter(source.to_owned(), metadata.clone(), path.to_vec())?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                if let Some(level) = levels.pop() {
                    self.attributes(&level.path, level.inode, &level.metadata)?;
                }
                continue;
            };
            let source = level.source.join(&name);
            let path = join(&level.path, name.as_bytes());
            let metadata = fs::symlink_metadata(&source)
                .map_err(|error| Failure::host(&error, "read", &source))?;
            if metadata.is_dir() {
                levels.push(self.enter(source, metadata, path)?);
            } else {
                self.one(&source, &metadata, &path)?;
            }
        }
        Ok(())
    }

    fn enter(&self, source: PathBuf, metadata: Metadata, path: Vec<u8>) -> Outcome<PutLevel> {
        let inode = self.directory(&path, metadata.mode() & 0o7777)?;
        let names = fs::read_dir(&source).and_then(|entries| {
            let mut names = entries
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<io::Result<Vec<_>>>()?;
            // The order makes the same source give the same volume.
            names.sort();
            Ok(names)
        });
        let names = names.map_err(|error| Failure::host(&error, "read", &source))?;
        Ok(PutLevel { source, metadata, path, inode, names: names.into_iter() })
    }

    fn one(&self, source: &Path, metadata: &Metadata, path: &[u8]) -> Outcome {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            let target =
                fs::read_link(source).map_err(|error| Failure::host(&error, "read", source))?;
            return self.symlink(path, &target.into_os_string().into_vec());
        }
        if !kind.is_file() {
            eprintln!(
                "steadfast: warning: {NOT_COPIED}: {}: mount the volume to copy it",
                source.display()
            );
            return Ok(());
        }
        let mut file = File::open(source).map_err(|error| Failure::host(&error, "read", source))?;
        let on_volume = self.regular(path, metadata.mode() & 0o7777)?;
        self.contents(path, &on_volume, &mut file, source)?;
        self.attributes(path, on_volume.inode, metadata)
    }

    fn contents(
        &self,
        path: &[u8],
        file: &Attributes,
        source: &mut dyn Read,
        place: &Path,
    ) -> Outcome {
        transfer::write_file(self.image, path, file, source, place).map(drop)
    }

    /// The regular file at `path`, made if missing.
    fn regular(&self, path: &[u8], permissions: u32) -> Outcome<Attributes> {
        let fail = |error| self.image.failure(error, path);
        match volume_path::resolve(&self.image.volume, path, LastLink::Follow) {
            Ok(found) if found.kind == FileKind::Regular => return Ok(found),
            Ok(found) if found.kind == FileKind::Directory => {
                return Err(fail(Error::IsADirectory));
            }
            Ok(_) => return Err(fail(Error::NotARegularFile)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(fail(error)),
        }
        self.create(path, NewNode::Regular, permissions).map_err(fail)
    }

    /// The directory at `path`, made if missing.
    fn directory(&self, path: &[u8], permissions: u32) -> Outcome<InodeNumber> {
        let fail = |error| self.image.failure(error, path);
        match volume_path::resolve(&self.image.volume, path, LastLink::Follow) {
            Ok(found) if found.kind == FileKind::Directory => return Ok(found.inode),
            Ok(_) => return Err(fail(Error::NotADirectory)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(fail(error)),
        }
        self.create(path, NewNode::Directory, permissions).map(|made| made.inode).map_err(fail)
    }

    /// Makes a symbolic link at `path`, or replaces an existing one.
    fn symlink(&self, path: &[u8], target: &[u8]) -> Outcome {
        let fail = |error| self.image.failure(error, path);
        let (parent, name) = volume_path::resolve_parent(&self.image.volume, path).map_err(fail)?;
        match self.image.volume.lookup(parent.inode, name) {
            Ok(found) if found.kind == FileKind::Directory => {
                return Err(fail(Error::IsADirectory));
            }
            Ok(_) => self.image.volume.unlink(parent.inode, name).map_err(fail)?,
            Err(Error::NotFound) => {}
            Err(error) => return Err(fail(error)),
        }
        self.image
            .volume
            .create(parent.inode, name, NewNode::Symlink(target), 0o777, &self.caller)
            .map(drop)
            .map_err(fail)
    }

    fn create(
        &self,
        path: &[u8],
        node: NewNode<'_>,
        permissions: u32,
    ) -> steadfast::Result<Attributes> {
        let (parent, name) = volume_path::resolve_parent(&self.image.volume, path)?;
        self.image.volume.create(parent.inode, name, node, permissions, &self.caller)
    }

    /// Copies permissions and times of the source.
    fn attributes(&self, path: &[u8], inode: InodeNumber, metadata: &Metadata) -> Outcome {
        let time = |seconds, nanoseconds: i64| {
            let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
            Some(SetTime::At(Timestamp { seconds, nanoseconds }))
        };
        let set = SetAttributes {
            permissions: Some(metadata.mode() & 0o7777),
            accessed: time(metadata.atime(), metadata.atime_nsec()),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            ..SetAttributes::default()
        };
        self.image
            .volume
            .set_attributes(inode, &set)
            .map(drop)
            .map_err(|error| self.image.failure(error, path))
    }
}
