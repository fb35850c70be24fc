//! Files that appear under their name when they are whole.
//!
//! A regular file is made beside its place and renamed at the end, so that at every moment the name
//! stands for all of the old file or all of the new one. Three rules hold for each file that a
//! command makes:
//!
//! - What is not a regular file is never replaced. A device, a FIFO or an open descriptor
//!   (`/dev/stdout`) is written into; the caller can ask for a refusal instead ([`Links::Replace`],
//!   [`WholeImage`]).
//! - A symbolic link that a person names stays one: the file to which it leads is replaced.
//! - A file that replaces another one keeps its owner, group, permissions and ACL, without the
//!   set-id bits.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, XattrFlags, fsetxattr, getxattr, statfs};
use rustix::io::Errno;

use crate::unfinished::Unfinished;

/// Permissions, before the umask, of what anyone may read: reports and pictures.
pub const MODE_PUBLIC: u32 = 0o666;
/// Permissions of what holds the files of other people: images, and archives made of them.
pub const MODE_PRIVATE: u32 = 0o600;

/// Symbolic links that are followed to one file: as many as the kernel follows.
const LINKS_MAX: u32 = 40;
/// `f_type` of procfs.
const PROC_MAGIC: u64 = 0x9fa0;
/// Holds the ACL of a file.
const ACL: &str = "system.posix_acl_access";
/// Bytes of an ACL at most.
const ACL_MAX: usize = 64 << 10;

/// What becomes of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// What it leads to is written: for a path that a person gave.
    Follow,
    /// It is replaced, and what is no regular file is refused: for a path that comes from an image.
    Replace,
}

/// How far a finished file is from being lost in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// File and name are on the disk.
    Synced,
    /// The host's file system writes them when it likes.
    Cached,
}

/// A file in the making. Dropping it leaves what was there before.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    beside: Option<(Unfinished, Place)>,
}

impl WholeFile {
    /// Begins a file at `path`; a new one gets the permissions `mode`, less the umask.
    ///
    /// # Errors
    /// The file cannot be made or written there; the owner of the file that is there cannot be
    /// kept.
    pub fn create(path: &Path, mode: u32, links: Links) -> io::Result<WholeFile> {
        let place = match Place::find(path, links)? {
            Found::Place(place) => place,
            Found::Stream(file) => return Ok(WholeFile { file, beside: None }),
        };
        let (file, unfinished) = Unfinished::make(place.directory(), |path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
        })?;
        place.settle(&file)?;
        Ok(WholeFile { file, beside: Some((unfinished, place)) })
    }

    /// The file, for writing at any place where it is not a [stream](Self::is_stream).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether this is no regular file: it takes bytes in order, and has no size and no times to be
    /// set.
    pub fn is_stream(&self) -> bool {
        self.beside.is_none()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The last bytes cannot be written, or the name cannot be given; what was there before is then
    /// still there.
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

/// Writes a report: anyone may read it, and it is there whole or not at all.
///
/// # Errors
/// Those of [`WholeFile`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let whole = WholeFile::create(path, MODE_PUBLIC, Links::Follow)?;
    (&whole).write_all(bytes)?;
    whole.finish(Durability::Synced)
}

/// An image in the making: a file that is opened by its path, several times. It is in a directory
/// that only its owner may enter.
#[derive(Debug)]
pub struct WholeImage {
    directory: Unfinished,
    place: Place,
    partial: PathBuf,
}

impl WholeImage {
    /// Begins an image at `path`. It does not exist until the caller makes it at
    /// [`partial`](Self::partial).
    ///
    /// # Errors
    /// No file can be made there; what is there is no regular file (`InvalidInput`).
    pub fn create(path: &Path) -> io::Result<WholeImage> {
        let Found::Place(place) = Place::find(path, Links::Follow)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        };
        let directory = Unfinished::directory(place.directory())?;
        let partial = directory.path().join("image");
        Ok(WholeImage { directory, place, partial })
    }

    /// Where to make it.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Makes the image durable and gives it its name.
    ///
    /// # Errors
    /// As [`WholeFile::finish`].
    pub fn finish(self) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.partial)?;
        if self.place.old.is_none() {
            file.set_permissions(Permissions::from_mode(MODE_PRIVATE))?;
        }
        self.place.settle(&file)?;
        file.sync_all()?;
        // What stays of it in the list is an empty directory, which goes when it is dropped.
        let partial = &self.partial;
        let place = &self.place;
        self.directory.finish(|directory| {
            fs::rename(partial, &place.path)?;
            let _ = fs::remove_dir(directory);
            Ok(())
        })?;
        place.sync();
        Ok(())
    }
}

/// Where a file is to be, with what is there now.
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
                // A device that is mounted or part of something refuses.
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

    /// Gives the new file owner, permissions and ACL of the old one.
    fn settle(&self, file: &File) -> io::Result<()> {
        let Some(old) = &self.old else { return Ok(()) };
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        // With an ACL the group's bits of the mode are its mask, which says nothing of the group.
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
        unfinished.finish(|partial| fs::rename(partial, &self.path))?;
        if durability == Durability::Synced {
            self.sync();
        }
        Ok(())
    }

    /// The name, too; where the host's file system cannot do that, it will come by itself.
    fn sync(&self) {
        if let Ok(directory) = File::open(self.directory()) {
            let _ = directory.sync_all();
        }
    }
}

/// Whether this symbolic link is one of the kernel's, which lead to what a process has open and not
/// to a name.
fn is_in_proc(link: &Path) -> bool {
    let parent =
        link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    statfs(parent).is_ok_and(|found| u64::try_from(found.f_type).ok() == Some(PROC_MAGIC))
}

/// What a process has open. Standard output is shared with whoever writes to it before and after,
/// so its place in the file is, too; anything else is opened anew.
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
    fn a_symbolic_link_that_a_person_names_stays_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (link, second) = (scratch.path().join("link"), scratch.path().join("second"));
        symlink("second", &link).unwrap();
        // First to nothing, then to a file, then to itself.
        for _ in 0..2 {
            write(&link, Links::Follow).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&second).unwrap(), b"new");
        }
        fs::remove_file(&second).unwrap();
        symlink("link", &second).unwrap();
        let error = write(&link, Links::Follow).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
        // One in the way of a name that comes from an image is not followed.
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
            // Making one needs root.
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
            // The next one keeps this.
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
