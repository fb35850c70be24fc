//! Making a volume over an earlier one with the same uuid: nothing of the earlier one reappears.

use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::{Medium, MemoryMedium};
use steadfast_torture::cut::{Cutter, Survival};
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::platform::{Clock, LabPlatform};
use steadfast_torture::powercut::{CutEffort, PowercutTally, Script, Start, torture};
use steadfast_torture::random::Random;
use steadfast_torture::session::Session;
use steadfast_torture::subject::{LabVolume, Subject};
use steadfast_torture::tape::{Event, Tape};
use steadfast_torture::world::{Profile, World};

/// Worlds on media of every kind that held an earlier volume.
fn worlds(seeds: std::ops::Range<u64>) -> impl Iterator<Item = World> {
    seeds.map(|seed| {
        let profile = Profile::ALL[(seed % 5) as usize].1;
        let mut world = World::new(seed, profile).on(MediumProfile::of_seed(seed)).with_extras();
        world.extras.used_medium = true;
        world
    })
}

/// The power is cut at every I/O of making the volume. After the earlier volume is destroyed, there
/// is no volume, or the new, empty one.
#[test]
fn a_cut_in_format_leaves_no_volume_or_the_new_one() {
    let (mut none, mut new) = (0, 0);
    for world in worlds(0..60) {
        let Some(before) = Start::medium::<LabVolume>(&world).expect("the earlier volume") else {
            continue;
        };
        let start =
            Start::format::<LabVolume>(&world).expect("a volume").expect("it was made once");
        let clock = Clock::default();
        let tape = Tape::new(before.clone(), world.atomic_unit, world.lie);
        <LabVolume as Subject>::format(&world, &tape, &clock).expect("a volume");
        let events = tape.events();
        let begun =
            events.iter().position(|event| matches!(event, Event::Flush)).expect("a flush") + 1;
        let mut random = Random::new(world.seed);
        let mut cutter = Cutter::new(before, &events, world.atomic_unit).on(world.medium);
        for cut in begun..=events.len() {
            cutter.advance(cut);
            let drawn = (0..3).map(|_| Survival::random(&mut random, &world.medium));
            let choices: Vec<Survival> = Survival::FIXED.into_iter().chain(drawn).collect();
            for survival in choices {
                let tape = Tape::new(cutter.image(survival), world.atomic_unit, world.lie);
                match <LabVolume as Subject>::open(&world, &tape, &clock) {
                    Err(Error::NotSteadfast | Error::SuperblockDamaged | Error::Medium(_)) => {
                        none += 1;
                        assert!(
                            cut < events.len(),
                            "{world}\nno volume where it was finished, {survival:?}"
                        );
                        continue;
                    }
                    Err(error) => panic!("{world}\ncut {cut}, {survival:?}: {error}"),
                    Ok(_) => new += 1,
                }
                let allowed = std::slice::from_ref(&start.point);
                if let Err(what) = Session::<LabVolume>::open(&world, &tape, &clock, 0, allowed) {
                    panic!("{world}\ncut {cut}, {survival:?}: {what}");
                }
                if let Err(what) = <LabVolume as Subject>::check(&world, &tape, &clock) {
                    panic!("{world}\ncut {cut}, {survival:?}: check: {what}");
                }
            }
        }
    }
    assert!(none > 500 && new > 100, "{none} images without a volume, {new} with the new one");
}

/// The new volume is used with the same operations as the earlier one, and the power is cut at its
/// I/Os.
#[test]
fn power_cuts_soon_after_format_leave_states_of_the_new_volume() {
    let effort =
        CutEffort { operations: 40, cuts: Some(60), survivals: 2, recovery_cuts: [1, 1, 0] };
    let mut tally = PowercutTally::default();
    for world in worlds(100..150) {
        if let Err(found) = torture::<LabVolume>(&world, &Script::Drawn, &effort, &mut tally) {
            panic!("{world}\n{found}");
        }
    }
    assert!(tally.cuts > 5_000, "{tally}");
}

/// A superblock of an earlier volume at the end of the medium must not replace that of a shorter
/// new volume.
#[test]
fn no_earlier_volume_is_found_past_a_shorter_one() {
    for block_size in [512u32, 4096, 65536] {
        let medium = MemoryMedium::new(16 << 20, 512).expect("a medium");
        let format = |options: FormatOptions| {
            Volume::format(&medium, &options, &LabPlatform::default()).expect("a volume");
        };
        format(FormatOptions { block_size, ..FormatOptions::default() });
        let volume =
            Volume::open(&medium, OpenOptions::default(), LabPlatform::default()).expect("opens");
        volume.close().expect("closed");
        drop(volume);
        format(FormatOptions { size: Some(8 << 20), uuid: [9; 16], ..FormatOptions::default() });
        medium.write(0, &[0; 512]).expect("written");
        let opened = Volume::open(&medium, OpenOptions::default(), LabPlatform::default());
        let error = opened.err().expect("an earlier volume of other blocks opens");
        assert_eq!(error, Error::NotSteadfast, "blocks of {block_size}");
    }
}

/// What an image is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// An empty volume.
    Formatted,
    /// A volume with a few files and an empty log.
    Filled,
    /// The same, made smaller at the end.
    Shrunk,
}

const LARGE: u64 = 4 << 20;
const SMALL: u64 = 2 << 20;

fn create(volume: &Volume<&MemoryMedium, LabPlatform>, name: &str) {
    let (root, caller) = (InodeNumber::ROOT, Caller::default());
    let made = volume.create(root, name.as_bytes(), NewNode::Regular, 0o600, &caller);
    let made = made.expect("a file");
    volume.write(made.inode, 0, name.as_bytes(), false).expect("written");
}

fn open_at(medium: &MemoryMedium) -> Volume<&MemoryMedium, LabPlatform> {
    Volume::open(medium, OpenOptions::default(), LabPlatform::default()).expect("it opens")
}

/// The names in the root directory, in order.
fn names(volume: &Volume<&MemoryMedium, LabPlatform>) -> Vec<String> {
    let entries = volume.read_directory(InodeNumber::ROOT, 2, 1000).expect("entries");
    let names = entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("a name"));
    let mut names = Vec::from_iter(names);
    names.sort();
    names
}

/// An image of a new volume whose files have names with `prefix`.
fn image(made: Made, block_size: u32, prefix: &str) -> Vec<u8> {
    let medium = MemoryMedium::new(LARGE, 512).expect("a medium");
    let mask = TransactionMask::MANUAL;
    let options = FormatOptions { block_size, mask, ..FormatOptions::default() };
    Volume::format(&medium, &options, &LabPlatform::default()).expect("a volume");
    if made != Made::Formatted {
        let volume = open_at(&medium);
        (0..5).for_each(|number| create(&volume, &format!("{prefix}{number}")));
        volume.checkpoint().expect("a checkpoint");
        volume.close().expect("closed");
    }
    let mut bytes = medium.to_bytes();
    if made == Made::Shrunk {
        open_at(&medium).shrink(SMALL, &mut |_| {}).expect("smaller");
        bytes = medium.to_bytes();
        bytes.truncate(SMALL as usize);
    }
    bytes
}

/// An image is copied without its zeros over a medium with a volume of the same uuid, which was in
/// use. Nothing of that volume comes back.
#[test]
fn a_copy_without_zeros_hides_the_earlier_volume() {
    let (mut refused, mut opened) = (0, 0);
    for made in [Made::Formatted, Made::Filled, Made::Shrunk] {
        for (block_size, checkpoints, points, prefix) in [512, 4096]
            .into_iter()
            .flat_map(|size| (0..4).map(move |count| (size, count)))
            .flat_map(|(size, count)| (0..4).map(move |points| (size, count, points)))
            .flat_map(|(size, count, points)| {
                ["same", "other"].map(|prefix| (size, count, points, prefix))
            })
        {
            let case = format!("{made:?}, {block_size}, {checkpoints}, {points}, {prefix}");
            let used = image(made, block_size, "same");
            let medium = MemoryMedium::from_bytes(&used, 512).expect("a medium");
            let volume = open_at(&medium);
            for number in 0..checkpoints {
                create(&volume, &format!("old{number}"));
                volume.checkpoint().expect("a checkpoint");
            }
            for number in 0..points {
                create(&volume, &format!("late{number}"));
                volume.transact().expect("a point");
            }
            // The power fails.
            drop(volume);

            let copied = image(made, block_size, prefix);
            for (at, block) in copied.chunks(4096).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    medium.write(at as u64 * 4096, block).expect("copied");
                }
            }
            let mut expected = Vec::new();
            if made != Made::Formatted {
                expected.extend((0..5).map(|number| format!("{prefix}{number}")));
            }
            let platform = LabPlatform::default();
            let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
            let volume = Volume::open(&medium, read_only, platform).expect(&case);
            assert_eq!(names(&volume), expected, "{case}");
            for name in &expected {
                let found = volume.lookup(InodeNumber::ROOT, name.as_bytes()).expect(&case);
                let mut content = vec![0; name.len()];
                volume.read(found.inode, 0, &mut content).expect(&case);
                assert_eq!(content, name.as_bytes(), "{case}");
            }
            drop(volume);
            match Volume::open(&medium, OpenOptions::default(), LabPlatform::default()) {
                Ok(volume) => {
                    opened += 1;
                    create(&volume, "new");
                    volume.transact().expect(&case);
                    drop(volume);
                    expected.push("new".to_owned());
                    expected.sort();
                    assert_eq!(names(&open_at(&medium)), expected, "{case}");
                }
                Err(Error::NewerStateLost(_)) => refused += 1,
                Err(error) => panic!("{case}: {error}"),
            }
        }
    }
    assert!(opened > 10, "{opened} opened, {refused} refused");
}
