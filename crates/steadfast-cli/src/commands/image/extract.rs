//! `steadfast image extract`: copies everything on an image into a directory or a tar archive.
//!
//! Names come from the image and may be hostile. So no link on the host is followed, no file is
//! overwritten, and the directory has to be empty or new.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, mknodat, utimensat,
};
use rustix::io::Errno;
use steadfast::fs::{Attributes, FileKind};
use steadfast::{InodeNumber, Timestamp};
use steadfast_host::{Durability, Links, MODE_PRIVATE, Unfinished, WholeFile};

use super::pack::pack;
use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::walk::{Step, Walk};
use crate::{ending, interrupt, open_failure, transfer};

/// Unpack an image into a directory or a tar archive, without root
///
/// A tar archive keeps everything: owners, modes, devices, hard links, times, extended attributes;
/// the same tree gives the same archive. In a directory, owners, devices and attributes that only
/// root may set are kept only for root, and a warning says what was left out.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// New or empty directory, or with --tar the archive; '-' is standard output
    destination: PathBuf,
    /// Write a tar archive
    #[arg(long)]
    tar: bool,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image or the destination. The archive, or the contents of the directory,
/// appear under their names only when all of it is complete.
pub fn run(args: &Args) -> Outcome {
    let destination = args.destination.as_path();
    if args.tar && destination.as_os_str() == "-" && io::stdout().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "an archive is no text",
            "standard output",
            "send it to a file or a pipe",
        ));
    }
    let image = Image::open(&args.image, Access::Read)?;
    let root =
        image.volume.attributes(InodeNumber::ROOT).map_err(|error| image.failure(error, b"/"))?;
    match (args.tar, destination.as_os_str() == "-") {
        (true, true) => {
            pack(&image, &root, BufWriter::new(io::stdout().lock()), Path::new("standard output"))?
        }
        (true, false) => pack_file(&image, &root, destination)?,
        (false, _) => unpack(&image, &root, destination)?,
    }
    image.close()
}

fn pack_file(image: &Image, root: &Attributes, destination: &Path) -> Outcome {
    let cannot = |error: io::Error| open_failure::of_destination(&error, destination);
    interrupt::leave_nothing_half_done(destination);
    // The archive contains the files of every user of the volume.
    let file = ending::wait_for(destination, || {
        WholeFile::create(destination, MODE_PRIVATE, Links::Follow).map_err(cannot)
    })?;
    pack(image, root, BufWriter::with_capacity(1 << 20, &file), destination)?;
    file.finish(Durability::Synced).map_err(cannot)
}

/// What could not be kept, by kind.
#[derive(Debug, Default)]
struct LeftOut {
    owners: u64,
    special: u64,
    attributes: u64,
}

struct Unpacker<'a> {
    image: &'a Image,
    /// The host path of the volume's root.
    top: PathBuf,
    /// The first name of each inode with several names.
    seen: HashMap<InodeNumber, PathBuf>,
    left_out: LeftOut,
}

fn unpack(image: &Image, root: &Attributes, destination: &Path) -> Outcome {
    let made = match fs::read_dir(destination).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            return Err(Failure::new(
                Exit::Failed,
                "the directory is not empty",
                destination.display(),
                "give a new or empty directory",
            ));
        }
        Ok(false) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(destination)
                .map_err(|error| Failure::host(&error, "create", destination))?;
            true
        }
        Err(error) => return Err(Failure::host(&error, "read", destination)),
    };
    match made {
        true => interrupt::leave_no_directory(destination),
        false => interrupt::leave_nothing_half_done(destination),
    }
    let done = unpack_into(image, root, destination);
    if done.is_err() && made {
        let _ = fs::remove_dir(destination);
    }
    done
}

/// Makes everything in a separate directory inside the destination, and moves it up when it is
/// complete.
fn unpack_into(image: &Image, root: &Attributes, destination: &Path) -> Outcome {
    let cannot = |error: io::Error| Failure::host(&error, "write", destination);
    let made = Unfinished::directory(destination).map_err(cannot)?;
    let top = made.path().to_owned();
    let mut unpacker = Unpacker { image, top, seen: HashMap::new(), left_out: LeftOut::default() };
    let filled = unpacker.fill(root).map_err(|failure| failure.called(made.path(), destination));
    let at_the_end = filled?;
    made.finish(|directory| move_up(directory, destination)).map_err(cannot)?;
    unpacker.top = destination.to_owned();
    for (path, attributes) in at_the_end {
        unpacker.describe(&path, &attributes, &unpacker.place(&path))?;
    }
    unpacker.left_out.say(destination);
    Ok(())
}

/// Moves every entry of a directory up into the enclosing one.
fn move_up(directory: &Path, destination: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        fs::rename(entry.path(), destination.join(entry.file_name()))?;
    }
    fs::remove_dir(directory)
}

impl LeftOut {
    fn say(&self, destination: &Path) {
        for (count, what) in [
            (self.owners, "owners could not be kept"),
            (self.special, "devices, FIFOs or sockets could not be made"),
            (self.attributes, "extended attributes could not be kept"),
        ] {
            if count > 0 {
                eprintln!(
                    "steadfast: warning: {count} {what}: {}: run it as root, or use --tar",
                    destination.display()
                );
            }
        }
    }
}

impl Unpacker<'_> {
    /// Makes everything. Returns the directories whose attributes are still to be set: the root and
    /// those in it.
    fn fill(&mut self, root: &Attributes) -> Outcome<Vec<(Vec<u8>, Attributes)>> {
        let mut at_the_end = Vec::new();
        let mut walk = Walk::new(&self.image.volume, b"", *root);
        while let Some(step) =
            walk.step().map_err(|stop| stop.failure(self.image.place(walk.path())))?
        {
            let path = walk.path();
            let place = self.place(path);
            match step {
                Step::Entry(_, attributes) if attributes.kind == FileKind::Directory => {
                    fs::create_dir(&place)
                        .map_err(|error| Failure::host(&error, "create", &place))?;
                }
                Step::Entry(_, attributes) => self.one(path, &attributes, &place)?,
                // These directories are moved later, which needs write permission and changes their
                // times.
                Step::Left(attributes) if walk.depth() <= 1 => {
                    at_the_end.push((path.to_vec(), attributes))
                }
                // The contents of a directory come first, for the same reasons.
                Step::Left(attributes) => self.describe(path, &attributes, &place)?,
            }
        }
        Ok(at_the_end)
    }

    /// The host path of a path of the volume.
    fn place(&self, path: &[u8]) -> PathBuf {
        self.top.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
    }

    fn one(&mut self, path: &[u8], attributes: &Attributes, place: &Path) -> Outcome {
        let cannot = |error: io::Error| Failure::host(&error, "create", place);
        if let Some(first) = self.seen.get(&attributes.inode) {
            return fs::hard_link(first, place).map_err(cannot);
        }
        match attributes.kind {
            FileKind::Regular => self.regular(path, attributes, place)?,
            FileKind::Symlink => {
                let target = self
                    .image
                    .volume
                    .read_link(attributes.inode)
                    .map_err(|error| self.image.failure(error, path))?;
                symlink(OsStr::from_bytes(&target), place).map_err(cannot)?;
            }
            kind => {
                let kind = match kind {
                    FileKind::Fifo => FileType::Fifo,
                    FileKind::Socket => FileType::Socket,
                    FileKind::CharDevice => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                let number = attributes.device;
                let device = rustix::fs::makedev(
                    number >> 8 & 0xfff,
                    number & 0xff | number >> 12 & 0xf_ff00,
                );
                match mknodat(CWD, place, kind, Mode::from_raw_mode(0o600), device) {
                    Ok(()) => {}
                    Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => {
                        self.left_out.special += 1;
                        return Ok(());
                    }
                    Err(error) => return Err(cannot(error.into())),
                }
            }
        }
        if attributes.links > 1 {
            self.seen.insert(attributes.inode, place.to_owned());
        }
        self.describe(path, attributes, place)
    }

    fn regular(&self, path: &[u8], attributes: &Attributes, place: &Path) -> Outcome {
        let cannot = |error: io::Error| Failure::host(&error, "write", place);
        let file = OpenOptions::new().write(true).create_new(true).open(place).map_err(cannot)?;
        transfer::read_data(self.image, path, attributes, &mut |bytes, offset| {
            file.write_all_at(bytes, offset).map_err(cannot)
        })?;
        file.set_len(attributes.size).and_then(|()| (&file).flush()).map_err(cannot)
    }

    /// Sets owner, attributes, permissions and times, and counts what only root may set.
    fn describe(&mut self, path: &[u8], attributes: &Attributes, place: &Path) -> Outcome {
        let cannot = |error: io::Error| Failure::host(&error, "set the attributes of", place);
        match lchown(place, Some(attributes.uid), Some(attributes.gid)) {
            Ok(()) => {}
            Err(error)
                if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::INVAL)) =>
            {
                self.left_out.owners += 1;
            }
            Err(error) => return Err(cannot(error)),
        }
        let fail = |error| self.image.failure(error, path);
        for name in self.image.volume.list_xattrs(attributes.inode).map_err(fail)? {
            let value = self.image.volume.xattr(attributes.inode, &name).map_err(fail)?;
            match rustix::fs::lsetxattr(place, name.as_slice(), &value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(
                    Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSPC | Errno::INVAL,
                ) => {
                    self.left_out.attributes += 1;
                }
                Err(error) => return Err(cannot(error.into())),
            }
        }
        if attributes.kind != FileKind::Symlink {
            fs::set_permissions(place, Permissions::from_mode(attributes.permissions))
                .map_err(cannot)?;
        }
        let time = |time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds),
        };
        let times = Timestamps {
            last_access: time(attributes.accessed),
            last_modification: time(attributes.modified),
        };
        utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| cannot(error.into()))
    }
}
