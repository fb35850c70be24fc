//! Power cuts in the operations of the part, below the whole file system.
//!
//! A small volume is overwritten at random between transaction points. The power is cut in the
//! middle of a program or an erasure. Some cuts come right after a block went bad, others during
//! the recovery.
//!
//! Then the volume must open, pass its check, and be in the state of the last acknowledged point or
//! of the one in flight. Every block of every file must match one of these states. The run
//! continues from there, so damage that shows only later is found too. Each part has spare blocks
//! for only a few bad blocks, so a new part is taken from time to time.

use steadfast::check::{CheckOptions, check};
use steadfast::{Error, FormatOptions, OpenOptions, TransactionMask, Volume};
use steadfast_flash::ftl::{FlashError, FlashMedium, Ftl, format};
use steadfast_flash::model::{Interrupted, NandModel};
use steadfast_flash::nand::{NandError, NandGeometry};
use steadfast_flash::part::Part;
use steadfast_media::Medium;

use super::contents::{BLOCK, ContentsVolume, FILES, FlashContents};
use super::tally::{CutTally, Struck};
use crate::platform::LabPlatform;
use crate::random::Random;

/// Number of cuts after which a new part is taken.
const CUTS_OF_A_PART: u64 = 100;
/// Blocks of a part that go bad, in addition to those that are bad from the factory.
const FAILURES: u32 = 2;
/// Operations within which the work for a bad block is done.
const FAILURE_WORK: u64 = 10;

fn options() -> OpenOptions {
    OpenOptions {
        read_only: false,
        cache_size: 256 << 10,
        access_times: false,
        ..OpenOptions::default()
    }
}

/// One part and its contents.
struct FlashWorld {
    nand: NandModel,
    random: Random,
    /// The contents at the last acknowledged point.
    acknowledged: FlashContents,
    failures_left: u32,
}

/// Cuts the power `cuts` times on parts of this kind. The parts are small, but keep the page size
/// and the rules of the kind.
///
/// # Errors
/// The first violation, as text.
pub fn cut_part(part: &Part, cuts: u64, seed: u64) -> Result<CutTally, String> {
    let small = part.with_blocks(96.min(part.geometry.blocks));
    let small = Part { geometry: NandGeometry { pages_per_block: 16, ..small.geometry }, ..small };
    let mut random = Random::new(seed);
    let mut tally = CutTally::default();
    while tally.cuts < cuts {
        let end = cuts.min(tally.cuts + CUTS_OF_A_PART);
        let mut world =
            FlashWorld::new(&small, random.bits()).map_err(|what| format!("a new part: {what}"))?;
        while tally.cuts < end {
            world.cut(&mut tally)?;
        }
    }
    Ok(tally)
}

impl FlashWorld {
    fn new(part: &Part, seed: u64) -> Result<FlashWorld, String> {
        let mut random = Random::new(seed);
        let mut nand = NandModel::new(part, seed);
        let text = |error: Error| error.to_string();
        let acknowledged = {
            let ftl = format(&mut nand, seed).map_err(|error| error.to_string())?;
            let page = u64::from(part.geometry.page_size);
            let bytes = u64::from(ftl.layout().user_pages) * page;
            let medium = FlashMedium::new(ftl);
            let format = FormatOptions {
                mask: TransactionMask::MANUAL,
                log_size: Some(16 * page),
                ..super::format_options(&part.geometry)
            };
            Volume::format(&&medium, &format, &LabPlatform::default()).map_err(text)?;
            let volume: ContentsVolume<'_> =
                Volume::open(&medium as &dyn Medium, options(), LabPlatform::default())
                    .map_err(text)?;
            // The files fill up to two thirds: blocks changed between two points are stored twice.
            let blocks = (bytes * 2 / 3 / (FILES * BLOCK) as u64).max(1);
            FlashContents::create(&volume, blocks, &mut random).map_err(text)?
        };
        Ok(FlashWorld { nand, random, acknowledged, failures_left: FAILURES })
    }

    /// Works until the power is cut, possibly several times during the recovery, and judges the
    /// result.
    fn cut(&mut self, tally: &mut CutTally) -> Result<(), String> {
        self.nand.power_on();
        self.nand.reseed(self.random.bits());
        let after = self.random.below(240);
        let fails = self.failures_left > 0 && self.random.chance(1, 16);
        if fails {
            self.nand.fail_after(after);
        }
        let after = if fails { after + 1 + self.random.below(FAILURE_WORK) } else { after };
        self.nand.cut_after(after, self.random.pick(&Interrupted::ALL));
        let flight = self.work(tally)?;
        tally.cuts += 1;
        if fails && !self.nand.is_failing() {
            self.failures_left -= 1;
            tally.bad_block_cuts += 1;
        }
        for _ in 0..self.random.below(3) {
            self.nand.power_on();
            self.nand.cut_after(self.random.below(10), self.random.pick(&Interrupted::ALL));
            if Ftl::mount(&mut self.nand, false).is_err() && !self.nand.is_powered() {
                tally.cuts += 1;
                tally.recovery_cuts += 1;
                tally.strike(Struck::of(self.nand.struck(), false));
            }
        }
        self.judge(flight, tally).map_err(|what| format!("after cut {}: {what}", tally.cuts))
    }

    /// Works until the power is cut; returns the point in flight.
    fn work(&mut self, tally: &mut CutTally) -> Result<FlashContents, String> {
        let FlashWorld { nand, random, acknowledged, .. } = self;
        let mut state = acknowledged.clone();
        let ftl = match Ftl::mount(&mut *nand, false) {
            Ok(ftl) => ftl,
            Err(FlashError::Nand(NandError::Gone)) => {
                tally.recovery_cuts += 1;
                tally.strike(Struck::of(nand.struck(), false));
                return Ok(state);
            }
            Err(error) => return Err(format!("mount before the cut: {error}")),
        };
        let medium = FlashMedium::new(ftl);
        let mut in_checkpoint = false;
        let mut run = || -> Result<(), Error> {
            let volume: ContentsVolume<'_> =
                Volume::open(&medium as &dyn Medium, options(), LabPlatform::default())?;
            loop {
                for _ in 0..=random.below(4) {
                    state.overwrite(&volume, random)?;
                }
                volume.transact()?;
                acknowledged.clone_from(&state);
                in_checkpoint = true;
                volume.background_step(4 << 10)?;
                in_checkpoint = false;
            }
        };
        let error = run();
        medium.with(|ftl| {
            tally.moved_pages += ftl.info().moved_pages;
            tally.bad_blocks += ftl.info().grown_bad;
            if ftl.nand().is_powered() {
                return Err(format!("work fails with the power on: {error:?}"));
            }
            let struck = ftl.nand().struck().cloned();
            let moved = struck.as_ref().is_some_and(|struck| ftl.collects_into(struck.block.0));
            tally.strike(Struck::of(struck.as_ref(), moved));
            tally.checkpoint_cuts += u64::from(in_checkpoint);
            Ok(())
        })?;
        Ok(state)
    }

    /// Checks that the volume opens, and that its state is the last acknowledged point or the one
    /// in flight.
    fn judge(&mut self, flight: FlashContents, tally: &mut CutTally) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        self.nand.power_on();
        self.nand.reset_counts();
        let ftl = Ftl::mount(&mut self.nand, false).map_err(|error| format!("mount: {error}"))?;
        let medium = FlashMedium::new(ftl);
        let volume: ContentsVolume<'_> =
            Volume::open(&medium as &dyn Medium, options(), LabPlatform::default())
                .map_err(|error| format!("open: {error}"))?;
        let reads = medium.with(|ftl| ftl.nand().counts().reads);
        tally.mount_page_reads_max = tally.mount_page_reads_max.max(reads);
        if flight.rather_than(&self.acknowledged, &volume).map_err(text)? {
            tally.later_points += 1;
            self.acknowledged = flight;
        }
        if !self.acknowledged.is_in(&volume).map_err(text)? {
            return Err("the volume is in neither state".to_owned());
        }
        drop(volume);
        if tally.cuts.is_multiple_of(16) {
            let check_options = CheckOptions { data: true, cache_size: 256 << 10 };
            let report =
                check(&medium as &dyn Medium, LabPlatform::default(), &check_options, &mut |_| ())
                    .map_err(|error| format!("check: {error}"))?;
            if report.damaged > 0 {
                return Err(format!("check: {} damaged", report.damaged));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::{CutEffort, PowercutTally, Script, torture};
    use crate::subject::LabVolume;
    use crate::tape::Discards;
    use crate::world::{Profile, World};

    /// A medium that asks for discards gets them. This medium then returns rubbish for the
    /// discarded data, which must not be needed.
    #[test]
    fn what_is_discarded_was_not_needed() {
        let effort =
            CutEffort { operations: 60, cuts: Some(40), survivals: 1, recovery_cuts: [1, 0, 0] };
        for seed in 0..20 {
            let profile = Profile::ALL[(seed % 5) as usize].1;
            let discards = if seed < 15 { Discards::Early } else { Discards::AfterCheckpoints };
            let world = World { discards, ..World::new(seed, profile).with_extras() };
            let run = torture::<LabVolume>(
                &world,
                &Script::Drawn,
                &effort,
                &mut PowercutTally::default(),
            );
            if let Err(violation) = run {
                panic!("{world}\n{violation}");
            }
        }
    }

    #[test]
    fn no_cut_on_any_part_loses_what_was_acknowledged() {
        let cuts =
            std::env::var("FLASH_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(120);
        for (seed, part) in Part::ALL.iter().enumerate() {
            let tally = cut_part(part, cuts, seed as u64 + cuts)
                .unwrap_or_else(|what| panic!("{}: {what}", part.name));
            println!("{}: {tally:?}", part.name);
            assert!(tally.recovery_cuts > 0 && tally.checkpoint_cuts > 0, "{tally:?}");
            assert_eq!(tally.struck.iter().sum::<u64>(), tally.cuts);
        }
    }
}
