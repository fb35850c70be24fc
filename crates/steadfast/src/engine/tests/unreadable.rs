//! Units that the medium reports as permanently unreadable. Flash and disks do so for a unit that a
//! power cut interrupted.

use alloc::vec;
use std::sync::Arc;

use steadfast_media::sim::{Action, Fault};
use steadfast_media::{ErrorClass, MediumOperation, SimMedium, SimOptions};

use crate::engine::keyspace::KeyspaceRead;
use crate::error::Error;
use crate::format::STRUCTURE_SIZE;
use crate::format::key::Key;
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::newer::NewerState;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Data of the last record is permanently unreadable. At opening this means that a power cut
/// interrupted the record, so it does not count, as with data that does not match. A rollback knows
/// that the record was acknowledged and reports the read error.
#[test]
fn unreadable_data_of_the_last_record_counts_as_interrupted_at_opening_only() {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let open = || Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new());
    let volume = open().unwrap();
    let caller = Caller::default();
    let file =
        volume.create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &caller).unwrap().inode;
    volume.write(file, 0, &[1; 8192], false).unwrap();
    volume.transact().unwrap();
    let (_, found) = volume
        .engine
        .reader()
        .unwrap()
        .next(&Key::extent(file, 0), &Key::extent(file, 9))
        .unwrap()
        .unwrap();
    let start = crate::format::extent::decode_run(&found).unwrap().start.0 * 4096;
    let fault = |class| {
        Fault::new(Action::Fail(class)).on(MediumOperation::Read).within(start..start + 4096)
    };
    medium.arm(fault(ErrorClass::Permanent).times(2));
    assert!(matches!(volume.rollback(), Err(Error::Medium(_))));
    volume.rollback().unwrap();
    assert_eq!(volume.lookup(InodeNumber::ROOT, b"file").unwrap().size, 8192);
    drop(volume);
    medium.arm(fault(ErrorClass::Transient).times(3));
    assert!(matches!(open().err(), Some(Error::Medium(_))), "try again rather than guess");
    medium.arm(fault(ErrorClass::Permanent).times(1));
    assert_eq!(open().unwrap().info().replayed_records, 1, "once is not for ever");
    medium.arm(fault(ErrorClass::Permanent).forever());
    let volume = open().unwrap();
    assert_eq!(volume.info().replayed_records, 0);
    assert_eq!(volume.lookup(InodeNumber::ROOT, b"file").err(), Some(Error::NotFound));
}

/// A power cut can leave the padding after a record or a metaroot unreadable, and a second power
/// cut can make it readable again. The padding must not decide whether they count; otherwise a
/// state that recovery skipped would come back.
#[test]
fn unreadable_padding_decides_nothing() {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let open =
        || Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let volume = open();
    let superblock = volume.engine.superblock().clone();
    let (unit, block) =
        (u64::from(SimOptions::disk(8 << 20).atomic_unit), u64::from(superblock.block_size));
    let make = |name: &[u8]| {
        volume
            .create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &Caller::default())
            .unwrap();
    };
    make(b"checkpoint");
    volume.checkpoint().unwrap();
    make(b"record");
    let record =
        (superblock.log.start.0 + volume.engine.working.lock().log.position().block) * block;
    volume.transact().unwrap();
    let generation = volume.info().generation;
    drop(volume);
    let structure = (STRUCTURE_SIZE as u64).next_multiple_of(unit);
    // Both copies of a slot; otherwise the good copy would answer for the bad one.
    let after = |offset: u64| offset + structure..offset + superblock.cell_size();
    let slots = [0, 1].map(|slot| superblock.metaroot_offsets(slot).map(after).to_vec());
    let last = record + block - unit..record + block;
    for padding in slots.into_iter().chain([vec![last]]) {
        for bytes in &padding {
            assert!(!bytes.is_empty());
            let bad = Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read);
            medium.arm(bad.within(bytes.clone()).forever());
        }
        let volume = open();
        medium.disarm();
        assert_eq!(volume.info().generation, generation, "{padding:?}");
        assert_eq!(volume.info().replayed_records, 1, "{padding:?}");
        assert!(volume.lookup(InodeNumber::ROOT, b"record").is_ok(), "{padding:?}");
    }
}

/// A record is permanently unreadable, and durable records follow it. Opening fails with the
/// medium's error. It continues without these records only if the caller asks for that.
#[test]
fn an_unreadable_record_before_others_is_a_newer_state() {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let open = |options| Volume::open(medium.clone(), options, TestPlatform::new());
    let volume = open(OpenOptions::default()).unwrap();
    let block = u64::from(volume.engine.superblock().block_size);
    let mut records = vec![];
    for name in [&b"0"[..], b"1", b"2"] {
        let made = volume
            .create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &Caller::default())
            .unwrap();
        // Longer than a block, so that no two of them share a group.
        for at in 0..2 * block / 64 {
            volume.write(made.inode, at << 20, &[1; 64], false).unwrap();
        }
        records.push(
            (volume.engine.superblock().log.start.0
                + volume.engine.working.lock().log.position().block)
                * block,
        );
        volume.transact().unwrap();
    }
    drop(volume);
    let bad = Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read);
    medium.arm(bad.within(records[1]..records[1] + block).forever());
    assert!(
        matches!(open(OpenOptions::default()).err(), Some(Error::Medium(_))),
        "it may be readable again"
    );
    for options in [
        OpenOptions { read_only: true, ..OpenOptions::default() },
        OpenOptions { recover: true, ..OpenOptions::default() },
    ] {
        let volume = open(options).unwrap();
        assert!(matches!(volume.newer_state_lost(), Some(NewerState::Records { .. })));
        assert!(volume.lookup(InodeNumber::ROOT, b"0").is_ok());
        assert_eq!(volume.lookup(InodeNumber::ROOT, b"1").err(), Some(Error::NotFound));
    }
    medium.disarm();
    let volume = open(OpenOptions::default()).unwrap();
    assert_eq!(volume.newer_state_lost(), None, "it was given up");
    assert_eq!(volume.lookup(InodeNumber::ROOT, b"2").err(), Some(Error::NotFound));
}
