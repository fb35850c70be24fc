//! Every kind of structure is shown, and damage is reported and not fatal.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::dump;
use crate::error::Error;
use crate::format::key::{Key, Kind};
use crate::fs::{Caller, NewNode, SetXattrMode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::dump::{metaroots, superblocks};
use crate::types::{BlockAddress, InodeNumber, Lsn};
use crate::volume::Volume;

type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

fn lines(dump: impl FnOnce(&mut dyn FnMut(String))) -> String {
    let mut all = Vec::new();
    dump(&mut |line| all.push(line));
    all.join("\n")
}

fn sample() -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(2 << 20, 512).unwrap());
    let options =
        FormatOptions { block_size: 512, label: "dumped".into(), ..FormatOptions::default() };
    TestVolume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume =
        TestVolume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let caller = Caller::default();
    let root = InodeNumber::ROOT;
    for number in 0..40 {
        let name = alloc::format!("name {number}");
        let made = volume.create(root, name.as_bytes(), NewNode::Regular, 0o640, &caller).unwrap();
        volume.write(made.inode, 0, &alloc::vec![7; 100 * number], false).unwrap();
        volume.set_xattr(made.inode, b"user.note", b"hello", SetXattrMode::Any).unwrap();
    }
    volume.create(root, b"link", NewNode::Symlink(b"name 3"), 0o777, &caller).unwrap();
    volume.checkpoint().unwrap();
    volume.create(root, b"logged", NewNode::Directory, 0o755, &caller).unwrap();
    volume.transact().unwrap();
    (medium, volume)
}

#[test]
fn shows_everything() {
    let (medium, volume) = sample();
    let platform = TestPlatform::new();
    let text = lines(|out| superblocks(&medium, &platform, out).unwrap());
    assert!(
        text.contains("both copies") && text.contains("dumped") && text.contains("4096 of 512"),
        "{text}"
    );
    let text = lines(|out| metaroots(&medium, &platform, out).unwrap());
    assert!(text.contains("(the checkpointed state)") && text.contains("slot 1 copy B"), "{text}");
    let text = lines(|out| dump::tree(&volume, out).unwrap());
    assert!(text.contains("level 1") && text.lines().count() > 5, "{text}");
    let leaf = text.lines().rfind(|line| line.contains("level 0")).unwrap();
    let block: u64 =
        leaf.split("blocks ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    // Only nodes that were written out are on the medium.
    volume.checkpoint().unwrap();
    let text = lines(|out| dump::tree(&volume, out).unwrap());
    let on_medium = text
        .split("blocks ")
        .filter_map(|part| part.split(' ').next()?.parse().ok())
        .collect::<Vec<u64>>();
    assert!(!on_medium.is_empty() && block > 0);
    for block in on_medium {
        let text = lines(|out| dump::node(&volume, BlockAddress(block), out).unwrap());
        assert!(text.starts_with("node ") && text.contains("items"), "{text}");
    }
    let root = lines(|out| dump::inode(&volume, InodeNumber::ROOT, out).unwrap());
    assert!(
        root.contains("Directory") && root.contains("\"name 7\"") && root.contains("\"logged\""),
        "{root}"
    );
    let mut all = String::new();
    for inode in 16..60 {
        all += &lines(|out| _ = dump::inode(&volume, InodeNumber(inode), out));
    }
    for word in ["Regular", "mode 0640", "crc ", "blocks ", "piece 0", "\"name 3\"", "Inline"] {
        assert!(all.contains(word), "no {word}: {all}");
    }
    let key = Key::group(0);
    assert!(lines(|out| dump::key(&volume, &key, out).unwrap()).contains("blocks in use"));
    let missing = Key::new(InodeNumber(999), Kind::Inode, 0);
    assert_eq!(dump::key(&volume, &missing, &mut |_| {}), Err(Error::NotFound));
    assert_eq!(
        dump::inode(&volume, InodeNumber(999), &mut |_| {}),
        Err(Error::Stale(InodeNumber(999)))
    );
}

#[test]
fn shows_the_log_and_what_is_damaged() {
    let (medium, volume) = sample();
    let text = lines(|out| dump::log(&volume, None, out).unwrap());
    assert!(text.starts_with("1 records"), "{text}");
    let lsn = text.split("record ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
    let text = lines(|out| dump::log(&volume, Some(Lsn(lsn)), out).unwrap());
    assert!(text.contains("put 1/Dirent") && text.contains("\"logged\""), "{text}");
    assert_eq!(dump::log(&volume, Some(Lsn(lsn + 1)), &mut |_| {}), Err(Error::NotFound));
    for outside in [0, 1, u64::MAX, u64::MAX / 2] {
        assert!(dump::node(&volume, BlockAddress(outside), &mut |_| {}).is_err());
    }
    drop(volume);
    let platform = TestPlatform::new();
    medium.write(512, &[0x55; 512]).unwrap();
    medium.write(0, &[0x55; 512]).unwrap();
    let text = lines(|out| superblocks(&medium, &platform, out).unwrap());
    assert!(text.contains("damaged or missing"), "{text}");
    let text = lines(|out| metaroots(&medium, &platform, out).unwrap());
    assert!(text.contains("slot 0 copy A at byte 512: not valid"), "{text}");
}
