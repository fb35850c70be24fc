//! The whole file system in a small heap with 512-byte nodes, as on a microcontroller. The tests
//! count what it takes while it runs and for a mount after a power cut.
//!
//! The medium and the test's own model are not part of the device's heap and are not counted.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use steadfast::fs::{Caller, NewNode, RenameMode};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::MemoryMedium;

const HEAP: usize = 44 << 10;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of the file system.
struct SmallHeap;

// SAFETY: every call goes to the system allocator with the same layout.
unsafe impl GlobalAlloc for SmallHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            IN_USE.set(IN_USE.get() + layout.size());
            PEAK.set(PEAK.get().max(IN_USE.get()));
        }
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            IN_USE.set(IN_USE.get() - layout.size());
        }
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: SmallHeap = SmallHeap;

/// Runs a part of the device's program.
fn counted<T>(run: impl FnOnce() -> T) -> T {
    COUNTED.with(|counted| counted.set(true));
    let result = run();
    COUNTED.with(|counted| counted.set(false));
    result
}

/// Memory outside the heap, like a flash chip.
struct Chip(MemoryMedium);

impl steadfast_media::Medium for &Chip {
    fn geometry(&self) -> steadfast_media::Geometry {
        self.0.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), steadfast_media::MediumError> {
        outside(|| self.0.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), steadfast_media::MediumError> {
        outside(|| self.0.write(offset, data))
    }

    fn flush(&self) -> Result<(), steadfast_media::MediumError> {
        outside(|| self.0.flush())
    }
}

fn outside<T>(run: impl FnOnce() -> T) -> T {
    let before = COUNTED.with(|counted| counted.replace(false));
    let result = run();
    COUNTED.with(|counted| counted.set(before));
    result
}

#[test]
fn everything_fits() {
    let chip = Chip(MemoryMedium::new(320 << 10, 512).expect("geometry"));
    let options =
        FormatOptions { block_size: 512, log_size: Some(16 << 10), ..FormatOptions::default() };
    let open = OpenOptions { cache_size: 16 << 10, ..OpenOptions::default() };
    counted(|| Volume::format(&&chip, &options, &TestPlatform::new())).expect("format");
    assert_eq!(IN_USE.get(), 0, "format gives everything back");

    let caller = Caller::default();
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut volume =
        counted(|| Volume::open(&chip, open.clone(), TestPlatform::new())).expect("open");
    let mut full = 0;
    for round in 0..600u32 {
        let name = format!("file-{}", round * 7 % 90).into_bytes();
        let length = (round as usize * 131) % 6000;
        let data = vec![round as u8; length];
        let result = counted(|| {
            let inode = match volume.lookup(InodeNumber::ROOT, &name) {
                Ok(found) => found.inode,
                Err(Error::NotFound) => {
                    volume.create(InodeNumber::ROOT, &name, NewNode::Regular, 0o644, &caller)?.inode
                }
                Err(error) => return Err(error),
            };
            volume.set_attributes(
                inode,
                &steadfast::fs::SetAttributes { size: Some(0), ..Default::default() },
            )?;
            volume.write(inode, 0, &data, round % 3 == 0)
        });
        match result {
            Ok(()) => {
                expected.insert(name.clone(), data);
            }
            Err(Error::NoSpace) => {
                full += 1;
                // Either the file could not be made, or it exists and is empty. It can always be
                // removed.
                match counted(|| volume.unlink(InodeNumber::ROOT, &name)) {
                    Ok(()) | Err(Error::NotFound) => expected.remove(&name),
                    Err(error) => panic!("unlink on a full volume: {error}"),
                };
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        if round % 11 == 0 && expected.contains_key(&name) {
            let to = format!("moved-{}", round % 5).into_bytes();
            let moved = counted(|| {
                let root = InodeNumber::ROOT;
                volume.rename(root, &name, root, &to, RenameMode::Replace)
            });
            match moved {
                Ok(()) => {
                    let data = expected.remove(&name).expect("known");
                    expected.insert(to, data);
                }
                Err(error) => assert_eq!(error, Error::NoSpace, "rename"),
            }
        }
        while counted(|| volume.background()).expect("background") {}
        if round % 100 == 99 {
            counted(|| {
                volume.transact().expect("transact");
                drop(volume);
            });
            volume =
                counted(|| Volume::open(&chip, open.clone(), TestPlatform::new())).expect("reopen");
        }
    }
    let mut buffer = vec![0; 8192];
    for (name, data) in &expected {
        let length = counted(|| {
            let found = volume.lookup(InodeNumber::ROOT, name).expect("lookup");
            volume.read(found.inode, 0, &mut buffer).expect("read")
        });
        assert!(buffer[..length] == data[..], "{}", String::from_utf8_lossy(name));
    }
    counted(|| {
        volume.close().expect("close");
        drop(volume);
    });
    let peak = PEAK.get();
    println!("peak heap {peak} bytes; {full} writes found the volume full");
    assert!(peak <= HEAP, "peak heap {peak} bytes, allowed {HEAP}");
}

/// The peak of `run` alone, beside what is in use already.
fn peak_of(run: impl FnOnce()) -> usize {
    let (in_use, peak) = (IN_USE.get(), PEAK.get());
    PEAK.set(in_use);
    counted(run);
    let own = PEAK.get() - in_use;
    PEAK.set(peak);
    own
}

/// What a device takes that lost its power now: the mount, and its first change.
fn mount_peak(chip: &Chip, options: &OpenOptions) -> usize {
    let copy = Chip(MemoryMedium::from_bytes(&chip.0.to_bytes(), 512).expect("geometry"));
    peak_of(|| {
        let volume = Volume::open(&copy, options.clone(), TestPlatform::new()).expect("mount");
        let root = InodeNumber::ROOT;
        volume.create(root, b"next", NewNode::Regular, 0o644, &Caller::default()).expect("create");
        volume.transact().expect("transact");
    })
}

/// Small files, a large one that is overwritten all over, then deletions: each is durable at once.
/// After any of them a mount takes no more than running has taken at the end.
#[test]
fn a_mount_after_a_cut_needs_no_more_than_running() {
    for log_size in [8, 16, 32, 128].map(|kib| kib << 10) {
        let chip = Chip(MemoryMedium::new(1 << 20, 512).expect("geometry"));
        // Not at the end of a mount, so that only cuts are measured.
        let mask = TransactionMask(TransactionMask::DEFAULT.0 & !TransactionMask::UNMOUNT.0);
        let format = FormatOptions {
            block_size: 512,
            log_size: Some(log_size),
            mask,
            ..FormatOptions::default()
        };
        Volume::format(&&chip, &format, &TestPlatform::new()).expect("format");
        let open = OpenOptions { cache_size: 0, access_times: false, ..OpenOptions::default() };
        let (root, caller) = (InodeNumber::ROOT, Caller::default());
        let mut mounts = Vec::new();
        let mut cut = || outside(|| mounts.push(mount_peak(&chip, &open)));
        let running = peak_of(|| {
            let volume = Volume::open(&chip, open.clone(), TestPlatform::new()).expect("open");
            let create =
                |name: &str| volume.create(root, name.as_bytes(), NewNode::Regular, 0o644, &caller);
            for number in 0..50_u8 {
                let file = create(&format!("file-{number}")).expect("create");
                volume.write(file.inode, 0, &[number; 1000], true).expect("write");
                cut();
            }
            let large = create("large").expect("create").inode;
            for round in 0..320_u64 {
                let place = round * 37 % 320 * 512;
                volume.write(large, place, &[round as u8; 512], true).expect("overwrite");
                volume.background().expect("background");
                cut();
            }
            for number in 0..40 {
                volume.unlink(root, format!("file-{number}").as_bytes()).expect("unlink");
                if number % 20 == 19 {
                    volume.transact().expect("transact");
                    cut();
                }
            }
        });
        let mount = mounts.iter().max().expect("cuts");
        println!("log of {log_size}: peak running {running} bytes, of a mount {mount}");
        assert!(mounts.len() > 300 && *mount <= running, "mount {mount}, running {running}");
    }
}
