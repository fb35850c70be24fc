//! Changing names: replace, refuse to replace, exchange, leave a whiteout; within one directory or
//! across two.

use crate::engine::keyspace::Keyspace;
use crate::error::{Error, Result};
use crate::format::dirent::Target;
use crate::format::inode::{FileKind, Inode, damaged};
use crate::format::key::Key;
use crate::fs::flags::FileFlags;
use crate::fs::link::{check_empty, drop_link};
use crate::fs::parameters::Parameters;
use crate::fs::stat::{Caller, RenameMode};
use crate::fs::tx::Tx;
use crate::fs::{create, dirent, name_hash};
use crate::types::InodeNumber;

/// More levels than any path can have; only on a damaged volume does a chain of parents never end.
const DEPTH_MAX: usize = 1 << 20;

/// One side of a rename: a directory and a name in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    pub directory: InodeNumber,
    pub name: &'a [u8],
}

/// Renames `from` to `to`. Nothing changes if both name the same inode, as POSIX requires.
///
/// # Errors
/// `NotFound`, `AlreadyExists` (NoReplace), `NotADirectory`, `IsADirectory`, `DirectoryNotEmpty`,
/// `MoveIntoSelf`, `TooManyLinks`, `DirectoryFull`, `NotPermitted` (flags), and those of an invalid
/// name.
pub(crate) fn rename<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    from: Side<'_>,
    to: Side<'_>,
    mode: RenameMode,
    acquired: &dyn Fn(InodeNumber) -> bool,
) -> Result<()> {
    name_hash::check(from.name, parameters)?;
    name_hash::check(to.name, parameters)?;
    let mut flags = [FileFlags::NONE; 2];
    for (directory, flags) in [from.directory, to.directory].into_iter().zip(&mut flags) {
        let found = Inode::load_directory(tx, directory)?;
        if found.links == 0 {
            return Err(Error::NotFound);
        }
        *flags = found.file_flags();
    }
    let source = dirent::find(tx, parameters, from.directory, from.name)?.ok_or(Error::NotFound)?;
    let target = dirent::find(tx, parameters, to.directory, to.name)?;
    match (mode, target) {
        (RenameMode::NoReplace | RenameMode::Whiteout { replace: false, .. }, Some(_)) => {
            Err(Error::AlreadyExists)
        }
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (_, Some(target)) if target.1.inode == source.1.inode => Ok(()),
        _ if let Err(error) = check_flags(flags, target.is_some()) => Err(error),
        (RenameMode::Exchange, Some(target)) => exchange(tx, (from, source), (to, target)),
        (mode, target) => {
            let whiteout = match mode {
                RenameMode::Whiteout { caller, .. } => Some(caller),
                _ => None,
            };
            replace(tx, parameters, (from, source), (to, target), whiteout.as_ref(), acquired)
        }
    }
}

/// Whether the directories' flags let a name leave the first one and arrive in the second one.
fn check_flags([from, to]: [FileFlags; 2], replaces: bool) -> Result<()> {
    from.check_change()?;
    to.check_target(replaces)
}

fn is_directory(entry: &Target) -> bool {
    entry.kind == FileKind::Directory
}

/// Fails with `MoveIntoSelf` if `directory` is `moved` or below it.
fn check_not_below<K: Keyspace>(
    tx: &Tx<'_, K>,
    directory: InodeNumber,
    moved: InodeNumber,
) -> Result<()> {
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == moved {
            return Err(Error::MoveIntoSelf);
        }
        let parent = Inode::load_directory(tx, at)?.parent;
        if at == InodeNumber::ROOT || parent == at {
            return Ok(());
        }
        at = parent;
    }
    Err(damaged("directory: parents form a loop"))
}

/// Changes a directory's counts and times.
fn update_directory<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    directory: InodeNumber,
    entries: i64,
    subdirectories: i64,
) -> Result<()> {
    let mut attributes = Inode::load_directory(tx, directory)?;
    attributes.size = attributes.size.saturating_add_signed(entries);
    match subdirectories {
        1 => attributes.add_link()?,
        -1 => attributes.links = attributes.links.saturating_sub(1),
        _ => {}
    }
    attributes.touch(tx.now());
    attributes.store(tx, directory)
}

/// Updates the inode of `entry`, which is now in `directory`, unless its flags refuse that.
fn update_moved<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    entry: &Target,
    directory: InodeNumber,
) -> Result<()> {
    let mut attributes = Inode::load(tx, entry.inode)?;
    attributes.file_flags().check_change()?;
    attributes.changed = tx.now();
    if attributes.kind == FileKind::Directory {
        attributes.parent = directory;
    }
    attributes.store(tx, entry.inode)
}

fn replace<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    (from, (from_key, source)): (Side<'_>, (Key, Target)),
    (to, target): (Side<'_>, Option<(Key, Target)>),
    whiteout: Option<&Caller>,
    acquired: &dyn Fn(InodeNumber) -> bool,
) -> Result<()> {
    let across = from.directory != to.directory;
    if across && is_directory(&source) {
        check_not_below(tx, to.directory, source.inode)?;
    }
    if let Some((_, target)) = &target {
        match (is_directory(&source), is_directory(target)) {
            (true, false) => return Err(Error::NotADirectory),
            (false, true) => return Err(Error::IsADirectory),
            (true, true) => check_empty(tx, target.inode)?,
            (false, false) => {}
        }
    }
    match whiteout {
        Some(caller) => {
            let inode = create::whiteout(tx, parameters, from.directory, caller)?;
            dirent::replace(tx, from_key, from.name, inode, FileKind::CharDevice)?;
        }
        None => tx.remove(&from_key)?,
    }
    // A moved subdirectory adds a link to its new parent, unless it replaces another subdirectory.
    let moves = i64::from(is_directory(&source));
    let leaves = if whiteout.is_some() { 0 } else { -1 };
    // A directory in which the name stays changes once.
    let arriving = i64::from(target.is_none());
    let within = if across { 0 } else { arriving };
    update_directory(tx, from.directory, leaves + within, if across { -moves } else { 0 })?;
    let arrives = if across { moves } else { 0 };
    match target {
        None => {
            dirent::insert(tx, parameters, to.directory, to.name, source.inode, source.kind)?;
            if across {
                update_directory(tx, to.directory, 1, arrives)?;
            }
        }
        Some((key, target)) => {
            dirent::replace(tx, key, to.name, source.inode, source.kind)?;
            update_directory(tx, to.directory, 0, arrives - i64::from(is_directory(&target)))?;
            drop_link(tx, target.inode, acquired)?;
        }
    }
    update_moved(tx, &source, to.directory)
}

fn exchange<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    (from, (from_key, source)): (Side<'_>, (Key, Target)),
    (to, (to_key, target)): (Side<'_>, (Key, Target)),
) -> Result<()> {
    if from.directory != to.directory {
        if is_directory(&source) {
            check_not_below(tx, to.directory, source.inode)?;
        }
        if is_directory(&target) {
            check_not_below(tx, from.directory, target.inode)?;
        }
    }
    dirent::replace(tx, from_key, from.name, target.inode, target.kind)?;
    dirent::replace(tx, to_key, to.name, source.inode, source.kind)?;
    let arrives = match from.directory == to.directory {
        true => 0,
        false => i64::from(is_directory(&source)) - i64::from(is_directory(&target)),
    };
    update_directory(tx, from.directory, 0, -arrives)?;
    update_directory(tx, to.directory, 0, arrives)?;
    update_moved(tx, &source, to.directory)?;
    update_moved(tx, &target, from.directory)
}
