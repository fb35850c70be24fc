//! Random steps with power cuts and failures anywhere.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Oracle, Step, formatted, recover, run, small};
use crate::model::{Ageing, Interrupted};
use crate::nand::Pairing;

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let length =
        prop_oneof![3 => Just(u16::MAX), 2 => 0_u16..16_000, 1 => any::<u16>(), 1 => Just(0)];
    let page = prop_oneof![any::<u16>(), 0_u16..4000];
    let step = prop_oneof![
        12 => (page.clone(), any::<u32>(), length).prop_map(|(page, number, length)| Step::Write(page, number, length)),
        3 => Just(Step::Flush),
        1 => (page, any::<u8>()).prop_map(|(page, count)| Step::Trim(page, count)),
        1 => Just(Step::Remount),
    ];
    proptest::collection::vec(step, 1..count)
}

fn interrupted() -> impl Strategy<Value = Interrupted> {
    proptest::sample::select(&Interrupted::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Without power cuts the medium is an array, even when it is full and blocks fail.
    #[test]
    fn an_array(seed in any::<u64>(), steps in steps(400), mlc in any::<bool>(), failing in any::<bool>()) {
        let pairing = if mlc { Pairing::Distance3 } else { Pairing::None };
        let ageing = if failing {
            Ageing { program_fails_one_in: 2000, erase_fails_one_in: 1000, flip_one_in: 50, reads_per_flip: 500 }
        } else {
            Ageing::NONE
        };
        let part = small(pairing, 64);
        let mut oracle = Oracle::new(512);
        run(formatted(&part, seed, ageing), &mut oracle, &steps);
    }

    /// A power cut, more cuts in the recovery, and so on.
    #[test]
    fn cuts_anywhere(
        seed in any::<u64>(),
        rounds in proptest::collection::vec(
            (steps(120), 0_u64..300, interrupted(), proptest::collection::vec((0_u64..12, interrupted()), 0..3)),
            1..4,
        ),
        mlc in any::<bool>(),
    ) {
        let pairing = if mlc { Pairing::Distance3 } else { Pairing::None };
        let part = small(pairing, 64);
        let mut oracle = Oracle::new(512);
        let mut nand = formatted(&part, seed, Ageing::NONE);
        for (steps, at, outcome, again) in rounds {
            nand.cut_after(at, outcome);
            let (part, cut) = run(nand, &mut oracle, &steps);
            nand = recover(part, &mut oracle, if cut { again } else { Vec::new() });
        }
    }
}
