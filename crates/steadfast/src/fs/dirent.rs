//! Directory entries, stored under the hash of their name.
//!
//! The suffix of a [`Kind::Dirent`] key is `hash << 4 | probe`: 59 bits of the keyed name hash and
//! a slot. Hash 0 is stored as 1. Names that share a hash have 16 slots. The suffix is at least 16
//! and below 2^63, never changes while the name exists, and so it *is* the cookie of readdir. A
//! name may be in any slot of its hash: a lookup ranges over all of them, and removal needs no
//! tombstone.

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::dirent::{Dirent, Target, encode_in, name_of};
use crate::format::inode::FileKind;
use crate::format::key::{Key, Kind};
use crate::fs::name_hash;
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::types::InodeNumber;

const HASH_BITS: u32 = 59;
const PROBE_BITS: u32 = Key::SLOT_BITS;
const PROBES: u64 = 1 << PROBE_BITS;

/// Suffix of the first slot for names with this hash.
fn first_slot(hash: u64) -> u64 {
    (hash & ((1 << HASH_BITS) - 1)).max(1) << PROBE_BITS
}

/// Suffix of the first slot for entries called `name`.
pub(crate) fn first_suffix(name: &[u8], parameters: &Parameters) -> u64 {
    first_slot(name_hash::hash(name, parameters))
}

/// Whether an entry called `name` may be under this suffix.
pub(crate) fn is_slot_of(suffix: u64, name: &[u8], parameters: &Parameters) -> bool {
    suffix & !(PROBES - 1) == first_suffix(name, parameters)
}

/// Finds the entry called `name`, and the inode that it names.
pub(crate) fn find(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
) -> Result<Option<(Key, Target)>> {
    let first = Key::new(directory, Kind::Dirent, first_suffix(name, parameters));
    let mut entry = None;
    view.scan(&first, &first.last_slot(), &mut |key, value| {
        if name_of(value) == Some(name) {
            entry = Some((*key, Target::decode(value)?.0));
        }
        Ok(entry.is_none())
    })?;
    Ok(entry)
}

/// Adds an entry.
///
/// # Errors
/// `AlreadyExists`; `DirectoryFull` if sixteen other names have the hash.
pub(crate) fn insert<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
    inode: InodeNumber,
    kind: FileKind,
) -> Result<()> {
    let base = first_suffix(name, parameters);
    insert_at(tx, base, directory, name, inode, kind)
}

fn insert_at<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    base: u64,
    directory: InodeNumber,
    name: &[u8],
    inode: InodeNumber,
    kind: FileKind,
) -> Result<()> {
    let first = Key::new(directory, Kind::Dirent, base);
    let (mut free, mut exists) = (base, false);
    tx.scan(&first, &first.last_slot(), &mut |key, value| {
        if key.suffix() == free {
            free += 1;
        }
        exists = name_of(value) == Some(name);
        Ok(!exists)
    })?;
    if exists {
        return Err(Error::AlreadyExists);
    }
    if free >= base + PROBES {
        return Err(Error::DirectoryFull);
    }
    let key = Key::new(directory, Kind::Dirent, free);
    tx.put(key, encode_in(tx.blank(), inode, kind, name)?)
}

/// Makes the entry at `key`, called `name`, name another inode.
pub(crate) fn replace<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    key: Key,
    name: &[u8],
    inode: InodeNumber,
    kind: FileKind,
) -> Result<()> {
    tx.put(key, encode_in(tx.blank(), inode, kind, name)?)
}

/// Passes the entries whose cookies are larger than `cookie` to `visit`, in order, until `visit`
/// returns `false`. Each comes with its cookie and the result of decoding it.
pub(crate) fn following(
    view: &impl KeyspaceRead,
    directory: InodeNumber,
    cookie: u64,
    visit: &mut dyn FnMut(u64, Result<Dirent>) -> Result<bool>,
) -> Result<()> {
    let Some(from) = cookie.checked_add(1).filter(|from| *from < 1 << 63) else {
        return Ok(());
    };
    let from = Key::new(directory, Kind::Dirent, from);
    let last = Key::new(directory, Kind::Dirent, (1 << 63) - 1);
    view.scan(&from, &last, &mut |key, value| visit(key.suffix(), Dirent::decode(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::keyspace::SpaceClass;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use alloc::{format, vec};

    #[test]
    fn sixteen_names_share_a_hash() {
        let keyspace = MemoryKeyspace::new();
        let directory = InodeNumber(1);
        let add = |name: &str, inode: u64| {
            update(&keyspace, SpaceClass::Normal, |tx| {
                insert_at(
                    tx,
                    160,
                    directory,
                    name.as_bytes(),
                    InodeNumber(inode),
                    FileKind::Regular,
                )
            })
        };
        for i in 0..16 {
            add(&format!("n{i}"), 100 + i).unwrap();
        }
        assert_eq!(add("n3", 1), Err(Error::AlreadyExists));
        assert_eq!(add("new", 1), Err(Error::DirectoryFull));
        update(&keyspace, SpaceClass::Normal, |tx| {
            tx.delete(&Key::new(directory, Kind::Dirent, 165))
        })
        .unwrap();
        assert_eq!(add("n9", 1), Err(Error::AlreadyExists), "found after the gap");
        add("new", 1).unwrap();
        let mut last = None;
        following(&keyspace, directory, 164, &mut |cookie, entry| {
            last = Some((cookie, entry?.name));
            Ok(false)
        })
        .unwrap();
        assert_eq!(last, Some((165, b"new".to_vec())));
        assert_eq!(add("other", 1), Err(Error::DirectoryFull));
    }

    #[test]
    fn cookies_are_in_range() {
        assert_eq!(first_slot(0), 16);
        assert_eq!(first_slot(1 << 63), 16);
        assert!(first_slot(u64::MAX) + PROBES - 1 < 1 << 63);
    }

    #[test]
    fn damaged_entries_are_errors() {
        let value = encode_in(vec![], InodeNumber(7), FileKind::Fifo, b"x").unwrap();
        assert_eq!(Dirent::decode(&value).unwrap().name, b"x");
        assert!(Dirent::decode(&value[..8]).is_err());
        for bad in [&b""[..], b".", b"..", b"a/b", b"../../x", b"/", b"a\0b"] {
            let value = encode_in(vec![], InodeNumber(7), FileKind::Regular, bad).unwrap();
            assert!(Dirent::decode(&value).is_err(), "{bad:?}");
        }
        let mut bad = value;
        bad[8] = 3;
        assert!(Dirent::decode(&bad).is_err());
    }
}
