//! Salvage of sound and of badly damaged volumes: the result equals the original content, or is
//! reported as lost.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use steadfast_media::{MemoryMedium, Random};

use crate::format::key::Key;
use crate::format::{Metaroot, Superblock};
use crate::fs::{Caller, NewNode, SetXattrMode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::salvage::{Problem, Salvage};
use crate::types::InodeNumber;
use crate::volume::Volume;

const SIZE: u64 = 2 << 20;
const ROOT: InodeNumber = InodeNumber::ROOT;

/// Contents by path: bytes of files and targets of links; directories end with a slash.
type Tree = BTreeMap<String, Vec<u8>>;

fn sample() -> (Vec<u8>, Tree) {
    let medium = Arc::new(MemoryMedium::new(SIZE, 512).unwrap());
    let options = FormatOptions {
        block_size: 512,
        log_size: Some(64 << 10),
        uuid: *b"salvage sample  ",
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let mut tree = Tree::from([("/".into(), vec![])]);
    let caller = Caller { uid: 5, gid: 6, umask: 0 };
    let make = |directory, name: &[u8], node| {
        volume.create(directory, name, node, 0o640, &caller).unwrap().inode
    };
    for directory in 0..4u8 {
        let name = alloc::format!("d{directory}");
        let inode = make(ROOT, name.as_bytes(), NewNode::Directory);
        tree.insert(alloc::format!("/{name}/"), vec![]);
        for file in 0..12u8 {
            let file_name = alloc::format!("f{file}");
            let made = make(inode, file_name.as_bytes(), NewNode::Regular);
            let length = [0, 40, 700, 5000, 20_000][usize::from(file) % 5] + usize::from(directory);
            let bytes: Vec<u8> =
                (0..length).map(|at| (at / 7) as u8 ^ (directory * 16 + file)).collect();
            volume.write(made, 0, &bytes, false).unwrap();
            tree.insert(alloc::format!("/{name}/{file_name}"), bytes);
        }
        volume.checkpoint().unwrap();
    }
    let link = make(ROOT, b"link", NewNode::Symlink(b"d1/f1"));
    assert!(link.0 > 0);
    tree.insert("/link".into(), b"d1/f1".to_vec());
    let sparse = make(ROOT, b"sparse", NewNode::Regular);
    volume.write(sparse, 10_000, b"far out", false).unwrap();
    let mut bytes = vec![0; 10_000];
    bytes.extend_from_slice(b"far out");
    tree.insert("/sparse".into(), bytes.clone());
    volume.link(sparse, ROOT, b"other name").unwrap();
    tree.insert("/other name".into(), bytes);
    volume.set_xattr(sparse, b"user.note", &[b'n'; 900], SetXattrMode::Any).unwrap();
    let gone = make(ROOT, b"gone", NewNode::Regular);
    volume.write(gone, 0, &[1; 3000], false).unwrap();
    volume.checkpoint().unwrap();
    volume.unlink(ROOT, b"gone").unwrap();
    while volume.background().unwrap() {}
    volume.checkpoint().unwrap();
    let late = make(ROOT, b"late", NewNode::Regular);
    volume.write(late, 0, b"in the log only", false).unwrap();
    volume.transact().unwrap();
    tree.insert("/late".into(), b"in the log only".to_vec());
    (medium.to_bytes(), tree)
}

/// The salvaged content, and the paths reported as lost or doubtful.
struct Found {
    tree: Tree,
    lost: BTreeMap<String, Vec<core::ops::Range<u64>>>,
    problems: BTreeMap<String, Vec<Problem>>,
    notes: Vec<String>,
}

fn salvage(bytes: &[u8]) -> crate::error::Result<Found> {
    let medium = MemoryMedium::from_bytes(bytes, 512).unwrap();
    let platform = TestPlatform::new();
    let salvage = Salvage::gather(&medium, &platform, &mut |_| {})?;
    let mut found = Found {
        tree: Tree::new(),
        lost: BTreeMap::new(),
        problems: BTreeMap::new(),
        notes: salvage.notes().to_vec(),
    };
    for entry in salvage.entries() {
        let mut path = String::new();
        for name in &entry.path {
            path.push('/');
            path.push_str(core::str::from_utf8(name).unwrap());
        }
        let mut content = Vec::new();
        match entry.kind {
            crate::fs::FileKind::Directory => path.push('/'),
            crate::fs::FileKind::Symlink => content = salvage.symlink_target(entry.inode),
            _ => {
                let size = entry.attributes.map_or(0, |attributes| attributes.size as usize);
                content.resize(size, 0);
                let mut sink = |offset: u64, bytes: &[u8]| {
                    let at = offset as usize;
                    content.resize(content.len().max(at + bytes.len()), 0);
                    content[at..at + bytes.len()].copy_from_slice(bytes);
                    Ok::<(), Infallible>(())
                };
                let Ok(lost) = salvage.read(entry.inode, &mut sink);
                if !lost.is_empty() {
                    found.lost.insert(path.clone(), lost);
                }
            }
        }
        if !entry.problems.is_empty() {
            found.problems.insert(path.clone(), entry.problems.clone());
        }
        if !entry.problems.contains(&Problem::Lost) {
            found.tree.insert(path, content);
        }
    }
    assert!(medium.to_bytes() == bytes, "the image was written");
    Ok(found)
}

/// Destroys the start of the unit at `offset`.
fn rot(bytes: &mut [u8], offset: u64) {
    for byte in &mut bytes[offset as usize..offset as usize + 48] {
        *byte ^= 0xa5;
    }
}

fn layout(bytes: &[u8]) -> (Superblock, Metaroot) {
    let medium = MemoryMedium::from_bytes(bytes, 512).unwrap();
    let (superblock, _) = Superblock::read(&medium, &TestPlatform::new()).unwrap();
    let metaroot = Metaroot::read_newest(&medium, &superblock, &TestPlatform::new()).unwrap();
    (superblock, metaroot)
}

#[test]
fn a_sound_volume_comes_out_as_it_is() {
    let (bytes, tree) = sample();
    let found = salvage(&bytes).unwrap();
    assert!(found.tree == tree, "{:?}", found.tree.keys());
    assert!(found.lost.is_empty() && found.problems.is_empty(), "{:?}", found.problems);
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    let medium = MemoryMedium::from_bytes(&bytes, 512).unwrap();
    let platform = TestPlatform::new();
    let salvage = Salvage::gather(&medium, &platform, &mut |_| {}).unwrap();
    let entries = salvage.entries();
    let sparse = entries.iter().find(|entry| entry.path == [b"sparse".to_vec()]).unwrap();
    assert_eq!(
        salvage.xattrs(sparse.inode),
        (vec![(b"user.note".to_vec(), vec![b'n'; 900])], false)
    );
    let second = entries.iter().find(|entry| entry.path == [b"other name".to_vec()]).unwrap();
    assert!(second.same_as.is_some() != sparse.same_as.is_some(), "two names of one file");
    assert_eq!(sparse.attributes.map(|attributes| (attributes.uid, attributes.gid)), Some((5, 6)));
}

#[test]
fn a_volume_without_superblocks_comes_out_whole() {
    let (mut bytes, tree) = sample();
    let second = layout(&bytes).0.second_offset();
    rot(&mut bytes, 0);
    // The second copy is not at the end of the medium, so it must be searched for.
    bytes.resize(bytes.len() + (72 << 10), 0);
    let found = salvage(&bytes).unwrap();
    assert!(found.tree == tree, "{:?}", found.tree.keys());
    assert!(found.notes[0].contains("found by searching"), "{:?}", found.notes);
    bytes.truncate(SIZE as usize);
    rot(&mut bytes, second);
    let found = salvage(&bytes).unwrap();
    assert!(found.tree == tree, "{:?}", found.tree.keys());
    assert!(found.notes[0].contains("no superblock is left"), "{:?}", found.notes);
    assert!(found.lost.is_empty() && found.problems.is_empty(), "{:?}", found.problems);
}

#[test]
fn a_lost_metaroot_costs_nothing_that_the_log_or_the_nodes_still_have() {
    let (sound, tree) = sample();
    let (superblock, metaroot) = layout(&sound);
    let mut bytes = sound.clone();
    for offset in superblock.metaroot_offsets(metaroot.generation.0) {
        rot(&mut bytes, offset);
    }
    let found = salvage(&bytes).unwrap();
    assert!(
        found.notes.iter().any(|note| note.contains("a newer one may be lost")),
        "{:?}",
        found.notes
    );
    let kept = tree.keys().filter(|path| found.tree.contains_key(*path)).count();
    assert!(kept + 2 >= tree.len(), "{kept} of {}", tree.len());
    for offset in superblock.metaroot_offsets(metaroot.generation.0 + 1) {
        rot(&mut bytes, offset);
    }
    let found = salvage(&bytes).unwrap();
    assert!(
        found.notes.iter().any(|note| note.contains("no metaroot is left")),
        "{:?}",
        found.notes
    );
    for (path, content) in tree.iter().filter(|(path, _)| *path != "/late") {
        assert!(found.tree.get(path) == Some(content), "{path}");
    }
}

#[test]
fn a_lost_root_node_costs_nothing() {
    let (mut bytes, tree) = sample();
    let (superblock, metaroot) = layout(&bytes);
    assert!(metaroot.height > 2);
    for address in metaroot.root.copies() {
        rot(&mut bytes, address.0 * u64::from(superblock.block_size));
    }
    let found = salvage(&bytes).unwrap();
    for (path, content) in &tree {
        assert!(found.tree.get(path) == Some(content), "{path}");
    }
    assert!(found.lost.is_empty(), "{:?}", found.lost);
    assert!(found.notes.iter().any(|note| note.contains("restored from")), "{:?}", found.notes);
}

/// Both copies of a leaf with the entries of a directory are lost: its files are found by their
/// inode numbers.
#[test]
fn files_of_a_lost_directory_are_found_by_number() {
    let (sound, tree) = sample();
    let (superblock, metaroot) = layout(&sound);
    let medium = MemoryMedium::from_bytes(&sound, 512).unwrap();
    let platform = TestPlatform::new();
    let store = crate::tree::Store::new(&medium, &platform, superblock.clone(), 1 << 20);
    let root_entries = Key::new(ROOT, crate::format::key::Kind::Dirent, u64::MAX / 2);
    let mut pointer = metaroot.root;
    for level in (1..metaroot.height as u8).rev() {
        let node = store.node(&pointer, level).unwrap();
        pointer = node.child(node.child_index(&root_entries));
    }
    let mut bytes = sound.clone();
    // Destroys every version of the leaf; otherwise an older one would replace it.
    for block in superblock.first_block()..superblock.end_block() {
        let at = (block * 512) as usize;
        let names_root = bytes[at..at + 4] == *b"SFND"
            && bytes[at + 4] == 0
            && bytes[at + 48..at + 56] == 1u64.to_be_bytes();
        if names_root || pointer.copies().any(|address| address.0 == block) {
            rot(&mut bytes, block * 512);
        }
    }
    let found = salvage(&bytes).unwrap();
    let below = found.tree.iter().filter(|(path, _)| path.starts_with("/lost+found/#"));
    assert!(below.count() > 0, "{:?}", found.tree.keys());
    for (path, content) in
        tree.iter().filter(|(path, _)| path.starts_with("/d") && !path.ends_with('/'))
    {
        let name = path.rsplit('/').next().unwrap();
        let same = |other: &String| other.ends_with(&alloc::format!("/{name}"));
        assert!(found.tree.iter().any(|(other, bytes)| same(other) && bytes == content), "{path}");
    }
}

/// Whatever is destroyed, every wrong byte in the result is reported as lost or doubtful.
#[test]
fn no_byte_is_guessed() {
    let (sound, tree) = sample();
    let mut random = Random::new(7);
    let (mut whole, mut partly) = (0, 0);
    for round in 0..60 {
        let mut bytes = sound.clone();
        // The first quarter of the medium holds most of the used blocks.
        for _ in 0..1 + round * 2 {
            rot(&mut bytes, random.below(SIZE / 512 / 2) * 512);
        }
        let Ok(found) = salvage(&bytes) else { continue };
        for (path, content) in &found.tree {
            let Some(expected) = tree.get(path) else { continue };
            if found.problems.contains_key(path) {
                partly += 1;
                continue;
            }
            let lost = found.lost.get(path).cloned().unwrap_or_default();
            partly += usize::from(!lost.is_empty());
            whole += usize::from(lost.is_empty());
            assert_eq!(content.len(), expected.len(), "round {round}: {path}");
            for (at, (one, other)) in content.iter().zip(expected).enumerate() {
                let excused = lost.iter().any(|range| range.contains(&(at as u64)));
                assert!(one == other || excused, "round {round}: {path}: byte {at}");
            }
        }
    }
    assert!(whole > 1000 && partly > 10, "{whole} whole, {partly} partly");
}
