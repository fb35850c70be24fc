//! Power cuts in the operations of the part, under the whole file system.
//!
//! A small volume is overwritten at random between transaction points; the power goes in the middle of some program or
//! erasure, sometimes again in the recovery. Then the volume must open, pass its check, and be in the state of the last
//! acknowledged point or of the one that was in flight: every block of every file, all or nothing. From there it goes on, so
//! that damage which is only found later is found, too.

use std::collections::BTreeMap;

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_flash::ftl::{FlashError, FlashMedium, Ftl, format};
use steadfast_flash::model::{Interrupted, NandModel};
use steadfast_flash::nand::NandError;
use steadfast_flash::part::Part;

use crate::platform::LabPlatform;
use crate::random::Random;

/// What was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct CutTally {
    /// Power cuts, those in recoveries included.
    pub cuts: u64,
    /// Of these, cuts in the recovery from one.
    pub recovery_cuts: u64,
    /// Cuts after which the point in flight was found.
    pub later_points: u64,
    /// Pages moved by garbage collection meanwhile.
    pub moved_pages: u64,
    /// Most page reads of a mount after a cut, that of the file system included.
    pub mount_page_reads_max: u64,
}

const FILES: u64 = 6;
const BLOCK: usize = 4096;

/// What each block of each file holds, by a number.
type State = BTreeMap<(u64, u64), u64>;

type Opened<'a> = Volume<&'a FlashMedium<&'a mut NandModel>, LabPlatform>;

fn block_of(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    (0..BLOCK / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn options() -> OpenOptions {
    OpenOptions { read_only: false, cache_size: 256 << 10, access_times: false }
}

fn inode(volume: &Opened<'_>, file: u64) -> Result<InodeNumber, Error> {
    let name = format!("file-{file}");
    match volume.lookup(InodeNumber::ROOT, name.as_bytes()) {
        Ok(attributes) => Ok(attributes.inode),
        Err(Error::NotFound) => {
            let caller = Caller { uid: 0, gid: 0, umask: 0 };
            let made = volume.create(InodeNumber::ROOT, name.as_bytes(), NewNode::Regular, 0o644, &caller)?;
            Ok(made.inode)
        }
        Err(error) => Err(error),
    }
}

fn read_all(volume: &Opened<'_>, state: &State) -> Result<bool, Error> {
    let mut found = vec![0; BLOCK];
    for ((file, block), number) in state {
        let name = format!("file-{file}");
        let Ok(attributes) = volume.lookup(InodeNumber::ROOT, name.as_bytes()) else { return Ok(false) };
        let count = volume.read(attributes.inode, block * BLOCK as u64, &mut found)?;
        if count != BLOCK || found != block_of(*number) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Works until the power goes: `acknowledged` is the last point, the result the one in flight.
fn work(
    nand: &mut NandModel,
    acknowledged: &mut State,
    random: &mut Random,
    places: u64,
    moved: &mut u64,
) -> Result<State, String> {
    let ftl = match Ftl::mount(&mut *nand, false) {
        Ok(ftl) => ftl,
        Err(FlashError::Nand(NandError::Gone)) => return Ok(acknowledged.clone()),
        Err(error) => return Err(format!("mount before the cut: {error}")),
    };
    let medium = FlashMedium::new(ftl);
    let mut state = acknowledged.clone();
    let mut run = || -> Result<(), Error> {
        let volume: Opened<'_> = Volume::open(&medium, options(), LabPlatform::default())?;
        loop {
            for _ in 0..=random.below(4) {
                let (file, block, number) = (random.below(FILES), random.below(places), random.bits());
                let inode = inode(&volume, file)?;
                // A hole before it reads as zeros; only whole blocks are compared.
                volume.write(inode, block * BLOCK as u64, &block_of(number), false)?;
                state.insert((file, block), number);
            }
            volume.transact()?;
            acknowledged.clone_from(&state);
            volume.background_step(4 << 10)?;
        }
    };
    let error = run();
    *moved += medium.with(|ftl| ftl.info().moved_pages);
    if medium.with(|ftl| ftl.nand().is_powered()) {
        return Err(format!("work fails with the power on: {error:?}"));
    }
    Ok(state)
}

/// Cuts the power `cuts` times on a part of this kind (a small one; the shape of its pages and its rules are kept).
///
/// # Errors
/// The first violation, in words.
pub fn cut_part(part: &Part, cuts: u64, seed: u64) -> Result<CutTally, String> {
    let small = part.with_blocks(96.min(part.geometry.blocks));
    let small = Part {
        geometry: steadfast_flash::nand::NandGeometry { pages_per_block: 16, ..small.geometry },
        ..small
    };
    let mut random = Random::new(seed);
    let mut tally = CutTally::default();
    let mut nand = NandModel::new(&small, seed);
    let bytes = {
        let ftl = format(&mut nand, seed).map_err(|error| error.to_string())?;
        let medium = FlashMedium::new(ftl);
        let bytes =
            medium.with(|ftl| u64::from(ftl.layout().user_pages)) * u64::from(small.geometry.page_size);
        let log_size = Some(16 * u64::from(small.geometry.page_size));
        let options = steadfast::FormatOptions {
            mask: TransactionMask::MANUAL,
            log_size,
            ..super::format_options(&small.geometry)
        };
        Volume::format(&&medium, &options, &LabPlatform::default()).map_err(|error| error.to_string())?;
        medium.close().map_err(|error| error.to_string())?;
        bytes
    };
    // Up to two thirds full: what is between two points is kept twice.
    let places = (bytes * 2 / 3 / FILES / BLOCK as u64).max(1);
    let mut acknowledged = State::new();
    while tally.cuts < cuts {
        nand.power_on();
        nand.reseed(random.bits());
        nand.cut_after(random.below(400), random.pick(&Interrupted::ALL));
        let flight = work(&mut nand, &mut acknowledged, &mut random, places, &mut tally.moved_pages)?;
        tally.cuts += 1;
        for _ in 0..random.below(3) {
            nand.power_on();
            nand.cut_after(random.below(10), random.pick(&Interrupted::ALL));
            if Ftl::mount(&mut nand, false).is_err() && !nand.is_powered() {
                tally.cuts += 1;
                tally.recovery_cuts += 1;
            }
        }
        nand.power_on();
        nand.reset_counts();
        let ftl = Ftl::mount(&mut nand, false)
            .map_err(|error| format!("mount after cut {}: {error}", tally.cuts))?;
        let medium = FlashMedium::new(ftl);
        let volume: Opened<'_> = Volume::open(&medium, options(), LabPlatform::default())
            .map_err(|error| format!("open after cut {}: {error}", tally.cuts))?;
        let reads = medium.with(|ftl| ftl.nand().counts().reads);
        tally.mount_page_reads_max = tally.mount_page_reads_max.max(reads);
        let is = |state: &State| {
            read_all(&volume, state).map_err(|error| format!("after cut {}: {error}", tally.cuts))
        };
        if is(&flight)? {
            tally.later_points += u64::from(flight != acknowledged);
            acknowledged = flight;
        } else if !is(&acknowledged)? {
            return Err(format!("after cut {} the volume is in neither state", tally.cuts));
        }
        drop(volume);
        if tally.cuts.is_multiple_of(16) {
            let check_options = CheckOptions { data: true, cache_size: 256 << 10 };
            let report = check(&&medium, &LabPlatform::default(), &check_options, &mut |_| ())
                .map_err(|error| format!("check after cut {}: {error}", tally.cuts))?;
            if report.damaged > 0 {
                return Err(format!("check after cut {}: {} damaged", tally.cuts, report.damaged));
            }
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::{Effort, Script, Tally, torture};
    use crate::subject::LabVolume;
    use crate::world::{Profile, World};

    /// A medium that asks for discards gets them, and what they destroy was not needed: it reads as rubbish here.
    #[test]
    fn what_is_discarded_was_not_needed() {
        let effort = Effort { operations: 60, cuts: Some(40), survivals: 1, recovery_cuts: [1, 0, 0] };
        for seed in 0..10 {
            let profile = Profile::ALL[(seed % 5) as usize].1;
            let world = World { discards: true, ..World::new(seed, profile).with_extras() };
            let run = torture::<LabVolume>(&world, &Script::Drawn, &effort, &mut Tally::default());
            if let Err(violation) = run {
                panic!("{world}\n{violation}");
            }
        }
    }

    #[test]
    fn no_cut_on_any_part_loses_what_was_acknowledged() {
        let cuts = std::env::var("FLASH_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(120);
        for (seed, part) in Part::ALL.iter().enumerate() {
            let tally = cut_part(part, cuts, seed as u64 + cuts)
                .unwrap_or_else(|what| panic!("{}: {what}", part.name));
            println!("{}: {tally:?}", part.name);
            assert!(tally.recovery_cuts > 0, "{tally:?}");
        }
    }
}
