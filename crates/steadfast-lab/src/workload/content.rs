//! The written data, which makes every wrong byte detectable.
//!
//! The content of a place is a function of the seed, the file, the offset and the number of writes.
//! It is random bytes that repeat every 64 KiB, with a unique stamp of eight bytes in each 512
//! bytes. A file system can neither guess it nor share it. Data of another place, file or time does
//! not match.

use steadfast_media::random::mix;

use crate::Trouble;

/// Number of bytes after which the random part repeats.
const PERIOD: usize = 64 << 10;

/// Bytes per stamp.
const CHUNK: usize = 512;

/// The content of the files of a run.
#[derive(Debug, Clone)]
pub struct Content {
    base: Vec<u8>,
    seed: u64,
    /// Percentage of each record that is the same in all records of all files.
    dedupable: u8,
}

impl Content {
    /// The content for this seed; `dedupable` percent of each record can be shared (IOzone's
    /// `-+w`).
    pub fn new(seed: u64, dedupable: u8) -> Content {
        let mut state = seed;
        let words = std::iter::repeat_with(|| next(&mut state).to_le_bytes());
        Content {
            base: words.flatten().take(PERIOD).collect(),
            seed,
            dedupable: dedupable.min(100),
        }
    }

    /// Fills a record with the content of `file` at `offset` after `version` writes.
    pub fn fill(&self, record: &mut [u8], file: u64, offset: u64, version: u64) {
        let shared = self.shared_bytes(record.len());
        for (index, chunk) in record.chunks_mut(CHUNK).enumerate() {
            let inside = index * CHUNK;
            let place = if inside < shared { inside as u64 } else { offset + inside as u64 };
            self.copy_base(chunk, place);
            if inside >= shared {
                let stamp = self.stamp(file, place, version).to_le_bytes();
                let length = chunk.len().min(stamp.len());
                chunk[..length].copy_from_slice(&stamp[..length]);
            }
        }
    }

    /// Compares a record that was read with the expected one. `expected` is scratch space of the
    /// same length.
    ///
    /// # Errors
    /// `Wrong` with the position of the first wrong byte.
    pub fn compare(
        &self,
        record: &[u8],
        expected: &mut [u8],
        file: u64,
        offset: u64,
        version: u64,
    ) -> Result<(), Trouble> {
        self.fill(expected, file, offset, version);
        if record == expected {
            return Ok(());
        }
        let place = record
            .iter()
            .zip(expected.iter())
            .position(|(found, wanted)| found != wanted)
            .unwrap_or(0);
        let (found, wanted) =
            (record.get(place).copied().unwrap_or(0), expected.get(place).copied().unwrap_or(0));
        let at = offset + place as u64;
        Err(Trouble::Wrong {
            what: format!(
                "byte at offset {at} of file {file}: {found:#04x} instead of {wanted:#04x}"
            ),
        })
    }

    fn shared_bytes(&self, record: usize) -> usize {
        // Whole chunks, rounded up, so that 1 % of a small record is not empty.
        (record * usize::from(self.dedupable)).div_ceil(100).next_multiple_of(CHUNK)
            * usize::from(self.dedupable > 0)
    }

    fn copy_base(&self, chunk: &mut [u8], place: u64) {
        let start = (place % PERIOD as u64) as usize;
        let source = self.base.iter().cycle().skip(start);
        match self.base.get(start..start + chunk.len()) {
            Some(bytes) => chunk.copy_from_slice(bytes),
            None => chunk.iter_mut().zip(source).for_each(|(to, from)| *to = *from),
        }
    }

    fn stamp(&self, file: u64, place: u64, version: u64) -> u64 {
        let mut state =
            self.seed ^ file.rotate_left(40) ^ place.rotate_left(17) ^ version.rotate_left(56);
        next(&mut state)
    }
}

/// SplitMix64: small, specified, and identical everywhere. The caller keeps the state, and stored
/// results are of these contents.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// A number below `bound` (0 for a bound of 0), with negligible bias.
pub fn below(state: &mut u64, bound: u64) -> u64 {
    ((u128::from(next(state)) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_everything_but_the_cut() {
        let content = Content::new(1, 0);
        let fill = |length, file, offset, version| {
            let mut record = vec![0; length];
            content.fill(&mut record, file, offset, version);
            record
        };
        let whole = fill(8192, 0, 0, 1);
        assert_eq!(whole[4096..], fill(4096, 0, 4096, 1));
        for other in [
            fill(8192, 1, 0, 1),
            fill(8192, 0, 8192, 1),
            fill(8192, 0, 0, 2),
            fill(8192, 0, 65536, 1),
        ] {
            // No two blocks of 512 bytes are equal.
            assert!(whole.chunks(512).zip(other.chunks(512)).all(|(one, two)| one != two));
        }
        let mut other = vec![0; 8192];
        Content::new(2, 0).fill(&mut other, 0, 0, 1);
        assert_ne!(whole, other);
    }

    #[test]
    fn one_wrong_bit_is_found_and_named() {
        let content = Content::new(1, 0);
        let (mut record, mut expected) = (vec![0; 4096], vec![0; 4096]);
        content.fill(&mut record, 7, 40960, 3);
        assert!(content.compare(&record, &mut expected, 7, 40960, 3).is_ok());
        record[1000] ^= 1;
        let text =
            content.compare(&record, &mut expected, 7, 40960, 3).expect_err("wrong").to_string();
        assert!(text.contains("offset 41960 of file 7"), "{text}");
        assert!(content.compare(&record[..0], &mut expected, 7, 40960, 3).is_err(), "short");
    }

    #[test]
    fn the_asked_share_can_be_shared() {
        for (percent, shared) in [(0, 0), (1, 2), (50, 64), (100, 128)] {
            let content = Content::new(1, percent);
            let (mut one, mut two) = (vec![0; 65536], vec![0; 65536]);
            content.fill(&mut one, 0, 0, 1);
            content.fill(&mut two, 5, 65536 * 3, 1);
            let same = one.chunks(512).zip(two.chunks(512)).filter(|(one, two)| one == two).count();
            assert_eq!(same, shared, "{percent}");
        }
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut state = 3;
        let mut seen = [0; 7];
        (0..1000).for_each(|_| seen[below(&mut state, 7) as usize] += 1);
        assert!(seen.iter().all(|count| *count > 90), "{seen:?}");
        assert_eq!(below(&mut state, 0), 0);
    }
}
