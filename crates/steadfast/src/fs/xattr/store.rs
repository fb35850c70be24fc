//! How an extended attribute is stored, without its meaning.
//!
//! An attribute is one [`long_value`] under [`Kind::Xattr`]. The suffix of piece n is
//! `hash << 20 | probe << 16 | n`: 44 bits of the keyed hash of the name, and a slot. Names that
//! share a hash have 16 slots. The joined pieces are, little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | length v of the value |
//! | 4 | 1 | length n of the name, at least 1 |
//! | 5 | n | the name with its namespace, as `user.mime_type` |
//! | 5 + n | v | the value |

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{Inode, damaged};
use crate::format::key::{Key, Kind};
use crate::fs::long_value::{self, ValueKey};
use crate::fs::name_hash;
use crate::fs::parameters::Parameters;
use crate::fs::stat::SetXattrMode;
use crate::fs::tx::Tx;
use crate::memory;
use crate::types::InodeNumber;

/// The attribute that holds the access ACL.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds the default ACL of a directory.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Bytes in front of the name.
pub(crate) const HEADER_LEN: usize = 5;
const VALUE_MAX: usize = 65536;
const HASH_BITS: u32 = 44;
const HASH_SHIFT: u32 = 20;
const PROBE_SHIFT: u32 = 16;
const PROBES: u64 = 16;

fn place(inode: InodeNumber, suffix: u64) -> ValueKey {
    ValueKey { inode, kind: Kind::Xattr, suffix }
}

fn slot_suffix(name: &[u8], parameters: &Parameters, probe: u64) -> u64 {
    let hash = name_hash::hash(name, parameters) & ((1 << HASH_BITS) - 1);
    hash << HASH_SHIFT | probe << PROBE_SHIFT
}

/// An attribute as it is stored: name and value joined, after the header.
pub(crate) struct Stored {
    bytes: Vec<u8>,
    name_len: usize,
}

impl Stored {
    /// Reads the attribute whose first piece is `first`; `whole`: including the value.
    fn load(
        view: &impl KeyspaceRead,
        place: ValueKey,
        first: Vec<u8>,
        whole: bool,
    ) -> Result<Stored> {
        let mut bytes = first;
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(damaged("attribute: too short"))?;
        let [v0, v1, v2, v3, name_len] = *header;
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let name_len = usize::from(name_len);
        if value_len > VALUE_MAX || name_len == 0 {
            return Err(damaged("attribute: length out of range"));
        }
        if whole || bytes.len() < HEADER_LEN + name_len {
            long_value::load(view, place, 1, &mut bytes, HEADER_LEN + name_len + value_len)?;
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
) -> Result<Option<(ValueKey, Stored)>> {
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
) -> Result<ValueKey> {
    for probe in 0..PROBES {
        let suffix = slot_suffix(name, parameters, probe);
        if tx.get(&Key::new(inode, Kind::Xattr, suffix))?.is_none() {
            return Ok(place(inode, suffix));
        }
    }
    Err(Error::NoSpace)
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
    long_value::store(tx, place, &bytes)
}

/// Removes an attribute without interpreting it. Returns whether it existed.
pub(crate) fn erase<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    name: &[u8],
) -> Result<bool> {
    match find(tx, parameters, inode, name)? {
        Some((place, _)) => long_value::remove(tx, place).map(|()| true),
        None => Ok(false),
    }
}
