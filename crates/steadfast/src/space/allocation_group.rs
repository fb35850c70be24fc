//! A group: the allocation bitmaps of a fixed number of consecutive blocks.
//!
//! On the medium a group is one value: absent (nothing used), or `[1]` (everything that can be
//! allocated is used). Otherwise it is `[2]` and a bitmap, lowest bit first, without its trailing
//! zero bytes.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::memory;

const TAG_FULL: u8 = 1;
const TAG_BITMAP: u8 = 2;

/// A bitmap over the blocks of one group.
#[derive(Clone, PartialEq, Eq)]
pub struct Bitmap(Vec<u64>);

impl Bitmap {
    /// `bits` zeros.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn zeroed(bits: u64) -> Result<Bitmap> {
        Ok(Bitmap(memory::filled(0, (bits / 64) as usize)?))
    }

    /// As [`zeroed`](Self::zeroed), for the checker, which is no part of a mounted volume.
    pub fn new(bits: u64) -> Bitmap {
        Bitmap(vec![0; (bits / 64) as usize])
    }

    /// A copy.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn copy(&self) -> Result<Bitmap> {
        Ok(Bitmap(memory::copy(&self.0)?))
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64 * 64
    }

    pub fn get(&self, bit: u64) -> bool {
        self.0[(bit / 64) as usize] >> (bit % 64) & 1 != 0
    }

    /// Sets `start..end` to `value`. Returns how many bits changed.
    pub fn set(&mut self, start: u64, end: u64, value: bool) -> u64 {
        let mut changed = 0;
        let mut bit = start;
        while bit < end {
            let low = bit % 64;
            let high = (end - (bit - low)).min(64);
            let mask = (u64::MAX << low) & (u64::MAX >> (64 - high));
            let word = &mut self.0[(bit / 64) as usize];
            let new = if value { *word | mask } else { *word & !mask };
            changed += u64::from((*word ^ new).count_ones());
            *word = new;
            bit += high - low;
        }
        changed
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Number of set bits in `start..end`, which is inside.
    pub fn count_in(&self, start: u64, end: u64) -> u64 {
        let mut count = 0;
        let mut bit = start;
        while bit < end {
            let low = bit % 64;
            let high = (end - (bit - low)).min(64);
            let mask = (u64::MAX << low) & (u64::MAX >> (64 - high));
            count += u64::from((self.0[(bit / 64) as usize] & mask).count_ones());
            bit += high - low;
        }
        count
    }

    pub fn merge(&mut self, other: &Bitmap) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Clears every bit that is set in `other`.
    pub fn subtract(&mut self, other: &Bitmap) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }

    /// The first bit of `from..end` that has `value`; `end` if there is none.
    fn find(&self, from: u64, end: u64, value: bool) -> u64 {
        let end = end.min(self.len());
        let mut bit = from;
        while bit < end {
            let word = self.0[(bit / 64) as usize];
            let word = (if value { word } else { !word }) >> (bit % 64);
            if word != 0 {
                return (bit + u64::from(word.trailing_zeros())).min(end);
            }
            bit = (bit / 64 + 1) * 64;
        }
        end
    }

    /// The first run of `value` in `from..end`: start and end. Longer runs end after `most` bits.
    fn run(&self, from: u64, end: u64, most: u64, value: bool) -> Option<(u64, u64)> {
        let end = end.min(self.len());
        let start = self.find(from, end, value);
        let after = end.min(start.saturating_add(most));
        (start < end).then(|| (start, self.find(start, after, !value)))
    }

    /// The next run of zeros at or after `from`: start and end.
    pub fn zeros(&self, from: u64) -> Option<(u64, u64)> {
        self.run(from, u64::MAX, u64::MAX, false)
    }

    /// As [`zeros`](Self::zeros), without what is beyond `end`.
    pub fn zeros_in(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        self.run(from, end, u64::MAX, false)
    }

    /// As [`zeros_in`](Self::zeros_in), of a long run only the first `most` bits.
    pub fn some_zeros_in(&self, from: u64, end: u64, most: u64) -> Option<(u64, u64)> {
        self.run(from, end, most, false)
    }

    /// The next run of ones at or after `from`: start and end.
    pub fn ones(&self, from: u64) -> Option<(u64, u64)> {
        self.run(from, u64::MAX, u64::MAX, true)
    }
}

/// See the module.
pub struct AllocationGroup {
    /// Used in the working state: the next checkpoint writes this.
    pub used: Bitmap,
    /// Used in the checkpointed state or in the one that a checkpoint is writing: not reusable yet.
    pub base: Bitmap,
    /// Must not be allocated, for any reason; contains `used` and `base`.
    pub busy: Bitmap,
    /// `used` differs from the value in the working tree.
    pub dirty: bool,
}

impl AllocationGroup {
    /// Whether nothing can be allocated here.
    pub fn is_full(&self) -> bool {
        self.busy.zeros(0).is_none()
    }
}

/// The value for `used`; `None`: the key is absent. `allocatable` are the blocks outside fixed
/// structures.
pub fn encode(used: &Bitmap, allocatable: &Bitmap) -> Result<Option<Vec<u8>>> {
    if used.0.iter().all(|word| *word == 0) {
        return Ok(None);
    }
    if used == allocatable {
        return memory::copy(&[TAG_FULL]).map(Some);
    }
    encode_bitmap(used)
}

/// As [`encode`], but never "everything that can be allocated".
pub fn encode_bitmap(used: &Bitmap) -> Result<Option<Vec<u8>>> {
    if used.0.iter().all(|word| *word == 0) {
        return Ok(None);
    }
    let mut value = Vec::new();
    value.try_reserve_exact(1 + 8 * used.0.len()).map_err(|_| Error::OutOfMemory)?;
    value.push(TAG_BITMAP);
    value.extend(used.0.iter().flat_map(|word| word.to_le_bytes()));
    while value.last() == Some(&0) {
        value.pop();
    }
    Ok(Some(value))
}

/// Reads a group's value into a zeroed bitmap; `Err` says what is wrong.
pub fn decode(
    value: Option<&[u8]>,
    allocatable: &Bitmap,
    used: &mut Bitmap,
) -> Result<(), &'static str> {
    match value {
        None => {}
        Some([TAG_FULL]) => used.merge(allocatable),
        Some([TAG_BITMAP, bytes @ ..]) if bytes.len() as u64 <= allocatable.len() / 8 => {
            for (index, byte) in bytes.iter().enumerate() {
                used.0[index / 8] |= u64::from(*byte) << (index % 8 * 8);
            }
            let outside =
                used.0.iter().zip(&allocatable.0).any(|(used, allowed)| used & !allowed != 0);
            if outside {
                return Err("group bitmap covers fixed structures");
            }
        }
        Some(_) => return Err("malformed group bitmap"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_find_count() {
        let mut bitmap = Bitmap::new(256);
        assert_eq!(bitmap.set(3, 200, true), 197);
        assert_eq!(bitmap.set(64, 128, true), 0);
        assert_eq!(bitmap.set(100, 101, false), 1);
        assert_eq!(bitmap.zeros(0), Some((0, 3)));
        assert_eq!(bitmap.zeros(3), Some((100, 101)));
        assert_eq!(bitmap.zeros(101), Some((200, 256)));
        assert_eq!(bitmap.zeros(256), None);
        assert_eq!(
            [250, 200, 3].map(|end| bitmap.zeros_in(101, end)),
            [Some((200, 250)), None, None]
        );
        assert_eq!(bitmap.zeros_in(201, 999), Some((201, 256)));
        assert_eq!(bitmap.some_zeros_in(101, 250, 20), Some((200, 220)));
        assert_eq!(bitmap.some_zeros_in(101, 250, 70), Some((200, 250)));
        assert_eq!(bitmap.count(), 196);
        assert_eq!(
            [0, 101, 200].map(|from| bitmap.ones(from)),
            [Some((3, 100)), Some((101, 200)), None]
        );
        for (start, end) in [(0, 256), (3, 200), (5, 5), (63, 65), (99, 102), (150, 256)] {
            let counted = (start..end).filter(|bit| bitmap.get(*bit)).count() as u64;
            assert_eq!(bitmap.count_in(start, end), counted, "{start}..{end}");
        }
        let mut other = Bitmap::new(256);
        other.set(90, 256, true);
        bitmap.subtract(&other);
        assert_eq!((bitmap.ones(0), bitmap.count()), (Some((3, 90)), 87));
    }

    #[test]
    fn values_round_trip_and_bad_ones_are_refused() {
        let mut allocatable = Bitmap::new(128);
        allocatable.set(5, 120, true);
        let mut used = Bitmap::new(128);
        assert_eq!(encode(&used, &allocatable), Ok(None));
        let decode = |value: Option<&[u8]>, allocatable: &Bitmap| {
            let mut used = Bitmap::new(allocatable.len());
            decode(value, allocatable, &mut used).map(|()| used)
        };
        used.set(5, 70, true);
        let value = encode(&used, &allocatable).unwrap();
        assert!(decode(value.as_deref(), &allocatable) == Ok(used));
        assert_eq!(encode(&allocatable, &allocatable), Ok(Some(vec![1])));
        assert!(decode(Some(&[1]), &allocatable) == Ok(allocatable.clone()));
        for bad in [&[][..], &[3], &[1, 0], &[2, 1], &[2; 18]] {
            assert!(decode(Some(bad), &allocatable).is_err());
        }
    }
}
