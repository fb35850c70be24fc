//! The value of a [`Kind::Dirent`](super::key::Kind::Dirent) key: what a name in a directory names.
//!
//! Little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | inode |
//! | 8 | 1 | type, as in `d_type` |
//! | 9 | rest | the name |

use alloc::vec::Vec;

use super::inode::{FileKind, damaged};
use crate::error::{Error, Result};
use crate::memory;
use crate::types::InodeNumber;

const HEADER_LEN: usize = 9;

/// Whether these bytes are a valid name in a directory, apart from the volume's length limit.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !has_separator(name)
}

/// Whether there is a slash or a NUL in it.
fn has_separator(name: &[u8]) -> bool {
    let (words, rest) = name.as_chunks::<8>();
    let in_word = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        has_zero(word) || has_zero(word ^ (ONES * u64::from(b'/')))
    };
    let in_rest = match name.last_chunk::<8>() {
        Some(last) => !rest.is_empty() && in_word(last),
        None => rest.iter().any(|byte| matches!(byte, 0 | b'/')),
    };
    in_rest || words.iter().any(in_word)
}

/// A one in each byte.
const ONES: u64 = u64::MAX / 0xff;

/// Whether a byte of the word is zero: subtracting one from each borrows there.
fn has_zero(word: u64) -> bool {
    word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub inode: InodeNumber,
    pub kind: FileKind,
    pub name: Vec<u8>,
}

impl Dirent {
    /// Decodes a value. A name with a slash in it, or `..`, can only come from a forged image. It
    /// is dangerous in the layers above, where it is a part of a path.
    pub fn decode(value: &[u8]) -> Result<Dirent> {
        let (Target { inode, kind }, name) = Target::decode(value)?;
        if !is_name(name) {
            return Err(damaged("entry: its name is no name"));
        }
        Ok(Dirent { inode, kind, name: memory::copy(name)? })
    }
}

/// The inode that a directory entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub inode: InodeNumber,
    pub kind: FileKind,
}

impl Target {
    /// Decodes a value; the rest is the name.
    pub fn decode(value: &[u8]) -> Result<(Target, &[u8])> {
        let (header, name) =
            value.split_first_chunk::<HEADER_LEN>().ok_or(damaged("entry: too short"))?;
        let (inode, kind) = header.split_first_chunk::<8>().ok_or(damaged("entry: too short"))?;
        let kind = kind.first().and_then(|kind| FileKind::from_u8(*kind));
        let inode = InodeNumber(u64::from_le_bytes(*inode));
        Ok((Target { inode, kind: kind.ok_or(damaged("entry: unknown type"))? }, name))
    }
}

/// The name in a value, as it is there.
pub(crate) fn name_of(value: &[u8]) -> Option<&[u8]> {
    value.get(HEADER_LEN..)
}

/// The value of an entry, in memory that is blank.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn encode_in(
    mut value: Vec<u8>,
    inode: InodeNumber,
    kind: FileKind,
    name: &[u8],
) -> Result<Vec<u8>> {
    value.try_reserve_exact(HEADER_LEN + name.len()).map_err(|_| Error::OutOfMemory)?;
    value.extend_from_slice(&inode.0.to_le_bytes());
    value.push(kind as u8);
    value.extend_from_slice(name);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_separator_is_found_anywhere() {
        for length in 1..30 {
            // Some bytes differ from a separator in one bit.
            for filler in [b'a', 0x2e, 0x30, 1, 0x80, 0xff] {
                let name = vec![filler; length];
                assert_eq!(is_name(&name), filler != b'.' || length > 2, "{name:?}");
                for at in 0..length {
                    for separator in [0, b'/'] {
                        let mut name = name.clone();
                        name[at] = separator;
                        assert!(!is_name(&name), "{name:?}");
                    }
                }
            }
        }
    }
}
