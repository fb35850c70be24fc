//! Images of NAND parts from `image build --nand`, opened as a product would open them.

mod common;

use std::fs;

use common::Scratch;
use steadfast::{OpenOptions, Volume};
use steadfast_flash::nand::{BlockNumber, Nand};
use steadfast_flash::part::Part;
use steadfast_host::HostPlatform;
use steadfast_host::nand::{FlashDevice, NandImage};

/// Bytes of a page of the part, with all out-of-band bytes.
const PAGE: usize = 2112;

fn source(scratch: &Scratch) {
    fs::create_dir_all(scratch.path("source/etc")).unwrap();
    fs::write(scratch.path("source/etc/large"), large()).unwrap();
    fs::write(scratch.path("source/small"), "small").unwrap();
}

fn large() -> Vec<u8> {
    (0..500_000u32).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_nand_image_is_whole_with_a_flipped_bit_in_each_page() {
    let scratch = Scratch::new();
    source(&scratch);
    scratch.ok("image build --quiet --nand slc-1gbit --nand-bad 7,900 nand.bin source");
    let mut bytes = fs::read(scratch.path("nand.bin")).unwrap();
    assert_eq!(bytes.len(), 1024 * 64 * PAGE);
    // Flips one bit in the data or the out-of-band bytes of each page, except in the bad-block mark
    // (two bytes).
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        let place = match number % 3 {
            0 => 2050 + number % 32,
            1 => PAGE - 1 - number % 15,
            _ => number * 11 % 2048,
        };
        page[place] ^= 1 << (number % 8);
    }
    fs::write(scratch.path("nand.bin"), &bytes).unwrap();

    let part = Part::SLC_1GBIT;
    let mut nand =
        NandImage::open(scratch.path("nand.bin"), &part, true).unwrap().with_code(&part).unwrap();
    for block in 0..1024 {
        assert_eq!(nand.is_bad(BlockNumber(block)).unwrap(), block == 7 || block == 900);
    }
    let device = FlashDevice::open(nand, false).unwrap();
    let volume = Volume::open(device, OpenOptions::default(), HostPlatform::new()).unwrap();
    assert_eq!(volume.file_read_all("/etc/large").unwrap(), large());
    assert_eq!(volume.file_read_all("/small").unwrap(), b"small");
    volume.close().unwrap();
}

/// Bytes of an erase block, with all out-of-band bytes.
const BLOCK: usize = 64 * PAGE;

#[test]
fn a_programmer_may_skip_bad_blocks() {
    let scratch = Scratch::new();
    source(&scratch);
    scratch.ok("image build --quiet --nand slc-1gbit image.bin source");
    let image = fs::read(scratch.path("image.bin")).unwrap();
    // The programmer writes each block to the next good one; the part has room for that at its end.
    let bad = [0, 2, 3, 9, 1023];
    let mut part = vec![0xff; image.len()];
    let good = (0..1024).filter(|block| !bad.contains(block));
    for (from, to) in image.chunks(BLOCK).zip(good) {
        part[to * BLOCK..][..BLOCK].copy_from_slice(from);
    }
    for block in bad {
        part[block * BLOCK + 2048] = 0;
    }
    fs::write(scratch.path("part.bin"), &part).unwrap();
    // Read-only access does not record the places of the blocks.
    assert_eq!(scratch.ok("cat part.bin /small"), "small");
    assert!(fs::read(scratch.path("part.bin")).unwrap() == part);
    let info = scratch.ok("flash info part.bin");
    assert!(info.contains("bad blocks    0, 2, 3, 9, 1023\n"), "{info}");
    // The first mount that writes records them; a block that goes bad later changes nothing.
    scratch.put_in("part.bin", "/new", b"new");
    let mut part = fs::read(scratch.path("part.bin")).unwrap();
    part[900 * BLOCK + 2048] = 0;
    fs::write(scratch.path("part.bin"), &part).unwrap();
    for (path, contents) in [("/small", "small"), ("/new", "new")] {
        assert_eq!(scratch.ok(&format!("cat part.bin {path}")), contents);
    }
    scratch.ok("get part.bin /etc/large copy");
    assert_eq!(fs::read(scratch.path("copy")).unwrap(), large());
}

#[test]
fn the_same_source_gives_the_same_nand_image() {
    let scratch = Scratch::new();
    source(&scratch);
    scratch.ok("image build --quiet --nand slc-1gbit one.bin source");
    scratch.ok("image build --quiet --nand slc-1gbit two.bin source");
    assert!(
        fs::read(scratch.path("one.bin")).unwrap() == fs::read(scratch.path("two.bin")).unwrap()
    );
    let line = scratch.fails(2, "image build --nand slc-1gbit --nand-bad 1024 three.bin source");
    assert!(line.contains("blocks 0 to 1023"), "{line}");
    assert!(!scratch.path("three.bin").exists());
    let output = scratch.line("image build --nand core four.bin source");
    assert!(String::from_utf8_lossy(&output.stderr).contains("slc-1gbit, spi-1gbit"));
}
