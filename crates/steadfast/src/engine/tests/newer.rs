//! Damage beyond what a power cut can cause: an older state is opened only if the caller asks for
//! it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::engine::tests::TestVolume;
use crate::error::Error;
use crate::format::{LogPosition, Metaroot, RECORD_HEADER, RecordBuilder};
use crate::fs::{Caller, NewNode, SetXattrMode};
use crate::log::scan;
use crate::newer::NewerState;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, Severity, check};
use crate::types::{InodeNumber, Lsn};
use crate::volume::Volume;

const ROOT: InodeNumber = InodeNumber::ROOT;
const BLOCK: u64 = 512;

fn open(bytes: &[u8], options: OpenOptions) -> (Arc<MemoryMedium>, Result<TestVolume, Error>) {
    let medium = Arc::new(MemoryMedium::new(bytes.len() as u64, BLOCK as u32).unwrap());
    medium.write(0, bytes).unwrap();
    let opened = Volume::open(medium.clone(), options, TestPlatform::new());
    (medium, opened)
}

fn for_reading() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

fn recovering() -> OpenOptions {
    OpenOptions { recover: true, ..OpenOptions::default() }
}

/// A volume with the files `0`, `1`, … as a power cut leaves it. Each file is a transaction point
/// in the log. Long points have a record of several blocks each; short ones share a group.
fn sample(points: u8, long: bool) -> Vec<u8> {
    let medium = Arc::new(MemoryMedium::new(2 << 20, BLOCK as u32).unwrap());
    let options = FormatOptions {
        block_size: BLOCK as u32,
        log_size: Some(128 << 10),
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    make(&volume, b"before", false);
    volume.checkpoint().unwrap();
    make(&volume, b"durable", false);
    volume.checkpoint().unwrap();
    for number in 0..points {
        make(&volume, &[b'0' + number], long);
        volume.transact().unwrap();
    }
    medium.to_bytes()
}

fn make(volume: &TestVolume, name: &[u8], long: bool) {
    let made = volume.create(ROOT, name, NewNode::Regular, 0o644, &Caller::default()).unwrap();
    if long {
        // Data that does not compress.
        let value: Vec<u8> =
            (0..100u32).flat_map(|at| (at.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect();
        volume.set_xattr(made.inode, b"user.long", &value, SetXattrMode::Any).unwrap();
        volume.set_xattr(made.inode, b"user.longer", &value, SetXattrMode::Any).unwrap();
    }
}

/// First byte and length of each record of the log.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (_, volume) = open(bytes, for_reading());
    let volume = volume.unwrap();
    let store = volume.engine.store();
    let metaroot = Metaroot::read_newest(
        &store.device.medium,
        &store.device.superblock,
        &store.device.platform,
    )
    .unwrap();
    let found = scan(store, metaroot.log, metaroot.generation).unwrap();
    let byte = |block: u64| ((store.device.superblock.log.start.0 + block) * BLOCK) as usize;
    found.places().map(|place| (byte(place.block), (place.blocks * BLOCK) as usize)).collect()
}

fn rot(bytes: &mut [u8], at: usize) {
    bytes[at] ^= 0x40;
}

/// Damage that no power cut causes: opening reports it, and only a caller that asks for it may
/// write.
fn is_told(bytes: &[u8], expected: impl Fn(NewerState) -> bool, kept: &[&[u8]], lost: &[&[u8]]) {
    let (medium, refused) = open(bytes, OpenOptions::default());
    let Err(Error::NewerStateLost(newer)) = refused else { panic!("{:?}", refused.err()) };
    assert!(expected(newer), "{newer}");
    assert_eq!(medium.to_bytes(), bytes, "what refuses to open has written nothing");
    let report =
        check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {}).unwrap();
    let known = report.findings.iter().any(|finding| finding.severity == Severity::Damaged);
    assert!(known, "what an opener says the check says, too: {:?}", report.findings);

    let (medium, volume) = open(bytes, for_reading());
    let volume = volume.unwrap();
    assert_eq!(volume.newer_state_lost(), Some(newer));
    kept.iter().for_each(|name| assert!(volume.lookup(ROOT, name).is_ok()));
    lost.iter().for_each(|name| assert_eq!(volume.lookup(ROOT, name), Err(Error::NotFound)));
    drop(volume);
    assert_eq!(medium.to_bytes(), bytes);

    let (medium, volume) = open(bytes, recovering());
    let volume = volume.unwrap();
    assert_eq!(volume.newer_state_lost(), Some(newer));
    make(&volume, b"afterwards", false);
    volume.transact().unwrap();
    drop(volume);
    for round in 0..2 {
        let report =
            check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
                .unwrap();
        assert!(report.is_clean(), "round {round}: {:?}", report.findings);
        let volume =
            Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
        assert_eq!(volume.newer_state_lost(), None);
        assert!(volume.lookup(ROOT, b"afterwards").is_ok());
        kept.iter().for_each(|name| assert!(volume.lookup(ROOT, name).is_ok()));
        lost.iter().for_each(|name| assert_eq!(volume.lookup(ROOT, name), Err(Error::NotFound)));
    }
}

#[test]
fn both_copies_of_the_newest_metaroot() {
    let mut bytes = sample(3, false);
    let (_, volume) = open(&bytes, for_reading());
    let volume = volume.unwrap();
    let generation = volume.info().generation;
    for offset in volume.engine.superblock().metaroot_offsets(generation) {
        rot(&mut bytes, offset as usize + 40);
    }
    let left = |newer| matches!(newer, NewerState::Metaroot { left } if left.0 + 1 == generation);
    is_told(&bytes, left, &[b"before"], &[b"durable", b"0"]);
}

#[test]
fn a_record_in_the_middle() {
    let bytes = sample(6, true);
    let records = records(&bytes);
    assert_eq!(records.len(), 6, "each has its own group");
    for at in [0, 2, 4] {
        // Damages the payload, the header, and the whole record.
        for spoilt in [RECORD_HEADER + 5..RECORD_HEADER + 6, 3..30, 0..records[at].1] {
            let mut bytes = bytes.clone();
            bytes[records[at].0..][spoilt].iter_mut().for_each(|byte| *byte ^= 0xa5);
            let names: [&[u8]; 6] = [b"0", b"1", b"2", b"3", b"4", b"5"];
            let told = |newer| matches!(newer, NewerState::Records { first, last, .. } if last.0 - first.0 == 5 - at as u64);
            is_told(&bytes, told, &names[..at], &names[at..]);
        }
    }
}

#[test]
fn both_blocks_of_the_last_group() {
    let mut bytes = sample(5, false);
    let [(newest, _)] = records(&bytes)[..] else { panic!("one group") };
    // The fifth record is in the first block again.
    let other = newest + BLOCK as usize;
    rot(&mut bytes, newest + RECORD_HEADER + 3);
    // Its last record may have been in flight.
    assert!(open(&bytes, OpenOptions::default()).1.unwrap().newer_state_lost().is_none());
    rot(&mut bytes, other + RECORD_HEADER + 3);
    let told =
        |newer| matches!(newer, NewerState::Records { first, last, .. } if last.0 - first.0 == 3);
    is_told(&bytes, told, &[b"before", b"durable"], &[b"0", b"4"]);
}

/// File content is never taken for a record, wherever in the log it lies.
#[test]
fn content_that_looks_like_a_record() {
    let medium = Arc::new(MemoryMedium::new(2 << 20, BLOCK as u32).unwrap());
    // Nodes large enough for 1 KiB of a file inline.
    let options = FormatOptions {
        block_size: BLOCK as u32,
        node_size: Some(4096),
        log_size: Some(128 << 10),
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let open = || Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new());
    let mut kept_out = 0;
    for shift in 0..BLOCK as usize {
        let volume = open().unwrap();
        let store = volume.engine.store();
        let next = volume.engine.working.lock().log.position();
        let far = LogPosition { lsn: Lsn(next.lsn.0 + 1000), epoch: next.epoch + 1000, ..next };
        let body = RecordBuilder::new(0).unwrap().body(BLOCK as usize).unwrap();
        let crc = |bytes: &[u8]| store.device.crc(bytes);
        let (forged, _) =
            body.finish(&far, 0, store.device.volume_id(), false, BLOCK as usize, crc);
        // Without zeros around it, so that the record stores it unchanged.
        let full = |length: usize| (0..length).map(|at| (at * at / 7) as u8 | 1);
        let content: Vec<u8> =
            full(shift).chain(forged[..RECORD_HEADER].iter().copied()).chain(full(400)).collect();
        let made =
            volume.create(ROOT, b"file", NewNode::Regular, 0o644, &Caller::default()).unwrap();
        volume.write(made.inode, 0, &content, false).unwrap();
        let generation = volume.info().generation;
        volume.transact().unwrap();
        kept_out += volume.info().generation - generation;
        drop(volume);
        let volume = open().unwrap_or_else(|error| panic!("{shift} bytes before it: {error}"));
        volume.unlink(ROOT, b"file").unwrap();
        volume.checkpoint().unwrap();
    }
    assert!(kept_out > 0, "no block of a record began with it");
}

/// The remains of a power cut are not damage.
#[test]
fn what_was_in_flight_is_not_missed() {
    let bytes = sample(4, true);
    let (last, length) = *records(&bytes).last().unwrap();
    for spoilt in [0..length, 0..BLOCK as usize, BLOCK as usize..length] {
        let mut bytes = bytes.clone();
        bytes[last..][spoilt].fill(0x5a);
        let (_, volume) = open(&bytes, OpenOptions::default());
        let volume = volume.unwrap();
        assert_eq!(volume.newer_state_lost(), None);
        assert!(volume.lookup(ROOT, b"2").is_ok() && volume.lookup(ROOT, b"3").is_err());
    }
    // The copy of the next metaroot that was being written: over an older one, and in an empty
    // place.
    let (_, volume) = open(&bytes, for_reading());
    let volume = volume.unwrap();
    let [first, second] = volume.engine.superblock().metaroot_offsets(volume.info().generation + 1);
    for blank in [false, true] {
        let mut bytes = bytes.clone();
        bytes[first as usize..][..512].fill(0x5a);
        bytes[first as usize] = 1;
        if blank {
            bytes[second as usize..][..512].fill(0);
        }
        let (_, volume) = open(&bytes, OpenOptions::default());
        assert_eq!(volume.unwrap().newer_state_lost(), None);
    }
}
