//! The files with which sequences begin, and every operation on them that differs in kind.

use steadfast::fs::{AllocateMode, RenameMode, SetXattrMode};

use crate::operation::{Change, Make, Name, Operation, Place, Time};
use crate::shorthand::{allocate, append, path, size, write};

/// A letter: one operation, or a few that belong together.
#[derive(Debug, Clone)]
pub struct Element {
    /// Its description.
    pub name: &'static str,
    /// The operations.
    pub operations: Vec<Operation>,
    /// The file or directory that a program would fsync after it.
    pub touched: Place,
    /// The directory that contains `touched`.
    pub parent: Place,
    /// Whether the letter belongs to the pruned set for sequences of three.
    pruned: bool,
}

/// The letters of one position in a sequence.
#[derive(Debug)]
pub struct Alphabet(Vec<Element>);

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;
const D: u8 = 3;
const E: u8 = 4;
const F: u8 = 5;
const NEW: u8 = 6;

fn create(directory: &[u8], name: u8, make: Make) -> Operation {
    Operation::Create {
        directory: path(directory),
        name: Name(name),
        make,
        permissions: 0o755,
        caller: 0,
    }
}

fn link(from: &[u8], directory: &[u8], name: u8) -> Operation {
    Operation::Link { from: path(from), directory: path(directory), name: Name(name) }
}

fn unlink(directory: &[u8], name: u8) -> Operation {
    Operation::Unlink { directory: path(directory), name: Name(name) }
}

fn rename(from: &[u8], from_name: u8, to: &[u8], to_name: u8, mode: RenameMode) -> Operation {
    let (from_name, to_name) = (Name(from_name), Name(to_name));
    Operation::Rename { from: path(from), from_name, to: path(to), to_name, mode }
}

fn copy(from: &[u8], from_offset: u64, to: &[u8], to_offset: u64, length: u64) -> Operation {
    Operation::CopyRange { from: path(from), from_offset, to: path(to), to_offset, length }
}

fn share(from: &[u8], from_offset: u64, to: &[u8], to_offset: u64, length: u64) -> Operation {
    Operation::CloneRange { from: path(from), from_offset, to: path(to), to_offset, length }
}

fn xattr(names: &[u8], name: u8, length: u32, fill: u32) -> Operation {
    Operation::SetXattr { place: path(names), name, length, fill, mode: SetXattrMode::Any }
}

/// The start of every sequence:
/// - `a` of 100 bytes (in the tree);
/// - `b` of several blocks with an attribute and a second name `c/f`;
/// - the directory `c` with the file `e` of a few blocks;
/// - the empty directory `d`.
pub fn files() -> Vec<Operation> {
    vec![
        create(&[], A, Make::Regular),
        create(&[], B, Make::Regular),
        create(&[], C, Make::Directory),
        create(&[], D, Make::Directory),
        create(&[C], E, Make::Regular),
        link(&[B], &[C], F),
        write(&[A], 0, 100, 70),
        write(&[B], 0, 6_000, 71),
        write(&[C, E], 0, 2_000, 72),
        xattr(&[B], 0, 40, 73),
    ]
}

impl Alphabet {
    /// The letters for a position (the first is 0): all of them or the pruned set. Each position
    /// writes different bytes.
    pub fn new(position: usize, pruned: bool) -> Alphabet {
        let mut elements = names();
        elements.extend(data(100 * (position as u32 + 1)));
        elements.extend(clones(100 * (position as u32 + 1)));
        elements.extend(volume(100 * (position as u32 + 1)));
        elements.retain(|element| element.pruned || !pruned);
        Alphabet(elements)
    }

    /// The letters.
    pub fn elements(&self) -> &[Element] {
        &self.0
    }
}

/// A letter that changes `touched`, which is in `parent`.
fn element(
    name: &'static str,
    touched: &[u8],
    parent: &[u8],
    pruned: bool,
    operations: Vec<Operation>,
) -> Element {
    Element { name, operations, touched: path(touched), parent: path(parent), pruned }
}

/// Letters that create, link, remove and rename, and that change attributes.
#[rustfmt::skip]
fn names() -> Vec<Element> {
    use RenameMode::{Exchange, NoReplace, Replace};
    let open = |names: &[u8]| Operation::Acquire { place: path(names), slot: 0 };
    let unnamed = Operation::CreateUnnamed { directory: path(&[]), slot: 1, caller: 0 };
    let write_held = |slot| Operation::Write { place: Place::Slot(slot), offset: 0, length: 3_000, fill: 77, sync: false };
    let permissions = Change { permissions: Some(0o600), ..Change::default() };
    let owner = Change { uid: Some(1000), gid: Some(1000), ..Change::default() };
    let times = Change { modified: Some(Time::At(-5, 7)), accessed: Some(Time::Now), ..Change::default() };
    let set = |names: &[u8], change| Operation::Set { place: path(names), change };
    vec![
        element("create n", &[NEW], &[], true, vec![create(&[], NEW, Make::Regular)]),
        element("create c/n", &[C, NEW], &[C], false, vec![create(&[C], NEW, Make::Regular)]),
        element("mkdir n", &[NEW], &[], false, vec![create(&[], NEW, Make::Directory)]),
        element("mkdir d/n", &[D, NEW], &[D], true, vec![create(&[D], NEW, Make::Directory)]),
        element("symlink n", &[NEW], &[], false, vec![create(&[], NEW, Make::Symlink(20))]),
        element("long symlink d/n", &[D, NEW], &[D], false, vec![create(&[D], NEW, Make::Symlink(700))]),
        element("mkfifo n", &[NEW], &[], false, vec![create(&[], NEW, Make::Fifo)]),
        element("unnamed file, linked as n", &[NEW], &[], false, vec![
            unnamed.clone(), write_held(1),
            Operation::Link { from: Place::Slot(1), directory: path(&[]), name: Name(NEW) },
            Operation::Release { slot: 1 },
        ]),
        element("unnamed file, let go", &[], &[], false, vec![unnamed, write_held(1), Operation::Release { slot: 1 }]),
        element("link a d/n", &[A], &[D], true, vec![link(&[A], &[D], NEW)]),
        element("link c/e n", &[NEW], &[], false, vec![link(&[C, E], &[], NEW)]),
        element("link b n, rename n a", &[A], &[], false, vec![link(&[B], &[], NEW), rename(&[], NEW, &[], A, Replace)]),
        element("unlink a", &[], &[], true, vec![unlink(&[], A)]),
        element("unlink b", &[C, F], &[], false, vec![unlink(&[], B)]),
        element("unlink c/f", &[B], &[C], false, vec![unlink(&[C], F)]),
        element("unlink c/e", &[C], &[], false, vec![unlink(&[C], E)]),
        element("unlink open b and c/f", &[], &[], false, vec![open(&[B]), unlink(&[], B), unlink(&[C], F)]),
        element("unlink open c/e, write to it, let go", &[C], &[], true, vec![
            open(&[C, E]), unlink(&[C], E), write_held(0), Operation::Release { slot: 0 },
        ]),
        element("unlink a, create it again", &[A], &[], false, vec![unlink(&[], A), create(&[], A, Make::Regular)]),
        element("rmdir d", &[], &[], true, vec![
            Operation::RemoveDirectory { directory: path(&[]), name: Name(D) },
        ]),
        element("empty and rmdir c", &[], &[], false, vec![
            unlink(&[C], E), unlink(&[C], F),
            Operation::RemoveDirectory { directory: path(&[]), name: Name(C) },
        ]),
        element("rename a n", &[NEW], &[], true, vec![rename(&[], A, &[], NEW, Replace)]),
        element("rename a b", &[B], &[], true, vec![rename(&[], A, &[], B, Replace)]),
        element("rename b a", &[A], &[], false, vec![rename(&[], B, &[], A, Replace)]),
        element("rename a c/e", &[C, E], &[C], false, vec![rename(&[], A, &[C], E, Replace)]),
        element("rename c/e b", &[B], &[], false, vec![rename(&[C], E, &[], B, Replace)]),
        element("rename b c/f (one file)", &[B], &[], false, vec![rename(&[], B, &[C], F, Replace)]),
        element("rename b n unless it exists", &[NEW], &[], false, vec![rename(&[], B, &[], NEW, NoReplace)]),
        element("rename c d (over an empty one)", &[D], &[], true, vec![rename(&[], C, &[], D, Replace)]),
        element("rename c d/n (into the other)", &[D, NEW], &[D], true, vec![rename(&[], C, &[D], NEW, Replace)]),
        element("rename d c/n (into the other)", &[C, NEW], &[C], false, vec![rename(&[], D, &[C], NEW, Replace)]),
        element("exchange a b", &[A], &[], false, vec![rename(&[], A, &[], B, Exchange)]),
        element("exchange b d", &[D], &[], false, vec![rename(&[], B, &[], D, Exchange)]),
        element("exchange a c/e", &[A], &[], false, vec![rename(&[], A, &[C], E, Exchange)]),
        element("exchange c d", &[C], &[], false, vec![rename(&[], C, &[], D, Exchange)]),
        element("replace b by way of n", &[B], &[], true, vec![
            create(&[], NEW, Make::Regular), write(&[NEW], 0, 3_000, 78), rename(&[], NEW, &[], B, Replace),
        ]),
        element("take a snapshot", &[], &[], true, vec![Operation::SnapshotCreate { name: 1 }]),
        element("chmod b", &[B], &[], false, vec![set(&[B], permissions)]),
        element("chown d", &[D], &[], false, vec![set(&[D], owner)]),
        element("utimens a", &[A], &[], false, vec![set(&[A], times)]),
        element("set attribute of a", &[A], &[], true, vec![xattr(&[A], 8, 300, 79)]),
        element("change attribute of b", &[B], &[], false, vec![xattr(&[B], 0, 200, 80)]),
        element("set long attribute of d", &[D], &[], false, vec![xattr(&[D], 9, 2_500, 81)]),
        element("remove attribute of b", &[B], &[], false, vec![
            Operation::RemoveXattr { place: path(&[B]), name: 0 },
        ]),
    ]
}

/// Letters that change the bytes of files. Stores to a mapped file reach the core as writes of
/// whole pages.
#[rustfmt::skip]
fn data(fill: u32) -> Vec<Element> {
    use AllocateMode::{Allocate, PunchHole, ZeroRange};
    let data = |name, names: &[u8], pruned, operations| {
        element(name, names, &names[..names.len() - 1], pruned, operations)
    };
    vec![
        data("overwrite a", &[A], false, vec![write(&[A], 0, 100, fill)]),
        data("grow a out of the tree", &[A], true, vec![append(&[A], 3_000, fill)]),
        data("append to a in the tree", &[A], false, vec![append(&[A], 60, fill)]),
        data("overwrite the middle of b", &[B], true, vec![write(&[B], 900, 1_000, fill)]),
        data("overwrite a block of b", &[B], false, vec![write(&[B], 512, 512, fill)]),
        data("overwrite all of b", &[B], false, vec![write(&[B], 0, 6_000, fill)]),
        data("overwrite the end of b and on", &[B], false, vec![write(&[B], 5_800, 3_000, fill)]),
        data("append to b", &[B], true, vec![append(&[B], 700, fill)]),
        data("write far past the end of b", &[B], false, vec![write(&[B], 40_000, 600, fill)]),
        data("store to the first page of b", &[B], true, vec![write(&[B], 0, 4_096, fill)]),
        data("store to the second page of b", &[B], false, vec![write(&[B], 4_096, 1_904, fill)]),
        data("write c/e by its pages twice", &[C, E], false, vec![
            write(&[C, E], 0, 2_000, fill), write(&[C, E], 0, 2_000, fill + 1),
        ]),
        data("truncate a to nothing", &[A], false, vec![size(&[A], 0)]),
        data("truncate b to nothing", &[B], true, vec![size(&[B], 0)]),
        data("truncate b within a block", &[B], true, vec![size(&[B], 3_000)]),
        data("truncate b at a block", &[B], false, vec![size(&[B], 4_096)]),
        data("extend a by truncate", &[A], false, vec![size(&[A], 5_001)]),
        data("extend b by truncate", &[B], false, vec![size(&[B], 20_000)]),
        data("truncate b and write it anew", &[B], false, vec![size(&[B], 0), write(&[B], 0, 2_500, fill)]),
        data("append to b, truncate, append", &[B], true, vec![
            append(&[B], 700, fill), size(&[B], 6_100), append(&[B], 300, fill + 1),
        ]),
        data("allocate past b, keep size", &[B], true, vec![allocate(&[B], 6_000, 5_000, Allocate { keep_size: true })]),
        data("allocate past b", &[B], false, vec![allocate(&[B], 5_000, 7_000, Allocate { keep_size: false })]),
        data("allocate past a, write into it", &[A], false, vec![
            allocate(&[A], 0, 6_000, Allocate { keep_size: true }), write(&[A], 2_000, 1_000, fill),
        ]),
        data("punch blocks of b", &[B], true, vec![allocate(&[B], 1_024, 2_048, PunchHole)]),
        data("punch parts of blocks of b", &[B], false, vec![allocate(&[B], 700, 3_000, PunchHole)]),
        data("punch a", &[A], false, vec![allocate(&[A], 20, 30, PunchHole)]),
        data("zero in b, keep size", &[B], false, vec![allocate(&[B], 700, 9_000, ZeroRange { keep_size: true })]),
        data("zero in b and on", &[B], false, vec![allocate(&[B], 700, 9_000, ZeroRange { keep_size: false })]),
        data("allocate b, punch, append", &[B], false, vec![
            allocate(&[B], 6_000, 3_000, Allocate { keep_size: true }), allocate(&[B], 2_000, 2_000, PunchHole),
            append(&[B], 900, fill),
        ]),
        data("copy a to b", &[B], false, vec![copy(&[A], 0, &[B], 100, 100)]),
        data("copy b to a", &[A], false, vec![copy(&[B], 0, &[A], 0, 5_000)]),
        data("copy within b", &[B], false, vec![copy(&[B], 0, &[B], 6_000, 3_000)]),
        data("O_SYNC write to a", &[A], false, vec![
            Operation::Write { place: path(&[A]), offset: 10, length: 50, fill, sync: true },
        ]),
        data("O_SYNC append to b", &[B], false, vec![
            Operation::Append { place: path(&[B]), length: 1_000, fill, sync: true },
        ]),
    ]
}

/// Letters that share blocks between files: 4096 bytes are whole blocks on every medium.
#[rustfmt::skip]
fn clones(fill: u32) -> Vec<Element> {
    vec![
        element("clone b to n", &[NEW], &[], true, vec![create(&[], NEW, Make::Regular), share(&[B], 0, &[NEW], 0, 0)]),
        element("clone b over a", &[A], &[], false, vec![share(&[B], 0, &[A], 0, 0)]),
        element("clone the first blocks of b past its end", &[B], &[], true, vec![share(&[B], 0, &[B], 8_192, 4_096)]),
        element("clone b over c/e, overwrite both", &[C, E], &[C], false, vec![
            share(&[B], 0, &[C, E], 0, 0), write(&[C, E], 700, 600, fill), write(&[B], 900, 700, fill + 1),
        ]),
        element("clone b to n, remove b and c/f", &[NEW], &[], false, vec![
            create(&[], NEW, Make::Regular), share(&[B], 0, &[NEW], 0, 0), unlink(&[], B), unlink(&[C], F),
        ]),
    ]
}

/// Letters that concern the whole volume: atomic commands, and its size.
#[rustfmt::skip]
fn volume(fill: u32) -> Vec<Element> {
    let replace = [create(&[], NEW, Make::Regular), write(&[NEW], 0, 3_000, fill), rename(&[], NEW, &[], B, RenameMode::Replace)];
    let command = |end: Operation| [&[Operation::Begin][..], &replace, &[unlink(&[], A), end]].concat();
    vec![
        element("replace b and unlink a atomically", &[B], &[], true, command(Operation::Commit)),
        element("replace b and unlink a, roll it back", &[B], &[], false, command(Operation::Abort)),
        element("make the volume smaller", &[], &[], false, vec![Operation::Resize { eighths: 6 }]),
        element("make the volume smaller and larger", &[], &[], false, vec![
            Operation::Resize { eighths: 5 }, append(&[B], 900, fill), Operation::Resize { eighths: 8 },
        ]),
    ]
}
