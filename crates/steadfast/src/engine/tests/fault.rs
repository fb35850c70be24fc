//! Medium requests that fail in the middle of operations with several steps. The fault runs of the
//! lab, or work on them, found each of these.

use std::sync::Arc;

use steadfast_media::sim::{Action, Fault};
use steadfast_media::{ErrorClass, MediumOperation, SimMedium, SimOptions};

use crate::engine::tests::make;
use crate::error::{Error, Result};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

type TestVolume = Volume<Arc<SimMedium>, TestPlatform>;

fn volume() -> (Arc<SimMedium>, TestVolume) {
    let medium = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    let options = FormatOptions { mask: TransactionMask::FSYNC, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium);
    (medium, volume)
}

fn open(medium: &Arc<SimMedium>) -> TestVolume {
    Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
}

/// Taking a snapshot makes two checkpoints. If any request of the second fails, there is no new
/// snapshot: it is not listed, and the earlier snapshot is.
#[test]
fn a_snapshot_that_did_not_become_durable_is_not_listed() {
    let mut unfinished = 0;
    for operation in [MediumOperation::Write, MediumOperation::Flush] {
        for after in 0..40 {
            let (medium, volume) = volume();
            make(&volume, b"file");
            volume.snapshot_create("old").unwrap();
            make(&volume, b"other");
            medium.arm(
                Fault::new(Action::Fail(ErrorClass::Gone)).on(operation).after(after).forever(),
            );
            let created = volume.snapshot_create("new");
            medium.disarm();
            let listed = volume.snapshots().unwrap();
            let names: alloc::vec::Vec<_> =
                listed.iter().map(|snapshot| snapshot.name.as_str()).collect();
            if created.is_ok() {
                assert_eq!(names, ["old", "new"]);
                break;
            }
            assert_eq!(names, ["old"], "{operation:?} {after}");
            unfinished += 1;
            for name in names {
                Volume::open_snapshot(
                    medium.clone(),
                    TestPlatform::new(),
                    OpenOptions::default(),
                    name,
                )
                .unwrap();
            }
        }
    }
    assert!(unfinished > 6, "{unfinished}");
}

/// If a rollback fails without having changed anything, the transaction stays open. So half of it
/// is never committed. If it is then dropped, the volume accepts nothing more.
#[test]
fn what_could_not_be_rolled_back_is_not_committed() {
    let (medium, volume) = volume();
    make(&volume, b"before");
    volume.transact().unwrap();
    let mut transaction = volume.begin().unwrap();
    make(&volume, b"half");
    let fault = Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read);
    medium.arm(fault.forever());
    assert!(matches!(transaction.roll_back(), Err(Error::Medium(_))));
    medium.disarm();
    assert!(volume.is_held());
    volume.fsync().unwrap();
    assert_eq!(volume.transact(), Err(Error::Held));
    let found = |volume: &TestVolume| volume.lookup(InodeNumber::ROOT, b"half").err();
    assert_eq!(found(&open(&medium)), Some(Error::NotFound));
    transaction.roll_back().unwrap();
    assert_eq!(found(&volume), Some(Error::NotFound));
    volume.transact().unwrap();
    let transaction = volume.begin().unwrap();
    make(&volume, b"half");
    medium.arm(Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Read).forever());
    drop(transaction);
    medium.disarm();
    assert!(matches!(volume.transact(), Err(Error::Poisoned(_))));
    assert_eq!(found(&open(&medium)), Some(Error::NotFound));
}

/// Background work may have passed its check when the volume fails, and still wait for the locks.
/// It must not make half of a transaction durable.
#[test]
fn what_was_accepted_before_a_failure_is_not_made_durable_after_it() {
    let (medium, volume) = volume();
    make(&volume, b"before");
    volume.snapshot_create("one").unwrap();
    volume.snapshot_create("two").unwrap();
    volume.snapshot_delete("one").unwrap();
    assert!(volume.engine.background.snapshots_wait());
    let transaction = volume.begin().unwrap();
    make(&volume, b"half");
    volume.engine.lifecycle.fail_with("a test", Error::NoSpace);
    let poisoned = |result: Result<()>| assert!(matches!(result, Err(Error::Poisoned(_))));
    poisoned(volume.engine.delete_in_background(true).map(drop));
    poisoned(volume.engine.freeze(&mut volume.engine.working.lock()));
    poisoned(volume.engine.commit_locked(&mut volume.engine.commit.lock()));
    drop(transaction);
    let after = open(&medium);
    assert!(after.lookup(InodeNumber::ROOT, b"before").is_ok());
    assert_eq!(after.lookup(InodeNumber::ROOT, b"half").err(), Some(Error::NotFound));
}
