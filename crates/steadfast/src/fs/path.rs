//! Operations by path, for programs that use a volume without a kernel.
//!
//! A path is bytes with slashes between names. It starts at the root, with or without a leading
//! slash. `.`, `..` and symbolic links work as in POSIX; at most [`LINKS_MAX`] links are followed.
//! Names are looked up one after the other. So a path walk is as atomic as on any POSIX system:
//! each step is.

use alloc::vec::Vec;
use core::ops::Range;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::inode::{FileKind, Inode};
use crate::fs::file::FileOptions;
use crate::fs::namespace::look_up;
use crate::fs::stat::{Attributes, Caller, DirectoryEntry, NewNode, RenameMode};
use crate::memory;
use crate::platform::Platform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Limit of the symbolic links that one path walk follows.
pub const LINKS_MAX: usize = 40;

/// Names that a path walk looks up under one reader, so that changes need not wait for a long path.
const NAMES_AT_ONCE: usize = 64;

/// Entries read at once.
const LIST_CHUNK: usize = 64;

/// The end of a path walk.
pub(crate) struct Walked {
    /// The directory of the last name.
    pub directory: InodeNumber,
    /// The last name; empty if the path ends in a directory that was reached without one (`/`,
    /// `a/..`).
    pub name: Vec<u8>,
    /// The attributes found there, if any.
    pub found: Option<Attributes>,
}

/// How far a walk came under one reader.
enum Walk {
    /// The end of the path: directory, position of the last name in the path (empty: there is
    /// none), and the attributes found there.
    End(InodeNumber, Range<usize>, Option<Attributes>),
    /// A directory on the path, and the position of the rest of the path.
    On(InodeNumber, usize),
    /// A symbolic link to follow, its directory, and the position of the rest of the path.
    Link(InodeNumber, InodeNumber, usize),
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Follows a path. `follow`: a symbolic link as the last name is followed too.
    pub(crate) fn walk(&self, path: &[u8], follow: bool) -> Result<Walked> {
        self.walk_to(path, follow, |directory, name, found| {
            Ok(Walked { directory, name: memory::copy(name)?, found })
        })
    }

    /// Follows a path and passes its end to `end`, without a copy of the name; see [`Walked`].
    fn walk_to<T>(
        &self,
        path: &[u8],
        follow: bool,
        end: impl FnOnce(InodeNumber, &[u8], Option<Attributes>) -> Result<T>,
    ) -> Result<T> {
        let mut directory = InodeNumber::ROOT;
        // The rest of the path; after a link, its target followed by that rest.
        let mut rest = path;
        let mut followed: Vec<u8>;
        let mut links = 0;
        loop {
            match self.walk_on(directory, rest, follow)? {
                Walk::End(directory, name, found) => {
                    return end(directory, rest.get(name).unwrap_or_default(), found);
                }
                Walk::On(at, after) => {
                    directory = at;
                    rest = &rest[after..];
                }
                Walk::Link(link, parent, after) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Error::SymlinkLoop);
                    }
                    let mut target = self.read_link(link)?;
                    directory =
                        if target.first() == Some(&b'/') { InodeNumber::ROOT } else { parent };
                    memory::extend(&mut target, &rest[after..])?;
                    followed = target;
                    rest = &followed;
                }
            }
        }
    }

    /// Follows a path from a directory: to its end, to a link that is followed, or for
    /// [`NAMES_AT_ONCE`] names. A trailing slash requires a directory.
    fn walk_on(&self, directory: InodeNumber, path: &[u8], follow: bool) -> Result<Walk> {
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        let mut at = (directory, Inode::load(&reader, directory)?);
        let mut start = 0;
        for _ in 0..NAMES_AT_ONCE {
            start += path[start..].iter().take_while(|byte| **byte == b'/').count();
            let name = path[start..].split(|byte| *byte == b'/').next().unwrap_or_default();
            if at.1.kind != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            if name.is_empty() {
                return Ok(Walk::End(at.0, 0..0, Some(at.1.attributes(at.0, &parameters))));
            }
            let end = start + name.len();
            let last = end == path.len();
            let found = match look_up(&reader, &parameters, at, name) {
                Err(Error::NotFound) if last => return Ok(Walk::End(at.0, start..end, None)),
                other => other?,
            };
            if found.1.kind == FileKind::Symlink && (follow || !last) {
                return Ok(Walk::Link(found.0, at.0, end));
            }
            if last {
                let dots = name == b"." || name == b"..";
                let (directory, name) = if dots { (found.0, 0..0) } else { (at.0, start..end) };
                return Ok(Walk::End(
                    directory,
                    name,
                    Some(found.1.attributes(found.0, &parameters)),
                ));
            }
            at = found;
            start = end;
        }
        if at.1.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        Ok(Walk::On(at.0, start))
    }

    /// The attributes of the inode that a path leads to. `follow`: if the last name is a symbolic
    /// link, it is followed.
    ///
    /// ```
    /// # use steadfast::{FormatOptions, OpenOptions, Volume, testing::TestPlatform};
    /// # let medium = steadfast_media::MemoryMedium::new(8 << 20, 512).unwrap();
    /// # Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new())?;
    /// # let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new())?;
    /// volume.create_directory_all("etc/app")?;
    /// volume.create_symlink("/etc/app", "current")?;
    /// let app = volume.resolve("/etc/app", true)?;
    /// assert_eq!(volume.resolve("current", true)?.inode, app.inode);
    /// assert_ne!(volume.resolve("current", false)?.inode, app.inode);
    /// # Ok::<(), steadfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `SymlinkLoop`, `NameTooLong`, `InvalidName`.
    pub fn resolve(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Attributes> {
        self.walk_to(path.as_ref(), follow, |_, _, found| found.ok_or(Error::NotFound))
    }

    /// The directory of a path's last name, and that name, for an operation that creates or removes
    /// it.
    fn parent(&self, path: &[u8]) -> Result<Walked> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let walked = self.walk(&path[..end], false)?;
        if walked.name.is_empty() {
            return Err(Error::InvalidName);
        }
        Ok(walked)
    }

    /// Reads all bytes of a file.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve) and [`read`](Self::read); `OutOfMemory` if the file is
    /// larger than memory.
    pub fn file_read_all(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.open_file(path, &FileOptions::new().read(true))?.read_all()
    }

    /// Replaces the content of a file by `data`; creates it with permissions 0644 if it does not
    /// exist.
    ///
    /// ```
    /// # use steadfast::{FormatOptions, OpenOptions, Volume, testing::TestPlatform};
    /// # let medium = steadfast_media::MemoryMedium::new(8 << 20, 512).unwrap();
    /// # Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new())?;
    /// # let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new())?;
    /// volume.file_write_all("config", b"old")?;
    /// volume.file_write_all("version", b"1")?;
    /// volume.transact()?;
    /// // Both files change together or not at all, whenever the power fails.
    /// volume.file_write_all("config", b"new")?;
    /// volume.file_write_all("version", b"2")?;
    /// volume.rollback()?;
    /// assert_eq!(volume.file_read_all("config")?, b"old");
    /// assert_eq!(volume.file_read_all("version")?, b"1");
    /// # Ok::<(), steadfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open_file`](Self::open_file) and [`write`](Self::write).
    pub fn file_write_all(&self, path: impl AsRef<[u8]>, data: &[u8]) -> Result<()> {
        let options = FileOptions::new().write(true).create(true).truncate(true);
        let file = self.open_file(path, &options)?;
        file.write_at(0, data)?;
        file.close()
    }

    /// Makes a directory and its missing parents, with permissions 0755. An existing directory is
    /// no error.
    ///
    /// # Errors
    /// `NotADirectory` if one of the names exists and is no directory; those of
    /// [`create`](Self::create).
    pub fn create_directory_all(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        let path = path.as_ref();
        let mut made = self.attributes(InodeNumber::ROOT)?;
        let names = |byte: &u8| *byte == b'/';
        let mut end = 0;
        for name in path.split(names) {
            let start = end;
            end = start + name.len() + 1;
            if name.is_empty() {
                continue;
            }
            let walked = self.walk(&path[..start + name.len()], true)?;
            made = match walked.found {
                Some(found) if found.kind == FileKind::Directory => found,
                Some(_) => return Err(Error::NotADirectory),
                None => self.create(
                    walked.directory,
                    &walked.name,
                    NewNode::Directory,
                    0o755,
                    &Caller::default(),
                )?,
            };
        }
        Ok(made)
    }

    /// Makes a symbolic link at `path` to `target`.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn create_symlink(
        &self,
        target: impl AsRef<[u8]>,
        path: impl AsRef<[u8]>,
    ) -> Result<Attributes> {
        let at = self.parent(path.as_ref())?;
        let node = NewNode::Symlink(target.as_ref());
        self.create(at.directory, &at.name, node, 0o777, &Caller::default())
    }

    /// The entries of a directory without `.` and `..`, in no particular order.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve); `NotADirectory`, `OutOfMemory`.
    pub fn directory_entries(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirectoryEntry>> {
        let directory = self.resolve(path, true)?.inode;
        let mut all = Vec::new();
        // Cookie 2 is that of `..`.
        let mut cookie = 2;
        loop {
            let entries = self.read_directory(directory, cookie, LIST_CHUNK)?;
            let Some(last) = entries.last() else {
                return Ok(all);
            };
            cookie = last.cookie;
            all.try_reserve(entries.len()).map_err(|_| Error::OutOfMemory)?;
            all.extend(entries);
        }
    }

    /// Renames by path. A symbolic link as the last name is itself renamed or replaced.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve) and [`rename`](Self::rename).
    pub fn rename_path(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let from = self.parent(from.as_ref())?;
        let to = self.parent(to.as_ref())?;
        self.rename(from.directory, &from.name, to.directory, &to.name, mode)
    }

    /// Removes a file, or a directory with everything in it. Symbolic links are removed, not
    /// followed. After an error, entries not reached yet remain. Under a mask without `unlink` and
    /// `rmdir` the removal sets no transaction point.
    ///
    /// ```
    /// # use steadfast::{Error, FormatOptions, OpenOptions, Volume, testing::TestPlatform};
    /// # let medium = steadfast_media::MemoryMedium::new(8 << 20, 512).unwrap();
    /// # Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new())?;
    /// # let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new())?;
    /// volume.create_directory_all("a/b/c")?;
    /// volume.file_write_all("a/b/file", b"x")?;
    /// volume.remove_all("a")?;
    /// assert_eq!(volume.resolve("a", true), Err(Error::NotFound));
    /// # Ok::<(), steadfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `InvalidName` (the root), and those of [`unlink`](Self::unlink).
    pub fn remove_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let top = self.parent(path.as_ref())?;
        let found = top.found.ok_or(Error::NotFound)?;
        if found.kind != FileKind::Directory {
            return self.unlink(top.directory, &top.name);
        }
        // Open directories on the way down, each with its place in its parent.
        let mut open = Vec::new();
        memory::push(&mut open, (top.directory, top.name, found.inode))?;
        while let Some((_, _, directory)) = open.last() {
            let directory = *directory;
            let mut below = None;
            for entry in self.read_directory(directory, 2, LIST_CHUNK)? {
                if entry.kind == FileKind::Directory {
                    below = Some((directory, entry.name, entry.inode));
                    break;
                }
                match self.unlink(directory, &entry.name) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(below) = below {
                memory::push(&mut open, below)?;
            } else if self.read_directory(directory, 2, 1)?.is_empty()
                && let Some((parent, name, _)) = open.pop()
            {
                match self.remove_directory(parent, &name) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
