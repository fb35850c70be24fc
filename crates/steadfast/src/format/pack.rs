//! The short form of a record's payload.
//!
//! A payload repeats the same few kinds of values: the inodes of files that were written, and
//! extents of one or two blocks. Packed, a key costs only its difference from the previous key. A
//! value costs the bytes in which it differs from the previous value of the same kind. For small
//! overwrites that is about a third, so a group holds three times as many of them. The log is
//! shorter, and a mount reads less.
//!
//! ```text
//! payload:  { tag | inode number less that of the mutation before (varint)
//!             | suffix of the key (varint) | where put: length (varint) | value }*
//! tag:      bit 0 put, bit 1 settled, bit 2 value as it is;
//!           the five bits above are the kind of the key
//! value:    { mask | the bytes of the eight that are not zero }*, of the value,
//!           exclusive-or with the last one put of its kind if that is just as long;
//!           or as it is, where that is shorter
//! ```
//! Varints are little endian, seven bits a byte, the highest bit set in all but the last. Unpacking
//! gives at most eight bytes for each one ([`GAIN_MAX`]), so that memory is bounded by what is on
//! the medium.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::FieldReader;
use crate::format::key::Key;
use crate::format::payload::{Encoded, TAG_PUT, TAG_SETTLED, encode, size_of, start};

/// Bytes of a payload for each byte of its packed form, at most.
pub const GAIN_MAX: usize = 8;

/// The value is stored plain.
const TAG_PLAIN: u8 = 4;
const TAG_BITS: u32 = 3;
/// Number of kinds that fit a tag.
pub(super) const KINDS: usize = 1 << (u8::BITS - TAG_BITS);
/// Longest varint, bytes.
const VARINT_MAX: usize = 10;
/// Bytes for each mask of a sparse value.
const WORD: usize = 8;

/// Place in the payload of the last put value of each kind.
type Before = [(u32, u32); KINDS];

/// The packed form of a payload made by this program; `None` if that would not be shorter.
///
/// # Errors
/// `OutOfMemory`.
pub fn pack(payload: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut packed = Vec::new();
    let mut before: Before = [(0, 0); KINDS];
    let (mut inode, mut end) = (0_u64, 0);
    for (key, form, value) in Encoded(payload) {
        let kind = key.0[Key::KIND_AT];
        if usize::from(kind) >= KINDS {
            return Ok(None);
        }
        end += size_of(value.map(<[u8]>::len));
        let like = value.map_or(&[][..], |value| like(payload, &before, kind, value.len()));
        put_mutation(&mut packed, &key, form, value, (inode, like))?;
        inode = key.inode_number().0;
        if let Some(value) = value {
            before[usize::from(kind)] = span(end - value.len(), end);
        }
    }
    Ok((packed.len() < payload.len()).then_some(packed))
}

/// Appends the packed form of a mutation. It is packed against the inode number of the mutation
/// before it, and the last value of its kind.
pub(super) fn put_mutation(
    packed: &mut Vec<u8>,
    key: &Key,
    form: u8,
    value: Option<&[u8]>,
    (inode, like): (u64, &[u8]),
) -> Result<()> {
    // Upper bound: the tag, three varints, a mask for each eight bytes of the value, and the value.
    let room =
        1 + 3 * VARINT_MAX + value.map_or(0, |value| value.len().div_ceil(WORD) + value.len());
    packed.try_reserve(room).map_err(|_| Error::OutOfMemory)?;
    let start = packed.len();
    packed.push(key.0[Key::KIND_AT] << TAG_BITS | form);
    put_varint(packed, key.inode_number().0.wrapping_sub(inode));
    put_varint(packed, key.suffix());
    let Some(value) = value else { return Ok(()) };
    put_varint(packed, value.len() as u64);
    let like = if like.len() == value.len() { like } else { &[] };
    if !put_sparse(packed, value, like) {
        packed.extend_from_slice(value);
        packed[start] |= TAG_PLAIN;
    }
    Ok(())
}

/// A part of a payload, which is much shorter than 4 GiB: it has a part of a log.
fn span(from: usize, to: usize) -> (u32, u32) {
    (from as u32, to as u32)
}

/// The unpacked payload; `None` if it is malformed.
///
/// # Errors
/// `OutOfMemory`.
pub fn unpack(packed: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut payload = Vec::new();
    let mut before: Before = [(0, 0); KINDS];
    let mut inode = 0_u64;
    let mut fields = FieldReader::new(packed);
    while !fields.rest().is_empty() {
        let tag = fields.u8();
        let (kind, form) = (tag >> TAG_BITS, tag & (TAG_PUT | TAG_SETTLED));
        let (Some(step), Some(suffix)) = (varint(&mut fields), varint(&mut fields)) else {
            return Ok(None);
        };
        inode = inode.wrapping_add(step);
        let key = Key::from_parts(inode, kind, suffix);
        if tag & (TAG_PUT | TAG_PLAIN) == 0 {
            encode(&mut payload, &key, form, None)?;
            continue;
        }
        let length =
            varint(&mut fields).and_then(|length| u16::try_from(length).ok()).map(usize::from);
        let Some(length) = length.filter(|_| tag & TAG_PUT != 0) else { return Ok(None) };
        if tag & TAG_PLAIN != 0 {
            let Some(value) = fields.bytes(length) else { return Ok(None) };
            encode(&mut payload, &key, form, Some(value))?;
        } else {
            // At least this many masks must be there before memory is allocated for the value.
            if fields.rest().len() < length.div_ceil(WORD) {
                return Ok(None);
            }
            start(&mut payload, &key, form, Some(length))?;
            let (from, to) = before[usize::from(kind)];
            let like = (from as usize, to as usize);
            if !take_sparse(&mut fields, &mut payload, length, like) {
                return Ok(None);
            }
        }
        before[usize::from(kind)] = span(payload.len() - length, payload.len());
    }
    Ok((!fields.overrun()).then_some(payload))
}

/// The value that a value of this kind and length is compared with: empty if the last one had
/// another length.
fn like<'a>(payload: &'a [u8], before: &Before, kind: u8, length: usize) -> &'a [u8] {
    let (from, to) = before[usize::from(kind)];
    payload
        .get(from as usize..to as usize)
        .filter(|value| value.len() == length)
        .unwrap_or_default()
}

/// Words that are packed before the packer decides whether a value is worth it.
const PROBE: usize = 16;
/// Their bytes.
const PART: usize = PROBE * WORD;
/// What a value is compared with if none of its kind and length is there.
const UNLIKE: [u8; PART] = [0; PART];

/// Appends the sparse form of a value, for which there is room. Returns `false` and appends nothing
/// if it would not be shorter, or if its first words are not. `like` is as long as the value, or
/// empty.
fn put_sparse(packed: &mut Vec<u8>, value: &[u8], like: &[u8]) -> bool {
    let start = packed.len();
    let mut like = like.chunks(PART);
    for part in value.chunks(PART) {
        let like = like.next().unwrap_or(&UNLIKE[..part.len()]);
        // Masks of unchanged words are zero already.
        let mut out = [0; PROBE * (1 + WORD)];
        let mut end = 0;
        if part == like {
            end = part.len().div_ceil(WORD);
        } else {
            let ((words, rest), (like, like_rest)) = (part.as_chunks(), like.as_chunks());
            for (new, old) in words.iter().zip(like) {
                // Most words are unchanged.
                end = match u64::from_le_bytes(*new) ^ u64::from_le_bytes(*old) {
                    0 => end + 1,
                    differs => put_word(&mut out, end, differs),
                };
            }
            if !rest.is_empty() {
                end = put_word(&mut out, end, word(rest) ^ word(like_rest));
            }
        }
        packed.extend_from_slice(&out[..end]);
        // File content is given up early.
        let is_first = packed.len() - start == end;
        if packed.len() - start >= value.len() || (is_first && end >= part.len()) {
            packed.truncate(start);
            return false;
        }
    }
    true
}

/// The first eight bytes; fewer bytes are followed by zeros.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    match bytes.first_chunk() {
        Some(whole) => word = *whole,
        None => word[..bytes.len()].copy_from_slice(bytes),
    }
    u64::from_le_bytes(word)
}

/// Writes the mask of a word and its nonzero bytes over zeros, at `end`. Returns where they end.
/// This is most of the work of packing, so it works on words.
#[inline]
fn put_word(out: &mut [u8], end: usize, differs: u64) -> usize {
    let Some(out) = out[end..].first_chunk_mut::<{ 1 + WORD }>() else { return end };
    let mask = nonzero_bytes(differs);
    out[0] = mask;
    if mask == u8::MAX {
        out[1..].copy_from_slice(&differs.to_le_bytes());
        return end + 1 + WORD;
    }
    let (mut at, mut rest) = (1, mask);
    while rest != 0 {
        out[at] = (differs >> (8 * rest.trailing_zeros())) as u8;
        at += 1;
        rest &= rest - 1;
    }
    end + at
}

/// A bit for each byte that is not zero.
fn nonzero_bytes(word: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte that is not zero, moved to its lowest.
    let bits = (((word & LOW) + LOW) | word) >> 7 & 0x0101_0101_0101_0101;
    // The product gathers the bit of byte `i` at bit `56 + i`.
    (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Appends a value of `length` bytes from its sparse form. Returns `false` if the form is
/// malformed: a mask has bits for bytes beyond the end, or something is missing. This is most of
/// the work of opening a volume with a long log, so it works on words.
fn take_sparse(
    fields: &mut FieldReader<'_>,
    payload: &mut Vec<u8>,
    length: usize,
    like: (usize, usize),
) -> bool {
    let end = payload.len() + length;
    let mut like = Some(like).filter(|(from, to)| to - from == length).map(|(from, _)| from);
    while payload.len() < end {
        let bytes = WORD.min(end - payload.len());
        let mask = fields.u8();
        if u32::from(mask) >> bytes != 0 {
            return false;
        }
        let mut new = like.map_or(0, |at| word(&payload[at..at + bytes]));
        like = like.map(|at| at + bytes);
        // Most words are unchanged.
        if mask != 0 {
            let Some(differs) = fields.bytes(mask.count_ones() as usize) else { return false };
            new ^= spread(mask, differs);
        }
        let new = new.to_le_bytes();
        match new.get(..bytes) {
            Some(part) if bytes < WORD => payload.extend_from_slice(part),
            _ => payload.extend_from_slice(&new),
        }
    }
    true
}

/// The word with these nonzero bytes at the places in its mask.
fn spread(mask: u8, bytes: &[u8]) -> u64 {
    if mask == u8::MAX {
        return word(bytes);
    }
    let (mut mask, mut spread) = (mask, 0);
    for byte in bytes {
        spread |= u64::from(*byte) << (8 * mask.trailing_zeros());
        mask &= mask - 1;
    }
    spread
}

fn put_varint(packed: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn varint(fields: &mut FieldReader<'_>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = fields.u8();
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::format::key::Kind;

    /// Inode number, kind and suffix of a key, its value, and whether it is settled.
    type Parts = (u64, u8, u64, Option<Vec<u8>>, bool);

    fn payload(mutations: &[Parts]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (inode, kind, suffix, value, settled) in mutations {
            let form =
                if value.is_some() { TAG_PUT } else { 0 } | if *settled { TAG_SETTLED } else { 0 };
            encode(&mut payload, &Key::from_parts(*inode, *kind, *suffix), form, value.as_deref())
                .unwrap();
        }
        payload
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(prop_oneof![4 => Just(0), 1 => any::<u8>()], 0..130),
        ]
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            mutations in prop::collection::vec(
                (prop_oneof![0..90_u64, any::<u64>()], 0..32_u8, prop_oneof![0..90_u64, any::<u64>()],
                    prop::option::of(value()), any::<bool>()),
                0..40,
            )
        ) {
            let payload = payload(&mutations);
            if let Some(packed) = pack(&payload).unwrap() {
                prop_assert!(packed.len() < payload.len());
                prop_assert_eq!(unpack(&packed).unwrap(), Some(payload));
            }
        }

        /// Any bytes unpack without a panic to nothing or to a payload, in memory bounded by their
        /// length.
        #[test]
        fn other_bytes_are_refused_or_make_a_payload(packed in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(payload) = unpack(&packed).unwrap() {
                prop_assert!(payload.len() <= GAIN_MAX * packed.len());
                crate::format::payload::mutations(&payload, |_| true).unwrap();
            }
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let puts =
            payload(&[(17, 1, 0, Some(vec![0; 112]), false), (17, 6, 3, Some(vec![1; 29]), false)]);
        let packed = pack(&puts).unwrap().unwrap();
        for length in 1..packed.len() {
            let cut = unpack(&packed[..length]).unwrap();
            assert!(cut.is_none_or(|cut| puts.starts_with(&cut)), "{length} bytes");
        }
        let put = (Kind::Inode as u8) << TAG_BITS | TAG_PUT;
        for malformed in [
            &[put | TAG_PLAIN, 1, 0, 200, 1, 7][..],
            // A mask for bytes past the end of the value, and a value longer than a payload
            // allows.
            &[put, 1, 0, 3, 0x0f, 1, 2, 3, 4],
            &[put, 1, 0, 0x80, 0x80, 0x04, 0],
            // A removal with a value, and numbers of more than 64 bits.
            &[(Kind::Inode as u8) << TAG_BITS | TAG_PLAIN, 1, 0, 0],
            &[put, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0],
            &[put, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0],
        ] {
            assert_eq!(unpack(malformed).unwrap(), None, "{malformed:?}");
        }
    }

    #[test]
    fn the_mask_of_a_word() {
        for mask in 0..=u8::MAX {
            for byte in [1_u8, 0x80, 0x7f, 0xff] {
                let bytes = core::array::from_fn(|at| if mask >> at & 1 != 0 { byte } else { 0 });
                assert_eq!(nonzero_bytes(u64::from_le_bytes(bytes)), mask);
            }
        }
    }

    /// A record of small overwrites packs to less than half.
    #[test]
    fn overwrites_pack_well() {
        let inode = |number: u64| {
            let mut value = vec![0; 112];
            for (at, bytes) in
                [(0, 0o100_644_u64), (16, 65_536), (24, 32), (32, 1_700_000_000), (40, 77_777_777)]
            {
                value[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
            }
            value[40..44].copy_from_slice(&(number as u32 * 7_654_321).to_le_bytes());
            value
        };
        let extent = |number: u64| {
            let mut value = vec![0; 29];
            value[..8].copy_from_slice(&(40_000 + number * 131).to_le_bytes());
            (value[8], value[13]) = (2, 77);
            value[21..]
                .copy_from_slice(&(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            value
        };
        let mutations: Vec<_> = (0..20)
            .flat_map(|number| {
                let file = 16 + 31 * number;
                let key = |kind: Kind| kind as u8;
                [
                    (file, key(Kind::Inode), 0, Some(inode(number)), false),
                    (file, key(Kind::Extent), number % 16, Some(extent(number)), true),
                ]
            })
            .collect();
        let payload = payload(&mutations);
        let packed = pack(&payload).unwrap().unwrap();
        assert!(packed.len() * 2 < payload.len(), "{} of {}", packed.len(), payload.len());
        assert_eq!(unpack(&packed).unwrap(), Some(payload));
    }
}
