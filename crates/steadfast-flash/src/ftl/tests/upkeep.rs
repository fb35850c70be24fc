//! Read counts, the patrol, second copies.

use alloc::vec;

use super::{Oracle, churn, formatted, recover, run, small};
use crate::ftl::tag::Kind;
use crate::ftl::{BlockUse, Ftl, format};
use crate::model::{Ageing, NandModel};
use crate::nand::{Nand, NandGeometry, PageAddress, Pairing};
use crate::part::Part;

/// More flips than any code here corrects.
const LOST: u16 = 200;

fn filled(pairing: Pairing, seed: u32) -> (NandModel, Oracle) {
    let nand = formatted(&small(pairing, 64), u64::from(seed), Ageing::NONE);
    let mut oracle = Oracle::new(512);
    let (nand, _) = run(nand, &mut oracle, &churn(900, seed));
    let nand = recover(nand, &mut oracle, vec![]);
    (nand, oracle)
}

#[test]
fn read_counts_survive_a_close_and_nearly_all_of_them_a_cut() {
    let part = Part {
        geometry: NandGeometry { cycles: 10_000, ..Part::SLC_1GBIT.with_blocks(64).geometry },
        ..Part::SLC_1GBIT
    };
    let mut ftl = format(NandModel::new(&part, 3), 3).unwrap();
    let page = vec![5; 2048];
    for logical in 0..400 {
        ftl.write_page(logical, &page).unwrap();
    }
    let place = ftl.place(7).unwrap();
    let block = ftl.block_of(place) as usize;
    let mut data = vec![0; 2048];
    let mut read = |ftl: &mut Ftl<NandModel>, count: u32| {
        for _ in 0..count {
            ftl.recent.clear();
            ftl.read_page(7, &mut data).unwrap();
        }
    };
    read(&mut ftl, 9000);
    ftl.close().unwrap();
    let mut ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
    let counted = ftl.blocks().unwrap()[block].reads;
    assert!((8900..9200).contains(&counted), "{counted}");
    read(&mut ftl, 6000);
    // A power cut; only the counts themselves were written.
    let mut ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
    let counted = ftl.blocks().unwrap()[block].reads;
    assert!(counted >= 15_000 - 20_000 / 8, "{counted}");
    // At the limit the block is moved.
    read(&mut ftl, 7600);
    assert_eq!(ftl.report().unwrap().counts.refreshed_blocks, 1);
    while ftl.scrub(16).unwrap().blocks_waiting > 0 {}
    ftl.flush().unwrap();
    let place = ftl.place(7).unwrap();
    assert_ne!(ftl.block_of(place) as usize, block);
}

#[test]
fn the_patrol_moves_what_has_flipped_bits_and_goes_on_after_a_mount() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let (mut nand, mut oracle) = filled(pairing, 4);
        // One more flip would lose a codeword.
        nand.retain(8);
        let mut ftl = Ftl::mount(nand, false).unwrap();
        let mut calls = 0;
        let mut last = ftl.patrol_position();
        loop {
            let progress = ftl.scrub(10).unwrap();
            assert!(progress.pages_read <= 10, "{progress:?}");
            calls += 1;
            assert!(calls < 4000, "{progress:?} {:?}", ftl.report());
            if calls == 20 {
                ftl.close().unwrap();
                last = ftl.patrol_position();
                ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
                assert_eq!((last, ftl.patrol_position().0 > 0), (ftl.patrol_position(), true));
            }
            if progress.pass_finished && progress.blocks_waiting == 0 && calls > 20 {
                break;
            }
        }
        // A second pass covers the blocks before the start of the first one; then no page in use
        // has flipped bits.
        while !ftl.scrub(64).unwrap().pass_finished {}
        while ftl.scrub(64).unwrap().blocks_waiting > 0 {}
        let before = ftl.info().corrected_pages;
        oracle.check(&mut ftl, false).unwrap();
        assert_eq!(ftl.info().corrected_pages, before, "after block {last:?}");
        ftl.close().unwrap();
        let mut nand = ftl.into_nand();
        nand.retain(4);
        let mut ftl = Ftl::mount(nand, false).unwrap();
        oracle.check(&mut ftl, false).unwrap();
    }
}

#[test]
fn a_patrol_that_finds_nothing_still_gets_on() {
    let (mut nand, _) = filled(Pairing::None, 4);
    let mut reached = 0;
    for _ in 0..5 {
        let mut ftl = Ftl::mount(nand, false).unwrap();
        assert_eq!(ftl.patrol_position().0, reached);
        reached = loop {
            let progress = ftl.scrub(20).unwrap();
            assert_eq!(progress.blocks_waiting, 0);
            if progress.position != reached {
                break progress.position;
            }
        };
        ftl.close().unwrap();
        nand = ftl.into_nand();
    }
}

#[test]
fn the_second_copy_of_directory_and_table_serves() {
    let (nand, oracle) = filled(Pairing::None, 9);
    let mut ftl = Ftl::mount(nand, false).unwrap();
    ftl.close().unwrap();
    let (directory, table) = (ftl.directory.clone(), ftl.table.pages.clone());
    let mut nand = ftl.into_nand();
    for page in directory.into_iter().chain(table) {
        nand.flip(PageAddress(page), LOST);
    }
    let mut ftl = Ftl::mount(nand, false).unwrap();
    oracle.clone().check(&mut ftl, false).unwrap();
    let report = ftl.report().unwrap();
    assert!(report.counts.copies_used >= 2, "{report:?}");
    assert_eq!(report.blocks.iter().sum::<u32>(), 64);
    assert!(report.count(BlockUse::Data) > 30, "{report:?}");
    // The lost pages are written again.
    while ftl.scrub(64).unwrap().blocks_waiting > 0 {}
    let mut data = vec![0; 512];
    for page in ftl.table.pages.clone() {
        assert!(
            ftl.read_tagged(page, &mut data).unwrap().is_some_and(|tag| tag.kind == Kind::Table)
        );
    }
    ftl.close().unwrap();
    let (nand, cut) = run(ftl.into_nand(), &mut oracle.clone(), &churn(300, 10));
    assert!(!cut && nand.geometry().blocks == 64);
}

/// A product that starts and loses power again and again, without any write.
#[test]
fn recoveries_without_a_write_between_them_go_on_for_ever() {
    let parts = [
        small(Pairing::None, 40),
        small(Pairing::Distance3, 90),
        Part::SLC_1GBIT,
        Part::SLC_1GBIT.with_blocks(65_536),
    ];
    for part in parts {
        let mut nand = NandModel::new(&part, 1);
        let mut ftl = format(&mut nand, 1).unwrap();
        let page = vec![7; part.geometry.page_size as usize];
        let mut found = page.clone();
        ftl.write_page(3, &page).unwrap();
        ftl.flush().unwrap();
        drop(ftl);
        for round in 0..400 {
            let mut ftl =
                Ftl::mount(&mut nand, false).unwrap_or_else(|error| panic!("{round}: {error}"));
            assert!(ftl.info().recovered);
            found.fill(0);
            ftl.read_page(3, &mut found).unwrap();
            assert_eq!(found, page, "round {round}");
        }
        let mut ftl = Ftl::mount(&mut nand, false).unwrap();
        ftl.write_page(4, &page).unwrap();
        ftl.close().unwrap();
    }
}
