//! Directed tests for bugs that random operations meet rarely. Each test passes, and fails with its
//! bug planted in the core.
//!
//! The bugs of several threads are in `schedules.rs`. `sabotage.rs` finds the same bugs by chance.

use std::sync::{Arc, Mutex};

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{AllocateMode, Caller, NewNode, SetAttributes};
use steadfast::sabotage::{Sabotage, plant};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium};

const BLOCK: u64 = 512;
const ROOT: InodeNumber = InodeNumber::ROOT;
/// More pieces than one step of a truncation removes.
const PIECES: u64 = 80;

type TestVolume<'m> = Volume<&'m MemoryMedium, TestPlatform>;

/// Checks that the test passes, and that it fails with the bug.
fn finds(bug: Sabotage, test: fn()) {
    test();
    plant(Some(bug));
    let found = std::panic::catch_unwind(test);
    plant(None);
    assert!(found.is_err(), "{bug:?} goes unnoticed");
}

fn formatted(mask: TransactionMask) -> MemoryMedium {
    let medium = MemoryMedium::new(4 << 20, BLOCK as u32).expect("a medium");
    let options = FormatOptions {
        block_size: BLOCK as u32,
        mask,
        log_size: Some(64 << 10),
        ..FormatOptions::default()
    };
    Volume::format(&&medium, &options, &TestPlatform::new()).expect("a volume");
    medium
}

fn open(medium: &MemoryMedium) -> TestVolume<'_> {
    Volume::open(medium, OpenOptions::default(), TestPlatform::new()).expect("it opens")
}

/// The volume after a power cut.
fn cut<'m>(volume: TestVolume<'m>, medium: &'m MemoryMedium) -> TestVolume<'m> {
    drop(volume);
    assert_clean(medium);
    open(medium)
}

fn assert_clean(medium: &MemoryMedium) {
    let report = check(&medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| ())
        .expect("a check");
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn make<M: Medium>(volume: &Volume<M, TestPlatform>, name: &str) -> InodeNumber {
    let made = volume.create(ROOT, name.as_bytes(), NewNode::Regular, 0o644, &Caller::default());
    made.expect("a file").inode
}

fn unnamed(volume: &TestVolume<'_>) -> InodeNumber {
    volume.create_unnamed(ROOT, 0o600, &Caller::default()).expect("a file").inode
}

fn resize(volume: &TestVolume<'_>, inode: InodeNumber, size: u64) {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    volume.set_attributes(inode, &set).expect("another size");
}

fn scatter(volume: &TestVolume<'_>, inode: InodeNumber, byte: u8) {
    for piece in 0..PIECES {
        volume.write(inode, 2 * piece * BLOCK, &[byte; BLOCK as usize], false).expect("written");
    }
}

fn bytes(volume: &TestVolume<'_>, inode: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.attributes(inode).expect("attributes").size as usize];
    assert_eq!(volume.read(inode, 0, &mut bytes), Ok(bytes.len()));
    bytes
}

#[test]
fn a_changed_mask_and_timer_are_part_of_a_point() {
    finds(Sabotage::ForgetParameters, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        make(&volume, "file");
        volume.transact().unwrap();
        // Nothing else has changed.
        volume.set_timer_ms(777).unwrap();
        volume.transact().unwrap();
        let volume = cut(volume, &medium);
        assert_eq!(volume.timer_ms(), 777);
        volume.set_mask(TransactionMask::CLOSE).unwrap();
        volume.transact().unwrap();
        assert_eq!(cut(volume, &medium).mask(), TransactionMask::CLOSE);
    });
}

#[test]
fn an_o_sync_write_is_a_point_where_fsync_is_none() {
    finds(Sabotage::SyncWriteNeedsFsync, || {
        let medium = formatted(TransactionMask::SYNC_WRITE);
        let volume = open(&medium);
        let file = make(&volume, "file");
        volume.write(file, 0, b"synced", true).unwrap();
        volume.append(file, b" twice", true).unwrap();
        let volume = cut(volume, &medium);
        assert_eq!(bytes(&volume, file), b"synced twice");
    });
}

#[test]
fn a_clone_of_a_truncated_file_shows_nothing_past_its_end() {
    finds(Sabotage::CloneForgetsStaleTail, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        for (end, grown) in [(700, 1024), (1000, 5000), (513, 514), (1023, 1500)] {
            let (file, copy) =
                (make(&volume, &format!("f{end}")), make(&volume, &format!("c{end}")));
            volume.write(file, 0, &[7; 1536], false).unwrap();
            resize(&volume, file, end);
            volume.clone_range(file, 0, copy, 0, 0).unwrap();
            resize(&volume, copy, grown);
            let mut right = vec![7; end as usize];
            right.resize(grown as usize, 0);
            assert_eq!(bytes(&volume, copy), right, "{end} of {grown}");
        }
        volume.transact().unwrap();
        cut(volume, &medium);
    });
}

#[test]
fn a_write_into_the_last_block_keeps_nothing_past_the_end() {
    finds(Sabotage::KeepPastEnd, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        for (end, at, grown) in [(700, 600, 1024), (1000, 10, 5000), (513, 512, 514)] {
            let file = make(&volume, &format!("f{end}"));
            volume.write(file, 0, &[7; 1536], false).unwrap();
            resize(&volume, file, end);
            volume.write(file, at, &[8], false).unwrap();
            resize(&volume, file, grown);
            let mut right = vec![7; end as usize];
            right[at as usize] = 8;
            right.resize(grown as usize, 0);
            assert_eq!(bytes(&volume, file), right, "{at} of {end}");
        }
        volume.transact().unwrap();
        cut(volume, &medium);
    });
}

#[test]
fn a_write_into_a_block_keeps_what_has_changed_there_since_the_last_write() {
    finds(Sabotage::TrustKeptBlock, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        let (file, other) = (make(&volume, "file"), make(&volume, "other"));
        volume.write(other, 0, &[5; 2 * BLOCK as usize], false).unwrap();
        for size in [700, 1000, 1024] {
            volume.write(file, 0, &vec![7; size - 1], false).unwrap();
            // The two halves of the last block change in ways that are no write to this file.
            volume.append(file, &[7], false).unwrap();
            volume.allocate(file, 520, 20, AllocateMode::ZeroRange { keep_size: true }).unwrap();
            volume.write(file, 600, &[8], false).unwrap();
            let mut right = vec![7; size];
            right[520..540].fill(0);
            right[600] = 8;
            assert_eq!(bytes(&volume, file), right, "zeroed, {size}");
            volume.clone_range(other, BLOCK, file, BLOCK, BLOCK).unwrap();
            volume.write(file, 601, &[9], false).unwrap();
            let mut right = vec![7; 2 * BLOCK as usize];
            right[BLOCK as usize..].fill(5);
            right[601] = 9;
            assert_eq!(bytes(&volume, file), right, "cloned, {size}");
            // Another file's block has taken the memory meanwhile.
            volume.write(other, 10, &[6], false).unwrap();
            volume.write(file, 602, &[6], false).unwrap();
            right[602] = 6;
            assert_eq!(bytes(&volume, file), right, "another file, {size}");
            resize(&volume, file, 0);
        }
        volume.transact().unwrap();
        cut(volume, &medium);
    });
}

#[test]
fn zeroed_ranges_end_where_they_are_told() {
    finds(Sabotage::HoleTakesLastByte, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        let modes = [AllocateMode::PunchHole, AllocateMode::ZeroRange { keep_size: true }];
        for (number, size) in [20u64, 511, 512, 513, 1023, 1024, 1025, 5000].into_iter().enumerate()
        {
            for mode in modes {
                for end in [size - 1, size, size + 1] {
                    for offset in [0, end / 2, end - 1] {
                        let file = make(&volume, &format!("{number}-{mode:?}-{end}-{offset}"));
                        volume.write(file, 0, &vec![7; size as usize], false).unwrap();
                        volume.allocate(file, offset, end - offset, mode).unwrap();
                        let mut right = vec![7; size as usize];
                        right[offset as usize..end.min(size) as usize].fill(0);
                        assert!(
                            bytes(&volume, file) == right,
                            "{mode:?} {offset}..{end} of {size}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn a_file_without_a_name_stays_an_orphan_when_its_truncation_ends() {
    finds(Sabotage::TruncationEndsOrphan, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        for named in [false, true] {
            let file = if named { make(&volume, "file") } else { unnamed(&volume) };
            if named {
                volume.acquire(file).unwrap();
                volume.unlink(ROOT, b"file").unwrap();
            }
            scatter(&volume, file, 1);
            resize(&volume, file, 100);
            while volume.background().unwrap() {}
            // The end of the truncation is durable, and the file is still open.
            assert_eq!(volume.attributes(file).unwrap().size, 100);
            volume.transact().unwrap();
        }
        let volume = cut(volume, &medium);
        while volume.background().unwrap() {}
        assert_eq!(volume.statistics().unwrap().inodes, 1);
    });
}

#[test]
fn a_file_that_gets_a_name_while_it_is_truncated_is_still_truncated() {
    finds(Sabotage::NameEndsTruncation, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        let file = unnamed(&volume);
        scatter(&volume, file, 1);
        resize(&volume, file, 100);
        volume.link(file, ROOT, b"name").unwrap();
        volume.release(file);
        volume.transact().unwrap();
        let volume = cut(volume, &medium);
        while volume.background().unwrap() {}
        volume.transact().unwrap();
        assert_eq!(volume.attributes(file).unwrap().allocated, BLOCK);
        cut(volume, &medium);
    });
}

#[test]
fn the_newest_snapshot_is_none_that_is_being_deleted() {
    finds(Sabotage::NewestIsDeleting, || {
        let medium = formatted(TransactionMask::MANUAL);
        let volume = open(&medium);
        let (file, between) = (make(&volume, "file"), make(&volume, "between"));
        scatter(&volume, file, 1);
        volume.snapshot_create("oldest").unwrap();
        scatter(&volume, file, 2);
        volume.write(between, 0, &[1; 4 * BLOCK as usize], false).unwrap();
        volume.snapshot_create("middle").unwrap();
        scatter(&volume, file, 3);
        volume.snapshot_create("newest").unwrap();
        // The first deletion has more work than what is done with its transaction point.
        volume.snapshot_delete("middle").unwrap();
        volume.snapshot_delete("newest").unwrap();
        while volume.background().unwrap() {}
        // These blocks are younger than the oldest snapshot: no snapshot refers to them any more.
        volume.write(between, 0, &[2; 4 * BLOCK as usize], false).unwrap();
        volume.checkpoint().unwrap();
        cut(volume, &medium);
    });
}

type InterruptedVolume = Volume<Arc<Interrupted>, TestPlatform>;

/// What another thread does with a file in the middle of a read of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Overwrite(InodeNumber),
    /// The name of the file is `file`.
    Remove,
}

/// A medium that does something in the middle of its next read, and then writes as often as there
/// are blocks for it.
struct Interrupted {
    inner: MemoryMedium,
    next: Mutex<Option<(Arc<InterruptedVolume>, Meanwhile)>>,
}

impl Medium for Interrupted {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let next = self.next.lock().expect("not poisoned").take();
        if let Some((volume, meanwhile)) = next {
            // The reader holds no lock at this point that this needs.
            let file = match meanwhile {
                Meanwhile::Overwrite(file) => file,
                Meanwhile::Remove => {
                    volume.unlink(ROOT, b"file").expect("removed");
                    while volume.background().expect("reclaimed") {}
                    make(&volume, "other")
                }
            };
            for version in 2..40 {
                volume.write(file, 0, &[version; 3000], false).expect("written");
                volume.checkpoint().expect("a checkpoint");
            }
        }
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.inner.write(offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.inner.write_fua(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.inner.discard(offset, length)
    }
}

/// A volume with the file `file` of 3,000 bytes. The next read of the medium will be one of data.
fn interrupted() -> (Arc<Interrupted>, Arc<InterruptedVolume>, InodeNumber) {
    let inner = MemoryMedium::new(96 << 10, BLOCK as u32).expect("a medium");
    let medium = Arc::new(Interrupted { inner, next: Mutex::new(None) });
    let options = FormatOptions {
        block_size: BLOCK as u32,
        mask: TransactionMask::MANUAL,
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).expect("a volume");
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new());
    let volume = Arc::new(volume.expect("it opens"));
    let file = make(&volume, "file");
    volume.write(file, 0, &[1; 3000], false).unwrap();
    volume.checkpoint().unwrap();
    volume.attributes(file).unwrap();
    (medium, volume, file)
}

#[test]
fn blocks_stay_while_they_are_read() {
    finds(Sabotage::ReusePinned, || {
        let (medium, volume, file) = interrupted();
        let meanwhile = Meanwhile::Overwrite(file);
        *medium.next.lock().expect("not poisoned") = Some((volume.clone(), meanwhile));
        let mut read = [0; 3000];
        assert_eq!(volume.read(file, 0, &mut read), Ok(3000));
        assert!(medium.next.lock().expect("not poisoned").is_none());
        assert_eq!((read, volume.reads_repeated()), ([1; 3000], 0));
    });
}

#[test]
fn blocks_stay_while_a_write_reads_its_old_bytes() {
    finds(Sabotage::ReusePinned, || {
        let (medium, volume, file) = interrupted();
        *medium.next.lock().expect("not poisoned") = Some((volume.clone(), Meanwhile::Remove));
        assert_eq!(volume.write(file, 100, &[9; 50], false), Err(Error::Stale(file)));
        assert!(medium.next.lock().expect("not poisoned").is_none());
        assert_eq!(volume.reads_repeated(), 0);
    });
}

#[test]
fn a_node_that_was_written_out_early_is_written_again_when_it_changes() {
    finds(Sabotage::ChangeSealedLeaf, || {
        let medium = MemoryMedium::new(16 << 20, BLOCK as u32).expect("a medium");
        // Without transaction points nodes are written out once they fill half of the cache. It has
        // room for all of them.
        let options = FormatOptions {
            mask: TransactionMask::MANUAL,
            block_size: BLOCK as u32,
            node_size: Some(1024),
            ..FormatOptions::default()
        };
        Volume::format(&&medium, &options, &TestPlatform::new()).expect("a volume");
        let options = OpenOptions { cache_size: 1000 << 10, ..OpenOptions::default() };
        let volume = Volume::open(&medium, options, TestPlatform::new()).expect("it opens");
        let files: Vec<_> = (0..2000).map(|file| make(&volume, &file.to_string())).collect();
        for (file, mode) in files.iter().zip((0..0o1000).cycle()) {
            let set = SetAttributes { permissions: Some(mode), ..SetAttributes::default() };
            volume.set_attributes(*file, &set).expect("another mode");
        }
        volume.checkpoint().unwrap();
        let volume = cut(volume, &medium);
        for (file, mode) in files.iter().zip((0..0o1000).cycle()) {
            assert_eq!(volume.attributes(*file).unwrap().permissions, mode, "file {file:?}");
        }
    });
}
