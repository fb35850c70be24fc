//! Directory entries, stored under the hash of their name.
//!
//! The suffix of a [`Kind::Dirent`] key is `hash << 4 | probe`: 59 bits of the keyed name hash (0
//! is stored as 1) and one of 16 slots for names that share a hash. It is at least 16 and below
//! 2^63, never changes while the name exists, and so it *is* the cookie of readdir. A name may be
//! in any slot of its hash: a lookup ranges over all of them, and removal needs no tombstone. The
//! value, little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | inode |
//! | 8 | 1 | type, as in `d_type` |
//! | 9 | rest | the name |

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::fs::attr::FileKind;
use crate::fs::inode::damaged;
use crate::fs::memory;
use crate::fs::name;
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::key::{Key, Kind};
use crate::keyspace::{Keyspace, KeyspaceRead};
use crate::types::InodeNumber;

const HEADER_LEN: usize = 9;
const HASH_BITS: u32 = 59;
const PROBE_BITS: u32 = Key::SLOT_BITS;
const PROBES: u64 = 1 << PROBE_BITS;

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub inode: InodeNumber,
    pub kind: FileKind,
    pub name: Vec<u8>,
}

impl Dirent {
    /// Decodes a value. A name with a slash in it, or `..`, can only come from malice, and is
    /// dangerous above: there it is a part of a path.
    pub fn decode(value: &[u8]) -> Result<Dirent> {
        let (Target { inode, kind }, name) = Target::decode(value)?;
        if !name::is_name(name) {
            return Err(damaged("entry: its name is no name"));
        }
        Ok(Dirent { inode, kind, name: memory::copy(name)? })
    }
}

/// What a directory entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub inode: InodeNumber,
    pub kind: FileKind,
}

impl Target {
    /// Decodes a value; the rest is the name.
    fn decode(value: &[u8]) -> Result<(Target, &[u8])> {
        let (header, name) =
            value.split_first_chunk::<HEADER_LEN>().ok_or(damaged("entry: too short"))?;
        let (inode, kind) = header.split_first_chunk::<8>().ok_or(damaged("entry: too short"))?;
        let kind = kind.first().and_then(|kind| FileKind::from_u8(*kind));
        let inode = InodeNumber(u64::from_le_bytes(*inode));
        Ok((Target { inode, kind: kind.ok_or(damaged("entry: unknown type"))? }, name))
    }
}

fn encode(inode: InodeNumber, kind: FileKind, name: &[u8]) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    value.try_reserve_exact(HEADER_LEN + name.len()).map_err(|_| Error::OutOfMemory)?;
    value.extend_from_slice(&inode.0.to_le_bytes());
    value.push(kind as u8);
    value.extend_from_slice(name);
    Ok(value)
}

/// Suffix of the first slot for names with this hash.
fn first_slot(hash: u64) -> u64 {
    (hash & ((1 << HASH_BITS) - 1)).max(1) << PROBE_BITS
}

/// Suffix of the first slot for entries called `name`.
pub(crate) fn first_suffix(name: &[u8], parameters: &Parameters) -> u64 {
    first_slot(name::hash(name, parameters))
}

/// Whether an entry called `name` may be under this suffix.
pub(crate) fn is_slot_of(suffix: u64, name: &[u8], parameters: &Parameters) -> bool {
    suffix & !(PROBES - 1) == first_suffix(name, parameters)
}

/// Where the entry called `name` is, and what it names.
pub(crate) fn find(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    directory: InodeNumber,
    name: &[u8],
) -> Result<Option<(Key, Target)>> {
    let first = Key::new(directory, Kind::Dirent, first_suffix(name, parameters));
    let mut entry = None;
    view.scan(&first, &first.last_slot(), &mut |key, value, _| {
        if value.get(HEADER_LEN..) == Some(name) {
            entry = Some((*key, Target::decode(value)?.0));
        }
        Ok(entry.is_none())
    })?;
    Ok(entry)
}

/// Adds an entry.
///
/// # Errors
/// `AlreadyExists`; `DirectoryFull` where sixteen other names have the hash.
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
    tx.scan(&first, &first.last_slot(), &mut |key, value, _| {
        if key.suffix() == free {
            free += 1;
        }
        exists = value.get(HEADER_LEN..) == Some(name);
        Ok(!exists)
    })?;
    if exists {
        return Err(Error::AlreadyExists);
    }
    if free >= base + PROBES {
        return Err(Error::DirectoryFull);
    }
    let key = Key::new(directory, Kind::Dirent, free);
    tx.expect_absent(&key)?;
    tx.put(key, encode(inode, kind, name)?)
}

/// Makes the entry at `key`, called `name`, name another inode.
pub(crate) fn replace<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    key: Key,
    name: &[u8],
    inode: InodeNumber,
    kind: FileKind,
) -> Result<()> {
    tx.put(key, encode(inode, kind, name)?)
}

/// Passes the entries whose cookies are larger than `cookie` to `visit`, in their order, each with
/// its cookie and what decoding it gave, until that says `false`.
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
    view.scan(&from, &last, &mut |key, value, _| visit(key.suffix(), Dirent::decode(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::double::MemoryKeyspace;
    use crate::fs::tx::retry;
    use crate::keyspace::SpaceClass;
    use alloc::format;

    #[test]
    fn sixteen_names_share_a_hash() {
        let keyspace = MemoryKeyspace::new(3);
        let directory = InodeNumber(1);
        let add = |name: &str, inode: u64| {
            retry(&keyspace, SpaceClass::Normal, |tx| {
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
        retry(&keyspace, SpaceClass::Normal, |tx| {
            tx.delete(&Key::new(directory, Kind::Dirent, 165))
        })
        .unwrap();
        assert_eq!(add("n9", 1), Err(Error::AlreadyExists), "found behind the gap");
        add("new", 1).unwrap();
        let mut behind = None;
        following(&keyspace, directory, 164, &mut |cookie, entry| {
            behind = Some((cookie, entry?.name));
            Ok(false)
        })
        .unwrap();
        assert_eq!(behind, Some((165, b"new".to_vec())));
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
        let value = encode(InodeNumber(7), FileKind::Fifo, b"x").unwrap();
        assert_eq!(Dirent::decode(&value).unwrap().name, b"x");
        assert!(Dirent::decode(&value[..8]).is_err());
        for bad in [&b""[..], b".", b"..", b"a/b", b"../../x", b"/", b"a\0b"] {
            let value = encode(InodeNumber(7), FileKind::Regular, bad).unwrap();
            assert!(Dirent::decode(&value).is_err(), "{bad:?}");
        }
        let mut bad = value;
        bad[8] = 3;
        assert!(Dirent::decode(&bad).is_err());
    }
}
