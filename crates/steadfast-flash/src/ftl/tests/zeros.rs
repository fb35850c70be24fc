//! Pages of zeros have no page of their own, so a flush must journal them.

use alloc::vec;
use alloc::vec::Vec;

use super::{Oracle, churn, contents, formatted, recover, run, small};
use crate::ftl::Ftl;
use crate::model::{Ageing, Interrupted};
use crate::nand::Pairing;
use crate::sabotage::{Sabotage, fails_with};

/// Writes pages with a page of their own, short ones in the journal and none at all. Then it writes
/// zeros, flushes, and cuts the power.
fn zeros_are_durable() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let mut nand = formatted(&small(pairing, 64), 1, Ageing::NONE);
        let mut ftl = Ftl::mount(&mut nand, false).unwrap();
        let lengths = [u16::MAX, 3000, 0];
        for (logical, length) in (0..).zip(lengths) {
            ftl.write_page(logical, &contents(512, 7, length)).unwrap();
        }
        ftl.flush().unwrap();
        for logical in 0..lengths.len() as u32 {
            ftl.write_page(logical, &vec![0; 512]).unwrap();
            // Each alone: no other write causes a journal page.
            ftl.flush().unwrap();
        }
        drop(ftl);
        let mut ftl = Ftl::mount(&mut nand, false).unwrap();
        for logical in 0..lengths.len() as u32 {
            let mut found = vec![1; 512];
            ftl.read_page(logical, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "page {logical} has come back");
        }
    }
}

#[test]
fn zeros_that_were_flushed_stay() {
    zeros_are_durable();
    assert!(fails_with(Sabotage::ForgetZeros, zeros_are_durable));
}

/// Random steps with a power cut at a random point.
fn random_cut(seed: u32) {
    let mut nand = formatted(&small(Pairing::None, 64), u64::from(seed), Ageing::NONE);
    let mut oracle = Oracle::new(512);
    nand.cut_after(
        u64::from(seed * 7 % 150),
        Interrupted::ALL[seed as usize % Interrupted::ALL.len()],
    );
    let (nand, _) = run(nand, &mut oracle, &churn(400, seed));
    recover(nand, &mut oracle, Vec::new());
}

#[test]
fn random_steps_meet_zeros_that_are_forgotten() {
    let found = (0..60).find(|seed| {
        random_cut(*seed);
        fails_with(Sabotage::ForgetZeros, || random_cut(*seed))
    });
    assert!(found.is_some(), "it goes unnoticed");
}
