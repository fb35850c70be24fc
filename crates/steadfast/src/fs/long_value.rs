//! Values that are larger than one item: cut into pieces under consecutive suffixes.
//!
//! A reader joins pieces until it has the expected length, so the writer chooses the length of a
//! piece. A value has at most [`PIECES_MAX`] pieces, so writing one fits a batch beside the rest of
//! its operation.

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::damaged;
use crate::format::key::{Key, Kind};
use crate::fs::tx::Tx;
use crate::memory;
use crate::types::InodeNumber;

/// Limit of the pieces of one value.
pub(crate) const PIECES_MAX: usize = 48;

/// Place of a value: its pieces are under `suffix`, `suffix + 1` and so on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueKey {
    pub inode: InodeNumber,
    pub kind: Kind,
    pub suffix: u64,
}

impl ValueKey {
    fn key(&self, piece: usize) -> Key {
        Key::new(self.inode, self.kind, self.suffix + piece as u64)
    }

    fn last(&self) -> Key {
        self.key(PIECES_MAX - 1)
    }
}

/// Writes a value and replaces the present one, if any.
///
/// # Errors
/// `ValueTooLong` if it needs too many pieces.
pub(crate) fn store<K: Keyspace>(tx: &mut Tx<'_, K>, place: ValueKey, value: &[u8]) -> Result<()> {
    let piece_len = tx.value_len_max().max(1);
    let count = value.len().div_ceil(piece_len).max(1);
    if count > PIECES_MAX {
        return Err(Error::ValueTooLong);
    }
    for piece in 0..count {
        let end = value.len().min((piece + 1) * piece_len);
        tx.put(place.key(piece), memory::copy(&value[piece * piece_len..end])?)?;
    }
    remove_from(tx, place, count)
}

/// Removes a value.
pub(crate) fn remove<K: Keyspace>(tx: &mut Tx<'_, K>, place: ValueKey) -> Result<()> {
    remove_from(tx, place, 0)
}

fn remove_from<K: Keyspace>(tx: &mut Tx<'_, K>, place: ValueKey, first: usize) -> Result<()> {
    let mut piece = first;
    while piece < PIECES_MAX {
        let Some((key, _)) = tx.next(&place.key(piece), &place.last())? else {
            break;
        };
        tx.delete(&key)?;
        piece = (key.suffix() - place.suffix) as usize + 1;
    }
    Ok(())
}

/// Appends pieces, starting with number `first`, to `value` until it has `length` bytes.
///
/// # Errors
/// `CorruptMetadata` if a piece is missing or the pieces are longer than `length`.
pub(crate) fn load(
    view: &impl KeyspaceRead,
    place: ValueKey,
    first: usize,
    value: &mut Vec<u8>,
    length: usize,
) -> Result<()> {
    let mut piece = first;
    while value.len() < length {
        let found = if piece < PIECES_MAX { view.get(&place.key(piece))? } else { None };
        let found =
            found.filter(|found| !found.is_empty()).ok_or(damaged("value: piece missing"))?;
        memory::extend(value, &found)?;
        piece += 1;
    }
    if value.len() > length {
        return Err(damaged("value: longer than stated"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::keyspace::SpaceClass;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use alloc::vec;

    #[test]
    fn grows_and_shrinks() {
        let keyspace = MemoryKeyspace::new();
        keyspace.value_len_max.set(10);
        let place = ValueKey { inode: InodeNumber(9), kind: Kind::Symlink, suffix: 0 };
        for length in [0, 10, 11, 480, 3] {
            let bytes = vec![length as u8; length];
            update(&keyspace, SpaceClass::Normal, |tx| store(tx, place, &bytes)).unwrap();
            assert_eq!(keyspace.keys().len(), length.div_ceil(10).max(1));
            let mut loaded = vec![];
            load(&keyspace, place, 0, &mut loaded, length).unwrap();
            assert_eq!(loaded, bytes);
            assert!(load(&keyspace, place, 0, &mut vec![], length + 1).is_err());
        }
        let long = update(&keyspace, SpaceClass::Normal, |tx| store(tx, place, &[0; 481]));
        assert_eq!(long, Err(Error::ValueTooLong));
        update(&keyspace, SpaceClass::Normal, |tx| remove(tx, place)).unwrap();
        assert!(keyspace.keys().is_empty());
    }
}
