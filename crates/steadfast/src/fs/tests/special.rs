//! Symbolic links, attributes, ACLs, set-group-id directories.

use alloc::vec;

use crate::error::Error;
use crate::fs::acl::encode_for_tests;
use crate::fs::tests::{ROOT, plain, volume};
use crate::fs::{Caller, FileKind, NewNode, SetAttributes, SetTime, SetXattrMode};
use crate::types::Timestamp;

const NONE: u32 = u32::MAX;

#[test]
fn symbolic_links() {
    for volume in [plain(), volume(8 << 20, 512, 512)] {
        let long = vec![b't'; 4095];
        let caller = Caller { uid: 1, gid: 1, umask: 0o077 };
        for (name, target) in [(&b"short"[..], &b"../x"[..]), (b"long", &long)] {
            let made = volume.create(ROOT, name, NewNode::Symlink(target), 0, &caller).unwrap();
            assert_eq!(
                (made.kind, made.permissions, made.size),
                (FileKind::Symlink, 0o777, target.len() as u64)
            );
            assert_eq!(volume.read_link(made.inode).unwrap(), target);
        }
        assert_eq!(
            volume.create(ROOT, b"e", NewNode::Symlink(b""), 0, &caller),
            Err(Error::NotFound)
        );
        let too_long = vec![b't'; 4096];
        assert_eq!(
            volume.create(ROOT, b"e", NewNode::Symlink(&too_long), 0, &caller),
            Err(Error::ValueTooLong)
        );
        assert!(matches!(volume.read_link(ROOT), Err(Error::InvalidArgument(_))));
        volume.unlink(ROOT, b"long").unwrap();
        volume.settle_orphans();
    }
}

#[test]
fn attributes_change_together() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    volume.write(f, 0, b"hello", false).unwrap();
    let far = Timestamp { seconds: 1 << 40, nanoseconds: 123_456_789 };
    let past = Timestamp { seconds: -1, nanoseconds: 1 };
    let set = SetAttributes {
        permissions: Some(0o6755),
        uid: Some(NONE - 1),
        gid: Some(12),
        size: Some(2),
        accessed: Some(SetTime::At(far)),
        modified: Some(SetTime::At(past)),
        ..SetAttributes::default()
    };
    let changed = volume.set_attributes(f, &set).unwrap();
    assert_eq!(
        (changed.permissions, changed.uid, changed.gid, changed.size),
        (0o6755, NONE - 1, 12, 2)
    );
    assert_eq!((changed.accessed, changed.modified), (far, past));
    assert_eq!(volume.attributes(f).unwrap(), changed);
    let drop = SetAttributes { drop_privileges: true, ..SetAttributes::default() };
    assert_eq!(volume.set_attributes(f, &drop).unwrap().permissions, 0o755);
    let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
    assert_eq!(volume.set_attributes(ROOT, &size), Err(Error::IsADirectory));
    let fifo = volume.make("p", NewNode::Fifo).inode;
    assert_eq!(volume.set_attributes(fifo, &size), Err(Error::NotARegularFile));
    let bad = SetTime::At(Timestamp { seconds: 0, nanoseconds: u32::MAX });
    let bad = SetAttributes { accessed: Some(bad), ..SetAttributes::default() };
    volume.set_attributes(f, &bad).unwrap();
    volume.attributes(f).unwrap();
}

#[test]
fn set_group_id_directories_hand_it_down() {
    let volume = plain();
    let d = volume.make("d", NewNode::Directory).inode;
    let set =
        SetAttributes { gid: Some(50), permissions: Some(0o2775), ..SetAttributes::default() };
    volume.set_attributes(d, &set).unwrap();
    let caller = Caller { uid: 1, gid: 2, umask: 0o022 };
    let file = volume.create(d, b"f", NewNode::Regular, 0o666, &caller).unwrap();
    assert_eq!((file.uid, file.gid, file.permissions), (1, 50, 0o644));
    let sub = volume.create(d, b"s", NewNode::Directory, 0o777, &caller).unwrap();
    assert_eq!((sub.gid, sub.permissions), (50, 0o2755));
}

#[test]
fn default_acls_are_inherited() {
    let volume = plain();
    let d = volume.make("d", NewNode::Directory).inode;
    let default = encode_for_tests(&[
        (1, 7, NONE),
        (2, 7, 1000),
        (4, 5, NONE),
        (0x10, 7, NONE),
        (0x20, 0, NONE),
    ]);
    volume.set_xattr(d, b"system.posix_acl_default", &default, SetXattrMode::Any).unwrap();
    let caller = Caller { uid: 1, gid: 2, umask: 0o777 };
    let file = volume.create(d, b"f", NewNode::Regular, 0o666, &caller).unwrap();
    assert_eq!(file.permissions, 0o660, "the umask does not count");
    let access = encode_for_tests(&[
        (1, 6, NONE),
        (2, 7, 1000),
        (4, 5, NONE),
        (0x10, 6, NONE),
        (0x20, 0, NONE),
    ]);
    assert_eq!(volume.xattr(file.inode, b"system.posix_acl_access").unwrap(), access);
    assert_eq!(volume.xattr(file.inode, b"system.posix_acl_default"), Err(Error::NoAttribute));
    let sub = volume.create(d, b"s", NewNode::Directory, 0o755, &caller).unwrap();
    assert_eq!(volume.xattr(sub.inode, b"system.posix_acl_default").unwrap(), default);
    assert_eq!(sub.permissions, 0o750);
    let link = volume.create(d, b"l", NewNode::Symlink(b"x"), 0, &caller).unwrap();
    assert_eq!((link.permissions, volume.list_xattrs(link.inode).unwrap().len()), (0o777, 0));
    volume.remove_xattr(d, b"system.posix_acl_default").unwrap();
    let plain = volume
        .create(d, b"g", NewNode::Regular, 0o666, &Caller { umask: 0o022, ..caller })
        .unwrap();
    assert_eq!(plain.permissions, 0o644);
    // With a minimal default ACL, new inodes need no access ACL.
    let minimal = encode_for_tests(&[(1, 7, NONE), (4, 5, NONE), (0x20, 1, NONE)]);
    volume.set_xattr(d, b"system.posix_acl_default", &minimal, SetXattrMode::Any).unwrap();
    let made = volume.create(d, b"h", NewNode::Regular, 0o777, &caller).unwrap();
    assert_eq!((made.permissions, volume.list_xattrs(made.inode).unwrap().len()), (0o751, 0));
}

#[test]
fn extended_attributes_go_with_the_inode() {
    let volume = plain();
    let before = volume.free_blocks();
    let f = volume.make("f", NewNode::Regular).inode;
    volume.set_xattr(f, b"user.big", &[3; 20_000], SetXattrMode::Create).unwrap();
    volume.set_xattr(f, b"trusted.x", b"", SetXattrMode::Create).unwrap();
    assert_eq!(volume.xattr(f, b"user.big").unwrap(), [3; 20_000]);
    assert_eq!(volume.list_xattrs(f).unwrap().len(), 2);
    volume.unlink(ROOT, b"f").unwrap();
    assert!(volume.free_blocks() >= before);
}
