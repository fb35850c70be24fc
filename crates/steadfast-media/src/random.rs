//! SplitMix64: a small generator whose whole state is the seed, so a seed determines a run. The
//! simulators, the tests and the lab of all crates draw from it.

/// Deterministic pseudo-random numbers. Not for cryptography.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers on every machine.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias of the modulus is irrelevant for tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// True once in `count` times on average; never if `count` is 0.
    pub fn one_in(&mut self, count: u64) -> bool {
        count != 0 && self.below(count) == 0
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        // The high bits are the most random ones.
        self.bits() >> 63 == 1
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Fills the bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let word = self.bits().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Mixes 64 bits so that every input bit reaches every output bit.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn matches_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn shuffles_without_losing_anything() {
        let mut items: [u32; 17] = core::array::from_fn(|index| index as u32);
        let mut random = Random::new(3);
        random.shuffle(&mut items);
        let mut sorted = items;
        sorted.sort_unstable();
        assert_ne!(items, sorted);
        assert_eq!(sorted, core::array::from_fn(|index| index as u32));
    }
}
