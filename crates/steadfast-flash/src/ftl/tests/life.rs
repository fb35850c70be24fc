//! Wear: how even it is, and the end of life of a part.

extern crate std;

use alloc::vec;

use steadfast_media::Random;

use super::{Oracle, Step, small, step};
use crate::ftl::{BlockUse, FlashError, Ftl, format};
use crate::model::{Ageing, NandModel};
use crate::nand::{BlockNumber, Nand, NandGeometry, Pairing};
use crate::part::Part;

/// A part with a short life.
fn mortal(pairing: Pairing, blocks: u32, cycles: u32) -> Part {
    let part = small(pairing, blocks);
    Part { geometry: NandGeometry { cycles, bad_max: 6, ..part.geometry }, ..part }
}

/// `FLASH_LIFE`: the factor by which the run is longer.
fn times() -> u32 {
    std::env::var("FLASH_LIFE").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Writes a part until it fails. Every page must have its last acknowledged contents, in that
/// session and after it.
fn to_death(pairing: Pairing, seed: u32) {
    let cycles = 40 * times();
    let part = mortal(pairing, 64, cycles);
    let ageing = Ageing { flip_one_in: 400, ..Ageing::NONE };
    let nand = NandModel::new(&part, u64::from(seed)).with_ageing(ageing);
    let mut ftl = format(nand, 1).unwrap();
    let mut oracle = Oracle::new(512);
    let mut random = Random::new(seed.into());
    let mut next = || random.bits() as u32;
    let mut written = 0_u64;
    let mut flushed = oracle.clone();
    let death = loop {
        let page = next() as u16;
        // Half of the writes go to a sixteenth of the pages.
        let page = if next() % 2 == 0 { page / 16 } else { page };
        let kind = match next() % 8 {
            0 => Step::Flush,
            1 => Step::Write(page, next(), next() as u16),
            _ => Step::Write(page, next(), u16::MAX),
        };
        written += 1;
        let done = step(&mut ftl, &mut oracle, &kind);
        match done {
            Ok(()) if matches!(kind, Step::Flush) => flushed = oracle.clone(),
            Ok(()) => {}
            Err(error) => break error,
        }
        assert!(written < 100_000_000);
    };
    assert_eq!(death, FlashError::WornOut);
    assert_eq!(ftl.write_page(0, &vec![1; 512]), Err(FlashError::WornOut));
    // Writes since the last flush may be there or not; all others must be.
    oracle.check(&mut ftl, true).unwrap();
    let (least, most, sum) = ftl.nand().wear();
    let info = ftl.info();
    std::println!(
        "{pairing:?}, rated {cycles}: dies after {written} steps, {sum} erasures, {least} to {most} a block, {} blocks bad: {:.2} of \
         what all blocks are rated for",
        info.grown_bad,
        sum as f64 / (64.0 * f64::from(cycles))
    );
    assert!(sum > u64::from(cycles) * 44, "{sum} erasures");
    // After a power cut it mounts read-only any number of times.
    let mut nand = ftl.into_nand();
    flushed.clone_from(&oracle);
    for _ in 0..3 {
        nand.power_on();
        let mut ftl = Ftl::mount(nand, false).unwrap();
        flushed.check(&mut ftl, true).unwrap();
        let refused = ftl.write_page(0, &vec![1; 512]).and_then(|()| ftl.flush());
        assert!(matches!(refused, Ok(()) | Err(FlashError::WornOut)), "{refused:?}");
        if refused.is_ok() {
            // A few blocks were left.
            flushed.values(0).push(vec![1; 512]);
        }
        nand = ftl.into_nand();
    }
    let mut ftl = Ftl::mount(nand, true).unwrap();
    flushed.check(&mut ftl, true).unwrap();
}

#[test]
fn a_part_that_is_worn_out_can_be_read() {
    for seed in 1..=2 + times() {
        to_death(Pairing::None, seed);
        to_death(Pairing::Distance3, seed);
    }
}

/// Parts with the maximum number of bad blocks are filled completely, and overwritten.
#[test]
fn a_full_part_with_all_its_bad_blocks_can_be_written() {
    for (base, sizes) in [(Part::SLC_1GBIT, [64, 96, 200]), (Part::MLC_16GBIT, [64, 80, 96])] {
        for blocks in sizes {
            let part = base.with_blocks(blocks);
            let mut nand = NandModel::new(&part, 3).with_ageing(Ageing::NONE);
            let bad = |nand: &mut NandModel| {
                (0..blocks).filter(|block| nand.is_bad(BlockNumber(*block)).unwrap()).count() as u32
            };
            let more = part.geometry.bad_max - bad(&mut nand);
            (1..=more).for_each(|at| nand.mark_bad(BlockNumber(blocks - 3 * at)).unwrap());
            assert_eq!(bad(&mut nand), part.geometry.bad_max);
            let mut ftl = format(nand, 1).unwrap();
            let size = part.geometry.page_size as usize;
            let (page, mut short) = (vec![7; size], vec![0; size]);
            short[..300].fill(9);
            let user = ftl.layout().user_pages;
            for number in 0..user {
                ftl.write_page(number, &page).unwrap();
                ftl.flush().unwrap();
            }
            for number in 0..user {
                let done = match number % 3 {
                    2 => ftl.write_page(number % 24, &short).and_then(|()| ftl.flush()),
                    _ => ftl.write_page(number.wrapping_mul(7919) % user, &page),
                };
                done.unwrap_or_else(|error| panic!("{} of {blocks} blocks: {error}", part.name));
            }
        }
    }
}

/// Most of the part is cold; the rest is overwritten.
#[test]
fn wear_is_even_under_skewed_writes() {
    for spread in [None, Some(10)] {
        let part = mortal(Pairing::None, 128, 4000);
        let mut ftl = format(NandModel::new(&part, 1), 1).unwrap();
        if let Some(spread) = spread {
            ftl.set_spread(spread);
        }
        let user = ftl.layout().user_pages;
        let page = vec![3; 512];
        for logical in 0..user / 10 * 9 {
            ftl.write_page(logical, &page).unwrap();
        }
        for number in 0..60_000 * times() {
            ftl.write_page(number.wrapping_mul(7919) % (user / 20), &page).unwrap();
        }
        let (_, _, sum) = ftl.nand().wear();
        let report = ftl.report().unwrap();
        let blocks = ftl.blocks().unwrap();
        // The anchor blocks wear less.
        let worn = || {
            blocks
                .iter()
                .filter(|block| matches!(block.usage, BlockUse::Data | BlockUse::Free))
                .map(|block| block.erases)
        };
        let (least, most) = (worn().min().unwrap(), worn().max().unwrap());
        let data = report.counts;
        let percent = 100.0 * f64::from(most - least) / f64::from(part.geometry.cycles);
        std::println!(
            "spread {spread:?}: {least} to {most} erasures a block ({percent:.2} % of rated), {} of {sum} for levelling ({:.2} %)",
            data.level_erases,
            100.0 * data.level_erases as f64 / sum as f64
        );
        assert!(percent <= 1.0, "{least} to {most}");
        // Half the difference costs twice as many erasures.
        assert!(data.level_erases * if spread.is_some() { 6 } else { 10 } < sum, "{data:?}");
    }
}
