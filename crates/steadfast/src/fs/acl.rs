//! POSIX access control lists, in the encoding of the attributes `system.posix_acl_access` and
//! `…_default`. It has a version word (2) and entries of 8 bytes (tag, permissions, id), little
//! endian.
//!
//! The core does not check access with them (the kernel does). It keeps them valid and consistent
//! with the permission bits, and new inodes inherit default ACLs, as acl(5) says.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::memory;

const VERSION: u32 = 2;
const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
const ID_NONE: u32 = u32::MAX;

/// The subject of an entry, with the tag numbers of the encoding; their order is the order of the
/// entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
enum Tag {
    UserObject = 0x01,
    User = 0x02,
    GroupObject = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    fn from_u16(tag: u16) -> Option<Tag> {
        [Tag::UserObject, Tag::User, Tag::GroupObject, Tag::Group, Tag::Mask, Tag::Other]
            .into_iter()
            .find(|known| *known as u16 == tag)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// A valid access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Decodes and checks an attribute value; `None` for a value without entries, which stands for
    /// "no ACL".
    ///
    /// # Errors
    /// `InvalidArgument` if it is not a valid ACL. In a valid ACL the entries are sorted, each of
    /// the three base entries occurs once, and named entries require a mask.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>> {
        const BAD: Error = Error::InvalidArgument("not a valid POSIX ACL");
        if value.is_empty() {
            return Ok(None);
        }
        let (version, body) = value.split_first_chunk::<HEADER_LEN>().ok_or(BAD)?;
        let (chunks, rest) = body.as_chunks::<ENTRY_LEN>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return Err(BAD);
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let mut entries: Vec<AclEntry> = Vec::new();
        for chunk in chunks {
            let [t0, t1, p0, p1, id @ ..] = *chunk;
            let tag = Tag::from_u16(u16::from_le_bytes([t0, t1])).ok_or(BAD)?;
            let permissions = u16::from_le_bytes([p0, p1]);
            if permissions > 7 {
                return Err(BAD);
            }
            let named = matches!(tag, Tag::User | Tag::Group);
            let id = if named { u32::from_le_bytes(id) } else { ID_NONE };
            if named && id == ID_NONE {
                return Err(BAD);
            }
            // Base entries occur once; named entries may follow each other in any order of their
            // ids.
            if entries.last().is_some_and(|last| last.tag > tag || (last.tag == tag && !named)) {
                return Err(BAD);
            }
            memory::push(&mut entries, AclEntry { tag, permissions, id })?;
        }
        let acl = Acl { entries };
        let has = |tag| acl.entries.iter().any(|entry| entry.tag == tag);
        let named = has(Tag::User) || has(Tag::Group);
        if !has(Tag::UserObject)
            || !has(Tag::GroupObject)
            || !has(Tag::Other)
            || (named && !has(Tag::Mask))
        {
            return Err(BAD);
        }
        Ok(Some(acl))
    }

    /// The attribute value.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        let length = HEADER_LEN + ENTRY_LEN * self.entries.len();
        value.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        Ok(value)
    }

    /// Whether the permission bits alone express this ACL.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.tag == Tag::Mask)
    }

    /// The nine permission bits that correspond to this ACL. The group bits are the mask if there
    /// is one.
    pub fn permissions(&self) -> u32 {
        let has_mask = self.has_mask();
        self.entries.iter().fold(0, |bits, entry| {
            let permissions = u32::from(entry.permissions);
            bits | match entry.tag {
                Tag::UserObject => permissions << 6,
                Tag::Mask => permissions << 3,
                Tag::GroupObject if !has_mask => permissions << 3,
                Tag::Other => permissions,
                _ => 0,
            }
        })
    }

    /// chmod: sets the owner, mask (or group) and other entries to these permission bits.
    pub fn set_permissions(&mut self, bits: u32) {
        self.change_base(|_, new| new, bits);
    }

    /// For a new inode made with these permission bits: the base entries keep only permissions that
    /// the bits allow too.
    pub fn restrict(&mut self, bits: u32) {
        self.change_base(|old, new| old & new, bits);
    }

    fn change_base(&mut self, change: impl Fn(u16, u16) -> u16, bits: u32) {
        let has_mask = self.has_mask();
        for entry in &mut self.entries {
            let shift = match entry.tag {
                Tag::UserObject => 6,
                Tag::Mask => 3,
                Tag::GroupObject if !has_mask => 3,
                Tag::Other => 0,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, (bits >> shift & 7) as u16);
        }
    }
}

/// Encodes an ACL from (tag, permissions, id) for tests.
#[cfg(test)]
pub(crate) fn encode_for_tests(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = ID_NONE;

    #[test]
    fn minimal_and_extended() {
        let minimal = encode_for_tests(&[(1, 7, NONE), (4, 5, NONE), (0x20, 4, NONE)]);
        let acl = Acl::parse(&minimal).unwrap().unwrap();
        assert!(acl.is_minimal());
        assert_eq!((acl.permissions(), acl.encode().unwrap()), (0o754, minimal));
        let extended = encode_for_tests(&[
            (1, 7, NONE),
            (2, 6, 1000),
            (2, 4, 1001),
            (4, 5, NONE),
            (0x10, 6, NONE),
            (0x20, 0, NONE),
        ]);
        let mut acl = Acl::parse(&extended).unwrap().unwrap();
        assert!(!acl.is_minimal());
        assert_eq!(acl.permissions(), 0o760);
        acl.set_permissions(0o614);
        assert_eq!(acl.permissions(), 0o614);
        acl.restrict(0o750);
        assert_eq!(acl.permissions(), 0o610);
        assert_eq!(Acl::parse(&acl.encode().unwrap()).unwrap().unwrap(), acl);
    }

    #[test]
    fn what_is_not_an_acl() {
        assert_eq!(Acl::parse(b""), Ok(None));
        assert_eq!(Acl::parse(&VERSION.to_le_bytes()), Ok(None));
        let base = [(1, 7, NONE), (4, 5, NONE), (0x20, 4, NONE)];
        let bad: &[&[(u16, u16, u32)]] = &[
            &base[..2],
            &[base[1], base[0], base[2]],
            &[base[0], base[0], base[1], base[2]],
            &[base[0], (2, 7, 5), base[1], base[2]],
            &[base[0], (4, 8, NONE), base[2]],
            &[base[0], (3, 7, NONE), base[1], base[2]],
        ];
        for entries in bad {
            assert!(Acl::parse(&encode_for_tests(entries)).is_err(), "{entries:?}");
        }
        let mut version = encode_for_tests(&base);
        version[0] = 1;
        assert!(Acl::parse(&version).is_err());
        assert!(Acl::parse(&encode_for_tests(&base)[..27]).is_err());
    }
}
