//! Binary BCH codes over GF(2^13): the codes of 4 and 8 bits per codeword.
//!
//! A codeword is data, most significant bit first, followed by its remainder modulo the generator
//! polynomial. The generator is the product of the minimal polynomials of `α, α^3, … α^(2t-1)`. The
//! stored parity is the inverted remainder, xor the remainder of as many erased bytes, so an erased
//! page is a codeword. These are the parities of Linux' `nand_ecc_sw_bch`.
//!
//! Any number of data bytes up to [`DATA_MAX`] can be a codeword (a shortened code).
//!
//! The code corrects `t` flips. It does not always detect more. It takes a pattern of `t + 1` flips
//! for one of `t` with a probability of about 0.3 % (t = 4) or 10^-7 (t = 8). Checksums of higher
//! layers detect that.

use super::Uncorrectable;
use super::field::{self, BITS, ORDER};
use super::locator::{self, STRENGTH_MAX};

/// Most data bytes of a codeword; with parity they are below the 8,191 bits of the field.
pub(super) const DATA_MAX: usize = 1000;

/// Most bytes of parity.
pub(super) const PARITY_MAX: usize = (STRENGTH_MAX * BITS).div_ceil(8);

/// The code for 4 bits.
pub(super) static BCH4: Bch = Bch::new(4);

/// The code for 8 bits.
pub(super) static BCH8: Bch = Bch::new(8);

/// A BCH code.
pub(super) struct Bch {
    /// Flips that it corrects in a codeword.
    strength: usize,
    /// The remainder of each byte followed by as many zero bits as there are parity bits.
    /// Remainders are left-aligned in 128 bits. So the steps of all codes are the same, and the
    /// first bytes are the parity.
    remainders: [u128; 256],
}

impl Bch {
    const fn new(strength: usize) -> Bch {
        let generator = generator(strength);
        let mut remainders = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut remainder = (byte as u128) << 120;
            let mut bit = 0;
            while bit < 8 {
                let carry = remainder >> 127 != 0;
                remainder <<= 1;
                if carry {
                    remainder ^= generator;
                }
                bit += 1;
            }
            remainders[byte] = remainder;
            byte += 1;
        }
        Bch { strength, remainders }
    }

    /// Bits of parity.
    fn parity_bits(&self) -> usize {
        self.strength * BITS
    }

    /// Bytes of parity; unused bits are ones and have no meaning.
    pub(super) fn parity_bytes(&self) -> usize {
        self.parity_bits().div_ceil(8)
    }

    /// The parity bits of a left-aligned remainder.
    fn parity_mask(&self) -> u128 {
        !(u128::MAX >> self.parity_bits())
    }

    /// The stored parity of `first` followed by `second`, left-aligned.
    ///
    /// Remainders are linear: the remainder of inverted bytes is that of the bytes, xor that of as
    /// many erased ones.
    fn stored(&self, first: &[u8], second: &[u8]) -> u128 {
        let remainder = first.iter().chain(second).fold(0u128, |remainder, byte| {
            remainder << 8 ^ self.remainders[usize::from((remainder >> 120) as u8 ^ !byte)]
        });
        !remainder
    }

    /// Writes the parity of `first` followed by `second`, at most [`DATA_MAX`] bytes together.
    pub(super) fn encode(&self, first: &[u8], second: &[u8], parity: &mut [u8]) {
        let bytes = self.stored(first, second).to_be_bytes();
        for (to, from) in parity.iter_mut().zip(&bytes[..self.parity_bytes()]) {
            *to = *from;
        }
    }

    /// Corrects up to [`strength`](Self::strength) flipped bits in data and parity. Returns their
    /// number.
    ///
    /// # Errors
    /// More flips, as far as the code can detect them. Nothing is changed.
    pub(super) fn decode(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        parity: &mut [u8],
    ) -> Result<u32, Uncorrectable> {
        let mut read = [0; 16];
        for (to, from) in read.iter_mut().zip(parity.iter()) {
            *to = *from;
        }
        let difference =
            (self.stored(first, second) ^ u128::from_be_bytes(read)) & self.parity_mask();
        if difference == 0 {
            return Ok(0);
        }
        let data_bytes = first.len() + second.len();
        if data_bytes > DATA_MAX {
            return Err(Uncorrectable);
        }
        let syndromes = self.syndromes(difference);
        let length = 8 * data_bytes + self.parity_bits();
        let errors = locator::find(&syndromes[..2 * self.strength], length).ok_or(Uncorrectable)?;
        for degree in errors.degrees() {
            // Degrees are below the length, so every bit is within the codeword.
            let bit = length - 1 - degree;
            let (byte, mask) = (bit / 8, 0x80 >> (bit % 8));
            let parity_byte = byte.checked_sub(data_bytes);
            let place = match parity_byte {
                Some(byte) => parity.get_mut(byte),
                None if byte < first.len() => first.get_mut(byte),
                None => second.get_mut(byte - first.len()),
            };
            if let Some(place) = place {
                *place ^= mask;
            }
        }
        Ok(errors.count())
    }

    /// `S_1 … S_2t` (at index 0 … 2t-1): the values of the difference polynomial at `α^1 … α^2t`.
    fn syndromes(&self, difference: u128) -> [u16; 2 * STRENGTH_MAX] {
        let mut syndromes = [0; 2 * STRENGTH_MAX];
        let mut rest = difference;
        while rest != 0 {
            let leading = rest.leading_zeros() as usize;
            rest &= !(1 << (127 - leading));
            let degree = self.parity_bits() - 1 - leading;
            for index in (0..2 * self.strength).step_by(2) {
                syndromes[index] ^= field::power(degree * (index + 1));
            }
        }
        // Squaring is linear: S_2j = S_j^2.
        for index in (1..2 * self.strength).step_by(2) {
            let half = syndromes[index.div_ceil(2) - 1];
            syndromes[index] = field::multiply(half, half);
        }
        syndromes
    }
}

/// The generator polynomial without its leading term, left-aligned in 128 bits.
const fn generator(strength: usize) -> u128 {
    // Coefficients from the lowest, the leading one included.
    let mut product = 1u128;
    let mut degree = 0;
    let mut exponent = 1;
    while exponent < 2 * strength {
        let minimal = minimal_polynomial(exponent);
        // The sum of shifted copies; 13 · 8 = 104 bits and the leading one fit.
        let mut sum = 0u128;
        let mut bit = 0;
        while bit <= BITS {
            if minimal >> bit & 1 != 0 {
                sum ^= product << bit;
            }
            bit += 1;
        }
        product = sum;
        degree += BITS;
        exponent += 2;
    }
    // The shift drops the leading one.
    product << (128 - degree)
}

/// The minimal polynomial of `α^exponent`, lowest coefficient in bit 0: the product of `x + c` over
/// its 13 conjugates. (The order of the group, 8,191, is prime: every element except 0 and 1 has 13
/// conjugates.)
const fn minimal_polynomial(exponent: usize) -> u32 {
    let mut conjugate = 1u32;
    let mut index = 0;
    while index < exponent % ORDER {
        conjugate = field::slow_multiply(conjugate, 2);
        index += 1;
    }
    // Coefficients are field elements until all factors are multiplied.
    let mut polynomial = [0u32; BITS + 1];
    polynomial[0] = 1;
    let mut factor = 0;
    while factor < BITS {
        let mut at = factor + 1;
        loop {
            let below = if at == 0 { 0 } else { polynomial[at - 1] };
            polynomial[at] = below ^ field::slow_multiply(polynomial[at], conjugate);
            if at == 0 {
                break;
            }
            at -= 1;
        }
        conjugate = field::slow_multiply(conjugate, conjugate);
        factor += 1;
    }
    let mut bits = 0;
    let mut bit = 0;
    while bit <= BITS {
        bits |= polynomial[bit] << bit;
        bit += 1;
    }
    bits
}
