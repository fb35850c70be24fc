//! Images on parts with bad blocks, as device programmers write them: each next block into the next
//! good one.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::{Oracle, Step, step};
use crate::ftl::{BlockState, BlockUse, FlashError, Ftl, format_image};
use crate::model::{Ageing, Interrupted, NandModel};
use crate::nand::{BlockNumber, Nand, NandError, NandOperation, Pairing};
use crate::part::Part;

use super::small;

/// Blocks of the part: enough for the maximum number of bad ones and a full volume.
const BLOCKS: u32 = 120;

/// A part without bad blocks.
fn good(part: &Part) -> NandModel {
    let factory = |nand: &mut NandModel| {
        (0..part.geometry.blocks).any(|block| nand.is_bad(BlockNumber(block)).unwrap())
    };
    (0..)
        .map(|seed| NandModel::new(part, seed).with_ageing(Ageing::NONE))
        .find_map(|mut nand| (!factory(&mut nand)).then_some(nand))
        .unwrap()
}

/// An image with data, and its expected contents.
fn image(part: &Part) -> (NandModel, Oracle) {
    let mut ftl = format_image(good(part), 77).unwrap();
    let mut oracle = Oracle::new(part.geometry.page_size as usize);
    for number in 0..400_u32 {
        let next = Step::Write(
            (number * 97 % 50_000) as u16,
            number,
            if number % 5 == 0 { 4000 } else { u16::MAX },
        );
        step(&mut ftl, &mut oracle, &next).unwrap();
    }
    step(&mut ftl, &mut oracle, &Step::Flush).unwrap();
    ftl.close().unwrap();
    (ftl.into_nand(), oracle)
}

/// Writes the image into the good blocks of a part with these bad ones.
fn program(part: &Part, image: &NandModel, bad: &BTreeSet<u32>) -> NandModel {
    let mut image = image.clone();
    let geometry = part.geometry;
    let mut nand = good(part);
    bad.iter().for_each(|block| nand.mark_bad(BlockNumber(*block)).unwrap());
    let mut places = (0..geometry.blocks).filter(|block| !bad.contains(block));
    for block in 0..geometry.blocks {
        let to = places.next();
        if let Some(to) = to {
            nand.erase(BlockNumber(to)).unwrap();
        }
        for page in 0..geometry.pages_per_block {
            let mut data = vec![0; geometry.page_size as usize];
            let mut oob = [0; 16];
            image.read(geometry.page(BlockNumber(block), page), &mut data, &mut oob).unwrap();
            if oob == [0xff; 16] {
                continue;
            }
            let to = to.expect("an image leaves as many blocks free as may be bad");
            nand.program(geometry.page(BlockNumber(to), page), &data, &oob).unwrap();
        }
    }
    nand.reset_counts();
    nand
}

/// Uses the part: the data of the image must be there, before and after changes, remounts and a new
/// bad block.
fn use_it(nand: NandModel, oracle: &mut Oracle, bad: &BTreeSet<u32>) {
    let mut ftl = Ftl::mount(nand, true).unwrap();
    oracle.check(&mut ftl, false).unwrap();
    let mut ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
    oracle.check(&mut ftl, false).unwrap();
    let states = ftl.blocks().unwrap();
    let found = states.iter().filter(|block| block.usage == BlockUse::Bad).count();
    assert_eq!(found, bad.len(), "the blocks that were held back and are good can be used");
    for number in 0..600_u32 {
        let next = Step::Write((number * 131 % 60_000) as u16, number + 1000, u16::MAX);
        step(&mut ftl, oracle, &next).unwrap();
    }
    step(&mut ftl, oracle, &Step::Flush).unwrap();
    ftl.close().unwrap();
    // A later mark changes nothing.
    let mut nand = ftl.into_nand();
    let blocks = nand.geometry().blocks;
    let mut ftl = Ftl::mount(&mut nand, true).unwrap();
    let free = (0..blocks)
        .rev()
        .find(|block| ftl.block(*block).unwrap().state == BlockState::Free)
        .unwrap();
    let place = ftl.nand.place(free);
    nand.mark_bad(BlockNumber(place)).unwrap();
    let mut ftl = Ftl::mount(nand, false).unwrap();
    oracle.check(&mut ftl, false).unwrap();
    for number in 0..300_u32 {
        let next = Step::Write((number * 211 % 60_000) as u16, number + 5000, u16::MAX);
        step(&mut ftl, oracle, &next).unwrap();
    }
    oracle.check(&mut ftl, false).unwrap();
}

#[test]
fn bad_blocks_may_be_anywhere() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let part = small(pairing, BLOCKS);
        let (image, oracle) = image(&part);
        let mut sets: Vec<BTreeSet<u32>> = (0..BLOCKS).map(|block| [block].into()).collect();
        sets.push(BTreeSet::new());
        sets.extend(
            [
                [0, 1, 2],
                [1, 2, 3],
                [2, 3, 4],
                [0, 2, BLOCKS - 1],
                [BLOCKS - 3, BLOCKS - 2, BLOCKS - 1],
                [5, 6, 7],
            ]
            .map(Into::into),
        );
        sets.extend((0..40_u32).map(|n| [n * 7 % BLOCKS, n * 13 % BLOCKS, n * 29 % BLOCKS].into()));
        for bad in sets {
            let nand = program(&part, &image, &bad);
            use_it(nand, &mut oracle.clone(), &bad);
        }
    }
}

#[test]
fn a_first_mount_that_is_cut_begins_again() {
    for (pairing, bad) in [(Pairing::None, [1, 6, 30]), (Pairing::Distance3, [0, 1, 2])] {
        let part = small(pairing, BLOCKS);
        let (image, oracle) = image(&part);
        let bad = BTreeSet::from(bad);
        let programmed = program(&part, &image, &bad);
        for outcome in Interrupted::ALL {
            for at in 0.. {
                let mut nand = programmed.clone();
                nand.reseed(at);
                nand.cut_after(at, outcome);
                let first = Ftl::mount(&mut nand, false).map(drop);
                let cut = !nand.is_powered();
                assert_eq!(first.is_err(), cut, "{first:?}");
                nand.power_on();
                nand.cut_after(at / 2, outcome);
                let _ = Ftl::mount(&mut nand, false);
                nand.power_on();
                use_it(nand, &mut oracle.clone(), &bad);
                if !cut {
                    break;
                }
            }
        }
    }
}

/// A part on which erasing these blocks fails, with a power cut after a number of changes.
struct Failing {
    nand: NandModel,
    blocks: Vec<u32>,
    marked: Vec<u32>,
}

impl Nand for Failing {
    fn geometry(&self) -> crate::nand::NandGeometry {
        self.nand.geometry()
    }
    fn read(
        &mut self,
        page: crate::nand::PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<crate::nand::EccStatus, NandError> {
        self.nand.read(page, data, oob)
    }
    fn program(
        &mut self,
        page: crate::nand::PageAddress,
        data: &[u8],
        oob: &[u8],
    ) -> Result<(), NandError> {
        self.nand.program(page, data, oob)
    }
    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        if self.blocks.contains(&block.0) {
            return Err(NandError::Failed { operation: NandOperation::Erase, block: block.0 });
        }
        self.nand.erase(block)
    }
    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        self.nand.is_bad(block)
    }
    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.marked.push(block.0);
        self.nand.mark_bad(block)
    }
}

#[test]
fn a_block_that_fails_in_the_first_mount_is_marked_after_the_anchors() {
    let part = small(Pairing::None, BLOCKS);
    let (image, oracle) = image(&part);
    let bad = BTreeSet::from([3, 9]);
    let nand = program(&part, &image, &bad);
    // Every erasure of the first mount fails, once each. If the power is cut, no mark may be set,
    // except one that was in progress.
    let mut marks = 0;
    for block in 0..BLOCKS {
        for cut in (0..12).chain([1000]) {
            let mut nand = nand.clone();
            nand.cut_after(cut, Interrupted::Half);
            let mut failing = Failing { nand, blocks: vec![block], marked: Vec::new() };
            let whole = match Ftl::mount(&mut failing, false) {
                Ok(_) => true,
                Err(FlashError::Nand(NandError::Gone)) => false,
                Err(error) => panic!("block {block}: {error}"),
            };
            let in_mark = failing
                .nand
                .struck()
                .is_some_and(|struck| struck.operation == NandOperation::MarkBad);
            let marked = failing.marked.len();
            assert!(
                whole || marked == usize::from(in_mark),
                "block {block} was marked before the anchors"
            );
            marks += failing.marked.len();
            failing.nand.power_on();
            let mut ftl = Ftl::mount(failing, false).unwrap();
            oracle.clone().check(&mut ftl, false).unwrap();
        }
    }
    assert!(marks > 0, "nothing has failed");
}

#[test]
fn a_shifted_part_can_be_rebuilt() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let part = small(pairing, BLOCKS);
        let (image, oracle) = image(&part);
        for bad in [BTreeSet::from([0, 5, 9]), BTreeSet::from([1, 2, 3])] {
            // Before the first mount, and after it.
            for mounted in [false, true] {
                let mut nand = program(&part, &image, &bad);
                if mounted {
                    nand = Ftl::mount(nand, false).unwrap().into_nand();
                }
                let (mut ftl, _) = crate::ftl::rebuild(nand).unwrap();
                oracle.clone().check(&mut ftl, false).unwrap();
                ftl.close().unwrap();
                use_it(ftl.into_nand(), &mut oracle.clone(), &bad);
            }
        }
    }
}

#[test]
fn more_bad_blocks_than_an_image_allows_are_refused() {
    let part = small(Pairing::None, BLOCKS);
    let (image, _) = image(&part);
    let mut nand = program(&part, &image, &[4, 5, 6].into());
    nand.mark_bad(BlockNumber(40)).unwrap();
    let before = nand.counts();
    assert_eq!(
        Ftl::mount(&mut nand, false).map(drop),
        Err(FlashError::TooSmall { blocks: BLOCKS - 4, needed: BLOCKS - 3 })
    );
    assert_eq!(nand.counts().programs + nand.counts().erases, before.programs + before.erases);
}

#[test]
fn formatting_a_shifted_part_keeps_what_each_block_has_counted() {
    let part = small(Pairing::None, BLOCKS);
    let (image, mut oracle) = image(&part);
    let bad = BTreeSet::from([2, 20]);
    let mut ftl = Ftl::mount(program(&part, &image, &bad), false).unwrap();
    for number in 0..2000_u32 {
        step(&mut ftl, &mut oracle, &Step::Write((number % 40 * 1000) as u16, number, u16::MAX))
            .unwrap();
    }
    ftl.close().unwrap();
    let mut counted = vec![0; BLOCKS as usize];
    for (block, info) in ftl.blocks().unwrap().iter().enumerate() {
        counted[ftl.nand.place(block as u32) as usize] = info.erases;
    }
    let mut again = crate::ftl::format(ftl.into_nand(), 5).unwrap();
    for (block, info) in again.blocks().unwrap().iter().enumerate() {
        assert!(
            info.erases >= counted[block],
            "block {block}: {} after {}",
            info.erases,
            counted[block]
        );
        assert_eq!(info.usage == BlockUse::Bad, bad.contains(&(block as u32)));
    }
}
