//! The translation layer on serial NOR flash: power cuts inside programs and erasures, wear, and
//! sectors that wear out.

extern crate std;

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Random;

use super::{Oracle, Powered, Step, churn, recover, run, step};
use crate::ftl::{FlashError, Ftl, format};
use crate::model::{Interrupted, NorModel};
use crate::nand::{BlockNumber, EccStatus, Nand, NandError, NandOperation, PageAddress};
use crate::nor::{Nor, NorGeometry, NorMisfit, NorNand};
use crate::sabotage::{Sabotage, fails_with};

impl Powered for NorNand<NorModel> {
    fn is_powered(&self) -> bool {
        self.part().is_powered()
    }
    fn power_on(&mut self) {
        self.part_mut().power_on();
    }
    fn cut_after(&mut self, operations: u64, outcome: Interrupted) {
        self.part_mut().cut_after(operations, outcome);
    }
}

fn part(sectors: u32, cycles: u32) -> NorNand<NorModel> {
    let geometry = NorGeometry { cycles, ..NorGeometry::serial(sectors * 4096) };
    NorNand::new(NorModel::new(geometry, 5), 512).unwrap()
}

fn formatted(sectors: u32, cycles: u32) -> NorNand<NorModel> {
    let mut ftl = format(part(sectors, cycles), 5).unwrap();
    ftl.close().unwrap();
    ftl.into_nand()
}

/// Cuts a run at every `stride`-th program or erasure of the part, with every outcome, and once
/// more in the recovery.
fn every_cut(stride: usize) {
    let mut oracle = Oracle::new(512);
    let (filled, _) = run(formatted(64, 100_000), &mut oracle, &churn(1200, 1));
    let filled = recover(filled, &mut oracle, Vec::new());
    let base = oracle;
    let steps = churn(120, 2);
    let mut cuts = 0;
    for at in (0..).step_by(stride) {
        let mut cut = false;
        for outcome in Interrupted::ALL {
            let mut nand = filled.clone();
            nand.part_mut().reseed(at);
            nand.cut_after(at, outcome);
            let mut oracle = base.clone();
            let (nand, gone) = run(nand, &mut oracle, &steps);
            cut |= gone;
            let nand = recover(nand, &mut oracle, [(at % 7, outcome)].to_vec());
            run(nand, &mut oracle, &steps[..20]);
        }
        if !cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts * stride > 300, "{cuts} cuts");
}

#[test]
fn every_operation_of_nor_can_be_cut() {
    every_cut(1);
}

/// A sector that looks erased after an interrupted erasure must be erased again.
#[test]
fn the_cuts_find_sectors_that_only_look_erased() {
    assert!(fails_with(Sabotage::TrustErased, || every_cut(1)));
}

/// All writes go to one page; every sector wears alike. The layer allows a difference of a
/// two-hundredth of the rated cycles.
#[test]
fn wear_is_even() {
    let mut ftl = format(part(64, 4000), 1).unwrap();
    let mut oracle = Oracle::new(512);
    for number in 0..400 {
        step(&mut ftl, &mut oracle, &Step::Write((number * 163) as u16, number, u16::MAX)).unwrap();
    }
    for number in 0..60_000 {
        step(&mut ftl, &mut oracle, &Step::Write(9, number, u16::MAX)).unwrap();
        if number % 4 == 0 {
            step(&mut ftl, &mut oracle, &Step::Flush).unwrap();
        }
    }
    oracle.check(&mut ftl, false).unwrap();
    let memory = ftl.memory_bytes();
    let (least, most, sum) = ftl.nand().part().wear();
    let mean = sum / 64;
    std::println!("{least} to {most} erasures, {mean} on average; {memory} bytes of memory");
    // The ring of anchors at the start wears less.
    assert!(mean > 100 && u64::from(most) < mean + 2 * 4000 / 200, "{least}, {most}, {mean}");
}

/// What docs/FLASH.md says: usable bytes and memory.
#[test]
fn most_of_a_part_can_be_used() {
    for (mebibytes, percent) in [(1, 67), (2, 74), (4, 79), (16, 82)] {
        let sectors = mebibytes * 256;
        let mut ftl = format(part(sectors, 100_000), 1).unwrap();
        let user = ftl.layout().user_pages;
        for page in 0..user {
            ftl.write_page(page, &[page as u8 | 1; 512]).unwrap();
        }
        ftl.flush().unwrap();
        let found = user * 512 / (mebibytes << 20).div_ceil(100);
        std::println!("{mebibytes} MiB: {found} %, {} bytes of memory", ftl.memory_bytes());
        assert!(found >= percent, "{mebibytes} MiB: {found} %");
    }
}

/// Writes a part until it fails. What was acknowledged stays.
#[test]
fn a_part_that_wears_out_keeps_its_data() {
    let mut ftl = format(part(64, 60), 1).unwrap();
    let mut oracle = Oracle::new(512);
    let mut random = Random::new(3);
    let death = loop {
        let next = match random.below(16) {
            0..3 => Step::Flush,
            _ => Step::Write(random.bits() as u16, random.bits() as u32, u16::MAX),
        };
        if let Err(error) = step(&mut ftl, &mut oracle, &next) {
            break error;
        }
    };
    assert_eq!(death, FlashError::WornOut);
    assert!(ftl.info().grown_bad > 0);
    let mut nand = ftl.into_nand();
    nand.power_on();
    let mut ftl = Ftl::mount(nand, false).unwrap();
    oracle.check(&mut ftl, true).unwrap();
}

/// Zeros in every byte of a sector, as an interrupted erasure leaves them, are no mark.
#[test]
fn only_the_whole_mark_makes_a_sector_bad() {
    let mut nand = part(4, 10);
    nand.part_mut().program(4096 + 4096 - 32, &[0; 32]).unwrap();
    assert!(!nand.is_bad(BlockNumber(1)).unwrap());
    let failed = NandError::Failed { operation: NandOperation::MarkBad, block: 1 };
    assert_eq!(nand.mark_bad(BlockNumber(1)), Err(failed));
    nand.mark_bad(BlockNumber(2)).unwrap();
    assert!(nand.is_bad(BlockNumber(2)).unwrap() && !nand.is_bad(BlockNumber(3)).unwrap());
}

#[test]
fn pages_are_checked_and_requests_stay_inside() {
    let mut nand = part(4, 10);
    assert_eq!(nand.geometry().pages_per_block, 7);
    let (mut data, mut oob) = (vec![0; 512], [0; 16]);
    let mut read =
        |nand: &mut NorNand<NorModel>, page| nand.read(PageAddress(page), &mut data, &mut oob);
    assert_eq!(read(&mut nand, 7), Ok(EccStatus::Clean));
    nand.program(PageAddress(7), &[0x5a; 512], &[1; 16]).unwrap();
    assert_eq!(read(&mut nand, 7), Ok(EccStatus::Clean));
    // One more bit becomes zero.
    nand.part_mut().program(4096 + 100, &[0x58]).unwrap();
    assert_eq!(read(&mut nand, 7), Ok(EccStatus::Uncorrectable));
    assert!(matches!(read(&mut nand, 28), Err(NandError::Refused { .. })));
    // What is programmed again is read again, and refused.
    let failed = NandError::Failed { operation: NandOperation::Program, block: 1 };
    assert_eq!(nand.program(PageAddress(7), &[0xff; 512], &[]), Err(failed));
    assert!(matches!(nand.program(PageAddress(8), &[0; 100], &[]), Err(NandError::Refused { .. })));
    assert!(matches!(nand.erase(BlockNumber(4)), Err(NandError::Refused { .. })));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let good = NorGeometry::serial(1 << 20);
    let misfit = |geometry: NorGeometry, page| {
        NorNand::new(NorModel::new(geometry, 1), page).map(|_| ()).unwrap_err()
    };
    assert_eq!(misfit(good, 256), NorMisfit::PageSize(256));
    assert_eq!(misfit(good, 1024), NorMisfit::PageSize(1024));
    assert_eq!(misfit(NorGeometry { sectors: 0, ..good }, 512), NorMisfit::Sectors(0));
    let small = NorGeometry { sector_size: 2048, ..good };
    assert_eq!(misfit(small, 512), NorMisfit::SectorSize(2048));
    let odd = NorGeometry { program_size: 48, ..good };
    assert_eq!(misfit(odd, 512), NorMisfit::ProgramSize(48));
    let large = NorGeometry { sector_size: 65_536, sectors: 16, ..good };
    let nand = NorNand::new(NorModel::new(large, 1), 512).unwrap();
    assert_eq!(nand.geometry().pages_per_block, 120);
}
