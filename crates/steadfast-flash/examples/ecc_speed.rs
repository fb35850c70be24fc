//! Speed of the error-correcting codes on this machine: megabytes of page data a second, on one
//! processor.

use std::hint::black_box;
use std::time::Instant;

use steadfast_flash::ecc::{Code, Uncorrectable};

/// Codewords of one round: 4 MiB of pages.
const CODEWORDS: usize = 8192;

fn main() -> Result<(), Uncorrectable> {
    println!("{:<12} {:>7} {:>8}  flips in every codeword", "", "", "");
    print!("{:<12} {:>7} {:>8}", "MB/s", "encode", "clean");
    for flips in [1, 2, 4, 8] {
        print!(" {flips:>7}");
    }
    println!();
    for code in Code::ALL {
        let step = code.step_bytes();
        // All codewords differ.
        let data: Vec<u8> = (0..step * CODEWORDS)
            .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
            .collect();
        let mut parity = vec![0; code.parity_bytes() * CODEWORDS];
        let speed = |seconds: f64| data.len() as f64 / seconds / 1e6;

        let start = Instant::now();
        for (data, parity) in data.chunks(step).zip(parity.chunks_mut(code.parity_bytes())) {
            code.encode(data, &[], parity)?;
        }
        print!("{:<12} {:>7.0}", format!("{code:?}"), speed(start.elapsed().as_secs_f64()));

        for flips in [0, 1, 2, 4, 8] {
            if flips > code.strength() as usize {
                continue;
            }
            let mut read = data.clone();
            for (index, codeword) in read.chunks_mut(step).enumerate() {
                // Different positions in each codeword, and 8 different ones within a codeword.
                for flip in 0..flips {
                    let bit = (index * 977 + flip * step) % (8 * step);
                    codeword[bit / 8] ^= 0x80 >> (bit % 8);
                }
            }
            let mut corrected = 0;
            let start = Instant::now();
            for (data, parity) in read.chunks_mut(step).zip(parity.chunks_mut(code.parity_bytes()))
            {
                corrected += black_box(code.decode(data, &mut [], parity)?);
            }
            let seconds = start.elapsed().as_secs_f64();
            assert!(read == data && corrected as usize == flips * CODEWORDS, "decoding is wrong");
            print!(" {:>width$.0}", speed(seconds), width = if flips == 0 { 8 } else { 7 });
        }
        println!();
    }
    Ok(())
}
