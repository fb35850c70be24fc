//! What operations cost on a microcontroller: instructions without those of the medium, requests,
//! heap and stack. The contents are compared at the end.
#![no_std]
#![no_main]

use steadfast::fs::{Caller, NewNode, RenameMode};
use steadfast::{FormatOptions, InodeNumber, OpenOptions};
use steadfast_bare::RacyCell;
use steadfast_boards::chip::{CHIP, Chip};
use steadfast_boards::platform::Board;
use steadfast_boards::print::{field, text};
use steadfast_boards::{heap, machine, must, stack, start_counter};

type Volume = steadfast::Volume<&'static Chip, Board>;

const ROOT: InodeNumber = InodeNumber::ROOT;
const SMALL_FILES: u8 = 50;
const SMALL: usize = 1000;
const LARGE: usize = 64 << 10;
const ENTRY: usize = 32;
const APPENDS: u8 = 100;
const CREATED: u8 = 20;
const PAGE: usize = 4096;

unsafe extern "C" {
    static code_start: u8;
    static code_end: u8;
    static constants_start: u8;
    static constants_end: u8;
}

/// What the large file should hold.
static MODEL: RacyCell<[u8; LARGE]> = RacyCell::new([0; LARGE]);

/// Runs `count` operations and prints what they cost together. The peaks are those of the whole
/// heap, and of the stack below this frame.
#[inline(never)]
fn measured<T>(name: &str, count: u64, run: impl FnOnce() -> T) -> T {
    CHIP.take_counts();
    heap::take_peak();
    stack::paint();
    let from = machine::counter();
    let result = run();
    let to = machine::counter();
    let deepest = stack::deepest();
    let peak = heap::take_peak();
    let counts = CHIP.take_counts();
    text("figure ");
    text(name);
    field("count", count);
    field("instructions", machine::instructions(from, to) - counts.instructions);
    field("reads", counts.reads);
    field("read_bytes", counts.read_bytes);
    field("writes", counts.writes);
    field("written_bytes", counts.written_bytes);
    field("flushes", counts.flushes);
    field("heap", peak as u64);
    field("stack", deepest as u64);
    text("\n");
    result
}

/// A name: a letter and two digits.
fn name(letter: u8, number: u8) -> [u8; 3] {
    [letter, b'0' + number / 10, b'0' + number % 10]
}

/// The bytes that a file should hold.
fn pattern(seed: u8, bytes: &mut [u8]) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed);
    }
}

fn create(volume: &Volume, name: &[u8]) -> InodeNumber {
    must(volume.create(ROOT, name, NewNode::Regular, 0o644, &Caller::default())).inode
}

/// Overwrites `length` bytes somewhere in the large file, and in the model, and waits until they
/// are durable.
fn overwrite(volume: &Volume, inode: InodeNumber, round: u8, length: usize) {
    let places = LARGE / length;
    let at = usize::from(round) * 37 % places * length;
    // SAFETY: there is one task, and this is the only reference.
    let model = unsafe { &mut *MODEL.get() };
    pattern(round, &mut model[at..at + length]);
    must(volume.write(inode, at as u64, &model[at..at + length], true));
}

fn mount() -> Volume {
    let options = OpenOptions { cache_size: 0, access_times: false, ..OpenOptions::default() };
    must(Volume::open(&CHIP, options, Board))
}

/// Everything is what it should be.
fn verify(volume: &Volume, large: InodeNumber, log: InodeNumber, renamed: bool) {
    let mut bytes = [0; SMALL + 24];
    let mut expected = [0; SMALL];
    for number in 0..SMALL_FILES {
        let letter = if renamed && number < 4 { b'r' } else { b's' };
        let found = must(volume.lookup(ROOT, &name(letter, number)));
        assert!(must(volume.read(found.inode, 0, &mut bytes)) == SMALL);
        pattern(number, &mut expected);
        assert!(bytes[..SMALL] == expected);
    }
    for number in 0..CREATED {
        let found = must(volume.lookup(ROOT, &name(b'c', number)));
        assert!(must(volume.read(found.inode, 0, &mut bytes)) == 100);
        pattern(number, &mut expected[..100]);
        assert!(bytes[..100] == expected[..100]);
    }
    for number in 0..APPENDS {
        assert!(must(volume.read(log, u64::from(number) * 32, &mut bytes[..ENTRY])) == ENTRY);
        pattern(number, &mut expected[..ENTRY]);
        assert!(bytes[..ENTRY] == expected[..ENTRY]);
    }
    // SAFETY: as in `overwrite`.
    let model = unsafe { &*MODEL.get() };
    for (index, part) in model.chunks(512).enumerate() {
        assert!(must(volume.read(large, index as u64 * 512, &mut bytes[..512])) == 512);
        assert!(bytes[..512] == *part);
    }
}

fn work(volume: &Volume) -> (InodeNumber, InodeNumber) {
    let mut bytes = [0; SMALL];
    measured("create-1000", SMALL_FILES.into(), || {
        for number in 0..SMALL_FILES {
            let inode = create(volume, &name(b's', number));
            pattern(number, &mut bytes);
            must(volume.write(inode, 0, &bytes, false));
        }
    });
    measured("point", 1, || must(volume.transact()));
    let large = create(volume, b"large");
    measured("write-65536", 1, || {
        // SAFETY: as in `overwrite`.
        let model = unsafe { &mut *MODEL.get() };
        pattern(0, model);
        for (index, part) in model.chunks(PAGE).enumerate() {
            must(volume.write(large, (index * PAGE) as u64, part, false));
        }
        must(volume.transact());
    });
    measured("overwrite-4096", 50, || {
        (0..50).for_each(|round| overwrite(volume, large, round, PAGE));
    });
    measured("overwrite-512", 50, || {
        (50..100).for_each(|round| overwrite(volume, large, round, 512));
    });
    let log = create(volume, b"log");
    measured("append-32", APPENDS.into(), || {
        for number in 0..APPENDS {
            let mut entry = [0; ENTRY];
            pattern(number, &mut entry);
            must(volume.append(log, &entry, true));
        }
    });
    measured("create-100", CREATED.into(), || {
        for number in 0..CREATED {
            let inode = create(volume, &name(b'c', number));
            pattern(number, &mut bytes[..100]);
            must(volume.write(inode, 0, &bytes[..100], true));
        }
    });
    measured("read-1000", SMALL_FILES.into(), || {
        for number in 0..SMALL_FILES {
            let found = must(volume.lookup(ROOT, &name(b's', number)));
            assert!(must(volume.read(found.inode, 0, &mut bytes)) == SMALL);
        }
    });
    measured("rename-4", 1, || {
        let mut point = must(volume.begin());
        for number in 0..4 {
            let (from, to) = (name(b's', number), name(b'r', number));
            must(volume.rename(ROOT, &from, ROOT, &to, RenameMode::Replace));
        }
        must(point.try_commit());
    });
    (large, log)
}

#[unsafe(no_mangle)]
fn run() {
    let ends = [&raw const code_start, &raw const code_end].map(|at| at.addr() as u64);
    let constants =
        [&raw const constants_start, &raw const constants_end].map(|at| at.addr() as u64);
    text("size");
    field("code", ends[1] - ends[0]);
    field("constants", constants[1] - constants[0]);
    text("\n");
    start_counter();
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    measured("format", 1, || must(Volume::format(&&CHIP, &options, &Board)));
    assert!(heap::used() == 0);
    let volume = measured("mount", 1, mount);
    let (large, log) = work(&volume);
    verify(&volume, large, log, true);
    for round in 100..110 {
        overwrite(&volume, large, round, PAGE);
    }
    drop(volume);
    assert!(heap::used() == 0);
    CHIP.power_up();
    let volume = measured("mount-after-cut", 1, mount);
    measured("first-change-after-cut", 1, || overwrite(&volume, large, 110, 512));
    verify(&volume, large, log, true);
    measured("close", 1, || must(volume.close()));
    drop(volume);
    assert!(heap::used() == 0);
    text("done\n");
}
