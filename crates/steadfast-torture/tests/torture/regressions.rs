//! Sequences that once caused a failure, as short as possible. Each runs with power cuts.

use steadfast::fs::{AllocateMode, NewNode, RenameMode};
use steadfast::{FormatOptions, InodeNumber, TransactionMask};
use steadfast_torture::cut::{Cutter, Survival};
use steadfast_torture::image::Image;
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::operation::{Make, Name, Operation};
use steadfast_torture::platform::Clock;
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, torture};
use steadfast_torture::shorthand::{allocate, append, path, size, write};
use steadfast_torture::subject::{LabVolume, Subject};
use steadfast_torture::sweep::Combination;
use steadfast_torture::tape::{Event, Lie, Tape};
use steadfast_torture::world::{Profile, World};

fn create(directory: &[u8], name: u8, make: Make) -> Operation {
    Operation::Create {
        directory: path(directory),
        name: Name(name),
        make,
        permissions: 0o644,
        caller: 0,
    }
}

fn rename(from: &[u8], from_name: u8, to: &[u8], to_name: u8) -> Operation {
    let (from_name, to_name) = (Name(from_name), Name(to_name));
    Operation::Rename {
        from: path(from),
        from_name,
        to: path(to),
        to_name,
        mode: RenameMode::Replace,
    }
}

fn medium(name: &str) -> MediumProfile {
    MediumProfile::from_name(name).expect("a kind of medium")
}

/// Runs a sequence in the world of a seed.
fn run(seed: u64, profile: Profile, operations: &[Operation]) {
    run_in(&World::new(seed, profile), operations);
}

fn run_in(world: &World, operations: &[Operation]) {
    let effort =
        CutEffort { operations: 0, cuts: Some(60), survivals: 2, recovery_cuts: [1, 0, 0] };
    let script = Script::Given(operations.to_vec());
    if let Err(violation) =
        torture::<LabVolume>(world, &script, &effort, &mut PowercutTally::default())
    {
        panic!("{world}\n{violation}");
    }
}

/// The end of a replay freed blocks that the log named but that were in use, and the next write
/// took them.
#[test]
fn blocks_that_the_log_names_stay_in_use_after_a_replay() {
    run(
        69,
        Profile::Transactions,
        &[
            create(&[], 3, Make::Regular),
            Operation::SetMask { mask: 124_929 },
            allocate(&[3], 5172, 354, AllocateMode::ZeroRange { keep_size: true }),
            write(&[3], 910_906, 31_036, 0),
            Operation::Fsync { place: path(&[3]), data_only: false },
            Operation::Link { from: path(&[3]), directory: path(&[]), name: Name(0) },
            append(&[0], 1222, 196_623),
            Operation::Background { advance_ms: 6000 },
            Operation::SetMask { mask: 16_392 },
            Operation::Remount { clean: true },
            write(&[0], 572_715, 2497, 196_627),
        ],
    );
}

/// The same through a rollback.
#[test]
fn blocks_that_the_log_names_stay_in_use_after_a_rollback() {
    run(
        37,
        Profile::Data,
        &[
            create(&[], 2, Make::Directory),
            create(&[2], 2, Make::Regular),
            create(&[], 26, Make::Regular),
            write(&[2, 2], 155_920, 8192, 196_648),
            Operation::SetMask { mask: 8 },
            write(&[26], 4081, 15_160, 196_651),
            Operation::Transact,
            size(&[26], 2606),
            allocate(&[2, 2], 164_443, 12_288, AllocateMode::Allocate { keep_size: true }),
            Operation::Transact,
            Operation::Rollback,
            append(&[2, 2], 7927, 196_662),
        ],
    );
}

/// After a rollback, the inode numbers that it dropped were assigned again, although callers still
/// held them.
#[test]
fn inode_numbers_are_not_given_out_again_after_a_rollback() {
    let created = create(&[], 1, Make::Regular);
    run(1, Profile::Mixed, &[created.clone(), Operation::Rollback, created]);
}

/// Writes `data` at the start of `/f`, and makes it durable if `sync` is set.
fn write_first_file(volume: &LabVolume, data: &[u8], sync: bool) {
    let file = volume.lookup(InodeNumber::ROOT, b"f").unwrap().inode;
    volume.write(file, 0, data, false).unwrap();
    if sync {
        volume.transact().unwrap();
    }
}

fn first_file_size(volume: &LabVolume) -> u64 {
    volume.lookup(InodeNumber::ROOT, b"f").unwrap().size
}

/// A record was in flight at a power cut, and its data was lost, so recovery correctly continued
/// without it. A program then wrote the same data again, to the same blocks. A second cut, before
/// that write was committed, brought the record back.
#[test]
fn a_record_that_recovery_has_passed_over_does_not_come_back_with_its_data() {
    let world = World::plain(1, TransactionMask::DEFAULT);
    let world = World {
        format: FormatOptions { log_size: Some(16 << 10), ..world.format.clone() },
        ..world
    };
    let clock = Clock::default();
    let tape = Tape::new(Image::new(world.size), world.atomic_unit, Lie::None);
    <LabVolume as Subject>::format(&world, &tape, &clock).unwrap();
    {
        let volume = <LabVolume as Subject>::open(&world, &tape, &clock).unwrap();
        let caller = Default::default();
        volume.create(InodeNumber::ROOT, b"f", NewNode::Regular, 0o644, &caller).unwrap();
        volume.checkpoint().unwrap();
    }
    let data = vec![7; 20_000];
    let first = Tape::new(tape.image(), world.atomic_unit, Lie::None);
    write_first_file(&<LabVolume as Subject>::open(&world, &first, &clock).unwrap(), &data, true);
    // The cut comes while the record is written, and only the record survives.
    let events = first.events();
    let record = events.iter().rposition(|event| matches!(event, Event::Write { .. })).unwrap();
    let mut cutter = Cutter::new(tape.image(), &events, world.atomic_unit);
    cutter.advance(record);
    let second = Tape::new(cutter.image(Survival::InFlightOnly), world.atomic_unit, Lie::None);
    {
        let volume = <LabVolume as Subject>::open(&world, &second, &clock).unwrap();
        assert_eq!(first_file_size(&volume), 0, "the data of the record is lost");
        write_first_file(&volume, &data, false);
    }
    let volume = <LabVolume as Subject>::open(&world, &second, &clock).unwrap();
    assert_eq!(first_file_size(&volume), 0, "nothing was committed since");
}

/// Growing a file beyond the largest size was refused. But the stale bytes after its end had
/// already been zeroed, which set its times.
#[test]
fn a_size_that_is_refused_leaves_the_times_alone() {
    run(
        2,
        Profile::Mixed,
        &[
            create(&[], 0, Make::Regular),
            write(&[0], 0, 70_001, 1),
            size(&[0], 5_001),
            size(&[0], 1 << 63),
            Operation::Compare,
        ],
    );
}

/// Zeroing a range ran in steps, and a later step found no space after the first was done.
#[test]
fn a_range_is_zeroed_as_a_whole_or_not_at_all() {
    run(
        276,
        Profile::Names,
        &[
            create(&[], 4, Make::Regular),
            append(&[4], 64, 2),
            allocate(&[4], 20, 64, AllocateMode::ZeroRange { keep_size: true }),
        ],
    );
}

/// Extents were written, truncated and named in one record. Its replay removed keys that the tree
/// had never held. If the leaf for these keys had just become empty, the replay wanted to copy a
/// neighbour without a planned address. The volume reported "no space" and did not open.
#[test]
fn a_record_that_removes_what_was_never_in_the_tree_is_replayed() {
    let world = World::new(2584, Profile::Full).on(medium("sd-512"));
    let operations = [
        create(&[], 8, Make::Regular),
        create(&[], 4, Make::Fifo),
        create(&[], 100, Make::Regular),
        append(&[100], 51, 1_245_186),
        create(&[], 29, Make::Directory),
        create(&[], 0, Make::Regular),
        rename(&[], 100, &[], 1),
        create(&[29], 4, Make::Directory),
        Operation::Link { from: path(&[1]), directory: path(&[29, 4]), name: Name(27) },
        rename(&[], 0, &[29], 36),
        size(&[29, 4, 27], 0),
        write(&[29, 4, 27], 305_770, 27_404, 3_342_350),
        Operation::Write {
            place: path(&[1]),
            offset: 256_852,
            length: 30,
            fill: 3_342_353,
            sync: true,
        },
        Operation::Link { from: path(&[29, 4, 27]), directory: path(&[29]), name: Name(10) },
        Operation::Checkpoint,
        write(&[1], 333_174, 68_862, 196_627),
        size(&[29, 10], 0),
        Operation::Link { from: path(&[29, 4, 27]), directory: path(&[]), name: Name(3) },
    ];
    run_in(&world, &operations);
}

/// A volume that was made smaller kept only half of the space that removing needs, and refused to
/// remove a file.
#[test]
fn removing_succeeds_right_after_the_volume_was_made_smaller() {
    let world = World::new(678, Profile::Names).on(medium("sector")).with_extras();
    let operations = [
        create(&[], 3, Make::Regular),
        Operation::Link { from: path(&[3]), directory: path(&[]), name: Name(2) },
        create(&[], 19, Make::Directory),
        create(&[], 4, Make::Directory),
        create(&[], 7, Make::Regular),
        create(&[4], 3, Make::Regular),
        create(&[], 31, Make::Directory),
        create(&[], 100, Make::Symlink(700)),
        create(&[4], 2, Make::Regular),
        rename(&[], 100, &[19], 1),
        Operation::Rename {
            from: path(&[]),
            from_name: Name(19),
            to: path(&[]),
            to_name: Name(4),
            mode: RenameMode::Exchange,
        },
        create(&[19], 7, Make::Regular),
        append(&[19, 2], 2544, 196_617),
        Operation::Resize { eighths: 2 },
        Operation::Unlink { directory: path(&[19]), name: Name(7) },
    ];
    run_in(&world, &operations);
}

/// A snapshot on a small volume left no room for the dead list of files removed later, so removing
/// failed.
#[test]
fn what_a_snapshot_holds_can_be_removed_from_a_small_volume() {
    let world = World::new(56, Profile::Names).on(medium("disk-4096"));
    let remove = |name| Operation::Unlink { directory: path(&[]), name: Name(name) };
    let effort = CutEffort { operations: 0, cuts: Some(4), survivals: 1, recovery_cuts: [0; 3] };
    let no_space = |operations: Vec<Operation>| {
        let mut tally = PowercutTally::default();
        let script = Script::Given(operations);
        if let Err(violation) = torture::<LabVolume>(&world, &script, &effort, &mut tally) {
            panic!("{world}\n{violation}");
        }
        tally.no_space
    };
    for files in 1..40 {
        let mut operations: Vec<Operation> =
            (0..files).map(|name| create(&[], name, Make::Regular)).collect();
        operations.push(Operation::SnapshotCreate { name: 0 });
        // The file or the snapshot may be refused. Removing may not.
        let before = no_space(operations.clone());
        operations.extend((0..files).map(remove));
        assert_eq!(no_space(operations), before, "{files} files");
    }
}

/// A rollback to a snapshot keeps the timer in force. A cut in it left the point before it with
/// that timer, and a second cut, while the opening mends a metaroot, left the same. The judge took
/// that for a state of its own.
#[test]
fn a_cut_in_the_opening_after_an_interrupted_rollback_leaves_the_same_state() {
    let world = Combination::of_seed(794).world(794);
    let operations = [
        Operation::SnapshotCreate { name: 1 },
        create(&[], 1, Make::Regular),
        Operation::SetTimer { ms: 4760 },
        Operation::Transact,
        Operation::SetTimer { ms: 5000 },
        Operation::SnapshotRollback { name: 1, destroy_newer: false },
    ];
    let effort = CutEffort { operations: 0, cuts: None, survivals: 30, recovery_cuts: [8, 0, 0] };
    let script = Script::Given(operations.to_vec());
    if let Err(violation) =
        torture::<LabVolume>(&world, &script, &effort, &mut PowercutTally::default())
    {
        panic!("{world}\n{violation}");
    }
}
