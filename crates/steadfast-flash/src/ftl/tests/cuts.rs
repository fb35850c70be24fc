//! A power cut at every operation of a run that fills the part, with every outcome.

use alloc::vec::Vec;

use super::{Oracle, Step, churn, formatted, recover, run, small};
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

/// A clean mount may follow a power cut during the close: the journal is complete, but its anchor
/// is torn.
#[test]
fn closing_can_be_cut() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let part = small(pairing, 48);
        for count in 0..24 {
            let oracle = Oracle::new(512);
            let mut steps = churn(count, 3);
            let nand = formatted(&part, 5, Ageing::NONE);
            steps.push(Step::Remount);
            for at in 0.. {
                let mut cut = false;
                for outcome in Interrupted::ALL {
                    let (mut nand, mut oracle) = (nand.clone(), oracle.clone());
                    nand.reseed(at);
                    nand.cut_after(at, outcome);
                    let (nand, gone) = run(nand, &mut oracle, &steps);
                    cut |= gone;
                    let nand = recover(nand, &mut oracle, Vec::new());
                    run(nand, &mut oracle, &churn(60, 4));
                }
                if !cut {
                    break;
                }
            }
        }
    }
}

/// A power supply that fails again soon after each start must not use up blocks.
#[test]
fn recoveries_that_are_cut_again_and_again_leave_free_blocks() {
    for pairing in [Pairing::None, Pairing::Distance3] {
        let part = small(pairing, 48);
        let mut oracle = Oracle::new(512);
        let (nand, _) = run(formatted(&part, 5, Ageing::NONE), &mut oracle, &churn(900, 1));
        for soon in 1..9 {
            let (mut nand, mut oracle) = (nand.clone(), oracle.clone());
            for round in 0..60 {
                // Programs and erasures of a recovery, and a few more.
                nand.reseed(round);
                nand.cut_after(
                    soon + round % 9 * 5,
                    Interrupted::ALL[(round / 9 + soon) as usize % 5],
                );
                nand = run(nand, &mut oracle, &churn(30, round as u32)).0;
                nand = recover(nand, &mut oracle, Vec::new());
            }
            let (_, cut) = run(nand, &mut oracle, &churn(60, 7));
            assert!(!cut);
        }
    }
}
