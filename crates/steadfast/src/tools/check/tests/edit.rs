//! Damage: changes of single structures of a volume.

use alloc::vec;
use alloc::vec::Vec;

use crate::format::extent::Extent;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::fs::dirent;
use crate::fs::parameters::Parameters;
use crate::tools::check::tests::forge::Forge;
use crate::tools::check::tests::sample::ROOT;
use crate::types::{BlockAddress, InodeNumber};

/// Edits an inode.
pub(super) fn inode(forge: &mut Forge, number: InodeNumber, change: impl FnOnce(&mut Inode)) {
    forge.item(&Key::inode(number), |value| {
        let mut inode = Inode::decode(&value.unwrap()).unwrap();
        change(&mut inode);
        Some(inode.encode_in(Vec::new()).unwrap())
    });
}

/// Edits the first extent at or after a block of a file.
pub(super) fn extent(
    forge: &mut Forge,
    number: InodeNumber,
    index: u64,
    change: impl FnOnce(&mut Extent),
) {
    let key = extent_key(forge, number, index);
    forge.item(&key, |value| {
        let mut extent = Extent::decode(&value.unwrap(), 1).unwrap();
        change(&mut extent);
        Some(extent.encode().unwrap())
    });
}

pub(super) fn extent_key(forge: &Forge, number: InodeNumber, index: u64) -> Key {
    let (_, last) = Key::kind_range(number, Kind::Extent);
    let found =
        forge.store.next(&forge.metaroot.root(), &Key::extent(number, index), &last).unwrap();
    found.expect("the file has an extent there").0
}

pub(super) fn address(forge: &Forge, number: InodeNumber, index: u64) -> BlockAddress {
    Extent::decode(&forge.value(&extent_key(forge, number, index)), 1).unwrap().address
}

/// Key and value of a name in a directory.
pub(super) fn entry(forge: &Forge, directory: InodeNumber, name: &[u8]) -> (Key, Vec<u8>) {
    let (mut from, last) = Key::kind_range(directory, Kind::Dirent);
    loop {
        let (key, value) = forge.store.next(&forge.metaroot.root(), &from, &last).unwrap().unwrap();
        if value.ends_with(name) {
            return (key, value);
        }
        from = key.successor().unwrap();
    }
}

/// Adds a name without counting it.
pub(super) fn name(
    forge: &mut Forge,
    directory: InodeNumber,
    like: &[u8],
    change: impl FnOnce(&mut Vec<u8>),
) {
    let (_, mut value) = entry(forge, ROOT, like);
    change(&mut value);
    let parameters =
        Parameters { hash_key: forge.store.device.superblock.hash_key, ..Parameters::for_tests() };
    let key = Key::new(directory, Kind::Dirent, dirent::first_suffix(&value[9..], &parameters));
    forge.item(&key, |_| Some(value));
}

pub(super) fn rot_node(forge: &mut Forge, key: Key, depth: usize, copies: &[usize]) {
    let pointer = forge.path(&key)[depth];
    for copy in copies {
        forge.rot(pointer.addresses[*copy]);
    }
}

pub(super) fn leaf(forge: &Forge) -> usize {
    forge.metaroot.height as usize - 1
}

pub(super) fn rot_slot(forge: &mut Forge, slot: u64, copies: &[usize]) {
    let offsets = forge.store.device.superblock.metaroot_offsets(slot);
    for copy in copies {
        forge.rot_bytes(offsets[*copy]);
    }
}

/// Sets or clears the bit of a block in its group's stored bitmap.
pub(super) fn bitmap(forge: &mut Forge, block: u64, used: bool) {
    let size = u64::from(forge.store.device.superblock.group_blocks);
    let bit = (block % size) as usize;
    let key = Key::group(block / size);
    let change = |value: Option<Vec<u8>>| {
        // A group without a key is empty.
        let mut value = value.unwrap_or_else(|| vec![2]);
        assert_eq!(value[0], 2, "a group that is full has no bits");
        value.resize(value.len().max(2 + bit / 8), 0);
        value[1 + bit / 8] = value[1 + bit / 8] & !(1 << (bit % 8)) | u8::from(used) << (bit % 8);
        Some(value)
    };
    forge.item(&key, change);
}
