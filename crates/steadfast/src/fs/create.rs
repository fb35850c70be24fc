//! Making inodes: with a name ([`create`]), without one yet ([`create_unnamed`]), or for a name
//! that a rename has freed ([`whiteout`]).
//!
//! In a set-group-id directory a new inode inherits the group, and a new directory inherits
//! set-group-id too. Permission bits come from the caller, restricted by the directory's default
//! ACL or, without one, by the umask.

use crate::engine::keyspace::Keyspace;
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_UNNAMED, FileKind, Inode, PERMISSIONS, SET_GROUP_ID};
use crate::format::key::Kind;
use crate::fs::long_value::{self, ValueKey};
use crate::fs::parameters::Parameters;
use crate::fs::stat::{Caller, NewNode};
use crate::fs::tx::Tx;
use crate::fs::{dirent, name_hash, orphan, permissions as rules};
use crate::types::InodeNumber;

/// Longest target of a symbolic link, bytes (PATH_MAX without its NUL).
pub(crate) const SYMLINK_MAX: usize = 4095;

fn kind_of(node: &NewNode<'_>) -> FileKind {
    match node {
        NewNode::Regular => FileKind::Regular,
        NewNode::Directory => FileKind::Directory,
        NewNode::Symlink(_) => FileKind::Symlink,
        NewNode::Fifo => FileKind::Fifo,
        NewNode::Socket => FileKind::Socket,
        NewNode::CharDevice(_) => FileKind::CharDevice,
        NewNode::BlockDevice(_) => FileKind::BlockDevice,
    }
}

/// A new inode as a child of `directory`, not yet stored and without links.
fn new_inode<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: (InodeNumber, &Inode),
    kind: FileKind,
    permissions: u32,
    caller: &Caller,
) -> Result<(InodeNumber, Inode)> {
    let inode = tx.keyspace().allocate_inode()?;
    let mut attributes =
        Inode::new(kind, permissions & PERMISSIONS, caller.uid, caller.gid, tx.now());
    if kind == FileKind::Symlink {
        attributes.permissions = 0o777;
    }
    if directory.1.permissions & SET_GROUP_ID != 0 {
        attributes.gid = directory.1.gid;
        if kind == FileKind::Directory {
            attributes.permissions |= SET_GROUP_ID;
        }
    }
    rules::inherit(tx, parameters, directory, (inode, &mut attributes), caller.umask)?;
    Ok((inode, attributes))
}

/// Creates an inode called `name`.
///
/// # Errors
/// `InvalidName`, `NameTooLong`, `AlreadyExists`, `NotADirectory`, `NotFound` (the directory was
/// removed, or the target of a symbolic link is empty), `ValueTooLong` (target), `TooManyLinks`,
/// `DirectoryFull`, `NotPermitted` (flags of the directory).
#[inline(never)]
pub(crate) fn create<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
    node: &NewNode<'_>,
    permissions: u32,
    caller: &Caller,
) -> Result<(InodeNumber, Inode)> {
    name_hash::check(name, parameters)?;
    let mut parent = Inode::load_directory(tx, directory)?;
    if parent.links == 0 {
        return Err(Error::NotFound);
    }
    let kind = kind_of(node);
    let (inode, mut attributes) =
        new_inode(tx, parameters, (directory, &parent), kind, permissions, caller)?;
    // First, because an existing name is the most important error.
    dirent::insert(tx, parameters, directory, name, inode, kind)?;
    parent.file_flags().check_add()?;
    attributes.links = 1;
    match node {
        NewNode::Directory => {
            attributes.links = 2;
            attributes.parent = directory;
            parent.add_link()?;
        }
        NewNode::Symlink(target) => {
            if target.is_empty() {
                return Err(Error::NotFound);
            }
            if target.len() > SYMLINK_MAX {
                return Err(Error::ValueTooLong);
            }
            if target.contains(&0) {
                return Err(Error::InvalidName);
            }
            attributes.size = target.len() as u64;
            long_value::store(tx, ValueKey { inode, kind: Kind::Symlink, suffix: 0 }, target)?;
        }
        NewNode::CharDevice(number) | NewNode::BlockDevice(number) => attributes.device = *number,
        NewNode::Regular | NewNode::Fifo | NewNode::Socket => {}
    }
    parent.size = parent.size.saturating_add(1);
    parent.touch(attributes.created);
    parent.store(tx, directory)?;
    attributes.store(tx, inode)?;
    Ok((inode, attributes))
}

/// Creates a regular file without a name, as an orphan from the start.
///
/// # Errors
/// `NotADirectory`, `NotFound` (the directory was removed), `NotPermitted` (its flags).
pub(crate) fn create_unnamed<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    permissions: u32,
    caller: &Caller,
) -> Result<(InodeNumber, Inode)> {
    let parent = Inode::load_directory(tx, directory)?;
    if parent.links == 0 {
        return Err(Error::NotFound);
    }
    parent.file_flags().check_add()?;
    let (inode, mut attributes) =
        new_inode(tx, parameters, (directory, &parent), FileKind::Regular, permissions, caller)?;
    attributes.set(FLAG_UNNAMED, true);
    attributes.store(tx, inode)?;
    orphan::record(tx, inode)?;
    Ok((inode, attributes))
}

/// Creates a whiteout: a character device with the number 0 and no permissions. The caller enters
/// its name in `directory`.
///
/// # Errors
/// `NotADirectory`.
pub(crate) fn whiteout<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    caller: &Caller,
) -> Result<InodeNumber> {
    let parent = Inode::load_directory(tx, directory)?;
    let kind = FileKind::CharDevice;
    let (inode, mut attributes) = new_inode(tx, parameters, (directory, &parent), kind, 0, caller)?;
    attributes.links = 1;
    attributes.store(tx, inode)?;
    Ok(inode)
}
