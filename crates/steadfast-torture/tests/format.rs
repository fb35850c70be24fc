//! Making a volume over an earlier one with the same uuid: nothing of the earlier one reappears.

use steadfast::{Error, FormatOptions, OpenOptions, Volume};
use steadfast_media::{Medium, MemoryMedium};
use steadfast_torture::cut::{Cutter, Survival};
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::platform::{Clock, LabPlatform};
use steadfast_torture::powercut::{Effort, Script, Start, Tally, torture};
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
    let effort = Effort { operations: 40, cuts: Some(60), survivals: 2, recovery_cuts: [1, 1, 0] };
    let mut tally = Tally::default();
    for world in worlds(100..200) {
        if let Err(found) = torture::<LabVolume>(&world, &Script::Drawn, &effort, &mut tally) {
            panic!("{world}\n{found}");
        }
    }
    assert!(tally.cuts > 10_000, "{tally}");
}

/// A superblock of an earlier volume at the end of the medium must not replace that of a shorter
/// new volume.
#[test]
fn no_earlier_volume_is_found_behind_a_shorter_one() {
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
