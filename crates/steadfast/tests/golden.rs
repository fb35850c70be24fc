//! An image of every released format version can always be opened, with the same content.
//!
//! `STEADFAST_BLESS=1 cargo test -p steadfast --test golden` rewrites the image of the present
//! version. That is allowed only before the version is released.

use std::path::PathBuf;
use std::sync::Arc;

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{AllocateMode, Caller, FileKind, NewNode, SetXattrMode};
use steadfast::testing::TestPlatform;
use steadfast::{FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_media::MemoryMedium;

const SIZE: u64 = 96 << 10;

fn image_path(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/version-{version}.img"))
}

/// An image with every kind of structure; the last part of it is in the intent log.
fn make_image() -> Vec<u8> {
    let medium = Arc::new(MemoryMedium::new(SIZE, 512).expect("geometry"));
    let options = FormatOptions {
        block_size: 512,
        log_size: Some(8 << 10),
        uuid: *b"golden--steadfst",
        label: "golden".into(),
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).expect("format");
    let volume =
        Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).expect("open");
    let caller = Caller { uid: 1000, gid: 100, umask: 0o022 };
    let root = InodeNumber::ROOT;
    let create = |directory, name: &str, node| {
        volume.create(directory, name.as_bytes(), node, 0o777, &caller).expect("create").inode
    };
    let directory = create(root, "directory", NewNode::Directory);
    let inline = create(directory, "inline", NewNode::Regular);
    volume.write(inline, 0, b"small", false).expect("write");
    volume.set_xattr(inline, b"user.note", b"kept", SetXattrMode::Any).expect("xattr");
    let large = create(root, "large", NewNode::Regular);
    volume.write(large, 1000, &[7; 5000], false).expect("write");
    let allocated = AllocateMode::Allocate { keep_size: true };
    volume.allocate(large, 8192, 1024, allocated).expect("allocate");
    create(root, "link", NewNode::Symlink(b"directory/inline"));
    create(root, "device", NewNode::CharDevice(0x103));
    volume.link(large, directory, b"second name").expect("link");
    let gone = create(root, "gone", NewNode::Regular);
    volume.write(gone, 0, &[5; 2000], false).expect("write");
    volume.snapshot_create("first").expect("snapshot");
    volume.unlink(root, b"gone").expect("unlink");
    let clone = create(root, "clone", NewNode::Regular);
    volume.clone_range(large, 0, clone, 0, 0).expect("clone");
    volume.snapshot_create("second").expect("snapshot");
    volume.snapshot_delete("second").expect("delete");
    volume.checkpoint().expect("checkpoint");
    let logged = create(root, "logged", NewNode::Regular);
    volume.write(logged, 0, &[9; 3000], true).expect("write");
    create(root, "lost", NewNode::Fifo);
    drop(volume);
    medium.to_bytes()
}

#[test]
fn version_1_opens() {
    let path = image_path(1);
    if std::env::var_os("STEADFAST_BLESS").is_some() {
        std::fs::write(&path, make_image()).expect("write the image");
    }
    let bytes = std::fs::read(&path).expect("the image is in the repository");
    let medium = Arc::new(MemoryMedium::from_bytes(&bytes, 512).expect("geometry"));
    let report =
        check(&medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| {}).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);

    let volume =
        Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).expect("open");
    let info = volume.info();
    assert_eq!((info.version, info.label.as_str(), info.block_size), (1, "golden", 512));
    assert_eq!(info.replayed_records, 1);
    let find = |path: &str| {
        path.split('/').fold(InodeNumber::ROOT, |directory, name| {
            volume.lookup(directory, name.as_bytes()).expect(path).inode
        })
    };
    let content = |path: &str| {
        let inode = find(path);
        let mut buffer = vec![0; volume.attributes(inode).expect(path).size as usize];
        volume.read(inode, 0, &mut buffer).expect(path);
        buffer
    };
    assert_eq!(content("directory/inline"), b"small");
    assert_eq!(volume.xattr(find("directory/inline"), b"user.note").expect("xattr"), b"kept");
    let large = content("large");
    assert_eq!(
        (large.len(), &large[..1000], &large[1000..]),
        (6000, &[0; 1000][..], &[7; 5000][..])
    );
    assert_eq!(find("large"), find("directory/second name"));
    assert_eq!(content("clone"), large);
    let attributes = volume.attributes(find("large")).expect("attributes");
    assert_eq!((attributes.links, attributes.uid, attributes.permissions), (2, 1000, 0o755));
    assert_eq!(attributes.allocated, 13 * 512);
    assert_eq!(volume.read_link(find("link")).expect("link"), b"directory/inline");
    let device = volume.attributes(find("device")).expect("device");
    assert_eq!((device.kind, device.device), (FileKind::CharDevice, 0x103));
    assert_eq!(content("logged"), [9; 3000]);
    assert!(volume.lookup(InodeNumber::ROOT, b"lost").is_err(), "never made durable");

    let names: Vec<String> =
        volume.snapshots().expect("snapshots").into_iter().map(|snapshot| snapshot.name).collect();
    assert_eq!(names, ["first"]);
    let first = Volume::open_snapshot(medium, TestPlatform::new(), OpenOptions::default(), "first")
        .expect("snapshot");
    let gone = first.lookup(InodeNumber::ROOT, b"gone").expect("gone").inode;
    let mut buffer = [0; 2000];
    assert_eq!(first.read(gone, 0, &mut buffer), Ok(2000));
    assert_eq!(buffer, [5; 2000]);
    assert!(first.lookup(InodeNumber::ROOT, b"clone").is_err(), "made later");
}

#[test]
fn the_same_steps_make_the_same_image() {
    assert!(make_image() == make_image());
}
