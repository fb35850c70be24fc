//! Power cuts of the simulator: possible and guaranteed survivors, and the independence of branches
//! from the run.

use std::collections::BTreeSet;

use steadfast_media::sim::Survival;
use steadfast_media::{ErrorClass, FailureModel, Medium, MemoryMedium, SimMedium, SimOptions};

const UNIT: usize = 512;

/// First byte of each of the first `count` units.
fn marks(medium: &MemoryMedium, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * UNIT];
    medium.read(0, &mut bytes).unwrap();
    for unit in bytes.chunks(UNIT) {
        assert!(unit.iter().all(|byte| *byte == unit[0]), "a unit is torn");
    }
    bytes.chunks(UNIT).map(|unit| unit[0]).collect()
}

fn sim() -> SimMedium {
    SimMedium::new(SimOptions::disk(1 << 20))
}

fn write(sim: &SimMedium, unit: usize, count: usize, mark: u8) {
    sim.write((unit * UNIT) as u64, &vec![mark; count * UNIT]).unwrap();
}

/// All outcomes of a thousand power cuts.
fn outcomes(sim: &SimMedium, units: usize) -> BTreeSet<Vec<u8>> {
    (0..1000).map(|seed| marks(&sim.power_cut(seed), units)).collect()
}

#[test]
fn what_is_flushed_stays() {
    let sim = sim();
    write(&sim, 0, 4, 1);
    sim.flush().unwrap();
    assert_eq!(sim.in_flight(), 0);
    assert_eq!(outcomes(&sim, 4), BTreeSet::from([vec![1; 4]]));
    assert_eq!(sim.power_cut(0).geometry().failure_model, FailureModel::PowerSafe);
}

#[test]
fn every_mix_of_units_and_versions_in_flight_can_survive() {
    let sim = sim();
    write(&sim, 0, 2, 1);
    sim.flush().unwrap();
    write(&sim, 0, 2, 2);
    write(&sim, 0, 2, 3);
    let found = outcomes(&sim, 2);
    let all: BTreeSet<Vec<u8>> = (1..4).flat_map(|a| (1..4).map(move |b| vec![a, b])).collect();
    assert_eq!(found, all);
}

#[test]
fn a_later_write_can_survive_without_an_earlier_one() {
    let sim = sim();
    write(&sim, 0, 1, 1);
    write(&sim, 1, 1, 2);
    assert_eq!(outcomes(&sim, 2).len(), 4);
}

#[test]
fn corner_choices() {
    let sim = sim();
    for mark in 1..4 {
        write(&sim, usize::from(mark) - 1, 1, mark);
    }
    let cut = |survival| marks(&sim.power_cut_with(survival), 3);
    assert_eq!(cut(Survival::Flushed), [0, 0, 0]);
    assert_eq!(cut(Survival::Everything), [1, 2, 3]);
    assert_eq!(cut(Survival::First(2)), [1, 2, 0]);
    assert_eq!(cut(Survival::First(9)), [1, 2, 3]);
    assert_eq!(cut(Survival::Only(1)), [0, 2, 0]);
    assert_eq!(cut(Survival::AllBut(1)), [1, 0, 3]);
    assert_eq!(cut(Survival::Only(9)), [0, 0, 0]);
}

#[test]
fn corner_cases_are_complete_and_differ() {
    let sim = sim();
    for (count, cases) in [1, 2, 4, 8, 11].into_iter().enumerate() {
        let found: BTreeSet<Vec<u8>> =
            sim.corner_cases().map(|survival| marks(&sim.power_cut_with(survival), 5)).collect();
        assert_eq!(
            (sim.in_flight(), sim.corner_cases().count(), found.len()),
            (count, cases, cases)
        );
        write(&sim, count, 1, count as u8 + 1);
    }
}

#[test]
fn a_branch_does_not_disturb_the_run_or_other_branches() {
    let sim = sim();
    write(&sim, 0, 1, 1);
    let branch = sim.power_cut_with(Survival::Everything);
    branch.write(0, &[9; UNIT]).unwrap();
    write(&sim, 1, 1, 2);
    assert_eq!(sim.in_flight(), 2);
    assert_eq!(marks(&sim.power_cut_with(Survival::Everything), 2), [1, 2]);
    assert_eq!(marks(&branch, 2), [9, 0]);
    assert_eq!(sim.counters().requests(), 2);
}

#[test]
fn one_seed_is_one_world() {
    let world = |seed| {
        let sim =
            SimMedium::new(SimOptions { garbage_in_flight: true, ..SimOptions::disk(1 << 20) });
        for index in 0..50 {
            write(&sim, index * 3 % 40, 4, index as u8 + 1);
        }
        sim.power_cut(seed)
    };
    assert!(world(7) == world(7));
    assert!((0..20).any(|seed| world(seed) != world(7)));
}

#[test]
fn fua_is_durable_alone_and_older_writes_cannot_undo_it() {
    let sim = sim();
    write(&sim, 0, 4, 1);
    sim.write_fua(UNIT as u64, &[2; 2 * UNIT]).unwrap();
    let found = outcomes(&sim, 4);
    assert!(found.iter().all(|marks| marks[1..3] == [2, 2]), "{found:?}");
    assert!(found.contains(&vec![0, 2, 2, 0]) && found.contains(&vec![1, 2, 2, 1]));
    // A newer write in flight may overwrite it.
    write(&sim, 1, 1, 3);
    let seen: BTreeSet<u8> = outcomes(&sim, 4).iter().map(|marks| marks[1]).collect();
    assert_eq!(seen, BTreeSet::from([2, 3]));
    assert_eq!(marks(&sim.power_cut_with(Survival::Everything), 4), [1, 3, 2, 1]);
}

#[test]
fn an_armed_cut_takes_the_request_under_way_with_it() {
    let sim = sim();
    write(&sim, 0, 1, 1);
    sim.arm_power_cut(2);
    sim.flush().unwrap();
    sim.read(0, &mut [0; UNIT]).unwrap();
    let error = sim.write(UNIT as u64, &[2; UNIT]).unwrap_err();
    assert_eq!(error.class, ErrorClass::Gone);
    assert!(sim.is_off());
    assert_eq!(sim.flush().unwrap_err().class, ErrorClass::Gone);
    assert_eq!(sim.read(0, &mut [0; UNIT]).unwrap_err().class, ErrorClass::Gone);
    assert_eq!(sim.write(0, &[3; UNIT]).unwrap_err().class, ErrorClass::Gone);
    assert_eq!(sim.in_flight(), 1, "only the write that the cut hit");
    assert_eq!(outcomes(&sim, 2), BTreeSet::from([vec![1, 0], vec![1, 2]]));
    sim.restart(Survival::Flushed);
    sim.write(0, &[4; UNIT]).unwrap();
    assert_eq!(marks(&sim.power_cut_with(Survival::Everything), 2), [4, 0]);
}

#[test]
fn a_flush_that_the_cut_hits_makes_nothing_durable() {
    let sim = sim();
    write(&sim, 0, 1, 1);
    sim.arm_power_cut(0);
    assert_eq!(sim.flush().unwrap_err().class, ErrorClass::Gone);
    assert_eq!(outcomes(&sim, 1).len(), 2);
}

#[test]
fn a_lying_medium_loses_what_it_said_was_durable() {
    let sim = SimMedium::new(SimOptions { ignore_flushes: true, ..SimOptions::disk(1 << 20) });
    write(&sim, 0, 1, 1);
    sim.flush().unwrap();
    sim.write_fua(UNIT as u64, &[2; UNIT]).unwrap();
    assert_eq!(outcomes(&sim, 2).len(), 4);
    sim.ignore_flushes(false);
    sim.flush().unwrap();
    assert_eq!(outcomes(&sim, 2), BTreeSet::from([vec![1, 2]]));
}

#[test]
fn garbage_only_where_writes_were_in_flight() {
    let sim = SimMedium::new(SimOptions { garbage_in_flight: true, ..SimOptions::disk(1 << 20) });
    write(&sim, 0, 8, 1);
    sim.flush().unwrap();
    write(&sim, 2, 3, 2);
    let mut garbage = 0;
    for seed in 0..200 {
        let bytes = sim.power_cut(seed).to_bytes();
        for (index, unit) in bytes[..8 * UNIT].chunks(UNIT).enumerate() {
            let clean = unit.iter().all(|byte| *byte == unit[0] && (1..=2).contains(byte));
            assert!(clean || (2..5).contains(&index), "unit {index}");
            garbage += usize::from(!clean);
        }
    }
    assert!(garbage > 20, "{garbage}");
}

#[test]
fn a_discard_is_in_flight_like_a_write() {
    for (options, after) in [
        (SimOptions::disk(1 << 20), 1),
        (SimOptions::new(1 << 20, 512), 0),
        (SimOptions::emmc(1 << 20), 0xff),
    ] {
        let sim = SimMedium::new(options);
        write(&sim, 0, 4, 1);
        sim.flush().unwrap();
        sim.discard(0, 2 * UNIT as u64).unwrap();
        let seen: BTreeSet<u8> =
            outcomes(&sim, 4).iter().flat_map(|marks| marks[..2].to_vec()).collect();
        assert_eq!(seen, BTreeSet::from([1, after]));
        sim.flush().unwrap();
        assert_eq!(outcomes(&sim, 4), BTreeSet::from([vec![after, after, 1, 1]]));
    }
}

#[test]
fn an_image_starts_a_new_simulator() {
    let first = sim();
    write(&first, 0, 1, 1);
    let image = first.power_cut_with(Survival::Everything);
    let second = SimMedium::on(&image, SimOptions::disk(0));
    assert_eq!(second.geometry(), first.geometry());
    assert_eq!(second.peek(0, 1), [1]);
    assert_eq!(marks(&second.power_cut(3), 1), [1]);
}

#[test]
fn branches_share_their_pages() {
    let sim = SimMedium::new(SimOptions::disk(64 << 20));
    sim.write(0, &vec![1; 64 << 20]).unwrap();
    sim.flush().unwrap();
    // Without sharing this would take 64 GiB.
    let mut branches = Vec::new();
    for index in 0..1000 {
        write(&sim, index, 1, 2);
        branches.push(sim.power_cut(index as u64));
    }
    assert!(branches.iter().all(|branch| branch.resident_bytes() == 64 << 20));
}
