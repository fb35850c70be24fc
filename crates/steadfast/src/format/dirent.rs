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
    !name.is_empty()
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
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

/// The value of an entry.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn encode(inode: InodeNumber, kind: FileKind, name: &[u8]) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    value.try_reserve_exact(HEADER_LEN + name.len()).map_err(|_| Error::OutOfMemory)?;
    value.extend_from_slice(&inode.0.to_le_bytes());
    value.push(kind as u8);
    value.extend_from_slice(name);
    Ok(value)
}
