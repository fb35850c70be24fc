//! Mask and timer of an open volume.

use std::sync::Arc;

use steadfast_media::MemoryMedium;

use crate::engine::tests::make;
use crate::error::Error;
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::types::InodeNumber;
use crate::volume::Volume;

const TIMED: TransactionMask = TransactionMask::TIMER;
const SYNC: TransactionMask = TransactionMask::SYNC;
const MANUAL: TransactionMask = TransactionMask::MANUAL;

type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

fn open(medium: &Arc<MemoryMedium>, read_only: bool) -> TestVolume {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Volume::open(medium.clone(), options, TestPlatform::new()).unwrap()
}

/// A volume with this mask and a timer of 50 ms.
fn volume(mask: TransactionMask) -> (Arc<MemoryMedium>, TestVolume) {
    let medium = Arc::new(MemoryMedium::new(1 << 20, 512).unwrap());
    let options = FormatOptions { mask, timer_ms: 50, ..FormatOptions::default() };
    TestVolume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = open(&medium, false);
    (medium, volume)
}

/// Mask, timer, and whether the root has entries, after a power cut now.
fn stored(medium: &Arc<MemoryMedium>) -> (TransactionMask, u32, bool) {
    let volume = open(medium, true);
    let made = volume.lookup(InodeNumber::ROOT, b"made").is_ok();
    (volume.mask(), volume.timer_ms(), made)
}

#[test]
fn what_is_refused_changes_neither() {
    let (medium, volume) = volume(SYNC);
    for (mask, timer_ms) in [(TransactionMask(1 << 31), 70), (TIMED, 0)] {
        let refused = volume.change_parameters(mask, timer_ms);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        assert_eq!((volume.mask(), volume.timer_ms()), (SYNC, 50));
    }
    volume.close().unwrap();
    assert_eq!(stored(&medium), (SYNC, 50, false));
    assert_eq!(open(&medium, true).change_parameters(TIMED, 70), Err(Error::ReadOnly));
}

#[test]
fn only_a_mask_with_the_timer_publishes_changes() {
    for (old, new, published) in
        [(TIMED, SYNC, true), (SYNC, TIMED, true), (SYNC, MANUAL, false), (TIMED, TIMED, true)]
    {
        let (medium, volume) = volume(old);
        make(&volume, b"made");
        assert_eq!(volume.change_parameters(new, 70), Ok(published));
        assert_eq!((volume.mask(), volume.timer_ms()), (new, 70));
        let after = if published { (new, 70, true) } else { (old, 50, false) };
        assert_eq!(stored(&medium), after, "{old:?} to {new:?}");
        // The next point stores them, also where they are not changed again.
        volume.transact().unwrap();
        assert_eq!(stored(&medium), (new, 70, true));
    }
    let (medium, volume) = volume(SYNC);
    assert_eq!(volume.change_parameters(MANUAL, 70), Ok(true), "no change has to wait");
    assert_eq!(stored(&medium), (MANUAL, 70, false));
}

#[test]
fn the_same_values_write_nothing() {
    let (_, volume) = volume(TIMED);
    make(&volume, b"made");
    let before = volume.info();
    assert_eq!(volume.change_parameters(TIMED, 50), Ok(true));
    assert_eq!(volume.info(), before);
}
