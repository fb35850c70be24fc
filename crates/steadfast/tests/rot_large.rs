//! Bits rot at random on a large volume with many files, a few to a few hundred at once.
//!
//! Every read returns the right bytes or reports damage, in the live tree and in a snapshot. The
//! cache is a fraction of the metadata; nothing panics. `STEADFAST_ROT_IMAGES` is the number of
//! images; each has its own seed.

use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, OpenOptions, Volume};
use steadfast_media::{Medium, MemoryMedium, Random};

const SIZE: u64 = 256 << 20;
const FILES: usize = 1500;
const CACHE: usize = 512 << 10;
const BLOCK: usize = 4096;

type Device<'a> = Volume<&'a MemoryMedium, TestPlatform>;

fn path(file: usize) -> String {
    format!("/d{}/file {file}", file % 30)
}

/// Content of file number `file` before (`age` 0) and after the snapshot. Small files are stored in
/// the tree.
fn content(file: usize, age: usize) -> Vec<u8> {
    let age = if file.is_multiple_of(4) { age } else { 0 };
    let length = [40, 300, 5000, 17_000, 90_000][file % 5] + file;
    (0..length).map(|at| (at * 7 + file * 13 + age * 101 + at / 251) as u8).collect()
}

fn write_all(volume: &Device<'_>, age: usize) {
    for file in (0..FILES).filter(|file| age == 0 || file.is_multiple_of(4)) {
        volume.file_write_all(path(file), &content(file, age)).expect("write");
    }
    while volume.background().expect("background") {}
}

fn filled(copies: u8) -> MemoryMedium {
    let medium = MemoryMedium::new(SIZE, 512).expect("geometry");
    let options = FormatOptions { metadata_copies: Some(copies), ..FormatOptions::default() };
    Volume::format(&&medium, &options, &TestPlatform::new()).expect("format");
    let volume: Device<'_> =
        Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).expect("open");
    for directory in 0..30 {
        volume.create_directory_all(format!("/d{directory}")).expect("mkdir");
    }
    write_all(&volume, 0);
    volume.snapshot_create("before").expect("snapshot");
    write_all(&volume, 1);
    volume.close().expect("close");
    drop(volume);
    medium
}

/// Blocks that are not zero; the other blocks are never read.
fn written(medium: &MemoryMedium) -> Vec<u64> {
    let mut block = vec![0; BLOCK];
    let all = (0..SIZE).step_by(BLOCK).filter(|at| {
        medium.read(*at, &mut block).expect("read");
        block.iter().any(|byte| *byte != 0)
    });
    all.collect()
}

fn is_damage(error: &Error) -> bool {
    use Error::{
        CorruptData, CorruptLog, CorruptMetadata, NewerStateLost, NoMetaroot, NotSteadfast,
        SuperblockDamaged,
    };
    matches!(
        error,
        CorruptData { .. }
            | CorruptMetadata { .. }
            | CorruptLog { .. }
            | NewerStateLost(_)
            | NoMetaroot
            | NotSteadfast
            | SuperblockDamaged
    )
}

/// Reads everything. Returns how many files could not be read.
fn read_all(volume: &Device<'_>, age: usize, what: &str) -> usize {
    let mut lost = 0;
    for file in 0..FILES {
        match volume.file_read_all(path(file)) {
            Ok(seen) => assert!(seen == content(file, age), "{what}: {} is wrong", path(file)),
            Err(error) if is_damage(&error) => lost += 1,
            Err(error) => panic!("{what}: {}: {error}", path(file)),
        }
    }
    lost
}

fn rot(copies: u8) {
    let medium = filled(copies);
    let blocks = written(&medium);
    let images =
        std::env::var("STEADFAST_ROT_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let options = || OpenOptions { read_only: true, cache_size: CACHE, ..OpenOptions::default() };
    let (mut flips, mut lost, mut refused) = (0, 0, 0);
    for seed in 1..=images {
        let mut random = Random::new(seed);
        let mut bad = Vec::new();
        for _ in 0..[1, 8, 40, 300][seed as usize % 4] {
            let at =
                blocks[random.below(blocks.len() as u64) as usize] + random.below(BLOCK as u64);
            bad.push((at - at % 512, (at % 512) as usize, 1_u8 << random.below(8)));
        }
        let flip = || {
            let mut unit = [0; 512];
            for (at, byte, bit) in &bad {
                medium.read(*at, &mut unit).expect("read");
                unit[*byte] ^= bit;
                medium.write(*at, &unit).expect("write");
            }
        };
        flip();
        flips += bad.len();
        let what = format!("{copies} copies, seed {seed}");
        match Device::open(&medium, options(), TestPlatform::new()) {
            Ok(volume) => lost += read_all(&volume, 1, &what),
            Err(error) if is_damage(&error) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
        match Device::open_snapshot(&medium, TestPlatform::new(), options(), "before") {
            Ok(volume) => lost += read_all(&volume, 0, &format!("{what}, snapshot")),
            Err(error) if is_damage(&error) => refused += 1,
            Err(error) => panic!("{what}: snapshot: {error}"),
        }
        // The same bits again: the volume is sound.
        flip();
    }
    println!(
        "{copies} copies: {flips} bits in {images} images: {lost} files lost, {refused} did not open"
    );
    assert!(lost > 0, "no reader has noticed anything");
    let volume = Device::open(&medium, options(), TestPlatform::new()).expect("open");
    assert_eq!(read_all(&volume, 1, "sound"), 0);
}

#[test]
fn one_copy_of_metadata() {
    rot(1);
}

#[test]
fn two_copies_of_metadata() {
    rot(2);
}
