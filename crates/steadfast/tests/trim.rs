//! Trimming: only free space is discarded, and nothing that the volume, a snapshot or an older
//! record needs. Discarded blocks read as zeros here, so every mistake causes a checksum mismatch.

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::testing::TestPlatform;
use steadfast::{FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_media::{Medium, MemoryMedium};

fn content(number: usize) -> Vec<u8> {
    (0..900 * number % 30_000 + 1).map(|at| (at * 31 + number) as u8 | 1).collect()
}

#[test]
fn what_is_needed_is_never_trimmed() {
    for block_size in [128, 512, 4096] {
        let image = MemoryMedium::new(4 << 20, block_size.min(512)).unwrap();
        let options = FormatOptions { block_size, ..FormatOptions::default() };
        let platform = TestPlatform::new();
        Volume::format(&image, &options, &platform).unwrap();
        let volume = Volume::open(&image, OpenOptions::default(), &platform).unwrap();
        let caller = Caller::default();
        for number in 0..60 {
            let name = format!("{number}");
            let made = volume
                .create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller)
                .unwrap();
            volume.write(made.inode, 0, &content(number), false).unwrap();
        }
        volume.snapshot_create("kept").unwrap();
        for number in (0..60).step_by(3) {
            volume.unlink(InodeNumber::ROOT, format!("{number}").as_bytes()).unwrap();
        }
        let told = volume.trim(0).unwrap();
        let space = volume.statistics().unwrap();
        let free = space.blocks_free * u64::from(space.block_size);
        assert!(told <= free && told > free / 2, "{told} of {free}");
        assert_eq!(volume.trim(u64::MAX).unwrap(), 0);
        // A change after the trim, followed by a power cut.
        let made =
            volume.create(InodeNumber::ROOT, b"later", NewNode::Regular, 0o644, &caller).unwrap();
        volume.write(made.inode, 0, &content(29), false).unwrap();
        volume.transact().unwrap();
        drop(volume);
        let report = check(&image, &platform, &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{block_size}: {:?}", report.findings);
        let options = || OpenOptions { read_only: true, ..OpenOptions::default() };
        let live = Volume::open(&image, options(), &platform).unwrap();
        let kept = Volume::open_snapshot(&image, &platform, options(), "kept").unwrap();
        assert_eq!(read(&live, "later"), content(29));
        for number in 0..60 {
            let name = format!("{number}");
            assert_eq!(read(&kept, &name), content(number));
            if number % 3 != 0 {
                assert_eq!(read(&live, &name), content(number));
            }
        }
    }
}

fn read<M: Medium, P: steadfast::Platform>(volume: &Volume<M, P>, name: &str) -> Vec<u8> {
    let file = volume.lookup(InodeNumber::ROOT, name.as_bytes()).unwrap();
    let mut bytes = vec![0; file.size as usize];
    assert_eq!(volume.read(file.inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}
