//! Decisions drawn from a few bytes, so that a fuzzer steers them and a seed repeats them.

use crate::random::Random;

/// A stream of decisions. After the bytes are used up, every decision is the first possibility.
#[derive(Debug, Clone)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions from these bytes.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { bytes }
    }

    /// `length` bytes for a seed.
    pub fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
        let mut random = Random::new(seed).fork(9);
        (0..length).map(|_| random.bits() as u8).collect()
    }

    /// Whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`, from as many bytes as it needs; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let mut value = 0;
        let mut reach = 1usize;
        while reach < bound {
            value = value << 8 | usize::from(self.byte());
            reach = reach.saturating_mul(256);
        }
        if bound == 0 { 0 } else { value % bound }
    }

    /// A number as an attacker would choose it: small, at a limit, near `old`, or arbitrary.
    pub fn number(&mut self, old: u64, near: &[u64]) -> u64 {
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX / 2,
            4 => old.wrapping_add(1),
            5 => old.wrapping_sub(1),
            6 => old ^ 1 << (self.byte() % 64),
            7 => u64::from(self.byte()),
            8 => old.wrapping_mul(2),
            9 => u64::from(u32::MAX),
            _ if !near.is_empty() => near[self.below(near.len())],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}
