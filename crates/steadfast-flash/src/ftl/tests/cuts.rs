//! A cut at every operation of a run that fills the part, with every outcome.

use alloc::vec::Vec;

use super::{Oracle, churn, formatted, recover, run, small};
use crate::model::{Ageing, Interrupted, NandModel};
use crate::nand::Pairing;

fn every_cut(pairing: Pairing, stride: u64) {
    let part = small(pairing, 48);
    let nand = formatted(&part, 5, Ageing::NONE);
    let mut oracle = Oracle::new(512);
    let (filled, _) = run(nand, &mut oracle, &churn(900, 1));
    let mut base = oracle.clone();
    let filled = recover(filled, &mut base, Vec::new());
    let steps = churn(160, 2);
    for at in (0..).step_by(stride as usize) {
        let mut cut = false;
        for outcome in Interrupted::ALL {
            let mut nand: NandModel = filled.clone();
            nand.reseed(at);
            nand.cut_after(at, outcome);
            let mut oracle = base.clone();
            let (nand, gone) = run(nand, &mut oracle, &steps);
            cut |= gone;
            // And once more in the recovery.
            let nand = recover(nand, &mut oracle, [(at % 7, outcome)].to_vec());
            run(nand, &mut oracle, &steps[..20]);
        }
        if !cut {
            return;
        }
    }
}

#[test]
fn every_operation_of_a_full_part_can_be_cut() {
    every_cut(Pairing::None, 1);
}

#[test]
fn every_operation_of_a_full_part_with_shared_cells_can_be_cut() {
    every_cut(Pairing::Distance3, 1);
}
