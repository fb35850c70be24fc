//! Randomness that is identical everywhere: one seed is one world.

use steadfast_media::random;
pub use steadfast_media::random::mix;

/// The draws of a world. Every seed is suitable, even 0.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    draws: random::Random,
}

impl Random {
    /// Draws that are always the same for the same seed.
    pub fn new(seed: u64) -> Random {
        Random { seed, draws: random::Random::new(seed) }
    }

    /// Separate draws for a part of the world, so that more draws in one part do not change
    /// another. Nothing was drawn yet.
    pub fn fork(&self, label: u64) -> Random {
        Random::new(mix(self.seed ^ mix(label.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.draws.bits()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64 }
    }

    /// An index below `length`.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `numerator` of `denominator` draws.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One element; the slice must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// Fills `buffer` with the bytes of pattern `fill` at `offset`. Pattern 0 is all zeros, that is,
/// data that looks like a hole. Any two other patterns differ at every offset with near certainty.
/// So a byte from the wrong write, the wrong place or the wrong file shows.
pub fn pattern(fill: u32, offset: u64, buffer: &mut [u8]) {
    if fill == 0 {
        buffer.fill(0);
        return;
    }
    let mut position = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let word = mix(u64::from(fill) << 40 ^ (position / 8)).to_le_bytes();
        let skip = (position % 8) as usize;
        let count = (8 - skip).min(rest.len());
        let (head, tail) = rest.split_at_mut(count);
        head.copy_from_slice(&word[skip..skip + count]);
        position += count as u64;
        rest = tail;
    }
}

/// Pattern `fill` as a new vector.
pub fn pattern_vec(fill: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    pattern(fill, offset, &mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| one.bits() == two.bits()));
        assert_ne!(Random::new(1).bits(), Random::new(2).bits());
    }

    #[test]
    fn a_pattern_does_not_depend_on_how_it_is_cut() {
        let whole = pattern_vec(9, 100, 50);
        assert_eq!(whole[13..30], pattern_vec(9, 113, 17)[..]);
        assert_ne!(whole, pattern_vec(10, 100, 50));
    }
}
