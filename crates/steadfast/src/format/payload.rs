//! The payload of a log record: mutations of keys, one after the other.

use alloc::vec::Vec;

use super::FieldReader;
use super::key::Key;
use crate::error::{Error, Result};
use crate::memory;

pub(crate) const TAG_PUT: u8 = 1;
/// An earlier record of the group has the mutation, so its data is durable.
pub(crate) const TAG_SETTLED: u8 = 2;

/// A value's bytes.
pub type Value = Vec<u8>;

/// One change to the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The key.
    pub key: Key,
    /// The new value, or `None` to remove the key, which exists.
    pub value: Option<Value>,
}

/// Payload bytes that one mutation takes without packing.
pub fn size_of(value_len: Option<usize>) -> usize {
    Key::LEN + 1 + value_len.map_or(0, |length| length + 2)
}

/// Appends a mutation to a payload.
pub(crate) fn encode(
    payload: &mut Vec<u8>,
    key: &Key,
    tag: u8,
    value: Option<&[u8]>,
) -> Result<()> {
    start(payload, key, tag, value.map(<[u8]>::len))?;
    payload.extend_from_slice(value.unwrap_or_default());
    Ok(())
}

/// Appends the part of a mutation before its value, with room for the value.
pub(crate) fn start(
    payload: &mut Vec<u8>,
    key: &Key,
    tag: u8,
    value_len: Option<usize>,
) -> Result<()> {
    payload.try_reserve(size_of(value_len)).map_err(|_| Error::OutOfMemory)?;
    payload.extend_from_slice(&key.0);
    payload.push(tag);
    if let Some(length) = value_len {
        payload.extend_from_slice(&(length as u16).to_le_bytes());
    }
    Ok(())
}

/// The mutations of a payload made by this program: key, tag and value of each.
pub(crate) struct Encoded<'a>(pub &'a [u8]);

impl<'a> Iterator for Encoded<'a> {
    type Item = (Key, u8, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut fields = FieldReader::new(self.0);
        let (key, tag) = (Key(fields.array()), fields.u8());
        let value = if tag & TAG_PUT != 0 {
            let length = usize::from(fields.u16());
            fields.bytes(length)
        } else {
            None
        };
        self.0 = fields.rest();
        (!fields.overrun()).then_some((key, tag, value))
    }
}

/// Decodes a payload; `None` if it is malformed: if mutations do not fill it exactly, or if a key
/// is not above the one before. So no payload says two things about one key.
pub fn mutations(payload: &[u8], wanted: impl Fn(u8) -> bool) -> Result<Option<Vec<Mutation>>> {
    let mut fields = FieldReader::new(payload);
    let mut mutations = Vec::new();
    let mut before = None;
    while !fields.rest().is_empty() {
        let key = Key(fields.array());
        if before.replace(key) >= Some(key) {
            return Ok(None);
        }
        let tag = fields.u8();
        let value = match tag & !TAG_SETTLED {
            0 => None,
            TAG_PUT => {
                let length = usize::from(fields.u16());
                let Some(bytes) = fields.bytes(length) else { return Ok(None) };
                Some(bytes)
            }
            _ => return Ok(None),
        };
        if wanted(tag) {
            if mutations.is_empty() {
                // A list that grows would need its memory twice for a moment.
                let more = Encoded(fields.rest()).filter(|(_, tag, _)| wanted(*tag)).count();
                mutations.try_reserve_exact(1 + more).map_err(|_| Error::OutOfMemory)?;
            }
            let value = value.map(memory::copy).transpose()?;
            memory::push(&mut mutations, Mutation { key, value })?;
        }
    }
    Ok((!fields.overrun()).then_some(mutations))
}
