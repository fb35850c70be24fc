//! Extended attributes.
//!
//! An attribute is one value in pieces (see [`pieces`]) under [`Kind::Xattr`]. The suffix of piece
//! n is `hash << 20 | probe << 16 | n`: 44 bits of the keyed hash of the name and one of 16 slots
//! for names that share it. The joined pieces are, little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | length v of the value |
//! | 4 | 1 | length n of the name, at least 1 |
//! | 5 | n | the name with its namespace, as `user.mime_type` |
//! | 5 + n | v | the value |
//!
//! The two POSIX ACLs are attributes too; flags in the inode say that they exist. The access ACL
//! and the permission bits update each other: see [`permissions`].

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_ACL_ACCESS, FLAG_ACL_DEFAULT, FileKind, Inode, damaged};
use crate::format::key::{Key, Kind};
use crate::fs::attr::SetXattrMode;
use crate::fs::parameters::Parameters;
use crate::fs::pieces::{self, Place};
use crate::fs::tx::Tx;
use crate::fs::{name, permissions};
use crate::memory;
use crate::types::InodeNumber;

/// The attribute that holds the access ACL.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the default ACL of a directory.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Bytes in front of the name.
pub(crate) const HEADER_LEN: usize = 5;
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65536;
const HASH_BITS: u32 = 44;
const HASH_SHIFT: u32 = 20;
const PROBE_SHIFT: u32 = 16;
const PROBES: u64 = 16;

fn place(inode: InodeNumber, suffix: u64) -> Place {
    Place { inode, kind: Kind::Xattr, suffix }
}

fn slot_suffix(name: &[u8], parameters: &Parameters, probe: u64) -> u64 {
    let hash = name::hash(name, parameters) & ((1 << HASH_BITS) - 1);
    hash << HASH_SHIFT | probe << PROBE_SHIFT
}

/// An attribute as it is stored: name and value joined, behind the header.
pub(crate) struct Stored {
    bytes: Vec<u8>,
    name_len: usize,
}

impl Stored {
    /// Reads the attribute whose first piece is `first`; `whole`: including the value.
    fn load(view: &impl KeyspaceRead, place: Place, first: Vec<u8>, whole: bool) -> Result<Stored> {
        let mut bytes = first;
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(damaged("attribute: too short"))?;
        let [v0, v1, v2, v3, name_len] = *header;
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let name_len = usize::from(name_len);
        if value_len > VALUE_MAX || name_len == 0 {
            return Err(damaged("attribute: length out of range"));
        }
        if whole || bytes.len() < HEADER_LEN + name_len {
            pieces::load(view, place, 1, &mut bytes, HEADER_LEN + name_len + value_len)?;
        }
        Ok(Stored { bytes, name_len })
    }

    fn name(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..HEADER_LEN + self.name_len).unwrap_or_default()
    }

    /// The value without header and name.
    pub fn into_value(mut self) -> Vec<u8> {
        self.bytes.drain(..(HEADER_LEN + self.name_len).min(self.bytes.len()));
        self.bytes
    }
}

/// The place of the attribute, and the attribute stored there.
pub(crate) fn find(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<Option<(Place, Stored)>> {
    for probe in 0..PROBES {
        // Slots may have gaps: continue at the next used one.
        let from = slot_suffix(name, parameters, probe);
        let last = slot_suffix(name, parameters, PROBES - 1);
        let found =
            view.next(&Key::new(inode, Kind::Xattr, from), &Key::new(inode, Kind::Xattr, last))?;
        let Some((key, _)) = found else {
            return Ok(None);
        };
        let place = place(inode, key.suffix() >> PROBE_SHIFT << PROBE_SHIFT);
        if place.suffix != from {
            continue;
        }
        let first = view
            .get(&Key::new(inode, Kind::Xattr, from))?
            .ok_or(damaged("attribute: piece missing"))?;
        let stored = Stored::load(view, place, first, true)?;
        if stored.name() == name {
            return Ok(Some((place, stored)));
        }
    }
    Ok(None)
}

/// The first free slot.
fn free_slot<K: Keyspace>(
    tx: &Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<Place> {
    for probe in 0..PROBES {
        let suffix = slot_suffix(name, parameters, probe);
        if tx.get(&Key::new(inode, Kind::Xattr, suffix))?.is_none() {
            return Ok(place(inode, suffix));
        }
    }
    Err(Error::NoSpace)
}

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

/// The names of all attributes.
pub(crate) fn list(view: &impl KeyspaceRead, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
    Inode::load(view, inode)?;
    let (mut from, last) = Key::kind_range(inode, Kind::Xattr);
    let mut names = Vec::new();
    while let Some((key, found)) = view.next(&from, &last)? {
        let place = place(inode, key.suffix());
        let stored = Stored::load(view, place, found, false)?;
        memory::push(&mut names, memory::copy(stored.name())?)?;
        // After the last piece that this slot can have.
        match (key.suffix() | ((1 << PROBE_SHIFT) - 1)).checked_add(1) {
            Some(next) => from = Key::new(inode, Kind::Xattr, next),
            None => break,
        }
    }
    Ok(names)
}

/// Stores an attribute without interpreting it.
pub(crate) fn store<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
    value: &[u8],
    mode: SetXattrMode,
) -> Result<()> {
    let place = match (find(tx, parameters, inode, name)?, mode) {
        (Some(_), SetXattrMode::Create) => return Err(Error::AlreadyExists),
        (None, SetXattrMode::Replace) => return Err(Error::NoAttribute),
        (Some((place, _)), _) => place,
        (None, _) => free_slot(tx, parameters, inode, name)?,
    };
    if value.len() > VALUE_MAX {
        return Err(Error::ValueTooLong);
    }
    let mut bytes = memory::copy(&(value.len() as u32).to_le_bytes())?;
    let name_len = u8::try_from(name.len()).map_err(|_| Error::NameTooLong)?;
    memory::push(&mut bytes, name_len)?;
    memory::extend(&mut bytes, name)?;
    memory::extend(&mut bytes, value)?;
    pieces::store(tx, place, &bytes)
}

/// Removes an attribute without interpreting it. Returns whether it existed.
pub(crate) fn erase<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<bool> {
    match find(tx, parameters, inode, name)? {
        Some((place, _)) => pieces::remove(tx, place).map(|()| true),
        None => Ok(false),
    }
}

/// Sets an attribute. An access ACL also sets the permission bits, and is stored only if the bits
/// alone cannot express it.
///
/// # Errors
/// `AlreadyExists` and `NoAttribute` as `mode` requires; `Unsupported` namespace. `NotPermitted`:
/// `user.` on something other than a file or directory, or a default ACL on a non-directory.
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
/// `NoAttribute`; `Unsupported` namespace.
pub(crate) fn remove<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<()> {
    let mut attributes = Inode::load(tx, inode)?;
    check_name(name, attributes.kind)?;
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
