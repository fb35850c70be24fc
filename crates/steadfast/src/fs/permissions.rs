//! Permission bits and POSIX ACLs: a change of the access ACL updates the bits, and a change of the
//! bits updates the ACL. New inodes take theirs from the default ACL of their directory or, without
//! one, from the umask.

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{
    FLAG_ACL_ACCESS, FLAG_ACL_DEFAULT, FileKind, Inode, PERMISSIONS, damaged,
};
use crate::fs::acl::Acl;
use crate::fs::parameters::Parameters;
use crate::fs::stat::SetXattrMode;
use crate::fs::tx::Tx;
use crate::fs::xattr::store::{ACL_ACCESS, ACL_DEFAULT, HEADER_LEN, erase, find, store};
use crate::profile::{NO_XATTRS, XATTRS};
use crate::types::InodeNumber;

/// Limit of the pieces of an ACL: a directory's default ACL is copied twice to a new subdirectory,
/// in the batch that makes it.
const ACL_PIECES_MAX: usize = 16;

/// Sets one of the two ACLs from an attribute value. An access ACL also sets the permission bits,
/// and is stored only if the bits alone cannot express it. The caller stores the inode.
///
/// # Errors
/// `InvalidArgument` (not an ACL), `NotPermitted` (a default ACL on a non-directory),
/// `ValueTooLong`, `AlreadyExists` and `NoAttribute` as `mode` requires.
pub(crate) fn set_acl<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    (inode, attributes): (InodeNumber, &mut Inode),
    name: &[u8],
    value: &[u8],
    mode: SetXattrMode,
) -> Result<()> {
    let flag = if name == ACL_ACCESS { FLAG_ACL_ACCESS } else { FLAG_ACL_DEFAULT };
    match (mode, attributes.has(flag)) {
        (SetXattrMode::Create, true) => return Err(Error::AlreadyExists),
        (SetXattrMode::Replace, false) => return Err(Error::NoAttribute),
        _ => {}
    }
    let acl = Acl::parse(value)?;
    if name == ACL_DEFAULT && attributes.kind != FileKind::Directory && acl.is_some() {
        return Err(Error::NotPermitted);
    }
    if name == ACL_ACCESS
        && let Some(acl) = &acl
    {
        attributes.permissions = attributes.permissions & !0o777 | acl.permissions();
    }
    put_acl(tx, parameters, inode, attributes, name, acl.as_ref())
}

/// Stores or removes one of the two ACLs and notes it in the inode, which the caller stores.
fn put_acl<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    attributes: &mut Inode,
    name: &[u8],
    acl: Option<&Acl>,
) -> Result<()> {
    let flag = if name == ACL_ACCESS { FLAG_ACL_ACCESS } else { FLAG_ACL_DEFAULT };
    let acl = acl.filter(|acl| name == ACL_DEFAULT || !acl.is_minimal());
    match acl {
        Some(acl) => {
            let value = acl.encode()?;
            if HEADER_LEN + name.len() + value.len() > ACL_PIECES_MAX * tx.value_len_max() {
                return Err(Error::ValueTooLong);
            }
            store(tx, parameters, inode, name, &value, SetXattrMode::Any)?;
        }
        None if attributes.has(flag) => drop(erase(tx, parameters, inode, name)?),
        None => {}
    }
    attributes.set(flag, acl.is_some());
    Ok(())
}

/// chmod: sets the permission bits in the inode and, if there is one, in the access ACL. The caller
/// stores the inode.
pub(crate) fn change_permissions<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    attributes: &mut Inode,
    permissions: u32,
) -> Result<()> {
    attributes.permissions = permissions & PERMISSIONS;
    if !attributes.has(FLAG_ACL_ACCESS) {
        return Ok(());
    }
    if !XATTRS {
        return Err(NO_XATTRS);
    }
    if let Some((_, stored)) = find(tx, parameters, inode, ACL_ACCESS)?
        && let Some(mut acl) = Acl::parse(&stored.into_value())?
    {
        acl.set_permissions(permissions);
        store(tx, parameters, inode, ACL_ACCESS, &acl.encode()?, SetXattrMode::Any)?;
    }
    Ok(())
}

/// Gives a new inode its permission bits and ACLs: from the default ACL of its directory, or else
/// from the umask. The caller stores the inode.
pub(crate) fn inherit<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: (InodeNumber, &Inode),
    child: (InodeNumber, &mut Inode),
    umask: u32,
) -> Result<()> {
    let (inode, attributes) = child;
    if attributes.kind == FileKind::Symlink {
        return Ok(());
    }
    let mut default = None;
    if !XATTRS && directory.1.has(FLAG_ACL_DEFAULT) {
        return Err(NO_XATTRS);
    }
    if XATTRS
        && directory.1.has(FLAG_ACL_DEFAULT)
        && let Some((_, stored)) = find(tx, parameters, directory.0, ACL_DEFAULT)?
    {
        default =
            Acl::parse(&stored.into_value()).map_err(|_| damaged("default ACL is not valid"))?;
    }
    let Some(default) = default else {
        attributes.permissions &= !(umask & 0o777);
        return Ok(());
    };
    if attributes.kind == FileKind::Directory {
        put_acl(tx, parameters, inode, attributes, ACL_DEFAULT, Some(&default))?;
    }
    let mut access = default;
    access.restrict(attributes.permissions);
    attributes.permissions = attributes.permissions & !0o777 | access.permissions();
    put_acl(tx, parameters, inode, attributes, ACL_ACCESS, Some(&access))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::engine::keyspace::SpaceClass;
    use crate::fs::acl::encode_for_tests;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use crate::fs::xattr::{get, set};

    const INODE: InodeNumber = InodeNumber(20);
    const NONE: u32 = u32::MAX;

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
    fn access_acl_and_permissions_stay_in_step() {
        let keyspace = MemoryKeyspace::new();
        update(&keyspace, SpaceClass::Normal, |tx| {
            Inode::new(FileKind::Regular, 0o644, 1, 2, tx.now()).store(tx, INODE)
        })
        .unwrap();
        let load = || Inode::load(&keyspace, INODE).unwrap();
        let acl = encode_for_tests(&[
            (1, 7, NONE),
            (2, 6, 9),
            (4, 5, NONE),
            (0x10, 6, NONE),
            (0x20, 0, NONE),
        ]);
        put(&keyspace, "system.posix_acl_access", &acl, SetXattrMode::Any).unwrap();
        assert_eq!(load().permissions, 0o760);
        assert_eq!(value(&keyspace, "system.posix_acl_access").unwrap(), acl);
        update(&keyspace, SpaceClass::Normal, |tx| {
            let mut inode = Inode::load(tx, INODE)?;
            change_permissions(tx, &Parameters::for_tests(), INODE, &mut inode, 0o4715)?;
            inode.store(tx, INODE)
        })
        .unwrap();
        let changed = encode_for_tests(&[
            (1, 7, NONE),
            (2, 6, 9),
            (4, 5, NONE),
            (0x10, 1, NONE),
            (0x20, 5, NONE),
        ]);
        assert_eq!(value(&keyspace, "system.posix_acl_access").unwrap(), changed);
        let minimal = encode_for_tests(&[(1, 6, NONE), (4, 4, NONE), (0x20, 4, NONE)]);
        put(&keyspace, "system.posix_acl_access", &minimal, SetXattrMode::Any).unwrap();
        assert_eq!(load().permissions, 0o4644);
        assert_eq!(value(&keyspace, "system.posix_acl_access"), Err(Error::NoAttribute));
        assert_eq!(keyspace.keys().len(), 1);
        assert_eq!(
            put(&keyspace, "system.posix_acl_default", &minimal, SetXattrMode::Any),
            Err(Error::NotPermitted)
        );
    }
}
