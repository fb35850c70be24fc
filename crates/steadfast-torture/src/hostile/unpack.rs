//! Packed payloads of log records, decoded by the specification alone.

use std::collections::BTreeMap;

/// The unpacked payload; `None` if the packed form is malformed.
pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    let mut last: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let mut bytes = packed.iter().copied();
    let mut inode = 0_u64;
    while let Some(tag) = bytes.next() {
        inode = inode.wrapping_add(varint(&mut bytes)?);
        payload.extend_from_slice(&inode.to_be_bytes());
        payload.push(tag >> 3);
        payload.extend_from_slice(&varint(&mut bytes)?.to_be_bytes());
        payload.push(tag & 3);
        if tag & 1 == 0 {
            continue;
        }
        let length = u16::try_from(varint(&mut bytes)?).ok()?;
        let mut value = Vec::new();
        while value.len() < usize::from(length) {
            let mask = if tag & 4 != 0 { 0xff } else { bytes.next()? };
            for bit in 0..8.min(usize::from(length) - value.len()) {
                value.push(if mask >> bit & 1 != 0 { bytes.next()? } else { 0 });
            }
        }
        if let Some(last) =
            last.get(&(tag >> 3)).filter(|last| tag & 4 == 0 && last.len() == value.len())
        {
            value.iter_mut().zip(last).for_each(|(byte, last)| *byte ^= last);
        }
        payload.extend_from_slice(&length.to_le_bytes());
        payload.extend_from_slice(&value);
        last.insert(tag >> 3, value);
    }
    Some(payload)
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
