//! The Hamming code of Linux: one flipped bit corrected, two detected, in three bytes. It is the
//! code of SmartMedia with its first two bytes exchanged.
//!
//! Each bit of a bit's address has two parities. The odd parity covers the data bits whose address
//! bit is one, the even parity those whose address bit is zero. A flipped data bit changes exactly
//! one parity of each pair, and the changed odd ones form its address. A flip in the parity itself
//! changes a single one. Two flips change a pair twice or not at all, and are detected.
//!
//! The parities are stored inverted, so an erased page, all ones, is a codeword.

use super::Uncorrectable;

/// Longest codeword, bytes of data: 9 bits of byte address and 3 of bit address are 24 parities.
pub(super) const DATA_MAX: usize = 512;

/// Bytes of parity.
pub(super) const PARITY_BYTES: usize = 3;

/// Most parity pairs of byte addresses; codewords of at most 256 bytes use eight.
const ROW_PAIRS: u32 = 9;

/// The parity pairs that a code with `rows` pairs of row parities uses.
const fn used(rows: u32) -> u16 {
    0x0fff & !(0x1ff >> rows << rows)
}

/// Odd and even parities of data: row parities first, bit `k` for address bit `k`; then the
/// parities of bit addresses within a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parities {
    odd: u16,
    even: u16,
}

impl Parities {
    /// The parities of `first` followed by `second`, together at most [`DATA_MAX`] bytes. Pairs
    /// that are not `used` are zero.
    fn of(first: &[u8], second: &[u8], used: u16) -> Parities {
        // All bytes folded into one, and the addresses of bytes with an odd number of ones.
        let mut column = 0u8;
        let mut rows = 0usize;
        let (words, rest) = first.as_chunks::<8>();
        // The three lowest address bits of whole words come from all words folded into one.
        let mut folded = 0u64;
        for (index, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            folded ^= word;
            rows ^= if word.count_ones() & 1 == 0 { 0 } else { index << 3 };
        }
        let mut tail = |address: usize, byte: u8| {
            column ^= byte;
            rows ^= if byte.count_ones() & 1 == 0 { 0 } else { address };
        };
        for (index, byte) in folded.to_le_bytes().into_iter().enumerate() {
            tail(index, byte);
        }
        let whole = words.len() * 8;
        for (index, byte) in rest.iter().chain(second).enumerate() {
            tail(whole + index, *byte);
        }
        let mut odd = rows as u16 & ((1 << ROW_PAIRS) - 1);
        for (bit, mask) in [0xaau8, 0xcc, 0xf0].into_iter().enumerate() {
            odd |= ((column & mask).count_ones() as u16 & 1) << (ROW_PAIRS as usize + bit);
        }
        // The sum of odd and even parity is the parity of all bits.
        let everything = if column.count_ones() & 1 == 0 { 0 } else { 0x0fff };
        Parities { odd: odd & used, even: (odd ^ everything) & used }
    }

    /// Encodes as three bytes: the pairs of row parities, the even one below the odd one, upper
    /// address bits first. The upper six bits of the third byte are the column parities; its lower
    /// two bits are the pair of the ninth address bit.
    fn to_bytes(self) -> [u8; PARITY_BYTES] {
        let mut pairs = 0u32;
        for bit in 0..12 {
            let pair = u32::from(self.even >> bit & 1) | u32::from(self.odd >> bit & 1) << 1;
            // The ninth row pair goes below the column pairs.
            pairs |= pair << (2 * bit);
        }
        let inverted = !pairs;
        [(inverted >> 8) as u8, inverted as u8, (inverted >> 16) as u8]
    }

    fn from_bytes(bytes: [u8; PARITY_BYTES]) -> Parities {
        let pairs = !u32::from_le_bytes([bytes[1], bytes[0], bytes[2], 0]);
        let mut parities = Parities { odd: 0, even: 0 };
        for bit in 0..12 {
            parities.even |= (pairs >> (2 * bit) & 1) as u16 * (1 << bit);
            parities.odd |= (pairs >> (2 * bit + 1) & 1) as u16 * (1 << bit);
        }
        parities
    }
}

/// The parity of `first` followed by `second`.
///
/// Together they are at most `2^rows` bytes, and an even number, so that erased bytes have an
/// erased parity; `rows` is 8 or 9.
pub(super) fn encode(first: &[u8], second: &[u8], rows: u32) -> [u8; PARITY_BYTES] {
    Parities::of(first, second, used(rows)).to_bytes()
}

/// Corrects a flipped bit in data or parity. Returns the number of flipped bits, 0 or 1.
///
/// # Errors
/// Two flipped bits, or more as far as the code can detect them.
pub(super) fn decode(
    first: &mut [u8],
    second: &mut [u8],
    parity: &mut [u8; PARITY_BYTES],
    rows: u32,
) -> Result<u32, Uncorrectable> {
    let used = used(rows);
    let is = Parities::of(first, second, used);
    let stored = Parities::from_bytes(*parity);
    let (odd, even) = ((is.odd ^ stored.odd) & used, (is.even ^ stored.even) & used);
    match odd.count_ones() + even.count_ones() {
        0 => Ok(0),
        1 => {
            *parity = is.to_bytes();
            Ok(1)
        }
        _ if odd ^ even == used => {
            let address = usize::from(odd & ((1 << ROW_PAIRS) - 1));
            let bit = odd >> ROW_PAIRS;
            let byte = first.len();
            let byte = if address < byte {
                first.get_mut(address)
            } else {
                second.get_mut(address - byte)
            };
            // An address after the data cannot belong to a single flipped bit.
            *byte.ok_or(Uncorrectable)? ^= 1 << bit;
            Ok(1)
        }
        _ => Err(Uncorrectable),
    }
}
