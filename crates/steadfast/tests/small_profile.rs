//! Builds that leave features out (docs/EMBEDDED.md), and volumes that use these features.
//!
//! A full build makes the images below `golden/` and opens them. A build without features refuses
//! them, or the operation that would need the feature, and reads the rest:
//! `cargo test -p steadfast --no-default-features --test small_profile`.
//! `STEADFAST_BLESS=1` with all features writes the images again.

use std::path::PathBuf;
use std::sync::Arc;

use steadfast::fs::{Caller, NewNode, SetAttributes};
use steadfast::testing::TestPlatform;
use steadfast::{InodeNumber, OpenOptions, Result, Volume};
use steadfast_media::MemoryMedium;

const ROOT: InodeNumber = InodeNumber::ROOT;
const DATA: [u8; 3000] = [7; 3000];

type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.img"))
}

fn image(name: &str) -> Arc<MemoryMedium> {
    let bytes = std::fs::read(path(name)).expect("an image of the repository");
    Arc::new(MemoryMedium::from_bytes(&bytes, 512).expect("geometry"))
}

fn open(medium: &Arc<MemoryMedium>, read_only: bool) -> Result<TestVolume> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new())
}

fn create(volume: &TestVolume, directory: InodeNumber, name: &str) -> Result<InodeNumber> {
    let caller = Caller::default();
    Ok(volume.create(directory, name.as_bytes(), NewNode::Regular, 0o666, &caller)?.inode)
}

#[cfg(any(not(feature = "snapshots"), not(feature = "xattrs")))]
fn is_refused<T>(result: Result<T>, what: &str) -> bool {
    matches!(result, Err(steadfast::Error::Unsupported(text)) if text.contains(what))
}

#[cfg(all(feature = "snapshots", feature = "xattrs"))]
mod full {
    use steadfast::FormatOptions;
    use steadfast::fs::SetXattrMode;

    use super::*;

    fn empty() -> Arc<MemoryMedium> {
        let medium = Arc::new(MemoryMedium::new(64 << 10, 512).expect("geometry"));
        let options = FormatOptions {
            block_size: 512,
            log_size: Some(8 << 10),
            uuid: *b"profile-steadfst",
            ..FormatOptions::default()
        };
        Volume::format(&medium, &options, &TestPlatform::new()).expect("format");
        medium
    }

    /// Two files share blocks, and only the log says so.
    fn with_clone() -> Arc<MemoryMedium> {
        let medium = empty();
        let volume = open(&medium, false).expect("open");
        let file = create(&volume, ROOT, "file").expect("create");
        volume.write(file, 0, &DATA, false).expect("write");
        volume.checkpoint().expect("checkpoint");
        let clone = create(&volume, ROOT, "clone").expect("create");
        volume.clone_range(file, 0, clone, 0, 0).expect("clone");
        volume.transact().expect("transact");
        medium
    }

    /// A directory with a default ACL, and a file with an ACL.
    fn with_acls() -> Arc<MemoryMedium> {
        let medium = empty();
        let volume = open(&medium, false).expect("open");
        let directory =
            volume.create(ROOT, b"directory", NewNode::Directory, 0o777, &Caller::default());
        let directory = directory.expect("create").inode;
        // Owner, user 9, group, mask, others.
        let mut acl = vec![2, 0, 0, 0];
        for (tag, bits, id) in
            [(1, 7, u32::MAX), (2, 6, 9), (4, 5, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
        {
            acl.extend([tag, 0, bits, 0]);
            acl.extend(id.to_le_bytes());
        }
        let name = b"system.posix_acl_default";
        volume.set_xattr(directory, name, &acl, SetXattrMode::Any).expect("ACL");
        let file = create(&volume, directory, "file").expect("create");
        volume.write(file, 0, &DATA, false).expect("write");
        volume.checkpoint().expect("checkpoint");
        medium
    }

    #[test]
    fn a_full_build_makes_and_opens_them() {
        for (name, make) in [("clone", with_clone as fn() -> _), ("acl", with_acls)] {
            let medium: Arc<MemoryMedium> = make();
            if std::env::var_os("STEADFAST_BLESS").is_some() {
                std::fs::write(path(name), medium.to_bytes()).expect("write the image");
            }
            let volume = open(&image(name), false).expect(name);
            let directory = match volume.lookup(ROOT, b"directory") {
                Ok(found) => found.inode,
                Err(_) => ROOT,
            };
            let file = create(&volume, directory, "another").expect("create");
            let set = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
            volume.set_attributes(file, &set).expect("chmod");
        }
    }
}

#[test]
#[cfg(not(feature = "snapshots"))]
fn a_volume_with_snapshots_or_shared_blocks_is_read_only() {
    for name in ["version-1", "clone"] {
        assert!(is_refused(open(&image(name), false).map(drop), "snapshots"), "{name}");
    }
    // A snapshot needs nothing that a reader lacks.
    let volume = open(&image("version-1"), true).expect("read-only");
    let directory = volume.lookup(ROOT, b"directory").expect("directory").inode;
    let inline = volume.lookup(directory, b"inline").expect("file").inode;
    let mut buffer = [0; 64];
    let length = volume.read(inline, 0, &mut buffer).expect("read");
    assert_eq!(&buffer[..length], b"small");
}

#[test]
#[cfg(not(feature = "snapshots"))]
fn no_snapshot_is_taken_and_no_block_shared() {
    let volume = open(&image("acl"), false).expect("open");
    assert!(is_refused(volume.snapshot_create("new").map(drop), "snapshots"));
    assert!(is_refused(volume.snapshot_delete("new"), "snapshots"));
    assert!(is_refused(volume.snapshot_rollback("new", false), "snapshots"));
    let (file, copy) = (create(&volume, ROOT, "file"), create(&volume, ROOT, "copy"));
    let (file, copy) = (file.expect("create"), copy.expect("create"));
    volume.write(file, 0, &DATA, false).expect("write");
    assert!(is_refused(volume.clone_range(file, 0, copy, 0, 0).map(drop), "snapshots"));
    // Copying moves the bytes instead.
    assert_eq!(volume.copy_range(file, 0, copy, 0, 3000), Ok(3000));
    volume.transact().expect("transact");
    let mut buffer = [0; 4000];
    assert_eq!(volume.read(copy, 0, &mut buffer), Ok(3000));
    assert_eq!(buffer[..3000], DATA);
}

#[test]
#[cfg(not(feature = "xattrs"))]
fn acls_are_neither_ignored_nor_changed() {
    use steadfast::fs::SetXattrMode;

    let medium = image("acl");
    let volume = open(&medium, false).expect("open");
    let directory = volume.lookup(ROOT, b"directory").expect("directory").inode;
    let file = volume.lookup(directory, b"file").expect("file");
    assert!(is_refused(create(&volume, directory, "new").map(drop), "ACL"));
    let set = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    assert!(is_refused(volume.set_attributes(file.inode, &set).map(drop), "ACL"));
    let set = volume.set_xattr(file.inode, b"user.note", b"x", SetXattrMode::Any);
    assert!(is_refused(set, "attributes"));
    // What needs no ACL works, also removing the file with its ACL.
    volume.write(file.inode, 0, b"changed", false).expect("write");
    volume.unlink(directory, b"file").expect("unlink");
    create(&volume, ROOT, "new").expect("create");
    volume.transact().expect("transact");
    while volume.background().expect("background") {}
    volume.close().expect("close");
    drop(volume);
    use steadfast::check::{CheckOptions, check};
    let report = check(&medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| ());
    assert!(report.expect("check").is_clean());
}
