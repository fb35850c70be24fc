//! Tests of the checker: bugs planted in the core itself, each of which must be found within a
//! given number of seeds.
//!
//! The table in docs/testing/planted-bugs.md is this one. `STEADFAST_SABOTAGE=all` shows the seed
//! that finds each bug, and continues if one is not found. Names separated by commas, instead of
//! `all`, select those bugs only.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Once};

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode, SetAttributes};
use steadfast::sabotage::{Sabotage, plant};
use steadfast::testing::TestPlatform;
use steadfast::volume::{KeptDeltas, Reached};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium};
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, torture};
use steadfast_torture::random::Random;
use steadfast_torture::subject::LabVolume;
use steadfast_torture::tape::Discards;
use steadfast_torture::world::{Profile, World};

/// Bugs that power cuts, comparison with the model and the check after each cut find, with the
/// number of seeds.
const BY_POWER_CUTS: [(Sabotage, u64); 37] = [
    (Sabotage::SkipFlushBeforeMetaroot, 10),
    (Sabotage::MetarootBeforeLastStep, 10),
    (Sabotage::SkipFlushAfterMetaroot, 10),
    (Sabotage::OneMetarootSlot, 10),
    (Sabotage::SkipFlushOfCommit, 10),
    (Sabotage::SkipFlushOfData, 20),
    (Sabotage::ReuseFreedBlocks, 100),
    (Sabotage::AcceptTornRecord, 30),
    (Sabotage::AcceptRecordWithoutData, 10),
    (Sabotage::IgnoreChain, 20),
    (Sabotage::KeepChainDigest, 10),
    (Sabotage::KeepUnfinishedRecord, 160),
    (Sabotage::OverwriteNewestRecord, 40),
    (Sabotage::ForgetSettled, 10),
    (Sabotage::PackAgainstOldValue, 20),
    (Sabotage::ReadPastTheLog, 10),
    (Sabotage::ReplayTwice, 10),
    (Sabotage::ChangeCommittedNode, 10),
    (Sabotage::LeadToOldNode, 10),
    (Sabotage::ForgetBitmap, 10),
    (Sabotage::ForgetOrphan, 10),
    (Sabotage::KeepOldAttributes, 10),
    (Sabotage::KeepOldNames, 10),
    (Sabotage::KeepNamesOfRolledBack, 100),
    (Sabotage::LoseModificationTime, 10),
    (Sabotage::RenameInTwo, 10),
    (Sabotage::ForgetParameters, 20),
    (Sabotage::SyncWriteNeedsFsync, 20),
    (Sabotage::KeepPastEnd, 20),
    (Sabotage::TrustKeptBlock, 40),
    (Sabotage::HoleTakesLastByte, 20),
    (Sabotage::TruncationEndsOrphan, 20),
    (Sabotage::NameEndsTruncation, 40),
    (Sabotage::KeepUnpublished, 40),
    (Sabotage::KeepFingers, 10),
    (Sabotage::OverfillLeaf, 10),
    (Sabotage::RemoveAtHole, 20),
];

/// Bugs in snapshots, in the rollback to them, and in clones, in worlds with snapshots.
const BY_POWER_CUTS_AMONG_SNAPSHOTS: [(Sabotage, u64); 7] = [
    (Sabotage::SnapshotBirthOffByOne, 10),
    (Sabotage::ForgetHeld, 10),
    (Sabotage::DeleteBirthOffByOne, 20),
    (Sabotage::SharedCountOffByOne, 10),
    (Sabotage::CloneForgetsStaleTail, 40),
    (Sabotage::NewestIsDeleting, 100),
    (Sabotage::ForgetDeletedSnapshots, 20),
];

/// Bugs in atomic commands, in worlds with all features.
const BY_POWER_CUTS_WITH_EXTRAS: [(Sabotage, u64); 1] = [(Sabotage::IgnoreHold, 200)];

/// Bugs in changes of the size, in worlds with them.
const BY_POWER_CUTS_WITH_RESIZES: [(Sabotage, u64); 1] = [(Sabotage::GrowBeforeCopies, 20)];

/// Bugs in discards, in worlds whose medium asks for them.
const BY_POWER_CUTS_WITH_DISCARDS: [(Sabotage, u64); 2] =
    [(Sabotage::DiscardGivenOut, 40), (Sabotage::DiscardBeforeCommit, 40)];

/// Bugs in trims, in worlds where each background step is followed by one.
const BY_POWER_CUTS_WITH_TRIMS: [(Sabotage, u64); 1] = [(Sabotage::TrimDurable, 40)];

/// Bugs in making a volume, in worlds whose medium held an earlier one.
const BY_POWER_CUTS_ON_USED_MEDIA: [(Sabotage, u64); 1] = [(Sabotage::FormatKeepsRecords, 40)];

/// Bugs that let a power cut destroy too much at once, on media that leave rubbish after an
/// interrupted write.
const BY_POWER_CUTS_ON_ROUGH_MEDIA: [(Sabotage, u64); 1] = [(Sabotage::BothMetarootsAtOnce, 60)];

/// Bugs in replays that write nodes out, in worlds with long logs and little memory.
const BY_POWER_CUTS_WITH_LITTLE_MEMORY: [(Sabotage, u64); 1] = [(Sabotage::ReplayOverLog, 20)];

/// Bugs in what other nodes keep, in worlds with such a node.
const BY_POWER_CUTS_WITH_DELTAS: [(Sabotage, u64); 5] = [
    (Sabotage::DeltaSkipsBatch, 40),
    (Sabotage::ReuseBlocksOfDelta, 40),
    (Sabotage::KeepOldDeltas, 40),
    (Sabotage::TakeOldDeltas, 40),
    (Sabotage::DeltasOutliveRollback, 40),
];

/// The same, with little memory.
const BY_POWER_CUTS_WITH_DELTAS_AND_LITTLE_MEMORY: [(Sabotage, u64); 1] =
    [(Sabotage::ReplayOverDeltas, 40)];

/// Enough operations for more changed nodes than the smallest cache holds.
const LONG: CutEffort =
    CutEffort { operations: 500, cuts: Some(20), survivals: 1, recovery_cuts: [1, 0, 0] };

const EFFORT: CutEffort =
    CutEffort { operations: 80, cuts: Some(60), survivals: 1, recovery_cuts: [2, 1, 0] };

/// A disk that two machines can reach.
struct Shared(MemoryMedium);

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

    fn may_be_shared(&self) -> bool {
        true
    }
}

/// Whether the second of two writers is stopped by what the first one has acknowledged.
fn a_second_writer_is_stopped() -> bool {
    let disk = Shared(MemoryMedium::new(8 << 20, 512).unwrap());
    Volume::format(&disk, &FormatOptions::default(), &TestPlatform::new()).unwrap();
    let open = || Volume::open(&disk, OpenOptions::default(), TestPlatform::new()).unwrap();
    let (one, two) = (open(), open());
    let caller = Caller::default();
    for volume in [&one, &two] {
        volume.create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &caller).unwrap();
    }
    one.transact().unwrap();
    // A check for other writers is valid for a second.
    two.platform().advance_ms(2000);
    two.transact().is_err()
}

#[test]
fn two_writers_find_each_other() {
    assert!(a_second_writer_is_stopped());
    assert!(!with(Sabotage::TrustToBeAlone, a_second_writer_is_stopped), "it shows nothing");
}

/// Runs `work` with a bug, and removes the bug in any case.
fn with<T>(bug: Sabotage, work: impl FnOnce() -> T) -> T {
    struct DigOut;
    impl Drop for DigOut {
        fn drop(&mut self) {
            plant(None);
        }
    }
    let _dig_out = DigOut;
    plant(Some(bug));
    work()
}

/// Does work whose panics, which a planted bug causes in the volume, are part of a test and are not
/// printed.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                print(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = work();
    QUIET.set(false);
    result
}

fn explore() -> bool {
    std::env::var_os("STEADFAST_SABOTAGE").is_some()
}

/// The number of seeds needed to find the bug.
fn seeds_needed(
    bug: Sabotage,
    most: u64,
    effort: &CutEffort,
    worlds: fn(World) -> World,
) -> Option<u64> {
    (0..most).find(|seed| {
        let world = worlds(World::new(*seed, Profile::ALL[(*seed % 5) as usize].1));
        let fails = || {
            torture::<LabVolume>(&world, &Script::Drawn, effort, &mut PowercutTally::default())
                .is_err()
        };
        // A seed that also fails without the bug shows nothing.
        with(bug, fails) && !fails()
    })
}

#[test]
fn power_cuts_find_what_is_planted() {
    all_are_found(&BY_POWER_CUTS, |world| world);
}

#[test]
fn power_cuts_find_what_is_planted_in_snapshots_and_clones() {
    all_are_found(&BY_POWER_CUTS_AMONG_SNAPSHOTS, |mut world| {
        world.extras.snapshots = true;
        world
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_atomic_commands_and_resizes() {
    all_are_found(&BY_POWER_CUTS_WITH_EXTRAS, World::with_extras);
    all_are_found(&BY_POWER_CUTS_WITH_RESIZES, World::with_resizes);
}

#[test]
fn power_cuts_find_what_is_planted_in_discards() {
    all_are_found(&BY_POWER_CUTS_WITH_DISCARDS, |world| World {
        discards: Discards::Early,
        ..world
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_trims() {
    all_are_found(&BY_POWER_CUTS_WITH_TRIMS, |world| World {
        discards: Discards::AfterCheckpoints,
        ..world
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_making_a_volume() {
    all_are_found(&BY_POWER_CUTS_ON_USED_MEDIA, |mut world| {
        world.extras.used_medium = true;
        world
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_what_is_spoilt_at_once() {
    all_are_found(&BY_POWER_CUTS_ON_ROUGH_MEDIA, |world| {
        let medium = MediumProfile::of_seed(world.seed);
        world.on(medium)
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_replays_with_little_memory() {
    all_are_found_by(&LONG, &BY_POWER_CUTS_WITH_LITTLE_MEMORY, World::with_little_memory);
}

#[test]
fn power_cuts_find_what_is_planted_in_deltas() {
    all_are_found(&BY_POWER_CUTS_WITH_DELTAS, |mut world| {
        world.extras.deltas = true;
        world
    });
}

#[test]
fn power_cuts_find_what_is_planted_in_deltas_with_little_memory() {
    all_are_found_by(&LONG, &BY_POWER_CUTS_WITH_DELTAS_AND_LITTLE_MEMORY, |mut world| {
        world.extras.deltas = true;
        world.with_little_memory()
    });
}

fn all_are_found(bugs: &[(Sabotage, u64)], worlds: fn(World) -> World) {
    all_are_found_by(&EFFORT, bugs, worlds);
}

fn all_are_found_by(effort: &CutEffort, bugs: &[(Sabotage, u64)], worlds: fn(World) -> World) {
    let mut missed = Vec::new();
    let wanted = std::env::var("STEADFAST_SABOTAGE").unwrap_or_else(|_| "all".to_owned());
    for (bug, within) in bugs.iter().copied() {
        if wanted != "all" && !wanted.split(',').any(|name| format!("{bug:?}") == name) {
            continue;
        }
        let found = quietly(|| seeds_needed(bug, within, effort, worlds));
        println!(
            "{bug:?}: {}",
            found.map_or("not found".to_owned(), |seed| format!("{} seeds", seed + 1))
        );
        if found.is_none() {
            missed.push(bug);
        }
        assert!(explore() || missed.is_empty(), "{bug:?} goes unnoticed in {within} seeds");
    }
    assert!(missed.is_empty(), "{missed:?} go unnoticed");
}

/// A closed volume with small files in the tree and large ones outside.
fn filled() -> (MemoryMedium, Vec<(InodeNumber, Vec<u8>)>) {
    let medium = MemoryMedium::new(1 << 20, 512).expect("a medium");
    let options =
        FormatOptions { block_size: 512, metadata_copies: Some(1), ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).expect("a volume");
    let volume =
        Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).expect("it opens");
    let mut files = Vec::new();
    for number in 0..24u8 {
        let name = [b'f', b'a' + number];
        let made =
            volume.create(InodeNumber::ROOT, &name, NewNode::Regular, 0o644, &Caller::default());
        let inode = made.expect("a file").inode;
        let length = if number % 2 == 0 { 100 } else { 5000 };
        let bytes: Vec<u8> = (0..length).map(|at| (at / 3) as u8 ^ number).collect();
        volume.write(inode, 0, &bytes, false).expect("written");
        files.push((inode, bytes));
    }
    volume.close().expect("closed");
    (medium, files)
}

/// Flips bits. Returns whether a read returns a wrong byte without an error, which rot must never
/// cause.
fn rot_shows(seed: u64) -> bool {
    let (medium, files) = filled();
    let mut random = Random::new(seed);
    for _ in 0..60 {
        let offset = random.below(1 << 18) / 512 * 512;
        let mut unit = [0; 512];
        medium.read(offset, &mut unit).expect("read");
        unit[random.index(512)] ^= 1 << random.below(8);
        medium.write(offset, &unit).expect("written");
    }
    let wrong = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let Ok(volume) = Volume::open(&medium, options, TestPlatform::new()) else { return false };
        files.iter().any(|(inode, expected)| {
            let mut bytes = vec![0; expected.len()];
            volume
                .read(*inode, 0, &mut bytes)
                .is_ok_and(|got| got != expected.len() || bytes != *expected)
        })
    }));
    wrong.unwrap_or(true)
}

#[test]
fn rot_finds_a_checksum_that_is_ignored() {
    for bug in [Sabotage::IgnoreNodeChecksum, Sabotage::IgnoreDataChecksum] {
        let shows = |seed: &u64| with(bug, || rot_shows(*seed)) && !rot_shows(*seed);
        let found = quietly(|| (0..20).find(shows));
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} goes unnoticed");
    }
}

/// A plan of a read whose blocks have been written again since.
fn plan_of_before() -> Option<Vec<u8>> {
    let (medium, files) = filled();
    let volume =
        Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).expect("it opens");
    let (inode, bytes) = files.iter().max_by_key(|(_, bytes)| bytes.len()).expect("a file");
    let plan = volume.plan_read(*inode, 0, bytes.len(), false).expect("it is there");
    let plan = plan.expect("it is not small");
    // More than the volume has room for, so that the blocks come round.
    for round in 0..=u8::MAX {
        volume.write(*inode, 0, &vec![round; bytes.len()], false).expect("written");
        volume.checkpoint().expect("a checkpoint");
    }
    let read = plan.read(&medium, &TestPlatform::new()).expect("a medium");
    read.filter(|read| read != bytes)
}

#[test]
fn a_plan_of_before_finds_a_checksum_that_is_ignored() {
    assert_eq!(plan_of_before(), None);
    assert!(with(Sabotage::IgnoreDataChecksum, plan_of_before).is_some(), "it goes unnoticed");
}

/// Makes snapshots, clones, and later changes. Returns whether the check is clean.
fn snapshots_are_kept() -> bool {
    let (medium, files) = filled();
    let volume =
        Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).expect("it opens");
    volume.write(files[1].0, 0, &[9; 2000], false).expect("written");
    let copy =
        volume.create(InodeNumber::ROOT, b"copy", NewNode::Regular, 0o644, &Caller::default());
    let copy = copy.expect("a file").inode;
    volume.clone_range(files[3].0, 0, copy, 0, 0).expect("a clone");
    volume.snapshot_create("first").expect("a snapshot");
    volume.snapshot_create("second").expect("a snapshot");
    for (inode, bytes) in &files {
        volume.write(*inode, 0, &vec![1; bytes.len()], false).expect("written");
    }
    volume.checkpoint().expect("a checkpoint");
    volume.snapshot_delete("second").expect("deleted");
    while volume.background().expect("background work") {}
    volume.close().expect("closed");
    let report = check(&medium, &TestPlatform::new(), &CheckOptions::default(), &mut |_| {});
    report.is_ok_and(|report| report.is_clean())
}

#[test]
fn the_check_finds_snapshots_and_clones_that_are_not_kept() {
    assert!(snapshots_are_kept());
    for bug in [
        Sabotage::SnapshotBirthOffByOne,
        Sabotage::ForgetHeld,
        Sabotage::DeleteBirthOffByOne,
        Sabotage::SharedCountOffByOne,
    ] {
        let kept = with(bug, || std::panic::catch_unwind(snapshots_are_kept));
        assert!(!kept.unwrap_or(false), "{bug:?} goes unnoticed");
    }
}

/// A full volume, and the file that filled it.
fn full() -> (Volume<MemoryMedium, TestPlatform>, InodeNumber) {
    let medium = MemoryMedium::new(4 << 20, 512).expect("a medium");
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).expect("a volume");
    let volume =
        Volume::open(medium, OpenOptions::default(), TestPlatform::new()).expect("it opens");
    let made =
        volume.create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &Caller::default());
    let inode = made.expect("a file").inode;
    for length in [100_000, 5_000, 512] {
        while volume.append(inode, &vec![1; length], false).is_ok() {}
    }
    (volume, inode)
}

/// Number of transaction points set by appends that find no space. A change that frees a node
/// precedes each append.
fn points_of_failing_appends() -> u64 {
    let (volume, inode) = full();
    let before = volume.info().transaction_points;
    for round in 0..100 {
        let change =
            SetAttributes { permissions: Some(0o600 + round % 8), ..SetAttributes::default() };
        volume.set_attributes(inode, &change).expect("attributes");
        let written = volume.append(inode, &[2; 5_000], false);
        assert_eq!(written.err(), Some(Error::NoSpace));
    }
    volume.info().transaction_points - before
}

#[test]
fn points_in_vain_are_counted() {
    assert!(points_of_failing_appends() <= 3);
    let in_vain = with(Sabotage::PointsInVain, points_of_failing_appends);
    assert!(in_vain >= 100, "{in_vain}");
}

/// Blocks that are still unpublished after a write that ran out of space halfway.
fn unpublished_by_nothing() -> u64 {
    let (volume, inode) = full();
    let change = SetAttributes { size: Some(3_500_000), ..SetAttributes::default() };
    volume.set_attributes(inode, &change).expect("shorter");
    volume.checkpoint().expect("a checkpoint");
    assert_eq!(volume.append(inode, &vec![2; 1 << 20], false).err(), Some(Error::NoSpace));
    volume.statistics().expect("statistics").blocks_unpublished
}

#[test]
fn blocks_that_stay_unpublished_are_counted() {
    assert_eq!(unpublished_by_nothing(), 0);
    assert!(with(Sabotage::KeepUnpublished, unpublished_by_nothing) > 100);
}

type Hook = Box<dyn FnOnce(&MemoryMedium) + Send>;

/// A medium that runs a hook before its next write.
struct Watched {
    inner: MemoryMedium,
    hook: Mutex<Option<Hook>>,
}

impl Medium for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        if let Some(hook) = self.hook.lock().expect("the hook").take() {
            hook(&self.inner);
        }
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.inner.flush()
    }
}

/// Whether a node that takes a delta while the commit record is being written loses nothing, if
/// that record never arrives.
fn a_delta_during_a_commit_is_whole() -> bool {
    let inner = MemoryMedium::new(1 << 20, 512).expect("a medium");
    Volume::format(&inner, &FormatOptions::default(), &TestPlatform::new()).expect("a volume");
    let medium = Arc::new(Watched { inner, hook: Mutex::new(None) });
    let open =
        |medium| Volume::open_after(medium, OpenOptions::default(), TestPlatform::new(), &[]);
    let volume = Arc::new(open(medium.clone()).expect("it opens").0);
    let caller = Caller::default();
    volume.create(InodeNumber::ROOT, b"file", NewNode::Regular, 0o644, &caller).expect("made");
    let left = Arc::new(Mutex::new((KeptDeltas::default(), Vec::new())));
    let (taken, taker) = (left.clone(), volume.clone());
    *medium.hook.lock().expect("the hook") = Some(Box::new(move |inner| {
        let (kept, bytes) = &mut *taken.lock().expect("what is left");
        kept.keep(taker.delta(0).expect("a delta").expect("one now")).expect("kept");
        bytes.resize(1 << 20, 0);
        inner.read(0, bytes).expect("read");
    }));
    volume.transact().expect("a point");
    let (kept, bytes) = std::mem::take(&mut *left.lock().expect("what is left"));
    let medium = MemoryMedium::new(1 << 20, 512).expect("a medium");
    medium.write(0, &bytes).expect("written");
    let opened = Volume::open_after(medium, OpenOptions::default(), TestPlatform::new(), &[kept]);
    let (volume, reached) = opened.expect("it opens");
    reached == [Reached::Same] && volume.lookup(InodeNumber::ROOT, b"file").is_ok()
}

#[test]
fn a_delta_lacks_no_change_whose_record_is_not_durable() {
    assert!(a_delta_during_a_commit_is_whole());
    assert!(!with(Sabotage::ForgetDeltasEarly, a_delta_during_a_commit_is_whole));
}
