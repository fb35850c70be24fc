//! No space at every fill level. More worlds: `STEADFAST_SEEDS=0..200`.

use steadfast::{FormatOptions, TransactionMask};
use steadfast_torture::fill::{FillTally, fill};
use steadfast_torture::world::{Profile, World};

fn run(seed: u64, block_size: u32, copies: u8, log: bool, blocks: u64) {
    let mut world = World::new(seed, Profile::Full);
    world.size = blocks * u64::from(block_size);
    world.atomic_unit = block_size.min(512);
    world.cache_size = 64 << 10;
    world.format = FormatOptions {
        block_size,
        metadata_copies: Some(copies),
        log_size: Some(if log { 8 * u64::from(block_size) } else { 0 }),
        uuid: [3; 16],
        mask: TransactionMask::DEFAULT,
        ..FormatOptions::default()
    };
    let mut tally = FillTally::default();
    if let Err(what) = fill(&world, &mut tally) {
        panic!("{what}");
    }
    println!("blocks of {block_size}, {copies} copies: {tally:?}");
    assert!(tally.refused > 0 && tally.levels > 10, "{tally:?}");
}

#[test]
fn one_copy_without_a_log() {
    run(1, 512, 1, false, 160);
}

#[test]
fn two_copies_with_a_log() {
    run(2, 512, 2, true, 256);
}

#[test]
fn large_blocks() {
    run(3, 4096, 1, true, 96);
}

#[test]
fn nodes_of_several_blocks() {
    run(4, 128, 1, true, 512);
}
