//! The catalogue of damage: every class of damage, once planted, must be reported in the right
//! words, with its place and what it affects. The image without the damage is clean.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::println;

use steadfast_media::MemoryMedium;

use crate::format::extent::Checksums;
use crate::format::inode::FILE_FLAGS;
use crate::format::key::{Key, Kind};
use crate::testing::TestPlatform;
use crate::tools::check::tests::edit::{
    address, bitmap, entry, extent, extent_key, inode, leaf, name, rot_node, rot_slot,
};
use crate::tools::check::tests::forge::Forge;
use crate::tools::check::tests::sample::{
    BIG, DEEP, LINK, OPEN, OTHER, ROOT, SMALL, SUB, run, sample,
};
use crate::tools::check::{CheckOptions, Finding, Severity, check};
use crate::types::{BlockAddress, Generation, InodeNumber};

/// The expected report of a class of damage.
pub(super) struct Class {
    pub name: &'static str,
    pub plant: fn(&mut Forge),
    severity: Severity,
    /// Words of one finding.
    words: &'static str,
    /// A path that the finding names; empty: none is required.
    path: &'static str,
}

const fn damaged(
    name: &'static str,
    plant: fn(&mut Forge),
    words: &'static str,
    path: &'static str,
) -> Class {
    Class { name, plant, severity: Severity::Damaged, words, path }
}

const fn degraded(name: &'static str, plant: fn(&mut Forge), words: &'static str) -> Class {
    Class { name, plant, severity: Severity::Degraded, words, path: "" }
}

/// Every class of damage inside a volume that can still be found.
pub(super) const CLASSES: &[Class] = &[
    // Fixed places.
    degraded(
        "first superblock",
        |f| f.rot_bytes(0),
        "superblock copy is damaged or missing: the first one, at byte 0",
    ),
    degraded(
        "second superblock",
        |f| f.rot_bytes(f.store.device.superblock.second_offset()),
        "superblock copy is damaged or missing: the second one",
    ),
    degraded(
        "newest metaroot, first copy",
        |f| rot_slot(f, f.metaroot.generation.0, &[0]),
        "one copy of metaroot generation",
    ),
    degraded(
        "newest metaroot, second copy",
        |f| rot_slot(f, f.metaroot.generation.0, &[1]),
        "one copy of metaroot generation",
    ),
    damaged(
        "newest metaroot, both copies",
        |f| rot_slot(f, f.metaroot.generation.0, &[0, 1]),
        "has no valid copy",
        "",
    ),
    degraded(
        "older metaroot, first copy",
        |f| rot_slot(f, f.metaroot.generation.0 + 1, &[0]),
        "one copy of metaroot slot",
    ),
    damaged(
        "older metaroot, both copies",
        |f| rot_slot(f, f.metaroot.generation.0 + 1, &[0, 1]),
        "has no valid copy",
        "",
    ),
    damaged(
        "metaroot: count of nodes",
        |f| f.metaroot(|m| m.nodes += 1),
        "nodes, the tree has",
        "",
    ),
    damaged(
        "metaroot: count of inodes",
        |f| f.metaroot(|m| m.inodes += 1),
        "the metaroot counts 9 inodes, 8 are there",
        "",
    ),
    damaged("metaroot: used blocks", |f| f.metaroot(|m| m.used_blocks -= 1), "used blocks", ""),
    damaged(
        "metaroot: next inode",
        |f| f.metaroot(|m| m.next_inode = 20),
        "next inode number 20 is in use",
        "",
    ),
    // Nodes.
    degraded(
        "leaf, first copy",
        |f| rot_node(f, Key::inode(BIG), leaf(f), &[0]),
        "copy of a node at block",
    ),
    degraded(
        "leaf, second copy",
        |f| rot_node(f, Key::inode(BIG), leaf(f), &[1]),
        "copy of a node at block",
    ),
    degraded(
        "root node, second copy",
        |f| rot_node(f, Key::MIN, 0, &[1]),
        "copy of a node at block",
    ),
    damaged(
        "leaf, both copies",
        |f| rot_node(f, Key::extent(BIG, 30), leaf(f), &[0, 1]),
        "cannot be read (checksum mismatch)",
        "/sub/big",
    ),
    damaged(
        "branch, both copies",
        |f| rot_node(f, Key::extent(BIG, 30), leaf(f) - 1, &[0, 1]),
        "cannot be read (checksum mismatch)",
        "",
    ),
    damaged(
        "root node, both copies",
        |f| rot_node(f, Key::MIN, 0, &[0, 1]),
        "cannot be read (checksum mismatch)",
        "/",
    ),
    damaged(
        "node of another generation",
        |f| {
            let leaf = leaf(f);
            f.node(&Key::extent(BIG, 30), leaf, |node| node.stamp(Generation(1), 0));
        },
        "node of another generation",
        "/sub/big",
    ),
    damaged(
        "keys outside the range of their node",
        |f| {
            let leaf = leaf(f);
            f.node(&Key::extent(BIG, 30), leaf, |node| {
                node.remove(node.count() - 1);
                node.insert(node.count(), &Key::extent(InodeNumber(5000), 0), &[]);
            });
        },
        "has keys outside its range",
        "",
    ),
    // Data.
    damaged(
        "data block",
        |f| f.rot(address(f, BIG, 2)),
        "does not match its checksum",
        "/sub/big, bytes 1024 to 1535",
    ),
    damaged(
        "several data blocks",
        |f| {
            let start = address(f, OTHER, 0);
            f.rot(BlockAddress(start.0 + 1));
            f.rot(BlockAddress(start.0 + 2));
        },
        "does not match its checksums",
        "/other, bytes 512 to 1535",
    ),
    // Space.
    damaged(
        "used block marked free",
        |f| bitmap(f, address(f, OTHER, 0).0, false),
        "1 used blocks are marked free",
        "",
    ),
    damaged(
        "free block marked used",
        |f| bitmap(f, f.store.device.superblock.end_block() - 1, true),
        "1 free blocks are marked used",
        "",
    ),
    damaged(
        "bitmap that cannot be",
        |f| f.item(&Key::group(0), |_| Some(vec![9])),
        "bitmap of group 0",
        "",
    ),
    damaged(
        "block used twice",
        |f| {
            let taken = address(f, OTHER, 0);
            extent(f, BIG, 2, |extent| extent.address = taken);
        },
        "used twice",
        "",
    ),
    damaged(
        "extent outside the volume",
        |f| extent(f, BIG, 2, |extent| extent.address.0 = 1 << 40),
        "no data blocks",
        "",
    ),
    // Files.
    damaged(
        "extents overlap",
        |f| {
            let key = extent_key(f, OTHER, 0);
            let value = f.value(&key);
            f.item(&Key::extent(OTHER, key.suffix() + 1), |_| Some(value));
        },
        "extents overlap",
        "/other",
    ),
    damaged(
        "extent with too few checksums",
        |f| extent(f, OTHER, 0, |extent| extent.checksums = Checksums::of(&[1]).unwrap()),
        "extent: ",
        "/other",
    ),
    damaged(
        "count of blocks",
        |f| inode(f, BIG, |inode| inode.blocks += 1),
        "blocks and has",
        "/sub/big",
    ),
    damaged(
        "extents of something that has none",
        |f| {
            let value = f.value(&extent_key(f, BIG, 2));
            f.item(&Key::extent(LINK, 0), |_| Some(value));
        },
        "must not have extents",
        "/link",
    ),
    damaged(
        "inline data longer than the file",
        |f| inode(f, SMALL, |inode| inode.size = 3),
        "of inline data",
        "/small",
    ),
    damaged(
        "symbolic link of another length",
        |f| inode(f, LINK, |inode| inode.size += 1),
        "target of 7 bytes, size 8",
        "/link",
    ),
    damaged(
        "attribute without its end",
        |f| {
            let (first, last) = Key::kind_range(BIG, Kind::Xattr);
            let (key, _) = f.store.previous(&f.metaroot.root(), &first, &last).unwrap().unwrap();
            f.item(&key, |_| None);
        },
        "extended attributes",
        "/sub/big",
    ),
    damaged(
        "attributes that cannot be",
        |f| f.item(&Key::inode(SMALL), |_| Some(vec![1; 112])),
        "inode: ",
        "/small",
    ),
    damaged(
        "attributes lost",
        |f| f.item(&Key::inode(SMALL), |_| None),
        "belongs to no inode",
        "/small",
    ),
    damaged(
        "key of an unknown kind",
        |f| {
            let mut key = Key::new(SMALL, Kind::Inline, 0);
            key.0[8] = 99;
            f.item(&key, |_| Some(vec![]));
        },
        "unknown kind 99",
        "/small",
    ),
    damaged(
        "second attribute key",
        |f| f.item(&Key::new(SMALL, Kind::Inode, 1), |_| Some(vec![0; 112])),
        "second attribute key",
        "/small",
    ),
    damaged(
        "entry in a file",
        |f| {
            let (_, value) = entry(f, ROOT, b"small");
            f.item(&Key::new(SMALL, Kind::Dirent, 99), |_| Some(value));
        },
        "no directory",
        "/small",
    ),
    damaged(
        "file's inode missing",
        |f| {
            let (key, mut value) = entry(f, ROOT, b"small");
            value[0] = 200;
            f.item(&key, |_| Some(value));
        },
        "names inode 200, which is not there",
        "/small",
    ),
    // Names.
    damaged(
        "link count of a file",
        |f| inode(f, SMALL, |inode| inode.links = 2),
        "counts 2 links and has 1 names",
        "/small",
    ),
    damaged(
        "flags of users without the feature",
        |f| inode(f, SMALL, |inode| inode.flags |= FILE_FLAGS),
        "has flags of users, but the superblock has no feature for them",
        "/small",
    ),
    damaged(
        "flags of users of a symbolic link",
        |f| inode(f, LINK, |inode| inode.flags |= FILE_FLAGS),
        "has flags of users, but it is neither a file nor a directory",
        "",
    ),
    damaged(
        "link count of a directory",
        |f| inode(f, SUB, |inode| inode.links = 2),
        "counts 2 links and has 1 subdirectories",
        "/sub",
    ),
    damaged(
        "entry count of a directory",
        |f| inode(f, SUB, |inode| inode.size = 5),
        "counts 5 entries and has 2",
        "/sub",
    ),
    damaged(
        "entry removed",
        |f| {
            let (key, _) = entry(f, ROOT, b"small");
            f.item(&key, |_| None);
        },
        "counts 1 links and has 0 names",
        "",
    ),
    damaged(
        "entry of the wrong type",
        |f| {
            let (key, mut value) = entry(f, ROOT, b"small");
            value[8] = 10;
            f.item(&key, |_| Some(value));
        },
        "wrong type",
        "/small",
    ),
    damaged(
        "entry under the wrong hash",
        |f| {
            let (key, mut value) = entry(f, ROOT, b"small");
            value[9] = b'S';
            f.item(&key, |_| Some(value));
        },
        "wrong hash",
        "/",
    ),
    damaged(
        "entry that cannot be",
        |f| {
            let (key, _) = entry(f, ROOT, b"small");
            f.item(&key, |_| Some(vec![1, 2]));
        },
        "entry: too short",
        "/",
    ),
    damaged(
        "entry whose name is a path",
        |f| {
            name(f, ROOT, b"small", |value| {
                value.truncate(9);
                value.extend_from_slice(b"../../x");
            });
        },
        "entry: its name is no name",
        "/",
    ),
    damaged(
        "directory with two names",
        |f| name(f, DEEP, b"sub", |_| {}),
        "directory 16 has 2 names",
        "",
    ),
    damaged(
        "wrong parent",
        |f| inode(f, DEEP, |inode| inode.parent = ROOT),
        "says its parent is 1, but 16 names it",
        "/sub/deep",
    ),
    damaged(
        "circle of directories",
        |f| {
            let (key, value) = entry(f, ROOT, b"sub");
            f.item(&key, |_| None);
            let at = Key::new(DEEP, Kind::Dirent, key.suffix());
            f.item(&at, |_| Some(value));
        },
        "does not lead to the root",
        "",
    ),
    damaged(
        "circle of directories that nothing leads to",
        |f| {
            let (key, value) = entry(f, ROOT, b"sub");
            f.item(&key, |_| None);
            let at = Key::new(DEEP, Kind::Dirent, key.suffix());
            f.item(&at, |_| Some(value));
        },
        "directory 16 is its own ancestor: directory 21, below it, names it",
        "",
    ),
    damaged(
        "circle of directories that the root leads to",
        |f| name(f, DEEP, b"sub", |_| {}),
        "directory 16 is its own ancestor: directory 21, below it, names it",
        "/sub/deep",
    ),
    damaged(
        "directory that names itself",
        |f| name(f, SUB, b"sub", |_| {}),
        "directory 16 names itself",
        "/sub",
    ),
    damaged(
        "root directory below itself",
        |f| name(f, SUB, b"sub", |value| value[..8].copy_from_slice(&ROOT.0.to_le_bytes())),
        "directory 1 is its own ancestor: directory 16, below it, names it",
        "/sub",
    ),
    damaged(
        "root directory missing",
        |f| f.item(&Key::inode(ROOT), |_| None),
        "the root directory is missing",
        "",
    ),
    // Orphans.
    damaged(
        "orphan record forgotten",
        |f| f.item(&Key::orphan(OPEN), |_| None),
        "needs an orphan record",
        "",
    ),
    damaged(
        "orphan record without need",
        |f| f.item(&Key::orphan(SMALL), |_| Some(vec![0])),
        "orphan record without need",
        "/small",
    ),
    damaged(
        "orphan record for nothing",
        |f| f.item(&Key::orphan(InodeNumber(99)), |_| Some(vec![0])),
        "orphan record for inode 99, which is not there",
        "",
    ),
    damaged(
        "key of the volume that is not known",
        |f| f.item(&Key::new(InodeNumber::SYSTEM, Kind::Inline, 3), |_| Some(vec![0])),
        "unexpected key",
        "",
    ),
];

fn fits(class: &Class, finding: &Finding) -> bool {
    let line = finding.to_string();
    finding.severity == class.severity && line.contains(class.words) && line.contains(class.path)
}

#[test]
fn every_class_of_damage_is_reported() {
    let sound = sample(2, 0);
    let clean = run(&Forge::new(&sound)).unwrap();
    assert!(clean.is_clean(), "{:#?}", clean.findings);
    let mut missed: Vec<String> = Vec::new();
    for class in CLASSES {
        let mut forge = Forge::new(&sound);
        (class.plant)(&mut forge);
        let before = forge.medium.to_bytes();
        match run(&forge) {
            Ok(report) if report.findings.iter().any(|finding| fits(class, finding)) => {
                // If nothing is lost, no loss may be reported.
                if class.severity == Severity::Degraded && report.damaged > 0 {
                    missed.push(format!("{}: called damage: {:#?}", class.name, report.findings));
                }
            }
            Ok(report) => {
                let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
                missed.push(format!("{}: {lines:#?}", class.name));
            }
            Err(error) => missed.push(format!("{}: {error}", class.name)),
        }
        assert_eq!(forge.medium.to_bytes(), before, "{}: the check writes nothing", class.name);
    }
    println!("{} classes", CLASSES.len());
    assert!(missed.is_empty(), "not reported:\n{}", missed.join("\n"));
}

/// With one copy of metadata, damage that a second copy would repair is a loss.
#[test]
fn the_only_copy_of_a_node_is_damage() {
    let mut forge = Forge::new(&sample(1, 0));
    let depth = leaf(&forge);
    rot_node(&mut forge, Key::inode(BIG), depth, &[0]);
    let report = run(&forge).unwrap();
    assert!(report.damaged > 0 && report.degraded == 0, "{:#?}", report.findings);
    let line = report.findings[0].to_string();
    assert!(line.contains("keys from") && line.contains("; affects "), "{line}");
}

/// A volume that cannot be examined at all is an error with its own cause.
#[test]
fn a_volume_that_cannot_be_found_says_why() {
    use crate::error::Error;
    let sound = sample(2, 0);
    let both = Forge::new(&sound);
    both.rot_bytes(0);
    both.rot_bytes(both.store.device.superblock.second_offset());
    assert_eq!(run(&both), Err(Error::NotSteadfast));
    let mut roots = Forge::new(&sound);
    rot_slot(&mut roots, 0, &[0, 1]);
    rot_slot(&mut roots, 1, &[0, 1]);
    assert_eq!(run(&roots), Err(Error::NoMetaroot));
    let short = Arc::new(MemoryMedium::from_bytes(&sound[..1 << 20], 512).unwrap());
    let result = check(short.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {});
    assert!(matches!(result, Err(Error::Truncated { .. })));
}
