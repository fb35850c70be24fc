//! The device mode of `steadfast torture`, on a medium whose power can really be cut: the lab's
//! tape.

use steadfast_media::Medium;
use steadfast_torture::cut::{Cutter, Survival};
use steadfast_torture::image::Image;
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::platform::LabPlatform;
use steadfast_torture::random::Random;
use steadfast_torture::tape::{Lie, Tape};
use steadfast_torture::torture::device::layout::Layout;
use steadfast_torture::torture::device::verify::{BrokenPromise, DeviceVerdict, verify};
use steadfast_torture::torture::device::witness::{Line, Witness};
use steadfast_torture::torture::device::writer::{prepare, write};

const SIZE: u64 = 24 << 20;
const UNIT: u32 = 512;

fn prepared(seed: u64) -> (Image, Layout) {
    let tape = Tape::new(Image::new(SIZE), UNIT, Lie::None);
    let layout = prepare(&tape, &LabPlatform::default(), [seed as u8; 16], seed).expect("prepared");
    (tape.image(), layout)
}

/// Runs some transactions. Returns the tape and the lines for the witness, each with the place on
/// the tape from which it is true.
fn run(image: &Image, transactions: u64, lie: Lie) -> (Tape, Vec<(usize, Line)>) {
    let tape = Tape::new(image.clone(), UNIT, lie);
    let mut heard = Vec::new();
    let first = std::cell::Cell::new(None);
    let last = write(&tape, &LabPlatform::default(), &mut |line| {
        heard.push((tape.position(), line));
        Ok(match line {
            Line::Committed(number) => {
                let first = first.get().unwrap_or(number);
                number < first + transactions - 1
            }
            Line::Flushed(number) => {
                first.set(first.get().or(Some(number)));
                true
            }
            Line::Run(_) => true,
        })
    });
    last.expect("transactions");
    (tape, heard)
}

fn witness(heard: &[(usize, Line)], cut: usize) -> Witness {
    let mut witness = Witness::default();
    heard.iter().filter(|(from, _)| *from <= cut).for_each(|(_, line)| witness.hear(*line));
    witness
}

fn judge(image: Image, witness: &Witness) -> DeviceVerdict {
    verify(&Tape::new(image, UNIT, Lie::None), &LabPlatform::default(), witness).expect("a verdict")
}

#[test]
fn on_an_honest_medium_nothing_is_missing_after_any_cut_and_the_run_goes_on() {
    let (mut image, _) = prepared(1);
    let mut random = Random::new(1);
    let (mut mixed, mut ahead) = (0, 0);
    for _ in 0..3 {
        let (tape, heard) = run(&image, 12, Lie::None);
        let events = tape.events();
        let mut cuts: Vec<usize> = (0..25).map(|_| random.index(events.len() + 1)).collect();
        cuts.sort_unstable();
        let mut cutter = Cutter::new(image.clone(), &events, UNIT);
        let mut left = image.clone();
        for cut in cuts {
            cutter.advance(cut);
            let witness = witness(&heard, cut);
            for survival in [
                Survival::All,
                Survival::Nothing,
                Survival::random(&mut random, &MediumProfile::SECTOR),
            ] {
                left = cutter.image(survival);
                let verdict = judge(left.clone(), &witness);
                assert_eq!(
                    verdict.faults,
                    [],
                    "cut at {cut} of {}, {survival:?}, {witness:?}",
                    events.len()
                );
                mixed += verdict.records_mixed;
                ahead += u64::from(verdict.found > Some(witness.committed));
            }
        }
        image = left;
    }
    assert!(mixed > 0 && ahead > 0, "the cuts hit nothing in flight: {mixed}, {ahead}");
}

#[test]
fn a_medium_that_lies_about_flushes_is_told_from_a_file_system_that_loses() {
    let (image, _) = prepared(2);
    let (tape, heard) = run(&image, 10, Lie::Flush);
    let events = tape.events();
    let mut cutter = Cutter::new(image, &events, UNIT);
    cutter.advance(events.len());
    let witness = witness(&heard, events.len());
    let verdict = judge(cutter.image(Survival::Nothing), &witness);
    assert!(verdict.faults.contains(&BrokenPromise::FlushLost { number: 10 }), "{verdict:?}");
    assert!(
        verdict.faults.contains(&BrokenPromise::TransactionLost { found: 0, committed: 10 }),
        "{verdict:?}"
    );
    assert!(verdict.blame().is_some_and(|text| text.starts_with("the medium")));
    // By chance everything was written: no fault is visible, and none is claimed.
    assert_eq!(judge(cutter.image(Survival::All), &witness).faults, []);
}

#[test]
fn a_lost_transaction_with_every_raw_record_there_is_the_file_systems() {
    let (image, layout) = prepared(3);
    let (tape, heard) = run(&image, 8, Lie::None);
    let mut old = vec![0; layout.volume_size as usize];
    image.read(0, &mut old);
    let mut mixed = tape.image();
    mixed.write(0, &old);
    let verdict = judge(mixed, &witness(&heard, usize::MAX));
    assert_eq!(verdict.faults, [BrokenPromise::TransactionLost { found: 0, committed: 8 }]);
    assert!(verdict.blame().is_some_and(|text| text.contains("in Steadfast")));
}

#[test]
fn a_unit_that_is_neither_old_nor_new_is_the_mediums() {
    let (image, layout) = prepared(4);
    let (tape, heard) = run(&image, 5, Lie::None);
    let mut image = tape.image();
    let torn = layout.record_offset(5) + 2 * u64::from(UNIT);
    image.write(torn + 100, &[0xee; 100]);
    let verdict = judge(image, &witness(&heard, usize::MAX));
    assert_eq!(verdict.faults, [BrokenPromise::UnitTorn { offset: torn }]);
    assert!(verdict.blame().is_some_and(|text| text.starts_with("the medium")));
}

#[test]
fn damage_in_the_volume_and_a_witness_of_another_run_are_seen() {
    let (image, layout) = prepared(5);
    let (tape, heard) = run(&image, 5, Lie::None);
    let witness = witness(&heard, usize::MAX);
    let mut damaged = tape.image();
    // Destroys the superblocks at both ends.
    damaged.write(0, &[0; 65_536]);
    damaged.write(layout.volume_size - 65_536, &[0; 65_536]);
    let verdict = judge(damaged, &witness);
    assert!(matches!(verdict.faults.as_slice(), [BrokenPromise::Volume(_)]), "{verdict:?}");

    let other = Witness { run: Some([99; 16]), ..witness };
    let medium = Tape::new(tape.image(), UNIT, Lie::None);
    assert!(verify(&medium, &LabPlatform::default(), &other).is_err());
    assert!(
        verify(&Tape::new(Image::new(SIZE), UNIT, Lie::None), &LabPlatform::default(), &witness)
            .is_err()
    );
    assert_eq!(medium.geometry().size, SIZE);
}
