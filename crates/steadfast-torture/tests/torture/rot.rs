//! Bytes of valid volumes are flipped, and everything is read. `STEADFAST_ROT=1` flips every byte
//! that a reader uses; the default is one in sixteen.

use steadfast::FormatOptions;
use steadfast_torture::rot::{RotTally, rot_world};
use steadfast_torture::world::{Profile, World};

fn stride() -> u64 {
    std::env::var("STEADFAST_ROT").ok().and_then(|text| text.parse().ok()).unwrap_or(16)
}

fn rot(seed: u64, block_size: u32, copies: u8, size: u64) {
    let mut world = World::new(seed, Profile::Mixed);
    world.size = size;
    world.atomic_unit = block_size.min(512);
    world.cache_size = 0;
    world.format = FormatOptions {
        block_size,
        node_size: None,
        metadata_copies: Some(copies),
        log_size: Some(size / 16),
        uuid: [seed as u8; 16],
        ..FormatOptions::default()
    };
    let mut tally = RotTally::default();
    if let Err(what) = rot_world(&world, 80, stride(), &mut tally) {
        panic!("{what}");
    }
    println!("blocks of {block_size}, {copies} copies: {tally:?}");
    assert!(tally.snapshots > 0, "no snapshot was read: {tally:?}");
    assert!(
        copies == 2 || tally.errors + tally.refused > 0,
        "no reader has noticed anything: {tally:?}"
    );
}

#[test]
fn one_copy_small_blocks() {
    rot(1, 128, 1, 128 << 10);
}

#[test]
fn one_copy_middle_blocks() {
    rot(2, 512, 1, 256 << 10);
}

#[test]
fn one_copy_large_blocks() {
    rot(3, 4096, 1, 512 << 10);
}

#[test]
fn two_copies_small_blocks() {
    rot(4, 128, 2, 128 << 10);
}

#[test]
fn two_copies_middle_blocks() {
    rot(5, 512, 2, 256 << 10);
}

#[test]
fn two_copies_large_blocks() {
    rot(6, 4096, 2, 512 << 10);
}
