//! Names: directories, links, rename, readdir.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Error;
use crate::fs::tests::{ROOT, TestVolume, plain, volume};
use crate::fs::{Caller, FileKind, NewNode, RenameMode, SetAttributes};
use crate::types::InodeNumber;

fn names(volume: &TestVolume, directory: InodeNumber) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let entries = volume.read_directory(directory, cookie, 7).unwrap();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        names.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
    }
    names.sort();
    names
}

fn links(volume: &TestVolume, inode: InodeNumber) -> u32 {
    volume.attributes(inode).unwrap().links
}

#[test]
fn create_and_look_up() {
    let volume = plain();
    let caller = Caller { uid: 7, gid: 8, umask: 0o027 };
    let made = volume.create(ROOT, b"f", NewNode::Regular, 0o4666, &caller).unwrap();
    assert_eq!((made.uid, made.gid, made.permissions, made.links), (7, 8, 0o4640, 1));
    assert_eq!(volume.lookup(ROOT, b"f").unwrap(), made);
    assert_eq!(volume.create(ROOT, b"f", NewNode::Regular, 0, &caller), Err(Error::AlreadyExists));
    for (name, error) in [
        (&b"."[..], Error::InvalidName),
        (b"..", Error::InvalidName),
        (b"", Error::InvalidName),
        (b"a/b", Error::InvalidName),
        (&[b'x'; 256], Error::NameTooLong),
    ] {
        assert_eq!(volume.create(ROOT, name, NewNode::Regular, 0, &caller), Err(error));
    }
    volume.create(ROOT, &[b'x'; 255], NewNode::Regular, 0, &caller).unwrap();
    assert_eq!(volume.lookup(ROOT, b"none"), Err(Error::NotFound));
    assert_eq!(volume.lookup(made.inode, b"x"), Err(Error::NotADirectory));
    assert_eq!(volume.lookup(InodeNumber(999), b"x"), Err(Error::Stale(InodeNumber(999))));
    assert_eq!(volume.attributes(InodeNumber(0)), Err(Error::Stale(InodeNumber(0))));
    let device = volume.create(ROOT, b"d", NewNode::BlockDevice(0x801), 0o600, &caller).unwrap();
    assert_eq!((device.kind, device.device), (FileKind::BlockDevice, 0x801));
    for (name, node, kind) in
        [("p", NewNode::Fifo, FileKind::Fifo), ("s", NewNode::Socket, FileKind::Socket)]
    {
        assert_eq!(volume.make(name, node).kind, kind);
    }
    assert_eq!(volume.attributes(ROOT).unwrap().size, 5);
}

#[test]
fn directories_count_links_and_entries() {
    let volume = plain();
    let a = volume.make("a", NewNode::Directory).inode;
    let b = volume.make_in(a, "b", NewNode::Directory).inode;
    assert_eq!((links(&volume, ROOT), links(&volume, a), links(&volume, b)), (3, 3, 2));
    assert_eq!(volume.lookup(b, b"..").unwrap().inode, a);
    assert_eq!(volume.lookup(ROOT, b"..").unwrap().inode, ROOT);
    assert_eq!(volume.remove_directory(ROOT, b"a"), Err(Error::DirectoryNotEmpty));
    assert_eq!(volume.unlink(a, b"b"), Err(Error::IsADirectory));
    volume.acquire(b).unwrap();
    volume.remove_directory(a, b"b").unwrap();
    assert_eq!(links(&volume, a), 2);
    assert_eq!(volume.attributes(b).unwrap().links, 0);
    assert_eq!(volume.read_directory(b, 0, 10).unwrap(), []);
    assert_eq!(
        volume.create(b, b"x", NewNode::Regular, 0, &Caller::default()),
        Err(Error::NotFound)
    );
    volume.release(b);
    volume.settle_orphans();
    assert_eq!(volume.attributes(b), Err(Error::Stale(b)));
    assert_eq!(volume.remove_directory(ROOT, b"none"), Err(Error::NotFound));
    volume.make("f", NewNode::Regular);
    assert_eq!(volume.remove_directory(ROOT, b"f"), Err(Error::NotADirectory));
}

#[test]
fn hard_links() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    let d = volume.make("d", NewNode::Directory).inode;
    volume.write(f, 0, b"data", false).unwrap();
    assert_eq!(volume.link(f, d, b"g").unwrap().links, 2);
    assert_eq!(volume.link(f, d, b"g"), Err(Error::AlreadyExists));
    assert_eq!(volume.link(d, ROOT, b"e"), Err(Error::NotPermitted));
    volume.unlink(ROOT, b"f").unwrap();
    assert_eq!(volume.contents(volume.lookup(d, b"g").unwrap().inode), b"data");
    volume.acquire(f).unwrap();
    volume.unlink(d, b"g").unwrap();
    volume.settle_orphans();
    assert_eq!(volume.contents(f), b"data");
    assert_eq!(
        volume.link(f, ROOT, b"back"),
        Err(Error::NotFound),
        "a removed name does not come back"
    );
    volume.release(f);
    volume.settle_orphans();
    assert_eq!(volume.attributes(f), Err(Error::Stale(f)));
    assert_eq!(volume.acquire(f), Err(Error::Stale(f)));
}

#[test]
fn unnamed_files() {
    let volume = plain();
    let before = volume.free_blocks();
    let named = volume.create_unnamed(ROOT, 0o600, &Caller::default()).unwrap();
    let lost = volume.create_unnamed(ROOT, 0o600, &Caller::default()).unwrap();
    assert_eq!(named.links, 0);
    volume.write(named.inode, 0, &[1; 10_000], false).unwrap();
    volume.write(lost.inode, 0, &[2; 10_000], false).unwrap();
    volume.settle_orphans();
    assert_eq!(volume.link(named.inode, ROOT, b"n").unwrap().links, 1);
    volume.release(named.inode);
    volume.release(lost.inode);
    volume.settle_orphans();
    assert_eq!(volume.contents(named.inode), [1; 10_000]);
    assert_eq!(volume.attributes(lost.inode), Err(Error::Stale(lost.inode)));
    volume.unlink(ROOT, b"n").unwrap();
    assert!(volume.free_blocks() >= before);
}

#[test]
fn orphans_are_reclaimed_after_reopening() {
    let volume = plain();
    let before = volume.free_blocks();
    let f = volume.make("f", NewNode::Regular).inode;
    volume.write(f, 0, &[1; 3 << 20], false).unwrap();
    let unnamed = volume.create_unnamed(ROOT, 0o600, &Caller::default()).unwrap().inode;
    volume.write(unnamed, 0, &[1; 3 << 20], false).unwrap();
    volume.acquire(f).unwrap();
    volume.unlink(ROOT, b"f").unwrap();
    volume.checkpoint().unwrap();
    let image = volume.medium().to_bytes();
    drop(volume);
    let medium = steadfast_media::MemoryMedium::from_bytes(&image, 128).unwrap();
    let volume = crate::Volume::open(
        medium,
        crate::OpenOptions::default(),
        crate::testing::TestPlatform::new(),
    )
    .unwrap();
    assert_eq!(volume.attributes(f).unwrap().links, 0);
    assert!(volume.free_blocks() >= before);
    assert_eq!(volume.attributes(f), Err(Error::Stale(f)));
    assert_eq!(volume.attributes(unnamed), Err(Error::Stale(unnamed)));
}

#[test]
fn rename_replaces_and_keeps_counts() {
    let volume = plain();
    let replace = RenameMode::Replace;
    let a = volume.make("a", NewNode::Directory).inode;
    let b = volume.make("b", NewNode::Directory).inode;
    let f = volume.make_in(a, "f", NewNode::Regular).inode;
    volume.rename(a, b"f", b, b"g", replace).unwrap();
    assert_eq!(volume.lookup(b, b"g").unwrap().inode, f);
    assert_eq!(volume.lookup(a, b"f"), Err(Error::NotFound));
    assert_eq!(volume.rename(a, b"f", b, b"g", replace), Err(Error::NotFound));
    let old = volume.make_in(a, "h", NewNode::Regular).inode;
    volume.rename(b, b"g", a, b"h", replace).unwrap();
    assert_eq!(volume.attributes(old), Err(Error::Stale(old)));
    assert_eq!((volume.attributes(a).unwrap().size, volume.attributes(b).unwrap().size), (1, 0));
    // Directories.
    let d = volume.make_in(a, "d", NewNode::Directory).inode;
    assert_eq!(volume.rename(a, b"d", a, b"h", replace), Err(Error::NotADirectory));
    assert_eq!(volume.rename(a, b"h", a, b"d", replace), Err(Error::IsADirectory));
    volume.rename(a, b"d", b, b"d", replace).unwrap();
    assert_eq!((links(&volume, a), links(&volume, b)), (2, 3));
    assert_eq!(volume.lookup(d, b"..").unwrap().inode, b);
    let e = volume.make_in(a, "e", NewNode::Directory).inode;
    volume.rename(b, b"d", a, b"e", replace).unwrap();
    assert_eq!(volume.attributes(e), Err(Error::Stale(e)));
    assert_eq!((links(&volume, a), links(&volume, b)), (3, 2));
    volume.make_in(b, "x", NewNode::Regular);
    assert_eq!(volume.rename(a, b"e", ROOT, b"b", replace), Err(Error::DirectoryNotEmpty));
    // Within one directory.
    volume.rename(a, b"e", a, b"e2", replace).unwrap();
    let z = volume.make_in(a, "z", NewNode::Directory).inode;
    volume.rename(a, b"e2", a, b"z", replace).unwrap();
    assert_eq!(volume.attributes(z), Err(Error::Stale(z)));
    assert_eq!((links(&volume, a), volume.attributes(a).unwrap().size), (3, 2));
    assert_eq!(names(&volume, a), [".", "..", "h", "z"]);
}

#[test]
fn rename_refuses_loops() {
    let volume = plain();
    let a = volume.make("a", NewNode::Directory).inode;
    let b = volume.make_in(a, "b", NewNode::Directory).inode;
    let c = volume.make_in(b, "c", NewNode::Directory).inode;
    for (to, mode) in
        [(a, RenameMode::Replace), (c, RenameMode::Replace), (b, RenameMode::NoReplace)]
    {
        assert_eq!(volume.rename(ROOT, b"a", to, b"new", mode), Err(Error::MoveIntoSelf));
    }
    assert_eq!(
        volume.rename(b, b"c", ROOT, b"a", RenameMode::Replace),
        Err(Error::DirectoryNotEmpty)
    );
    assert_eq!(volume.rename(b, b"c", ROOT, b"a", RenameMode::Exchange), Err(Error::MoveIntoSelf));
    assert_eq!(volume.rename(ROOT, b"a", b, b"c", RenameMode::Exchange), Err(Error::MoveIntoSelf));
    volume.rename(b, b"c", ROOT, b"c", RenameMode::Replace).unwrap();
    volume.rename(ROOT, b"a", c, b"a", RenameMode::Replace).unwrap();
    assert_eq!(volume.lookup(a, b"..").unwrap().inode, c);
}

#[test]
fn rename_modes() {
    let volume = plain();
    let a = volume.make("a", NewNode::Directory).inode;
    let f = volume.make("f", NewNode::Regular).inode;
    let d = volume.make_in(a, "d", NewNode::Directory).inode;
    assert_eq!(
        volume.rename(ROOT, b"f", a, b"d", RenameMode::NoReplace),
        Err(Error::AlreadyExists)
    );
    assert_eq!(volume.rename(ROOT, b"f", a, b"no", RenameMode::Exchange), Err(Error::NotFound));
    volume.rename(ROOT, b"f", a, b"d", RenameMode::Exchange).unwrap();
    assert_eq!(
        (volume.lookup(ROOT, b"f").unwrap().inode, volume.lookup(a, b"d").unwrap().inode),
        (d, f)
    );
    assert_eq!((links(&volume, ROOT), links(&volume, a)), (4, 2));
    assert_eq!(volume.lookup(d, b"..").unwrap().inode, ROOT);
    volume.rename(ROOT, b"f", ROOT, b"a", RenameMode::Exchange).unwrap();
    assert_eq!(volume.lookup(ROOT, b"a").unwrap().inode, d);
    // Renaming between two names of one inode changes nothing.
    volume.link(f, ROOT, b"g").unwrap();
    volume.rename(ROOT, b"g", a, b"d", RenameMode::Replace).unwrap();
    assert_eq!(
        (volume.lookup(ROOT, b"g").unwrap().links, volume.lookup(a, b"d").unwrap().inode),
        (2, f)
    );
    assert_eq!(
        volume.rename(ROOT, b"g", a, b"d", RenameMode::NoReplace),
        Err(Error::AlreadyExists)
    );
    volume.rename(ROOT, b"g", ROOT, b"g", RenameMode::Replace).unwrap();
}

#[test]
fn rename_leaves_a_whiteout() {
    let volume = plain();
    let caller = Caller { uid: 7, gid: 8, umask: 0 };
    let (replacing, careful) = (
        RenameMode::Whiteout { caller, replace: true },
        RenameMode::Whiteout { caller, replace: false },
    );
    let a = volume.make("a", NewNode::Directory).inode;
    let f = volume.make("f", NewNode::Regular).inode;
    let d = volume.make("d", NewNode::Directory).inode;
    let old = volume.make_in(a, "old", NewNode::Regular).inode;
    let whiteout = |directory, name: &str| {
        let found = volume.lookup(directory, name.as_bytes()).unwrap();
        let what = (found.kind, found.device, found.permissions, found.links, found.uid, found.gid);
        assert_eq!(what, (FileKind::CharDevice, 0, 0, 1, 7, 8), "{name}");
    };
    assert_eq!(volume.rename(ROOT, b"f", a, b"old", careful), Err(Error::AlreadyExists));
    assert_eq!(volume.rename(ROOT, b"no", a, b"new", replacing), Err(Error::NotFound));
    assert_eq!(volume.rename(ROOT, b"d", a, b"old", replacing), Err(Error::NotADirectory));
    assert_eq!(
        volume.rename(ROOT, b"a", d, b"old", replacing),
        Ok(()),
        "a directory, across directories"
    );
    whiteout(ROOT, "a");
    assert_eq!((links(&volume, ROOT), links(&volume, d)), (3, 3));
    assert_eq!(volume.lookup(a, b"..").unwrap().inode, d);
    // Over a file, which is removed, and back over a whiteout, which is removed then.
    volume.rename(ROOT, b"f", a, b"old", replacing).unwrap();
    whiteout(ROOT, "f");
    assert_eq!(
        (volume.lookup(a, b"old").unwrap().inode, volume.attributes(old)),
        (f, Err(Error::Stale(old)))
    );
    volume.rename(a, b"old", ROOT, b"f", RenameMode::Replace).unwrap();
    assert_eq!(volume.lookup(ROOT, b"f").unwrap().inode, f);
    // Within one directory, and with nothing to do.
    volume.rename(ROOT, b"f", ROOT, b"g", careful).unwrap();
    whiteout(ROOT, "f");
    volume.link(f, ROOT, b"h").unwrap();
    volume.rename(ROOT, b"g", ROOT, b"h", replacing).unwrap();
    assert_eq!(names(&volume, ROOT), [".", "..", "a", "d", "f", "g", "h"]);
    assert_eq!(volume.attributes(ROOT).unwrap().size, 5);
    assert_eq!(volume.attributes(a).unwrap().size, 0);
}

#[test]
fn readdir_cookies_are_stable_under_change() {
    for volume in [plain(), volume(16 << 20, 512, 512)] {
        let d = volume.make("d", NewNode::Directory).inode;
        for number in 0..500 {
            volume.make_in(d, &format!("keep{number}"), NewNode::Regular);
            volume.make_in(d, &format!("go{number}"), NewNode::Regular);
        }
        let (mut seen, mut cookie, mut step) = (Vec::new(), 0, 0);
        loop {
            let entries = volume.read_directory(d, cookie, 5).unwrap();
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            assert!(entries.iter().all(|entry| entry.cookie < 1 << 63));
            assert!(
                entries.iter().filter(|entry| entry.name[0] != b'.').all(|entry| entry.cookie >= 3)
            );
            seen.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
            if step < 500 {
                volume.unlink(d, format!("go{step}").as_bytes()).unwrap();
                volume.make_in(d, &format!("new{step}"), NewNode::Regular);
            }
            step += 1;
        }
        let mut kept: Vec<_> =
            seen.iter().filter(|name| name.starts_with("keep")).cloned().collect();
        kept.sort();
        kept.dedup();
        assert_eq!(kept.len(), 500);
        assert_eq!(seen.iter().filter(|name| name.starts_with("keep")).count(), 500, "seen once");
        let plus = volume.read_directory_plus(d, 0, 10_000).unwrap();
        assert_eq!(plus.len() as u64, 2 + volume.attributes(d).unwrap().size);
        assert_eq!((plus[0].1.inode, plus[1].1.inode), (d, ROOT));
        assert!(plus.iter().all(|(entry, attributes)| entry.inode == attributes.inode));
    }
}

#[test]
fn access_times_follow_relatime() {
    let volume = plain();
    let f = volume.make("f", NewNode::Regular).inode;
    let accessed = || volume.attributes(f).unwrap().accessed.seconds;
    let made = accessed();
    volume.platform().advance_ms(10_000);
    volume.write(f, 0, b"x", false).unwrap();
    assert_eq!(accessed(), made);
    volume.platform().advance_ms(10_000);
    volume.contents(f);
    assert_eq!(accessed(), made + 20);
    volume.platform().advance_ms(10_000);
    volume.contents(f);
    assert_eq!(accessed(), made + 20);
    volume.platform().advance_ms(86_400_000);
    volume.contents(f);
    assert_eq!(accessed(), made + 86_430);
    let set = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    volume.platform().advance_ms(10_000);
    let changed = volume.set_attributes(f, &set).unwrap();
    assert_eq!((changed.changed.seconds, changed.modified.seconds), (made + 86_440, made + 10));
    volume.set_access_times(false);
    volume.contents(f);
    assert_eq!(accessed(), made + 86_430, "none from now on");
    volume.set_access_times(true);
    volume.contents(f);
    assert_eq!(accessed(), made + 86_440);
}
