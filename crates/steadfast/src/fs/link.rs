//! Adding and removing names of existing inodes.

use crate::engine::keyspace::Keyspace;
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_RECLAIMING, FLAG_TRUNCATING, FLAG_UNNAMED, FileKind, Inode};
use crate::format::key::Key;
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::fs::{dirent, name_hash, orphan};
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;

/// Gives an inode another name, or an unnamed inode its first name.
///
/// # Errors
/// `NotPermitted` for a directory, or by flags; `AlreadyExists`, `TooManyLinks`, `NotFound` (the
/// directory or the inode was removed), and those of an invalid name.
#[inline(never)]
pub(crate) fn link<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    directory: InodeNumber,
    name: &[u8],
) -> Result<Inode> {
    name_hash::check(name, parameters)?;
    let mut parent = Inode::load_directory(tx, directory)?;
    let mut attributes = Inode::load(tx, inode)?;
    if attributes.kind == FileKind::Directory {
        return Err(Error::NotPermitted);
    }
    if parent.links == 0 {
        return Err(Error::NotFound);
    }
    if attributes.links == 0 {
        if !attributes.has(FLAG_UNNAMED) || attributes.has(FLAG_RECLAIMING) {
            return Err(Error::NotFound);
        }
        attributes.set(FLAG_UNNAMED, false);
        if !attributes.has(FLAG_TRUNCATING) || planted(Sabotage::NameEndsTruncation) {
            tx.delete(&Key::orphan(inode))?;
        }
    }
    attributes.add_link()?;
    dirent::insert(tx, parameters, directory, name, inode, attributes.kind)?;
    parent.file_flags().check_add()?;
    attributes.file_flags().check_change()?;
    let now = tx.now();
    attributes.changed = now;
    attributes.store(tx, inode)?;
    parent.size = parent.size.saturating_add(1);
    parent.touch(now);
    parent.store(tx, directory)?;
    Ok(attributes)
}

/// Removes a name of a non-directory. `acquired` says whether an inode is open; an open inode stays
/// as an orphan.
///
/// # Errors
/// `NotFound`, `IsADirectory`, `NotADirectory`, `NotPermitted` (flags), and those of an invalid
/// name.
#[inline(never)]
pub(crate) fn unlink<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
    acquired: &dyn Fn(InodeNumber) -> bool,
) -> Result<()> {
    name_hash::check(name, parameters)?;
    let mut parent = Inode::load_directory(tx, directory)?;
    let (key, entry) = dirent::find(tx, parameters, directory, name)?.ok_or(Error::NotFound)?;
    if entry.kind == FileKind::Directory {
        return Err(Error::IsADirectory);
    }
    parent.file_flags().check_change()?;
    let now = tx.now();
    tx.remove(&key)?;
    parent.size = parent.size.saturating_sub(1);
    parent.touch(now);
    parent.store(tx, directory)?;
    drop_link(tx, entry.inode, acquired)
}

/// Removes an empty directory.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, `NotPermitted` (flags), and those of an
/// invalid name.
#[inline(never)]
pub(crate) fn remove_directory<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
    acquired: &dyn Fn(InodeNumber) -> bool,
) -> Result<()> {
    name_hash::check(name, parameters)?;
    let mut parent = Inode::load_directory(tx, directory)?;
    let (key, entry) = dirent::find(tx, parameters, directory, name)?.ok_or(Error::NotFound)?;
    if entry.kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    parent.file_flags().check_change()?;
    check_empty(tx, entry.inode)?;
    let now = tx.now();
    tx.remove(&key)?;
    parent.size = parent.size.saturating_sub(1);
    parent.links = parent.links.saturating_sub(1);
    parent.touch(now);
    parent.store(tx, directory)?;
    drop_link(tx, entry.inode, acquired)
}

/// Fails with `DirectoryNotEmpty` if a directory has entries, whatever its size field says.
pub(crate) fn check_empty<K: Keyspace>(tx: &Tx<'_, K>, directory: InodeNumber) -> Result<()> {
    match Inode::load_directory(tx, directory) {
        // An entry without an inode can only come from damage; it can be removed.
        Err(Error::Stale(_)) => return Ok(()),
        other => other?,
    };
    dirent::following(tx, directory, 0, &mut |_, entry| entry.and(Err(Error::DirectoryNotEmpty)))
}

/// Removes one link from an inode (all from a directory), unless its flags refuse that. With the
/// last link the inode is deleted, at once if it is small and not open.
pub(crate) fn drop_link<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    acquired: &dyn Fn(InodeNumber) -> bool,
) -> Result<()> {
    let mut attributes = match Inode::load(tx, inode) {
        Err(Error::Stale(_)) => return Ok(()),
        other => other?,
    };
    attributes.file_flags().check_change()?;
    attributes.links = match attributes.kind {
        FileKind::Directory => 0,
        _ => attributes.links.saturating_sub(1),
    };
    attributes.changed = tx.now();
    if attributes.links == 0 && orphan::delete_or_record(tx, inode, &attributes, acquired(inode))? {
        return Ok(());
    }
    attributes.store(tx, inode)
}
