//! Extended attributes: names that are allowed, and what setting one means.
//!
//! `store.rs` has the form in which they are kept. The two POSIX ACLs are attributes
//! too; flags in the inode say that they exist. The access ACL and the permission bits update each
//! other: see [`permissions`].

pub(crate) mod store;

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_ACL_ACCESS, FLAG_ACL_DEFAULT, FileKind, Inode};
use crate::fs::flags::FileFlags;
use crate::fs::parameters::Parameters;
use crate::fs::permissions;
use crate::fs::stat::SetXattrMode;
use crate::fs::tx::Tx;
use crate::types::InodeNumber;

pub(crate) use store::{ACL_ACCESS, ACL_DEFAULT, erase, find, list, store};

const NAME_MAX: usize = 255;
/// Rights that a program gets from its file.
const CAPABILITY: &[u8] = b"security.capability";

/// Checks the namespace of `name` against the type of the inode.
fn check_name(name: &[u8], kind: FileKind) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.contains(&0) {
        return Err(Error::InvalidName);
    }
    if name == ACL_ACCESS || name == ACL_DEFAULT {
        return match kind {
            FileKind::Symlink => Err(Error::Unsupported("symbolic links have no ACL")),
            _ => Ok(()),
        };
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let space = spaces.into_iter().find(|space| name.starts_with(space));
    let space = space.ok_or(Error::Unsupported("attribute namespace"))?;
    if name.len() == space.len() {
        return Err(Error::InvalidName);
    }
    if space == b"user." && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// The value of an attribute.
///
/// # Errors
/// `NoAttribute`; `Unsupported` for an unknown namespace.
pub(crate) fn get(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<Vec<u8>> {
    let attributes = Inode::load(view, inode)?;
    match check_name(name, attributes.kind) {
        Ok(()) => {}
        Err(Error::NotPermitted) => return Err(Error::NoAttribute),
        Err(error) => return Err(error),
    }
    let absent = (name == ACL_ACCESS && !attributes.has(FLAG_ACL_ACCESS))
        || (name == ACL_DEFAULT && !attributes.has(FLAG_ACL_DEFAULT));
    if absent {
        return Err(Error::NoAttribute);
    }
    let (_, stored) = find(view, parameters, inode, name)?.ok_or(Error::NoAttribute)?;
    Ok(stored.into_value())
}

/// Sets an attribute. An access ACL also sets the permission bits, and is stored only if the bits
/// alone cannot express it.
///
/// # Errors
/// `AlreadyExists` and `NoAttribute` as `mode` requires; `Unsupported` namespace. `NotPermitted`:
/// `user.` on something other than a file or directory, a default ACL on a non-directory, or flags
/// of the inode.
/// `ValueTooLong`: over 64 KiB or 48 items.
pub(crate) fn set<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
    value: &[u8],
    mode: SetXattrMode,
) -> Result<()> {
    let mut attributes = Inode::load(tx, inode)?;
    check_name(name, attributes.kind)?;
    attributes.file_flags().check_change()?;
    if name == ACL_ACCESS || name == ACL_DEFAULT {
        permissions::set_acl(tx, parameters, (inode, &mut attributes), name, value, mode)?;
    } else {
        store(tx, parameters, inode, name, value, mode)?;
    }
    attributes.changed = tx.now();
    attributes.store(tx, inode)
}

/// Removes an attribute. Removing an access ACL leaves the permission bits unchanged.
///
/// # Errors
/// `NoAttribute`; `Unsupported` namespace; `NotPermitted`: flags of the inode refuse it.
pub(crate) fn remove<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<()> {
    let mut attributes = Inode::load(tx, inode)?;
    check_name(name, attributes.kind)?;
    let flags = attributes.file_flags();
    // A write takes these rights from the file, also one that appends.
    if name != CAPABILITY || flags.intersects(FileFlags::IMMUTABLE) {
        flags.check_change()?;
    }
    if !erase(tx, parameters, inode, name)? {
        return Err(Error::NoAttribute);
    }
    if name == ACL_ACCESS {
        attributes.set(FLAG_ACL_ACCESS, false);
    } else if name == ACL_DEFAULT {
        attributes.set(FLAG_ACL_DEFAULT, false);
    }
    attributes.changed = tx.now();
    attributes.store(tx, inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::keyspace::SpaceClass;
    use crate::format::key::Key;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use alloc::format;
    use alloc::vec;

    const INODE: InodeNumber = InodeNumber(20);

    fn with_inode(kind: FileKind) -> MemoryKeyspace {
        let keyspace = MemoryKeyspace::new();
        update(&keyspace, SpaceClass::Normal, |tx| {
            Inode::new(kind, 0o644, 1, 2, tx.now()).store(tx, INODE)
        })
        .unwrap();
        keyspace
    }

    fn put(keyspace: &MemoryKeyspace, name: &str, value: &[u8], mode: SetXattrMode) -> Result<()> {
        let parameters = Parameters::for_tests();
        update(keyspace, SpaceClass::Normal, |tx| {
            set(tx, &parameters, INODE, name.as_bytes(), value, mode)
        })
    }

    fn value(keyspace: &MemoryKeyspace, name: &str) -> Result<Vec<u8>> {
        get(keyspace, &Parameters::for_tests(), INODE, name.as_bytes())
    }

    #[test]
    fn set_get_list_remove() {
        let keyspace = with_inode(FileKind::Regular);
        keyspace.value_len_max.set(112);
        assert_eq!(value(&keyspace, "user.a"), Err(Error::NoAttribute));
        put(&keyspace, "user.a", b"", SetXattrMode::Create).unwrap();
        put(&keyspace, "user.a", &[7; 3000], SetXattrMode::Any).unwrap();
        put(&keyspace, "security.b", b"x", SetXattrMode::Any).unwrap();
        let long = format!("trusted.{}", "n".repeat(240));
        put(&keyspace, &long, b"long name", SetXattrMode::Any).unwrap();
        assert_eq!(put(&keyspace, "user.a", b"", SetXattrMode::Create), Err(Error::AlreadyExists));
        assert_eq!(put(&keyspace, "user.c", b"", SetXattrMode::Replace), Err(Error::NoAttribute));
        assert_eq!(value(&keyspace, "user.a").unwrap(), vec![7; 3000]);
        assert_eq!(value(&keyspace, &long).unwrap(), b"long name");
        let mut names = list(&keyspace, INODE).unwrap();
        names.sort();
        assert_eq!(names, [&b"security.b"[..], long.as_bytes(), b"user.a"]);
        for name in names {
            update(&keyspace, SpaceClass::Freeing, |tx| {
                remove(tx, &Parameters::for_tests(), INODE, &name)
            })
            .unwrap();
        }
        assert_eq!(keyspace.keys(), [Key::inode(INODE)]);
        assert_eq!(
            put(&keyspace, "user.a", &[0; 70000], SetXattrMode::Any),
            Err(Error::ValueTooLong)
        );
    }

    #[test]
    fn namespaces() {
        let fifo = with_inode(FileKind::Fifo);
        assert_eq!(put(&fifo, "user.a", b"", SetXattrMode::Any), Err(Error::NotPermitted));
        assert_eq!(value(&fifo, "user.a"), Err(Error::NoAttribute));
        put(&fifo, "trusted.a", b"", SetXattrMode::Any).unwrap();
        for name in ["other.a", "a", "system.x"] {
            assert!(matches!(put(&fifo, name, b"", SetXattrMode::Any), Err(Error::Unsupported(_))));
        }
        assert_eq!(put(&fifo, "security.", b"", SetXattrMode::Any), Err(Error::InvalidName));
        let long = format!("trusted.{}", "n".repeat(250));
        assert_eq!(put(&fifo, &long, b"", SetXattrMode::Any), Err(Error::NameTooLong));
    }
}
