//! Volume operations on names: look up, list, create, link, remove, rename.

use alloc::vec::Vec;
use core::cell::Cell;

use steadfast_media::Medium;

use crate::engine::Writer;
use crate::engine::keyspace::{KeyspaceRead, SpaceClass};
use crate::error::{Error, Result};
use crate::format::dirent::Dirent;
use crate::format::inode::{FileKind, Inode, damaged};
use crate::format::key::Kind;
use crate::fs::create::{self, SYMLINK_MAX};
use crate::fs::long_value::{self, ValueKey};
use crate::fs::parameters::Parameters;
use crate::fs::rename::{self, Side};
use crate::fs::stat::{Attributes, Caller, DirectoryEntry, NewNode, RenameMode};
use crate::fs::tx::Tx;
use crate::fs::{dirent, link};
use crate::mask::TransactionMask;
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Cookie of `.`.
const COOKIE_SELF: u64 = 1;
/// Cookie of `..`.
const COOKIE_PARENT: u64 = 2;

/// What `take` makes of the inode that an entry names. Only damage can leave an entry without an
/// inode.
fn load_named<T>(
    view: &impl KeyspaceRead,
    inode: InodeNumber,
    take: impl FnOnce(&Inode) -> Result<T>,
) -> Result<T> {
    match Inode::load_with(view, inode, take) {
        Err(Error::Stale(_)) => Err(damaged("entry names an inode that does not exist")),
        other => other,
    }
}

/// The number of the inode that `name` in a directory names; `.` and `..` work too.
fn number_of(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    (directory, parent): (InodeNumber, InodeNumber),
    name: &[u8],
) -> Result<InodeNumber> {
    match name {
        b"." => Ok(directory),
        b".." => Ok(parent),
        _ => {
            crate::fs::name_hash::check(name, parameters)?;
            let found = dirent::find(view, parameters, directory, name)?;
            Ok(found.ok_or(Error::NotFound)?.1.inode)
        }
    }
}

/// The inode that `name` in a directory names; `.` and `..` work too.
pub(crate) fn look_up(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    directory: (InodeNumber, Inode),
    name: &[u8],
) -> Result<(InodeNumber, Inode)> {
    if name == b"." {
        return Ok(directory);
    }
    let inode = number_of(view, parameters, (directory.0, directory.1.parent), name)?;
    Ok((inode, load_named(view, inode, |found| Ok(*found))?))
}

/// Handles an error of an entry: it ends the list, or is returned if the list is still empty.
fn ends_list<T>(items: &[T], error: Error) -> Result<bool> {
    if items.is_empty() { Err(error) } else { Ok(false) }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The attributes of the inode that `name` in `directory` names; `.` and `..` work too.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `InvalidName`, `Stale` (the directory).
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Attributes> {
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        let parent = Inode::load_with(&reader, directory, |found| match found.kind {
            FileKind::Directory => Ok(found.parent),
            _ => Err(Error::NotADirectory),
        })?;
        let inode = number_of(&reader, &parameters, (directory, parent), name)?;
        load_named(&reader, inode, |found| Ok(found.attributes(inode, &parameters)))
    }

    /// Up to `count` entries after `cookie` (0 starts). `.` and `..` come first with cookies 1 and
    /// 2. An entry that exists throughout is returned exactly once, whatever changes between calls.
    /// An empty list ends the directory.
    ///
    /// # Errors
    /// `NotADirectory`, `Stale`.
    pub fn read_directory(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        self.list(directory, cookie, count, |_, entry| Ok(entry))
    }

    /// Like [`read_directory`](Self::read_directory), with the attributes of each entry, consistent
    /// with each other. An entry with a damaged inode ends the list. If it is the first entry, its
    /// error is returned; use `read_directory` to skip it.
    ///
    /// # Errors
    /// `NotADirectory`, `Stale`.
    pub fn read_directory_plus(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Attributes)>> {
        let parameters = self.parameters();
        self.list(directory, cookie, count, |reader, entry| {
            let inode = entry.inode;
            let shown = |found: &Inode| Ok(found.attributes(inode, &parameters));
            Ok((entry, load_named(reader, inode, shown)?))
        })
    }

    fn list<T>(
        &self,
        directory: InodeNumber,
        cookie: u64,
        count: usize,
        item: impl Fn(&crate::engine::Reader<'_, M, P>, DirectoryEntry) -> Result<T>,
    ) -> Result<Vec<T>> {
        let reader = self.engine.reader()?;
        let attributes = Inode::load_directory(&reader, directory)?;
        let mut items = Vec::new();
        // A removed directory that is still open is empty, without `.` and `..`.
        let count = if attributes.links > 0 { count } else { 0 };
        let dots = [(COOKIE_SELF, &b"."[..], directory), (COOKIE_PARENT, b"..", attributes.parent)];
        for (own, name, inode) in dots.into_iter().filter(|(own, ..)| *own > cookie) {
            if items.len() == count {
                break;
            }
            let name = memory::copy(name)?;
            let entry = DirectoryEntry { name, inode, kind: FileKind::Directory, cookie: own };
            match item(&reader, entry) {
                Ok(item) => memory::push(&mut items, item)?,
                Err(error) => {
                    ends_list(&items, error)?;
                    return Ok(items);
                }
            }
        }
        if items.len() < count {
            let cookie = cookie.max(COOKIE_PARENT);
            let found = dirent::following(&reader, directory, cookie, &mut |cookie, entry| {
                let entry = entry.and_then(|Dirent { name, inode, kind }| {
                    item(&reader, DirectoryEntry { name, inode, kind, cookie })
                });
                match entry {
                    Ok(item) => memory::push(&mut items, item)?,
                    Err(error) => return ends_list(&items, error),
                }
                Ok(items.len() < count)
            });
            if let Err(error) = found {
                ends_list(&items, error)?;
            }
        }
        drop(reader);
        self.note_access(directory, &attributes);
        Ok(items)
    }

    /// Creates an inode called `name`; `permissions` before umask or default ACL.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `NameTooLong`, `NotADirectory`, `NotFound` (the directory
    /// was removed, or an empty symbolic link), `ValueTooLong` (symbolic link over 4,095 bytes),
    /// `TooManyLinks`, `NoSpace`.
    pub fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        let parameters = self.parameters();
        let (inode, attributes) = self.update(SpaceClass::Normal, |tx| {
            create::create(tx, &parameters, directory, name, &node, permissions, caller)
        })?;
        self.engine.event(match node {
            NewNode::Directory => TransactionMask::MKDIR,
            NewNode::Symlink(_) => TransactionMask::SYMLINK,
            _ => TransactionMask::CREATE,
        })?;
        Ok(attributes.attributes(inode, &parameters))
    }

    /// O_TMPFILE: a regular file without a name, already acquired once (see
    /// [`acquire`](Self::acquire)). [`link`](Self::link) can name it.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound` (the directory was removed), `NoSpace`.
    pub fn create_unnamed(
        &self,
        directory: InodeNumber,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        let parameters = self.parameters();
        // Counted inside the attempt, so the file cannot be reclaimed between its commit and the
        // count.
        let counted = Cell::new(None);
        let uncount = || counted.take().map_or((), |inode| self.release(inode));
        let created = self.update(SpaceClass::Normal, |tx| {
            uncount();
            let (inode, attributes) =
                create::create_unnamed(tx, &parameters, directory, permissions, caller)?;
            self.count(inode)?;
            counted.set(Some(inode));
            Ok((inode, attributes))
        });
        if created.is_err() {
            uncount();
        }
        let (inode, attributes) = created?;
        self.engine.event(TransactionMask::CREATE)?;
        Ok(attributes.attributes(inode, &parameters))
    }

    /// Gives an inode another name, or an inode of [`create_unnamed`](Self::create_unnamed) its
    /// first.
    ///
    /// # Errors
    /// `NotPermitted` (a directory), `AlreadyExists`, `NotFound` (the directory or the inode was
    /// removed), `TooManyLinks`, `InvalidName`, `NameTooLong`, `NoSpace`.
    pub fn link(
        &self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Attributes> {
        let parameters = self.parameters();
        let attributes = self
            .update(SpaceClass::Normal, |tx| link::link(tx, &parameters, inode, directory, name))?;
        self.engine.event(TransactionMask::LINK)?;
        Ok(attributes.attributes(inode, &parameters))
    }

    /// Removes a name of a non-directory. Works on a full volume. The inode stays while it has
    /// other names or is acquired. Background work frees the space of a large file.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `NotADirectory`, `InvalidName`.
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let parameters = self.parameters();
        self.removing(SpaceClass::Freeing, |tx, acquired| {
            link::unlink(tx, &parameters, directory, name, acquired)
        })?;
        self.engine.event(TransactionMask::UNLINK)
    }

    /// Removes an empty directory. Works on a full volume.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, `InvalidName`.
    pub fn remove_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let parameters = self.parameters();
        self.removing(SpaceClass::Freeing, |tx, acquired| {
            link::remove_directory(tx, &parameters, directory, name, acquired)
        })?;
        self.engine.event(TransactionMask::RMDIR)
    }

    /// Renames `from_name` in `from` to `to_name` in `to`. Nothing changes if both name one inode.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` (NoReplace, Whiteout that does not replace), `NotADirectory`,
    /// `IsADirectory`, `DirectoryNotEmpty`, `MoveIntoSelf`, `TooManyLinks`, `InvalidName`,
    /// `NameTooLong`, `NoSpace`.
    pub fn rename(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let parameters = self.parameters();
        if planted(Sabotage::RenameInTwo) && self.unlink(to, to_name).is_ok() {
            self.transact()?;
        }
        let from = Side { directory: from, name: from_name };
        let to = Side { directory: to, name: to_name };
        // The new name replaces the old one; a whiteout is an additional name.
        let adds = matches!(mode, RenameMode::Whiteout { .. });
        let class = if adds { SpaceClass::Normal } else { SpaceClass::Rewrite };
        self.removing(class, |tx, acquired| {
            rename::rename(tx, &parameters, from, to, mode, acquired)
        })?;
        self.engine.event(TransactionMask::RENAME)
    }

    /// Runs an operation that may delete inodes, and tells it which inodes are open. The counts are
    /// locked only briefly; [`acquire`](Self::acquire) says why that is enough.
    fn removing(
        &self,
        class: SpaceClass,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>, &dyn Fn(InodeNumber) -> bool) -> Result<()>,
    ) -> Result<()> {
        self.update(class, |tx| operation(tx, &|inode| self.is_acquired(inode)))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` if it is something else; `Stale`.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let reader = self.engine.reader()?;
        let attributes = Inode::load(&reader, inode)?;
        if attributes.kind != FileKind::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let length = usize::try_from(attributes.size).ok().filter(|length| *length <= SYMLINK_MAX);
        let length = length.ok_or(damaged("symbolic link: size out of range"))?;
        let mut target = Vec::new();
        long_value::load(
            &reader,
            ValueKey { inode, kind: Kind::Symlink, suffix: 0 },
            0,
            &mut target,
            length,
        )?;
        drop(reader);
        self.note_access(inode, &attributes);
        Ok(target)
    }
}
