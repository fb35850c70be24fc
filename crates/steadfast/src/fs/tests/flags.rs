//! Flags of files and directories: what they refuse, and where they are kept.

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::MemoryMedium;

use crate::error::{Error, Result};
use crate::format::{FEATURE_FILE_FLAGS, Superblock};
use crate::fs::tests::{ROOT, TestVolume, plain};
use crate::fs::{
    AllocateMode, Caller, FileFlags, FileOptions, NewNode, RenameMode, SetAttributes, SetTime,
    SetXattrMode,
};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::{InodeNumber, Timestamp};
use crate::volume::Volume;

const REFUSED: Result<()> = Err(Error::NotPermitted);

fn flag(volume: &TestVolume, inode: InodeNumber, flags: FileFlags) {
    let set = volume.set_flags(inode, flags).unwrap();
    assert_eq!((set.flags, volume.attributes(inode).unwrap().flags), (flags, flags));
}

/// Calls that change the inode of the file "f", and whether an append-only file refuses them.
fn calls(volume: &TestVolume, f: InodeNumber, other: InodeNumber) -> Vec<(bool, Result<()>)> {
    let set = |change: SetAttributes| volume.set_attributes(f, &change).map(drop);
    let none = SetAttributes::default();
    let past = Some(SetTime::At(Timestamp { seconds: 5, nanoseconds: 0 }));
    let open = |options: FileOptions| volume.open_file("f", &options.write(true)).map(drop);
    let allocate = |mode| volume.allocate(f, 0, 4096, mode);
    vec![
        (true, volume.unlink(ROOT, b"f")),
        (true, volume.rename(ROOT, b"f", ROOT, b"g", RenameMode::Replace)),
        (true, volume.rename(ROOT, b"other", ROOT, b"f", RenameMode::Replace)),
        (true, volume.rename(ROOT, b"other", ROOT, b"f", RenameMode::Exchange)),
        (true, volume.link(f, ROOT, b"g").map(drop)),
        (true, set(SetAttributes { permissions: Some(0), ..none })),
        (true, set(SetAttributes { uid: Some(1), ..none })),
        (true, set(SetAttributes { gid: Some(1), ..none })),
        (true, set(SetAttributes { size: Some(0), ..none })),
        (true, set(SetAttributes { size: Some(1 << 20), ..none })),
        (true, set(SetAttributes { accessed: past, ..none })),
        (true, set(SetAttributes { modified: past, ..none })),
        (false, set(SetAttributes { modified: Some(SetTime::Now), ..none })),
        (true, volume.set_xattr(f, b"user.b", b"", SetXattrMode::Any)),
        (true, volume.remove_xattr(f, b"user.a")),
        (false, volume.remove_xattr(f, b"security.capability")),
        (true, allocate(AllocateMode::PunchHole)),
        (true, allocate(AllocateMode::ZeroRange { keep_size: true })),
        (false, allocate(AllocateMode::Allocate { keep_size: true })),
        (true, volume.copy_range(other, 0, f, 0, 10).map(drop)),
        (true, volume.clone_range(other, 0, f, 0, 0).map(drop)),
        (true, open(FileOptions::new().truncate(true))),
        (false, open(FileOptions::new())),
        (false, volume.open_file("f", &FileOptions::new().read(true).write(true)).map(drop)),
    ]
}

#[test]
fn flags_of_a_file_refuse_changes() {
    for flags in [FileFlags::IMMUTABLE, FileFlags::APPEND_ONLY, FileFlags::PROTECTING] {
        let volume = plain();
        let f = volume.make("f", NewNode::Regular).inode;
        let other = volume.make("other", NewNode::Regular).inode;
        for inode in [f, other] {
            volume.write(inode, 0, &[1; 5000], false).unwrap();
            volume.set_xattr(inode, b"user.a", b"", SetXattrMode::Any).unwrap();
            volume.set_xattr(inode, b"security.capability", b"x", SetXattrMode::Any).unwrap();
        }
        flag(&volume, f, flags);
        let before = (volume.contents(f), volume.attributes(f).unwrap());
        let immutable = flags.intersects(FileFlags::IMMUTABLE);
        for (number, (of_appended, result)) in calls(&volume, f, other).into_iter().enumerate() {
            let expected = if immutable || of_appended { REFUSED } else { Ok(()) };
            assert_eq!(result, expected, "call {number} with {flags:?}");
        }
        if immutable {
            assert_eq!((volume.contents(f), volume.attributes(f).unwrap()), before);
        }
        // What a kernel has accepted arrives, and so do the times that it keeps.
        volume.write(f, 10, b"written back", false).unwrap();
        let kept = SetAttributes {
            modified: Some(SetTime::Now),
            accessed: Some(SetTime::Now),
            unchecked: true,
            ..SetAttributes::default()
        };
        volume.set_attributes(f, &kept).unwrap();
        volume
            .set_attributes(f, &SetAttributes { drop_privileges: true, ..SetAttributes::default() })
            .unwrap();
        // A name of another file, and one that is not there, are told of first.
        assert_eq!(volume.unlink(ROOT, b"none"), Err(Error::NotFound));
        volume.unlink(ROOT, b"other").unwrap();
        volume.assert_clean();
        flag(&volume, f, FileFlags::NONE);
        volume.unlink(ROOT, b"f").unwrap();
        volume.settle_orphans();
        volume.assert_clean();
    }
}

#[test]
fn handles_of_an_append_only_file_append() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    let early = volume.open_file("f", &FileOptions::new().write(true)).unwrap();
    flag(&volume, f, FileFlags::APPEND_ONLY);
    let late = volume.open_file("f", &FileOptions::new().write(true)).unwrap();
    assert_eq!(late.write_at(0, b"x"), Err(Error::NotPermitted));
    assert_eq!(late.append(b"one"), Ok(0));
    assert_eq!(late.set_size(0), Err(Error::NotPermitted));
    early.write_at(0, b"O").unwrap();
    assert_eq!(early.set_size(0), Err(Error::NotPermitted));
    assert_eq!(volume.contents(f), b"One");
    let new = FileOptions::new().write(true).create_new(true);
    volume.open_file("g", &new).unwrap().write_at(3, b"x").unwrap();
}

#[test]
fn flags_of_a_directory_refuse_changes_of_its_names() {
    let volume = plain();
    let caller = Caller::default();
    let d = volume.make("d", NewNode::Directory).inode;
    let e = volume.make("e", NewNode::Directory).inode;
    let file = volume.make("file", NewNode::Regular).inode;
    for name in ["a", "b"] {
        volume.make_in(d, name, NewNode::Regular);
        volume.make_in(e, name, NewNode::Regular);
    }
    volume.make_in(d, "empty", NewNode::Directory);
    let rename = |from, from_name: &[u8], to, to_name: &[u8], mode| {
        volume.rename(from, from_name, to, to_name, mode)
    };
    for (flags, adds) in [(FileFlags::IMMUTABLE, REFUSED), (FileFlags::APPEND_ONLY, Ok(()))] {
        flag(&volume, d, flags);
        let new = volume.create(d, b"new", NewNode::Regular, 0o644, &caller).map(drop);
        assert_eq!(new, adds);
        let unnamed = volume.create_unnamed(d, 0o644, &caller);
        assert_eq!(unnamed.map(|made| volume.release(made.inode)), adds);
        assert_eq!(volume.link(file, d, b"link").map(drop), adds);
        assert_eq!(rename(e, b"b", d, b"c", RenameMode::NoReplace), adds);
        assert_eq!(volume.unlink(d, b"a"), REFUSED);
        assert_eq!(volume.remove_directory(d, b"empty"), REFUSED);
        assert_eq!(rename(d, b"a", d, b"x", RenameMode::Replace), REFUSED);
        assert_eq!(rename(d, b"a", e, b"x", RenameMode::Replace), REFUSED);
        assert_eq!(rename(e, b"a", d, b"a", RenameMode::Replace), REFUSED);
        assert_eq!(rename(e, b"a", d, b"a", RenameMode::Exchange), REFUSED);
        let whiteout = RenameMode::Whiteout { caller, replace: true };
        assert_eq!(rename(d, b"a", e, b"x", whiteout), REFUSED);
        assert_eq!(rename(ROOT, b"d", ROOT, b"x", RenameMode::Replace), REFUSED);
        assert_eq!(volume.remove_directory(ROOT, b"d"), Err(Error::DirectoryNotEmpty));
        assert_eq!(rename(d, b"a", d, b"a", RenameMode::Replace), Ok(()));
        assert_eq!(
            volume.create(d, b"a", NewNode::Regular, 0, &caller).map(drop),
            Err(Error::AlreadyExists)
        );
        assert_eq!(volume.unlink(d, b"none"), Err(Error::NotFound));
    }
    flag(&volume, d, FileFlags::NONE);
    volume.remove_all("d").unwrap();
    volume.assert_clean();
}

#[test]
fn access_times_stay_with_the_flag() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    volume.write(f, 0, b"x", false).unwrap();
    flag(&volume, f, FileFlags::NO_ACCESS_TIME);
    let before = volume.attributes(f).unwrap().accessed;
    volume.platform().set_seconds(2_000_000_000);
    volume.read(f, 0, &mut [0]).unwrap();
    assert_eq!(volume.attributes(f).unwrap().accessed, before);
    flag(&volume, f, FileFlags::NO_DUMP);
    volume.read(f, 0, &mut [0]).unwrap();
    assert_ne!(volume.attributes(f).unwrap().accessed, before);
}

#[test]
fn only_known_flags_of_files_and_directories() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    for unknown in [1, 0x100, 0x11] {
        assert!(matches!(volume.set_flags(f, FileFlags(unknown)), Err(Error::Unsupported(_))));
    }
    for node in [NewNode::Fifo, NewNode::Symlink(b"x"), NewNode::CharDevice(3)] {
        let inode = volume.make("other", node).inode;
        let set = volume.set_flags(inode, FileFlags::NO_DUMP);
        assert!(matches!(set, Err(Error::Unsupported(_))));
        volume.unlink(ROOT, b"other").unwrap();
    }
    let gone = volume.set_flags(InodeNumber(99), FileFlags::NO_DUMP);
    assert_eq!(gone.map(drop), Err(Error::Stale(InodeNumber(99))));
    assert_eq!(volume.attributes(f).unwrap().flags, FileFlags::NONE);
}

fn features(medium: &MemoryMedium) -> [u64; 2] {
    let platform = TestPlatform::new();
    let first = Superblock::read_at(medium, &platform, 0).unwrap();
    let second = Superblock::read_at(medium, &platform, first.second_offset()).unwrap();
    [first.features_read_only, second.features_read_only]
}

/// Both copies of the superblock have the feature before the flag can be durable, and a rollback
/// leaves it. A change of the names keeps it.
#[test]
fn the_first_flag_sets_the_feature() {
    let medium = MemoryMedium::new(8 << 20, 512).unwrap();
    let platform = TestPlatform::new();
    Volume::format(&medium, &FormatOptions::default(), &platform).unwrap();
    let volume = Volume::open(medium, OpenOptions::default(), platform).unwrap();
    volume.file_write_all("f", b"x").unwrap();
    let f = volume.resolve("f", true).unwrap().inode;
    volume.set_flags(f, FileFlags::NONE).unwrap();
    volume.transact().unwrap();
    assert_eq!(features(volume.medium()), [0; 2]);
    let points = volume.info().transaction_points;
    // An atomic change may set flags, too.
    let held = volume.begin().unwrap();
    volume.set_flags(f, FileFlags::NO_DUMP).unwrap();
    assert_eq!(features(volume.medium()), [FEATURE_FILE_FLAGS; 2]);
    drop(held);
    volume.rollback().unwrap();
    assert_eq!(volume.attributes(f).unwrap().flags, FileFlags::NONE);
    assert!(volume.info().transaction_points >= points);
    volume.set_label("label").unwrap();
    assert_eq!(features(volume.medium()), [FEATURE_FILE_FLAGS; 2]);
    assert_eq!(volume.info().features_read_only, FEATURE_FILE_FLAGS);
    volume.set_flags(f, FileFlags::ALL).unwrap();
    volume.transact().unwrap();
    volume.assert_clean();
    let medium = volume.medium().clone();
    drop(volume);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let reader = Volume::open(medium, options, TestPlatform::new()).unwrap();
    assert_eq!(reader.attributes(f).unwrap().flags, FileFlags::ALL);
    assert_eq!(reader.set_flags(f, FileFlags::NONE).map(drop), Err(Error::ReadOnly));
}
