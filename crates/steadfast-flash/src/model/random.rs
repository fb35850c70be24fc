//! SplitMix64: the seed alone determines a part.

/// Deterministic pseudo-random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns true once in `count` times on average; never if `count` is 0.
    pub fn one_in(&mut self, count: u64) -> bool {
        count != 0 && self.below(count) == 0
    }
}
