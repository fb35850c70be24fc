//! Files that get their name only when they are complete.
//!
//! A regular file is created beside its destination and renamed at the end. So the name always
//! leads to the complete old file or to the complete new file. Five rules hold for each file that
//! a command creates:
//!
//! - Only regular files are replaced. A device, a FIFO or an open descriptor (`/dev/stdout`) is
//!   written to instead. The caller can request a refusal ([`Links::Replace`], [`WholeImage`]).
//! - A symbolic link in a path from the user is kept: the file that it leads to is replaced.
//! - A file that replaces another keeps the owner, group, permissions and ACL of the old one,
//!   without the set-id bits.
//! - A block device is not written to while a file that it shows is locked, as below a loop device.
//! - A file that another opener has locked is not replaced: it may be an image that is mounted. The
//!   mount would go on in the old file, which has no name any more.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, XattrFlags, fsetxattr, getxattr, statfs};
use rustix::io::Errno;

use crate::file::{self, OpenError};
use crate::unfinished::Unfinished;

/// Permissions, before the umask, of files that every user may read: reports and pictures.
pub const MODE_PUBLIC: u32 = 0o666;
/// Permissions of files that contain other users' files: images, and archives made of them.
pub const MODE_PRIVATE: u32 = 0o600;

/// Largest number of symbolic links to follow, equal to the kernel's limit.
const LINKS_MAX: u32 = 40;
/// `f_type` of procfs.
const PROC_MAGIC: u64 = 0x9fa0;
/// The extended attribute with the ACL of a file.
const ACL: &str = "system.posix_acl_access";
/// Largest size of an ACL, in bytes.
const ACL_MAX: usize = 64 << 10;

/// Handling of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Write to its target: for a path from the user.
    Follow,
    /// Replace it, and refuse other files that are not regular: for a path from an image.
    Replace,
}

/// Durability of a finished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// File and name are on the disk.
    Synced,
    /// The host's file system writes them at some time.
    Cached,
}

/// An unfinished file. Dropping it keeps the old file.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    beside: Option<(Unfinished, Place)>,
    /// Keeps other openers from the files below a block device.
    _below: Vec<File>,
}

impl WholeFile {
    /// Starts a file at `path`. A new file gets the permissions `mode`, less the umask.
    ///
    /// # Errors
    /// The file cannot be created or written there, or the owner of the existing file cannot be
    /// kept. The existing file is locked ([`hold_replaced`]), or a file that a block device shows.
    pub fn create(path: &Path, mode: u32, links: Links) -> io::Result<WholeFile> {
        let place = match Place::find(path, links)? {
            Found::Place(place) => place,
            Found::Stream(file) => {
                let in_use =
                    |in_use: OpenError| io::Error::new(io::ErrorKind::ResourceBusy, in_use);
                let below = file::lock_below(&file, path).map_err(in_use)?;
                return Ok(WholeFile { file, beside: None, _below: below });
            }
        };
        place.hold()?;
        let (file, unfinished) = Unfinished::make(place.directory(), |path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
        })?;
        place.take_over_attributes(&file)?;
        Ok(WholeFile { file, beside: Some((unfinished, place)), _below: Vec::new() })
    }

    /// The file. It can be written at any offset unless it is a [stream](Self::is_stream).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the file takes the place of another one, whose owner and permissions it has.
    pub fn replaces(&self) -> bool {
        self.beside.as_ref().is_some_and(|(_, place)| place.old.is_some())
    }

    /// Whether this is not a regular file. A stream accepts bytes in order, and its size and times
    /// cannot be set.
    pub fn is_stream(&self) -> bool {
        self.beside.is_none()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The last bytes cannot be written, the old file is locked by now, or the rename fails. The
    /// old file then still exists.
    pub fn finish(self, durability: Durability) -> io::Result<()> {
        match self.beside {
            Some((unfinished, place)) => place.take(unfinished, &self.file, durability),
            None => Ok(()),
        }
    }
}

impl Write for &WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

/// Writes a report that every user may read, completely or not at all.
///
/// # Errors
/// Those of [`WholeFile`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let whole = WholeFile::create(path, MODE_PUBLIC, Links::Follow)?;
    (&whole).write_all(bytes)?;
    whole.finish(Durability::Synced)
}

/// An unfinished image: a file that is opened several times by path. It is in a directory that only
/// its owner may enter.
#[derive(Debug)]
pub struct WholeImage {
    directory: Unfinished,
    place: Place,
    partial: PathBuf,
}

impl WholeImage {
    /// Starts an image at `path`. The caller creates it at [`partial`](Self::partial).
    ///
    /// # Errors
    /// No file can be created there, or the existing file is not regular (`InvalidInput`) or is
    /// locked ([`hold_replaced`]).
    pub fn create(path: &Path) -> io::Result<WholeImage> {
        let Found::Place(place) = Place::find(path, Links::Follow)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        };
        place.hold()?;
        let directory = Unfinished::directory(place.directory())?;
        let partial = directory.path().join("image");
        Ok(WholeImage { directory, place, partial })
    }

    /// The path at which to create the image.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Makes the image durable and gives it its name.
    ///
    /// # Errors
    /// As for [`WholeFile::finish`].
    pub fn finish(self) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.partial)?;
        if self.place.old.is_none() {
            file.set_permissions(Permissions::from_mode(MODE_PRIVATE))?;
        }
        self.place.take_over_attributes(&file)?;
        file.sync_all()?;
        // An empty directory remains in the list, which the drop removes.
        let partial = &self.partial;
        let place = &self.place;
        let _held = place.hold()?;
        self.directory.finish(|directory| {
            fs::rename(partial, &place.path)?;
            let _ = fs::remove_dir(directory);
            Ok(())
        })?;
        place.sync();
        Ok(())
    }
}

/// The destination of a file, with its present contents.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    old: Option<Metadata>,
}

enum Found {
    Place(Place),
    Stream(File),
}

impl Place {
    fn find(path: &Path, links: Links) -> io::Result<Found> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR.into());
        }
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            let metadata = match fs::symlink_metadata(&at) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Found::Place(Place { path: at, old: None }));
                }
                Err(error) => return Err(error),
            };
            let kind = metadata.file_type();
            if kind.is_file() {
                return Ok(Found::Place(Place { path: at, old: Some(metadata) }));
            }
            if kind.is_dir() {
                return Err(Errno::ISDIR.into());
            }
            if links == Links::Replace {
                return match kind.is_symlink() {
                    true => Ok(Found::Place(Place { path: at, old: None })),
                    false => Err(io::Error::other("a device, FIFO or socket is in the way")),
                };
            }
            if !kind.is_symlink() {
                // The open fails if the device is mounted or part of another device.
                let exclusive = if kind.is_block_device() { OFlags::EXCL.bits() as i32 } else { 0 };
                return OpenOptions::new()
                    .write(true)
                    .custom_flags(exclusive)
                    .open(&at)
                    .map(Found::Stream);
            }
            if is_in_proc(&at) {
                return descriptor(&at).map(Found::Stream);
            }
            let target = fs::read_link(&at)?;
            at = at.parent().unwrap_or(Path::new("")).join(target);
        }
        Err(Errno::LOOP.into())
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Keeps other openers from the old file while the result exists.
    fn hold(&self) -> io::Result<Option<File>> {
        hold_replaced(&self.path)
    }

    /// Gives the new file the owner, permissions and ACL of the old one.
    fn take_over_attributes(&self, file: &File) -> io::Result<()> {
        let Some(old) = &self.old else { return Ok(()) };
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        // With an ACL the group bits of the mode are its mask, not the permissions of the group.
        let mut acl = vec![0; ACL_MAX];
        match getxattr(&self.path, ACL, &mut acl[..]) {
            Ok(length) => fsetxattr(file, ACL, &acl[..length], XattrFlags::empty())?,
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn take(&self, unfinished: Unfinished, file: &File, durability: Durability) -> io::Result<()> {
        if durability == Durability::Synced {
            file.sync_all()?;
        }
        let held = self.hold()?;
        unfinished.finish(|partial| fs::rename(partial, &self.path))?;
        drop(held);
        if durability == Durability::Synced {
            self.sync();
        }
        Ok(())
    }

    /// Also makes the name durable. If the host's file system cannot do that, it becomes durable
    /// later.
    fn sync(&self) {
        if let Ok(directory) = File::open(self.directory()) {
            let _ = directory.sync_all();
        }
    }
}

/// Locks a file that is about to be replaced, until the result is dropped. The result is `None` if
/// there is no regular file or it cannot be locked.
///
/// # Errors
/// Another opener has locked it: an [`OpenError::InUse`] inside the error.
pub fn hold_replaced(path: &Path) -> io::Result<Option<File>> {
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    // Another file may have the name by now: the open must neither follow a link nor wait.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    // An exclusive lock on a file of a network file system requires a writable descriptor.
    let open =
        |write: bool| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    let Ok(file) = open(true).or_else(|_| open(false)) else { return Ok(None) };
    match file::lock_file(&file, true) {
        Ok(true) => Ok(Some(file)),
        Ok(false) => {
            let in_use = OpenError::InUse { path: path.to_owned(), owner: file::owner(&file) };
            Err(io::Error::new(io::ErrorKind::ResourceBusy, in_use))
        }
        // If the file system has no locks, there are none to respect.
        Err(_) => Ok(None),
    }
}

/// Whether this is a symbolic link of the kernel that leads to an open file of a process, not to a
/// name.
fn is_in_proc(link: &Path) -> bool {
    let parent =
        link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    statfs(parent).is_ok_and(|found| u64::try_from(found.f_type).ok() == Some(PROC_MAGIC))
}

/// An open file of a process. Standard output is duplicated, because its position is shared with
/// earlier and later writers. Other descriptors are opened anew.
fn descriptor(link: &Path) -> io::Result<File> {
    let directory = fs::canonicalize(link.parent().unwrap_or(Path::new("/")));
    if directory
        .is_ok_and(|directory| directory == Path::new(&format!("/proc/{}/fd", std::process::id())))
    {
        use std::os::fd::AsFd;
        let own = match link.file_name().map(OsStrExt::as_bytes) {
            Some(b"1") => Some(io::stdout().as_fd().try_clone_to_owned()),
            Some(b"2") => Some(io::stderr().as_fd().try_clone_to_owned()),
            _ => None,
        };
        if let Some(own) = own {
            return own.map(File::from);
        }
    }
    OpenOptions::new().write(true).truncate(true).open(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    use std::os::unix::fs::symlink;

    fn write(path: &Path, links: Links) -> io::Result<()> {
        let whole = WholeFile::create(path, MODE_PRIVATE, links)?;
        (&whole).write_all(b"new")?;
        whole.finish(Durability::Cached)
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let whole = WholeFile::create(&path, MODE_PRIVATE, Links::Follow).unwrap();
        (&whole).write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(whole);
        assert!(names(scratch.path()).is_empty());
        write(&path, Links::Follow).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(names(scratch.path()), ["file"]);
    }

    #[test]
    fn what_is_replaced_keeps_its_permissions_and_its_owner() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o4754)).unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        if is_root {
            std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
        }
        write(&path, Links::Follow).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o754, "set-id bits do not outlive the contents");
        if is_root {
            assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_locked_file_is_not_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, "old").unwrap();
        let is_refused = |error: io::Error| {
            let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<OpenError>());
            assert!(matches!(inside, Some(OpenError::InUse { .. })), "{error}");
        };
        for exclusive in [true, false] {
            let owner = File::options().read(true).write(true).open(&path).unwrap();
            assert!(file::lock_file(&owner, exclusive).unwrap());
            for links in [Links::Follow, Links::Replace] {
                is_refused(write(&path, links).unwrap_err());
            }
            is_refused(WholeImage::create(&path).unwrap_err());
        }
        // The owner comes between the begin and the end.
        let file = WholeFile::create(&path, MODE_PRIVATE, Links::Follow).unwrap();
        let image = WholeImage::create(&path).unwrap();
        fs::write(image.partial(), "new").unwrap();
        let owner = File::options().read(true).write(true).open(&path).unwrap();
        assert!(file::lock_file(&owner, true).unwrap());
        is_refused(file.finish(Durability::Cached).unwrap_err());
        is_refused(image.finish().unwrap_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(owner);
        write(&path, Links::Follow).unwrap();
        assert_eq!(names(scratch.path()), ["file"]);
    }

    #[test]
    fn a_symbolic_link_that_a_person_names_stays_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (link, second) = (scratch.path().join("link"), scratch.path().join("second"));
        symlink("second", &link).unwrap();
        // The link leads first to no file, then to a file, then to itself.
        for _ in 0..2 {
            write(&link, Links::Follow).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&second).unwrap(), b"new");
        }
        fs::remove_file(&second).unwrap();
        symlink("link", &second).unwrap();
        let error = write(&link, Links::Follow).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
        // A link in the place of a name from an image is not followed.
        fs::remove_file(&second).unwrap();
        fs::write(&second, "old").unwrap();
        write(&link, Links::Replace).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read(&second).unwrap(), b"old");
    }

    #[test]
    fn what_is_no_regular_file_is_written_into() {
        let scratch = tempfile::tempdir().unwrap();
        let fifo = scratch.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo)
        });
        write(&fifo, Links::Follow).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), b"new");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        assert!(write(&fifo, Links::Replace).is_err());
        assert!(WholeImage::create(scratch.path()).is_err());

        let null = scratch.path().join("null");
        match mknodat(CWD, &null, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 3))
        {
            // Creating a device node requires root.
            Err(Errno::PERM) => {}
            made => {
                made.unwrap();
                write(&null, Links::Follow).unwrap();
                assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
                assert!(write(&null, Links::Replace).is_err());
                assert!(WholeImage::create(&null).is_err());
            }
        }
        assert!(
            names(scratch.path()).iter().all(|name| !name.starts_with(crate::unfinished::PREFIX))
        );
    }

    #[test]
    fn an_image_is_made_by_its_path() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk.img");
        let image = WholeImage::create(&path).unwrap();
        fs::write(image.partial(), "image").unwrap();
        drop(image);
        assert!(names(scratch.path()).is_empty());
        for mode in [0o600, 0o640] {
            let image = WholeImage::create(&path).unwrap();
            fs::write(image.partial(), "image").unwrap();
            image.finish().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
            assert_eq!(names(scratch.path()), ["disk.img"]);
            // The next file keeps these permissions.
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
    }

    #[test]
    fn an_open_descriptor_is_written_into() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let file = File::create(&path).unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let before = fs::metadata(&path).unwrap().ino();
        write(Path::new(&link), Links::Follow).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().ino(), before);
    }
}
