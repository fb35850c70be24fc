//! Faults, records and counters of the simulator.

use std::panic::{AssertUnwindSafe, catch_unwind};

use steadfast_media::sim::{Action, Fault, Outcome, Recording, Survival};
use steadfast_media::{
    ErrorClass, Medium, MediumError, MediumOperation, SimMedium, SimOptions, Temperature,
};

fn sim() -> SimMedium {
    SimMedium::new(SimOptions::disk(64 << 10))
}

/// Shows which of `count` writes fail, one character for each.
fn failing_writes(sim: &SimMedium, count: u64) -> String {
    (0..count)
        .map(|index| if sim.write(index * 512, &[1; 512]).is_ok() { '.' } else { 'x' })
        .collect()
}

#[test]
fn the_nth_request_fails() {
    let sim = sim();
    sim.arm(Fault::new(Action::Fail(ErrorClass::Transient)).after(2));
    assert_eq!(failing_writes(&sim, 5), "..x..");
    sim.arm(Fault::new(Action::Fail(ErrorClass::Transient)).after(1).times(2));
    assert_eq!(failing_writes(&sim, 5), ".xx..");
    sim.arm(Fault::new(Action::Fail(ErrorClass::Permanent)).after(3).forever());
    assert_eq!(failing_writes(&sim, 6), "...xxx");
    sim.disarm();
    assert_eq!(failing_writes(&sim, 2), "..");
}

#[test]
fn faults_count_only_what_they_match() {
    let sim = sim();
    sim.arm(Fault::new(Action::Fail(ErrorClass::Permanent)).on(MediumOperation::Flush).after(1));
    assert_eq!(failing_writes(&sim, 3), "...");
    sim.flush().unwrap();
    sim.read(0, &mut [0; 512]).unwrap();
    let error = sim.flush().unwrap_err();
    assert_eq!((error.operation, error.class), (MediumOperation::Flush, ErrorClass::Permanent));
    sim.flush().unwrap();

    let bad = Fault::new(Action::Fail(ErrorClass::Permanent))
        .on(MediumOperation::Read)
        .within(1024..1025);
    sim.arm(bad.forever());
    sim.read(0, &mut [0; 1024]).unwrap();
    sim.read(1536, &mut [0; 512]).unwrap();
    sim.read(512, &mut [0; 1024]).unwrap_err();
    sim.write(1024, &[1; 512]).unwrap();

    sim.disarm();
    sim.arm(Fault::new(Action::Fail(ErrorClass::Transient)).on(MediumOperation::Discard));
    sim.discard(0, 512).unwrap_err();
    sim.discard(0, 512).unwrap();
}

#[test]
fn a_failed_write_leaves_nothing_or_some_units() {
    let sim = sim();
    sim.arm(Fault::new(Action::Fail(ErrorClass::Permanent)));
    sim.write(0, &[1; 4096]).unwrap_err();
    assert_eq!((sim.peek(0, 4096), sim.in_flight()), (vec![0; 4096], 0));

    let mut partial = 0;
    for _ in 0..50 {
        sim.plant(0, &[0; 4096]);
        sim.arm(Fault::new(Action::FailTorn(ErrorClass::Permanent)));
        sim.write(0, &[1; 4096]).unwrap_err();
        let bytes = sim.peek(0, 4096);
        for unit in bytes.chunks(512) {
            assert!(unit.iter().all(|byte| *byte == unit[0]));
        }
        let arrived = bytes.iter().step_by(512).filter(|byte| **byte == 1).count();
        partial += usize::from((1..8).contains(&arrived));
    }
    assert!(partial > 20, "{partial}");
}

#[test]
fn silent_misbehaviour_is_acknowledged() {
    let sim = sim();
    sim.arm(Fault::new(Action::Lose).on(MediumOperation::Write));
    sim.write(0, &[1; 512]).unwrap();
    assert_eq!(sim.peek(0, 1), [0]);

    sim.arm(Fault::new(Action::Misdirect(8192)).on(MediumOperation::Write));
    sim.write(0, &[2; 512]).unwrap();
    assert_eq!((sim.peek(0, 1), sim.peek(8192, 1)), (vec![0], vec![2]));

    sim.arm(Fault::new(Action::Misdirect(8192)).on(MediumOperation::Read));
    let mut found = [0; 512];
    sim.read(0, &mut found).unwrap();
    assert_eq!(found, [2; 512]);

    // A skipped flush, then a correct one.
    sim.arm(Fault::new(Action::Lose).on(MediumOperation::Flush));
    sim.flush().unwrap();
    assert_eq!(sim.in_flight(), 1);
    sim.flush().unwrap();
    assert_eq!(sim.in_flight(), 0);
}

#[test]
fn rot_is_for_good() {
    let sim = sim();
    sim.write(0, &[0x10; 512]).unwrap();
    sim.flush().unwrap();
    sim.flip_bit(5, 0);
    assert_eq!(sim.peek(4, 3), [0x10, 0x11, 0x10]);
    assert_eq!(sim.power_cut_with(Survival::Flushed).to_bytes()[5], 0x11);
    sim.plant_garbage(100, 50, 1);
    assert_ne!(sim.peek(100, 50), vec![0x10; 50]);
    assert_eq!(sim.peek(150, 1), [0x10]);
    assert_eq!(sim.counters().requests(), 2);
}

#[test]
fn requests_are_recorded_and_counted() {
    let sim =
        SimMedium::new(SimOptions { recording: Recording::Payload, ..SimOptions::disk(64 << 10) });
    sim.write_vectored(512, &[&[1; 512], &[2; 1024]]).unwrap();
    sim.write_fua(0, &[3; 512]).unwrap();
    sim.write_hinted(0, &[&[4; 512]], Temperature::Cold).unwrap();
    sim.flush().unwrap();
    sim.read_vectored(0, &mut [&mut [0; 512], &mut [0; 512]]).unwrap();
    sim.discard(0, 1024).unwrap();
    sim.report_bad(0, 0, 512);

    let counters = sim.counters();
    assert_eq!((counters.writes, counters.fua_writes, counters.bytes_written), (3, 1, 2560));
    assert_eq!((counters.reads, counters.bytes_read, counters.flushes), (1, 1024, 1));
    assert_eq!((counters.discards, counters.bytes_discarded, counters.bad_reports), (1, 1024, 1));
    assert_eq!(counters.requests(), 6);

    let records = sim.take_records();
    let sequences: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4, 5]);
    assert_eq!((records[0].offset, records[0].length, records[0].buffers), (512, 1536, 2));
    assert_eq!(records[0].payload.as_ref().unwrap()[511..513], [1, 2]);
    assert!(records[1].fua && !records[0].fua);
    assert_eq!(records[2].temperature, Some(Temperature::Cold));
    assert_eq!(records[3].operation, MediumOperation::Flush);
    assert!(records.iter().all(|record| record.outcome == Outcome::Done));

    sim.power_off();
    sim.flush().unwrap_err();
    assert_eq!(sim.counters(), counters);
    assert_eq!(sim.records()[0].outcome, Outcome::Failed(ErrorClass::Gone));
}

#[test]
fn a_bad_request_panics() {
    let sim = sim();
    let panics = |request: &dyn Fn() -> Result<(), MediumError>| {
        catch_unwind(AssertUnwindSafe(|| request().is_ok())).is_err()
    };
    assert!(panics(&|| sim.read(1, &mut [0; 512])));
    assert!(panics(&|| sim.write(0, &[0; 100])));
    assert!(panics(&|| sim.write(64 << 10, &[0; 512])));
    assert!(panics(&|| sim.write(u64::MAX - 511, &[0; 512])));
    assert!(panics(&|| sim.write_vectored(0, &[&[0; 100], &[0; 412]])));
    assert!(panics(&|| sim.discard(0, 1)));
    assert!(panics(&|| {
        sim.plant(64 << 10, &[1]);
        Ok(())
    }));
    assert_eq!(sim.counters().requests(), 0);
    sim.write(0, &[0; 512]).unwrap();
}

#[test]
fn requests_from_many_threads() {
    let sim = SimMedium::new(SimOptions::disk(1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let sim = &sim;
            scope.spawn(move || {
                for round in 0..100 {
                    let offset = (u64::from(thread) * 100 + round) * 512;
                    sim.write(offset, &[thread + 1; 512]).unwrap();
                    let _ = sim.power_cut(round);
                }
            });
        }
    });
    for thread in 0..4 {
        assert_eq!(sim.peek(thread * 100 * 512, 51_200), vec![thread as u8 + 1; 51_200]);
    }
}
