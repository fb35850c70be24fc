//! Changing attributes: mode, owner, size, times, flags.

use crate::engine::keyspace::Keyspace;
use crate::error::{Error, Result};
use crate::format::inode::{
    FILE_FLAGS, FILE_FLAGS_SHIFT, FileKind, Inode, SET_GROUP_ID, SET_USER_ID,
};
use crate::fs::flags::FileFlags;
use crate::fs::parameters::Parameters;
use crate::fs::stat::{SetAttributes, SetTime};
use crate::fs::tx::Tx;
use crate::fs::{permissions, truncate};
use crate::types::{InodeNumber, Timestamp};

/// Changes the attributes in `set` in one batch. A new size also sets the modification time.
///
/// # Errors
/// `Stale`; `NotPermitted`: flags of the inode refuse it. For a size: `IsADirectory`,
/// `NotARegularFile`, and those of [`truncate::set_size`].
pub(crate) fn set_attributes<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    set: &SetAttributes,
) -> Result<Inode> {
    let mut attributes = match set.size {
        Some(_) => Inode::load_regular(tx, inode)?,
        None => Inode::load(tx, inode)?,
    };
    set.check(attributes.file_flags())?;
    let now = tx.now();
    if let Some(uid) = set.uid {
        attributes.uid = uid;
    }
    if let Some(gid) = set.gid {
        attributes.gid = gid;
    }
    if let Some(bits) = set.permissions {
        permissions::change_permissions(tx, parameters, inode, &mut attributes, bits)?;
    }
    if set.drop_privileges {
        drop_privileges(&mut attributes);
    }
    // After the ACL, because it uses the remaining room of the batch.
    if let Some(size) = set.size {
        truncate::set_size(tx, parameters, inode, &mut attributes, size)?;
        attributes.modified = now;
    }
    let time = |time| match time {
        SetTime::Now => now,
        SetTime::At(time) => normal(time),
    };
    if let Some(accessed) = set.accessed {
        attributes.accessed = time(accessed);
    }
    if let Some(modified) = set.modified {
        attributes.modified = time(modified);
    }
    attributes.changed = set.changed.map_or(now, normal);
    attributes.store(tx, inode)?;
    Ok(attributes)
}

/// Gives an inode these flags in place of those that it has.
///
/// # Errors
/// `Unsupported` where it is neither a file nor a directory; `Stale`.
pub(crate) fn set_flags<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    flags: FileFlags,
) -> Result<Inode> {
    let mut attributes = Inode::load(tx, inode)?;
    if !matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
        return Err(Error::Unsupported("flags of anything but files and directories"));
    }
    attributes.flags = attributes.flags & !FILE_FLAGS | flags.0 << FILE_FLAGS_SHIFT;
    attributes.changed = tx.now();
    attributes.store(tx, inode)?;
    Ok(attributes)
}

/// Clears set-user-id, and set-group-id if the group may execute; directories keep both.
fn drop_privileges(attributes: &mut Inode) {
    if attributes.kind != FileKind::Directory {
        attributes.permissions &= !SET_USER_ID;
        if attributes.permissions & 0o010 != 0 {
            attributes.permissions &= !SET_GROUP_ID;
        }
    }
}

/// A time with its nanoseconds in range, so that the stored value can be read again.
fn normal(time: Timestamp) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds.min(999_999_999) }
}
