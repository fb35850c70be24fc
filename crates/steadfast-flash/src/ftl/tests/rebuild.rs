//! Each page of the structures is lost in turn.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::{Oracle, Step, churn, formatted, recover, run, small};
use crate::ftl::tag::Kind;
use crate::ftl::{FlashError, Ftl, rebuild};
use crate::model::{Ageing, Interrupted, NandModel};
use crate::nand::{NandError, PageAddress, Pairing};

const LOST: u16 = 200;

/// Pages of the structures of a part.
fn structures(nand: &NandModel) -> Vec<(u32, Kind)> {
    let mut ftl = Ftl::mount(nand.clone(), true).unwrap();
    let mut data = vec![0; 512];
    let pages = ftl.geometry().pages();
    let tags =
        (0..pages).filter_map(|page| Some((page, ftl.read_tagged(page, &mut data).unwrap()?.kind)));
    tags.filter(|(_, kind)| !matches!(kind, Kind::Data | Kind::Lost)).collect()
}

/// The contents of each page that the oracle knows; errors are `None`.
fn read_all(ftl: &mut Ftl<NandModel>, oracle: &Oracle) -> Option<BTreeMap<u32, Vec<u8>>> {
    let mut data = vec![0; 512];
    oracle
        .pages
        .keys()
        .map(|page| Some((*page, ftl.read_page(*page, &mut data).ok().map(|()| data.clone())?)))
        .collect()
}

fn every_structure(pairing: Pairing) {
    let mut oracle = Oracle::new(512);
    let nand = formatted(&small(pairing, 48), 3, Ageing::NONE);
    let mut steps = churn(500, 3);
    steps.push(Step::Flush);
    steps.push(Step::Remount);
    steps.extend(churn(30, 4));
    let (nand, _) = run(nand, &mut oracle, &steps);
    let nand = recover(nand, &mut oracle, vec![]);
    let mut ftl = Ftl::mount(nand, false).unwrap();
    ftl.close().unwrap();
    let nand = ftl.into_nand();
    let mut rebuilt = 0;
    for (page, kind) in structures(&nand) {
        let mut lost = nand.clone();
        lost.flip(PageAddress(page), LOST);
        let read =
            Ftl::mount(lost.clone(), false).ok().and_then(|mut ftl| read_all(&mut ftl, &oracle));
        let read = read.unwrap_or_else(|| {
            let (mut ftl, report) = rebuild(lost).unwrap();
            rebuilt += 1;
            assert!(report.unreadable_pages > 0, "{report:?}");
            let read = read_all(&mut ftl, &oracle);
            // The rebuilt structures are durable without a close.
            let mut again = Ftl::mount(ftl.into_nand(), false).unwrap();
            assert_eq!(read_all(&mut again, &oracle), read);
            again.report().unwrap();
            read.unwrap_or_else(|| panic!("{kind:?} {page}: {report:?}"))
        });
        for (logical, values) in &oracle.pages {
            let value = &values[values.len() - 1];
            // Contents in a spill page exist only there.
            let short = value.iter().filter(|byte| **byte != 0).count() <= 256;
            assert!(
                read[logical] == *value || (short && kind == Kind::Spill),
                "{kind:?} {page}: logical {logical}"
            );
        }
    }
    assert!(rebuilt > 0);
}

#[test]
fn every_structure_page_can_be_lost() {
    every_structure(Pairing::None);
}

#[test]
fn every_structure_page_can_be_lost_where_cells_are_shared() {
    every_structure(Pairing::Distance3);
}

#[test]
fn a_rebuilding_can_be_cut_anywhere() {
    let mut oracle = Oracle::new(512);
    let nand = formatted(&small(Pairing::None, 48), 3, Ageing::NONE);
    let (nand, _) = run(nand, &mut oracle, &churn(700, 5));
    let nand = recover(nand, &mut oracle, vec![]);
    let mut ftl = Ftl::mount(nand, false).unwrap();
    ftl.close().unwrap();
    let expected = read_all(&mut ftl, &oracle);
    let lost = ftl
        .directory
        .iter()
        .chain(&ftl.second.as_ref().unwrap().directory)
        .copied()
        .collect::<Vec<_>>();
    let mut nand = ftl.into_nand();
    lost.into_iter().for_each(|page| nand.flip(PageAddress(page), LOST));
    for at in 0.. {
        let mut part = nand.clone();
        part.reseed(at);
        part.cut_after(at, Interrupted::ALL[at as usize % 5]);
        let first = rebuild(&mut part).map(drop);
        part.power_on();
        let (mut ftl, _) = rebuild(part).unwrap();
        assert_eq!(read_all(&mut ftl, &oracle), expected, "cut at {at}");
        let (_, cut) = run(ftl.into_nand(), &mut oracle.clone(), &churn(40, at as u32));
        assert!(!cut);
        match first {
            Ok(()) => break,
            Err(error) => assert_eq!(error, FlashError::Nand(NandError::Gone)),
        }
    }
}
