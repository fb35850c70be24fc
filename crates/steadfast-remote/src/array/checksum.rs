//! Checksums. Each block is summed once; sums of larger messages are computed from the sums of
//! their blocks.
//!
//! CRC-32C is linear. Appending to a message shifts its sum by the length of the appendix, whatever
//! its bytes. The sum of an exclusive or is the exclusive or of the sums, except for the constant
//! that the empty message has.

use super::BLOCK;

/// The checksum of these bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    steadfast_host::crc32c(bytes)
}

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Effect of appending one block, for each byte of a sum.
const SHIFTS: [[u32; 256]; 4] = shifts();

/// Appends one zero bit.
const fn step(sum: u32) -> u32 {
    if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 }
}

/// Applies a linear map, given by the image of each bit, to a sum.
const fn apply(map: &[u32; 32], sum: u32) -> u32 {
    let (mut result, mut bit) = (0, 0);
    while bit < 32 {
        if sum >> bit & 1 == 1 {
            result ^= map[bit];
        }
        bit += 1;
    }
    result
}

const fn shifts() -> [[u32; 256]; 4] {
    let mut map = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        map[bit] = step(1 << bit);
        bit += 1;
    }
    // Each step doubles the number of zeros: 8 bits a byte.
    let mut bits = 1;
    while bits < 8 * BLOCK {
        let mut twice = [0; 32];
        bit = 0;
        while bit < 32 {
            twice[bit] = apply(&map, map[bit]);
            bit += 1;
        }
        map = twice;
        bits *= 2;
    }
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            tables[byte][value] = apply(&map, (value as u32) << (8 * byte));
            value += 1;
        }
        byte += 1;
    }
    tables
}

/// The checksum of consecutive blocks, from the sum of each.
pub(super) fn joined(sums: impl IntoIterator<Item = u32>) -> u32 {
    sums.into_iter().fold(0, |before, sum| {
        let shifted =
            SHIFTS.iter().zip(before.to_le_bytes()).map(|(table, byte)| table[usize::from(byte)]);
        shifted.fold(sum, |sum, part| sum ^ part)
    })
}

/// The checksum of this many blocks of zeros.
pub(super) fn zeros(blocks: usize) -> u32 {
    const ZERO: [u8; BLOCK] = [0; BLOCK];
    let one = crc32c(&ZERO);
    joined(std::iter::repeat_n(one, blocks))
}

/// The checksum of the exclusive or of messages with this many blocks, from the sum of each.
pub(super) fn added(sums: &[u32], blocks: usize) -> u32 {
    let constant = if sums.len().is_multiple_of(2) { zeros(blocks) } else { 0 };
    sums.iter().fold(constant, |sum, other| sum ^ other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_sums_are_sums_of_the_bytes() {
        let shard = |number: usize| -> Vec<u8> {
            (0..5 * BLOCK).map(|at| (at * (2 * number + 7) + at / 251 + number) as u8).collect()
        };
        let shards: Vec<Vec<u8>> = (0..5).map(shard).collect();
        for shard in &shards {
            for blocks in 0..=5 {
                let bytes = &shard[..blocks * BLOCK];
                assert_eq!(joined(bytes.chunks(BLOCK).map(crc32c)), crc32c(bytes), "{blocks}");
            }
        }
        assert_eq!(zeros(3), crc32c(&[0; 3 * BLOCK]));
        for count in 1..=5 {
            let sums: Vec<u32> = shards[..count].iter().map(|shard| crc32c(shard)).collect();
            let parity: Vec<u8> = (0..5 * BLOCK)
                .map(|at| shards[..count].iter().fold(0, |sum, shard| sum ^ shard[at]))
                .collect();
            assert_eq!(added(&sums, 5), crc32c(&parity), "{count}");
        }
    }
}
