//! Compares the codes with straightforward implementations and with parities made by Linux, and
//! tests them with all kinds of damage.

extern crate std;

use std::vec;
use std::vec::Vec;

use steadfast_media::Random;

use super::*;

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.bits() as u8).collect()
}

/// A codeword in one buffer: data, spare, parity.
struct Word {
    code: Code,
    data: usize,
    spare: usize,
    bytes: Vec<u8>,
}

impl Word {
    fn new(code: Code, data: &[u8], spare: &[u8]) -> Word {
        let mut parity = vec![0; code.parity_bytes()];
        code.encode(data, spare, &mut parity).unwrap();
        let bytes = [data, spare, &parity].concat();
        Word { code, data: data.len(), spare: spare.len(), bytes }
    }

    /// Number of meaningful bits: all except the unused ones in the last parity byte.
    fn bits(&self) -> usize {
        let parity = match self.code {
            Code::Hamming256 => 22,
            Code::Hamming512 => 24,
            Code::Bch4 => 52,
            Code::Bch8 => 104,
        };
        8 * (self.data + self.spare) + parity
    }

    /// Flips bit `bit`, counted most significant first; parity bits are counted as BCH orders them.
    fn flip(&mut self, bit: usize) {
        self.bytes[bit / 8] ^= 0x80 >> (bit % 8);
    }

    fn decode(&mut self) -> Result<u32, Uncorrectable> {
        let (data, rest) = self.bytes.split_at_mut(self.data);
        let (spare, parity) = rest.split_at_mut(self.spare);
        self.code.decode(data, spare, parity)
    }
}

/// The BCH parity by polynomial division, one coefficient at a time. The generator is found by
/// trying: each minimal polynomial is the first linear relation among the powers of its root. No
/// search among the divisors of `x^8191 + 1` is needed.
fn plain_bch(strength: usize, data: &[u8]) -> Vec<u8> {
    let alpha_times = |a: u32| if a & 0x1000 == 0 { a << 1 } else { (a << 1) ^ 0x201b };
    let times = |a: u32, b: u32| {
        (0..13).rev().fold(0, |sum, bit| alpha_times(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
    };
    let mut generator = vec![true];
    for odd in (1..2 * strength).step_by(2) {
        let root = (0..odd).fold(1, |power, _| alpha_times(power));
        let powers: Vec<u32> =
            std::iter::successors(Some(1), |power| Some(times(*power, root))).take(14).collect();
        // Of 2^14 sums of powers: the one polynomial of degree 13 with this root.
        let minimal = (1u32 << 13..1 << 14)
            .find(|polynomial| {
                (0..14).fold(0, |sum, i| sum ^ if polynomial >> i & 1 == 1 { powers[i] } else { 0 })
                    == 0
            })
            .unwrap();
        let mut product = vec![false; generator.len() + 13];
        for (i, coefficient) in generator.iter().enumerate() {
            for j in 0..14 {
                product[i + j] ^= *coefficient && minimal >> j & 1 == 1;
            }
        }
        generator = product;
    }
    let degree = generator.len() - 1;
    let remainder = |bytes: &[u8]| {
        let mut bits: Vec<bool> =
            bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect();
        let data_bits = bits.len();
        bits.resize(data_bits + degree, false);
        for at in 0..data_bits {
            if bits[at] {
                for i in 0..=degree {
                    bits[at + i] ^= generator[degree - i];
                }
            }
        }
        bits.split_off(data_bits)
    };
    let parity = remainder(data);
    let erased = remainder(&vec![0xff; data.len()]);
    let mut bytes = vec![0xff; degree.div_ceil(8)];
    for (at, (bit, erased)) in parity.into_iter().zip(erased).enumerate() {
        if bit ^ erased {
            bytes[at / 8] ^= 0x80 >> (at % 8);
        }
    }
    bytes
}

/// The Hamming parity by its definition: one parity at a time, over every bit.
fn plain_hamming(data: &[u8], rows: usize) -> [u8; 3] {
    let parity = |address_bit: usize, value: usize| {
        let ones = (0..data.len() * 8)
            .filter(|bit| bit >> address_bit & 1 == value && data[bit / 8] >> (bit % 8) & 1 == 1)
            .count();
        ones % 2 == 1
    };
    let mut bytes = [0xff; 3];
    let mut put = |byte: usize, bit: usize, one: bool| {
        if one {
            bytes[byte] ^= 1 << bit;
        }
    };
    for row in 0..rows {
        let (byte, bit) = if row < 8 { (1 - row / 4, row % 4 * 2) } else { (2, 0) };
        put(byte, bit, parity(3 + row, 0));
        put(byte, bit + 1, parity(3 + row, 1));
    }
    for column in 0..3 {
        put(2, 2 + 2 * column, parity(column, 0));
        put(2, 3 + 2 * column, parity(column, 1));
    }
    bytes
}

fn parity(code: Code, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; code.parity_bytes()];
    code.encode(data, &[], &mut bytes).unwrap();
    bytes
}

#[test]
fn parities_are_those_of_plain_codes() {
    let mut random = Random::new(1);
    for length in [512, 512, 256, 530, 64, 8] {
        let data = bytes(&mut random, length);
        assert_eq!(parity(Code::Bch4, &data), plain_bch(4, &data), "{length}");
        assert_eq!(parity(Code::Bch8, &data), plain_bch(8, &data), "{length}");
        if length <= 512 {
            assert_eq!(parity(Code::Hamming512, &data), plain_hamming(&data, 9), "{length}");
        }
        if length <= 256 {
            assert_eq!(parity(Code::Hamming256, &data), plain_hamming(&data, 8), "{length}");
        }
    }
}

#[test]
fn two_pieces_are_one_codeword() {
    let mut random = Random::new(2);
    for code in Code::ALL {
        for cut in [0, 1, 7, 8, 100, 255, 256] {
            let data = bytes(&mut random, 256);
            let mut pieces = vec![0; code.parity_bytes()];
            code.encode(&data[..cut], &data[cut..], &mut pieces).unwrap();
            assert_eq!(pieces, parity(code, &data), "{code:?} {cut}");
        }
    }
}

#[test]
fn an_erased_codeword_is_one_and_heals() {
    for code in Code::ALL {
        let step = code.step_bytes();
        for spare in [0, 8] {
            if step + spare > code.protected_max() {
                continue;
            }
            let mut word = Word::new(code, &vec![0xff; step], &vec![0xff; spare]);
            assert!(word.bytes.iter().all(|byte| *byte == 0xff), "{code:?}");
            for flip in 0..code.strength() as usize {
                word.flip(17 + 501 * flip);
            }
            assert_eq!(flips_if_erased(&word.bytes, code.strength()), Some(code.strength()));
            assert_eq!(flips_if_erased(&word.bytes, code.strength() - 1), None);
            assert_eq!(word.decode(), Ok(code.strength()));
            assert!(word.bytes.iter().all(|byte| *byte == 0xff), "{code:?}");
        }
    }
}

#[test]
fn every_single_flip_is_corrected() {
    let mut random = Random::new(3);
    for (code, data, spare) in [
        (Code::Hamming256, 256, 0),
        (Code::Hamming512, 512, 0),
        (Code::Hamming512, 0, 20),
        (Code::Bch4, 512, 16),
        (Code::Bch8, 512, 0),
    ] {
        let word = Word::new(code, &bytes(&mut random, data), &bytes(&mut random, spare));
        for bit in 0..8 * (data + spare) + 8 * code.parity_bytes() {
            let mut damaged = Word { bytes: word.bytes.clone(), ..word };
            damaged.flip(bit);
            // The unused bits are not checked.
            let counted = bit < word.bits();
            assert_eq!(damaged.decode(), Ok(u32::from(counted)), "{code:?} bit {bit}");
            assert!(!counted || damaged.bytes == word.bytes, "{code:?} bit {bit}");
        }
    }
}

#[test]
fn hamming_sees_every_two_flips() {
    let word = Word::new(Code::Hamming256, &bytes(&mut Random::new(4), 256), &[]);
    let bits = word.bits();
    // Every first bit with every second bit in a prime stride; all pairs of a small codeword.
    for first in 0..bits {
        for second in (first + 1..bits).step_by(13) {
            let mut damaged = Word { bytes: word.bytes.clone(), ..word };
            damaged.flip(first);
            damaged.flip(second);
            assert_eq!(damaged.decode(), Err(Uncorrectable), "{first} {second}");
        }
    }
    let word = Word::new(Code::Hamming512, &[0x5a, 0x03, 0xfe, 0x00], &[0xff, 0x01]);
    for first in 0..72 {
        for second in first + 1..72 {
            let mut damaged = Word { bytes: word.bytes.clone(), ..word };
            damaged.flip(first);
            damaged.flip(second);
            assert_eq!(damaged.decode(), Err(Uncorrectable), "{first} {second}");
        }
    }
}

/// `count` different bits below `bits`.
fn draw(random: &mut Random, bits: usize, count: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let bit = random.below(bits as u64) as usize;
        if !chosen.contains(&bit) {
            chosen.push(bit);
        }
    }
    chosen
}

#[test]
fn bch_corrects_up_to_its_strength() {
    let mut random = Random::new(5);
    for (code, spare) in [(Code::Bch4, 0), (Code::Bch4, 8), (Code::Bch8, 0), (Code::Bch8, 24)] {
        for flips in 0..=code.strength() as usize {
            for round in 0..400 {
                let word = Word::new(code, &bytes(&mut random, 512), &bytes(&mut random, spare));
                let mut damaged = Word { bytes: word.bytes.clone(), ..word };
                // Spread, in a burst, or in the parity.
                let bits = word.bits();
                let places = match round % 4 {
                    0 => {
                        let start = random.below((bits - 16) as u64) as usize;
                        draw(&mut random, 16, flips).into_iter().map(|bit| start + bit).collect()
                    }
                    1 => {
                        draw(&mut random, 52, flips).into_iter().map(|bit| bits - 1 - bit).collect()
                    }
                    _ => draw(&mut random, bits, flips),
                };
                for bit in &places {
                    damaged.flip(*bit);
                }
                assert_eq!(damaged.decode(), Ok(flips as u32), "{code:?} {places:?}");
                assert!(damaged.bytes == word.bytes, "{code:?} {places:?}");
            }
        }
    }
}

/// All patterns of up to four flips in a codeword of one byte (60 bits).
#[test]
fn bch4_corrects_every_pattern_of_a_short_codeword() {
    let word = Word::new(Code::Bch4, &[0xa7], &[]);
    let bits = word.bits();
    let check = |places: &[usize]| {
        let mut damaged = Word { bytes: word.bytes.clone(), ..word };
        places.iter().for_each(|bit| damaged.flip(*bit));
        assert_eq!(damaged.decode(), Ok(places.len() as u32), "{places:?}");
        assert!(damaged.bytes == word.bytes, "{places:?}");
    };
    for a in 0..bits {
        for b in 0..a {
            check(&[a, b]);
            for c in 0..b {
                check(&[a, b, c]);
                for d in (0..c).step_by(2) {
                    check(&[a, b, c, d]);
                }
            }
        }
    }
}

/// Beyond its strength the code detects the damage, or takes it for another codeword. That codeword
/// is at most as far away as the code can correct. It happens no more often than the theory
/// predicts.
#[test]
fn bch_beyond_its_strength() {
    let mut random = Random::new(6);
    for (code, most) in [(Code::Bch4, 40), (Code::Bch8, 0)] {
        let mut mistaken = 0;
        for round in 0..4000 {
            let flips = code.strength() as usize + 1 + round % 3;
            let word = Word::new(code, &bytes(&mut random, 512), &[]);
            let mut damaged = Word { bytes: word.bytes.clone(), ..word };
            for bit in draw(&mut random, word.bits(), flips) {
                damaged.flip(bit);
            }
            let before = damaged.bytes.clone();
            match damaged.decode() {
                Err(Uncorrectable) => assert!(damaged.bytes == before, "refused and changed"),
                Ok(count) => {
                    mistaken += 1;
                    assert!(count <= code.strength());
                    assert_eq!(damaged.decode(), Ok(0), "what was made is a codeword");
                }
            }
        }
        assert!(mistaken <= most, "{code:?}: {mistaken}");
    }
}

/// Any bytes: always a result, never a panic, and accepted bytes are a codeword.
#[test]
fn noise_is_answered() {
    let mut random = Random::new(7);
    for code in Code::ALL {
        for _ in 0..2000 {
            let bytes = bytes(&mut random, code.step_bytes() + code.parity_bytes());
            let mut word = Word { code, data: code.step_bytes(), spare: 0, bytes };
            if word.decode().is_ok() {
                assert_eq!(word.decode(), Ok(0));
            }
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    for code in Code::ALL {
        let mut parity = vec![0; code.parity_bytes()];
        let long = vec![0; code.protected_max() + 2];
        assert!(code.encode(&long, &[], &mut parity).is_err());
        assert!(code.encode(&[0; 256], &[], &mut parity[1..]).is_err());
        assert!(code.decode(&mut [0; 256], &mut [], &mut []).is_err());
        assert!(
            code.step_bytes() <= code.protected_max() && code.parity_bytes() <= Code::PARITY_MAX
        );
    }
    assert!(Code::Hamming256.encode(&[0; 3], &[], &mut [0; 3]).is_err());
}

/// The out-of-band bytes that Linux 6.1 wrote to nandsim (`bch=0`, `4` and `8`) for one page of
/// 2,048 bytes, read with `nanddump --noecc --oob`.
#[test]
fn parities_are_those_of_linux() {
    let page: Vec<u8> = (0..2048u32).map(|i| (i * i / 3 + i * 5 + (i >> 7) * 11) as u8).collect();
    let parities = |code: Code| -> Vec<u8> {
        page.chunks(code.step_bytes()).flat_map(|data| parity(code, data)).collect()
    };
    assert_eq!(
        parities(Code::Hamming256),
        [
            0x5a, 0xaa, 0x9b, 0x3c, 0x33, 0xcf, 0x69, 0x55, 0x5b, 0x33, 0xc3, 0xcf, 0x69, 0x9a,
            0x97, 0x96, 0xa5, 0xab, 0x55, 0x59, 0x9b, 0x66, 0x5a, 0xa7,
        ]
    );
    assert_eq!(
        parities(Code::Bch4),
        [
            0xa1, 0xc4, 0xc9, 0x03, 0x3a, 0xe6, 0x8f, 0x02, 0x54, 0xc5, 0xf9, 0xa1, 0xc4, 0x3f,
            0x07, 0x8a, 0x48, 0x31, 0x82, 0x8f, 0xbf, 0xe5, 0x49, 0xa0, 0x16, 0x6c, 0xd5, 0x5f,
        ]
    );
    assert_eq!(
        parities(Code::Bch8),
        [
            0xff, 0x1d, 0xb8, 0x0a, 0x14, 0x35, 0x8f, 0x64, 0x4e, 0x80, 0xed, 0x13, 0xcb, 0xb1,
            0x54, 0xfb, 0x1a, 0xb2, 0xf1, 0x97, 0xf5, 0x61, 0x8a, 0x7d, 0xff, 0xd6, 0xd0, 0xe0,
            0x0c, 0xc1, 0x8c, 0xfb, 0x28, 0x05, 0xa4, 0xe4, 0x07, 0x6f, 0xe6, 0x41, 0x42, 0x02,
            0x4a, 0x04, 0xd5, 0xc7, 0x08, 0x68, 0x0f, 0x39, 0x3e, 0xe8,
        ]
    );
}
