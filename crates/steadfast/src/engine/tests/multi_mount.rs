//! Two writers of one volume that no lock keeps apart.

use alloc::boxed::Box;
use alloc::vec;
use std::sync::Arc;

use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium};

use crate::error::{Error, Result, SECOND_WRITER};
use crate::fs::{Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::{Generation, InodeNumber};
use crate::volume::Volume;

/// A disk that several machines can write to.
#[derive(Clone)]
struct Shared(Arc<MemoryMedium>);

impl Medium for Shared {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.0.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.0.flush()
    }

    /// Discarded bytes may read as anything.
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.0.write(offset, &vec![0xdd; length as usize])
    }

    fn may_be_shared(&self) -> bool {
        true
    }
}

type TestVolume = Volume<Shared, &'static TestPlatform>;

struct Bench {
    medium: Shared,
    platform: &'static TestPlatform,
}

impl Bench {
    fn new() -> Bench {
        let medium = Shared(Arc::new(MemoryMedium::new(8 << 20, 512).unwrap()));
        let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        Bench { medium, platform: Box::leak(Box::default()) }
    }

    fn open(&self) -> TestVolume {
        Volume::open(self.medium.clone(), OpenOptions::default(), self.platform).unwrap()
    }

    /// Waits until the last check is no longer valid.
    fn wait(&self) {
        self.platform.advance_ms(2000);
    }

    /// Opens the volume after the checker found no damage.
    fn checked(&self) -> TestVolume {
        let report =
            check(self.medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
                .unwrap();
        assert!(report.is_clean(), "{report:?}");
        self.open()
    }
}

fn create(volume: &TestVolume, name: &str) -> Result<()> {
    let caller = Caller::default();
    volume.create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller).map(drop)
}

fn durable(volume: &TestVolume) -> Generation {
    volume.engine.working.lock().checkpointed.generation
}

fn has(volume: &TestVolume, name: &str) -> bool {
    volume.lookup(InodeNumber::ROOT, name.as_bytes()).is_ok()
}

fn assert_stopped<T: core::fmt::Debug>(result: Result<T>, volume: &TestVolume) {
    assert!(matches!(result, Err(Error::Poisoned(SECOND_WRITER))), "{result:?}");
    assert!(volume.info().poisoned.is_some());
    // The volume stays read-only, and closing writes nothing.
    assert!(matches!(volume.transact(), Err(Error::Poisoned(_))));
    volume.close().unwrap();
}

/// The first transaction point of one writer stops the other before the other has acknowledged any.
#[test]
fn a_commit_of_another_stops_the_first_point() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&two, "lost").unwrap();
    create(&one, "kept").unwrap();
    one.transact().unwrap();
    bench.wait();
    assert_stopped(two.transact(), &two);
    create(&one, "more").unwrap();
    one.transact().unwrap();
    one.close().unwrap();
    let volume = bench.checked();
    assert!(has(&volume, "kept") && has(&volume, "more") && !has(&volume, "lost"));
}

/// A checkpoint of another writer stops a checkpoint, even shortly after a check found nothing.
#[test]
fn a_checkpoint_of_another_stops_a_checkpoint_at_once() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&two, "lost").unwrap();
    create(&one, "kept").unwrap();
    one.checkpoint().unwrap();
    assert_stopped(two.checkpoint(), &two);
    one.close().unwrap();
    assert!(has(&bench.checked(), "kept"));
}

/// The change of the other writer falls between the nodes of a checkpoint and its metaroot.
#[test]
fn a_checkpoint_of_another_stops_the_last_step_of_one() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&two, "lost").unwrap();
    {
        let mut working = two.engine.working.lock();
        two.engine.freeze(&mut working).unwrap();
    }
    two.engine.checkpoint_step(u64::MAX).unwrap();
    let found = durable(&one);
    // The other writer has not written over these nodes, because it changes no file.
    one.set_mask(TransactionMask::DEFAULT).unwrap();
    one.transact().unwrap();
    assert!(durable(&one) > found);
    assert_stopped(two.engine.checkpoint_step(u64::MAX), &two);
}

/// A writer that resumes after a pause checks before it writes anything: blocks that it takes for
/// free may be in use.
#[test]
fn an_operation_looks_before_it_writes() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&one, "kept").unwrap();
    let file = one.lookup(InodeNumber::ROOT, b"kept").unwrap().inode;
    one.write(file, 0, &vec![7; 100_000], false).unwrap();
    one.checkpoint().unwrap();
    bench.wait();
    assert_stopped(create(&two, "lost"), &two);
    one.close().unwrap();
    let volume = bench.checked();
    let mut found = vec![0; 100_000];
    assert_eq!(volume.read(file, 0, &mut found).unwrap(), 100_000);
    assert!(found.iter().all(|byte| *byte == 7));
}

/// A trim discards nothing that another writer has allocated since, even shortly after a check.
#[test]
fn a_trim_looks_before_it_discards() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&one, "kept").unwrap();
    let file = one.lookup(InodeNumber::ROOT, b"kept").unwrap().inode;
    assert!(two.trim_step(0, u64::MAX, 0).unwrap().0 > 0);
    one.write(file, 0, &vec![7; 100_000], false).unwrap();
    one.checkpoint().unwrap();
    assert_stopped(two.trim_step(0, u64::MAX, 0), &two);
    one.close().unwrap();
    let volume = bench.checked();
    let mut found = vec![0; 100_000];
    assert_eq!(volume.read(file, 0, &mut found).unwrap(), 100_000);
    assert!(found.iter().all(|byte| *byte == 7));
}

/// A later writer continues after the records that it has found, while the first writer still
/// changes them. At most one of the two goes on, and what that one acknowledges is there.
#[test]
fn of_two_that_take_turns_one_goes_on() {
    for before in 0..6 {
        for first in [false, true] {
            let bench = Bench::new();
            let one = bench.open();
            for index in 0..before {
                create(&one, &alloc::format!("before-{index}")).unwrap();
                one.transact().unwrap();
            }
            let two = bench.open();
            let writers = [&one, &two];
            let mut acknowledged = [vec![], vec![]];
            let mut stopped = [false; 2];
            for turn in 0..40 {
                let index = usize::from((turn % 2 == 0) == first);
                bench.wait();
                let name = alloc::format!("{index}-{turn}");
                match create(writers[index], &name).and_then(|()| writers[index].transact()) {
                    Ok(()) => acknowledged[index].push(name),
                    Err(_) => stopped[index] = true,
                }
            }
            let case = alloc::format!("{before} {first} {stopped:?}");
            assert!(stopped[0] || stopped[1], "{case}");
            let survivor = usize::from(stopped[0]);
            assert!(acknowledged[1 - survivor].len() <= 3, "{case}: {acknowledged:?}");
            if !stopped[survivor] {
                writers[survivor].close().unwrap();
                let volume = bench.checked();
                assert!(acknowledged[survivor].iter().all(|name| has(&volume, name)), "{case}");
            }
        }
    }
}

/// A rollback returns to this writer's own last point, not to another writer's.
#[test]
fn a_rollback_returns_to_no_state_of_another() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    create(&one, "kept").unwrap();
    one.transact().unwrap();
    assert_stopped(two.rollback(), &two);
}

/// The volume was formatted again while its writer was open.
#[test]
fn a_volume_made_anew_is_left_alone() {
    let bench = Bench::new();
    let one = bench.open();
    let options = FormatOptions { uuid: [9; 16], ..FormatOptions::default() };
    Volume::format(&bench.medium, &options, &TestPlatform::new()).unwrap();
    bench.wait();
    assert_stopped(create(&one, "lost"), &one);
    bench.checked();
}

/// A lone writer that moves the log and the metaroots detects no other writer.
#[test]
fn a_single_writer_is_not_stopped() {
    let bench = Bench::new();
    let mut volume = bench.open();
    for round in 0..400_u32 {
        bench.wait();
        create(&volume, &alloc::format!("{round}")).unwrap();
        match round % 11 {
            3 => volume.checkpoint().unwrap(),
            5 => volume.rollback().unwrap(),
            7 => {
                volume.close().unwrap();
                volume = bench.open();
            }
            8 => drop(core::mem::replace(&mut volume, bench.open())),
            9 => volume.set_mask(TransactionMask::MANUAL).unwrap(),
            _ => volume.transact().unwrap(),
        }
        while volume.background().unwrap() {}
    }
    volume.close().unwrap();
    bench.checked();
}
