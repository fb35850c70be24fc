//! Comparisons of two runs: a planted change is found, noise is not reported, and incomparable runs
//! are refused.

mod sample;

use sample::*;
use steadfast_lab::compare::{self, CompareError};
use steadfast_lab::report::terminal::Style;
use steadfast_lab::result::*;
use steadfast_lab::statistics::Verdict;

const STYLE: Style = Style { width: 160, colour: false };

/// Two targets, three tests of writing and one of time. `speed` affects the first target, `machine`
/// affects both.
fn run(seed: u64, speed: f64, machine: f64) -> RunResult {
    let targets =
        vec![target("steadfast", "S", Access::Fuse), target("ext4", "ext4", Access::Kernel)];
    let mut run = empty(targets, Some("ext4"));
    let mut noise = Chance::new(seed);
    let mut tests = Vec::new();
    for record in [4096, 65_536, 1 << 20] {
        let ours = rounds(&mut noise, 1e8 * speed * machine, 0.02);
        let theirs = rounds(&mut noise, 2e8 * machine, 0.02);
        tests.push(test(
            "iozone",
            "write",
            &[("record_size", Parameter::Number(record))],
            Unit::BytesPerSecond,
            Better::Higher,
            vec![measurement("steadfast", &ours), measurement("ext4", &theirs)],
        ));
    }
    let ours = rounds(&mut noise, 0.01 / speed / machine, 0.02);
    let theirs = rounds(&mut noise, 0.01 / machine, 0.02);
    let measurements = vec![measurement("steadfast", &ours), measurement("ext4", &theirs)];
    tests.push(test("mount", "mount", &[], Unit::Seconds, Better::Lower, measurements));
    run.suites.push(suite("b1", "title", tests));
    run
}

#[test]
fn a_planted_slowdown_is_seen_on_that_target_only() {
    let found = compare::compare(&run(1, 1.0, 1.0), &run(2, 0.7, 1.0)).unwrap();
    assert_eq!(found.changes.len(), 8);
    for change in &found.changes {
        let expected =
            if change.target == "steadfast" { Verdict::Worse } else { Verdict::WithinNoise };
        assert_eq!(change.change.verdict, expected, "{change:?}");
        if change.target == "steadfast" {
            assert!(
                (change.change.factor - 0.7).abs() < 0.05,
                "times too, although less is better: {change:?}"
            );
        }
    }
    let text = compare::print(&found, false, STYLE);
    assert!(text.contains("▲ 0 better, ▼ 4 worse, 4 within the noise"), "{text}");
    assert!(text.contains("mount") && text.contains("b1: write, record 64 KiB"), "{text}");
}

#[test]
fn noise_is_no_change() {
    for seed in 1..20 {
        let found = compare::compare(&run(seed, 1.0, 1.0), &run(seed + 100, 1.0, 1.0)).unwrap();
        assert_eq!(found.count(Verdict::Better) + found.count(Verdict::Worse), 0, "seed {seed}");
        assert!(
            compare::print(&found, false, STYLE).contains("Nothing changed by more than noise")
        );
    }
}

#[test]
fn a_slower_machine_is_told_from_a_slower_file_system() {
    let found = compare::compare(&run(1, 1.0, 1.0), &run(2, 1.0, 0.5)).unwrap();
    assert_eq!(found.count(Verdict::Worse), 8, "everything takes twice as long");
    for change in found.changes.iter().filter(|change| change.target == "steadfast") {
        let beside = change.beside_peer.expect("both have ext4");
        assert_eq!(beside.verdict, Verdict::WithinNoise, "{change:?}");
    }
    assert!(
        found.changes.iter().all(|change| change.target != "ext4" || change.beside_peer.is_none())
    );
}

#[test]
fn one_round_says_nothing() {
    let (mut before, mut after) = (run(1, 1.0, 1.0), run(2, 0.1, 1.0));
    for run in [&mut before, &mut after] {
        for measurement in
            run.suites.iter_mut().flat_map(|s| &mut s.tests).flat_map(|t| &mut t.measurements)
        {
            measurement.samples.truncate(1);
        }
    }
    let found = compare::compare(&before, &after).unwrap();
    assert_eq!(found.count(Verdict::Unknown), 8);
}

#[test]
fn what_has_nothing_in_common_is_refused_in_one_line() {
    let mut other = run(1, 1.0, 1.0);
    other.suites[0].id = "b5".into();
    let error = compare::compare(&run(1, 1.0, 1.0), &other).unwrap_err();
    assert!(matches!(error, CompareError::NothingInCommon { .. }));
    assert_eq!(
        error.to_string(),
        "no test in common: the first has b1 on steadfast, ext4, the second b5 on steadfast, ext4"
    );
    assert!(compare::compare(&empty(Vec::new(), None), &other).is_err());
}

#[test]
fn circumstances_and_missing_tests_are_named() {
    let mut after = run(2, 1.0, 1.0);
    after.provenance.kernel = "Linux 7.0".into();
    after.targets[1].mount_options = "rw,data=journal".into();
    after.suites[0].tests.pop();
    let found = compare::compare(&run(1, 1.0, 1.0), &after).unwrap();
    let text = compare::print(&found, true, STYLE);
    assert!(
        text.contains("differs: kernel: Linux 6.12.0 x86_64 before, Linux 7.0 after"),
        "{text}"
    );
    assert!(text.contains("differs: ext4: other mount options"), "{text}");
    assert!(text.contains("2 measurements in the first run only."), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["changes"][0]["verdict"], "within-noise");
    assert_eq!(json["only_before"].as_array().unwrap().len(), 2);
}

#[test]
fn hostile_values_are_left_out_or_said() {
    let mut after = run(2, 1.0, 1.0);
    for (index, value) in [f64::NAN, 0.0, -1.0].into_iter().enumerate() {
        for sample in &mut after.suites[0].tests[index].measurements[0].samples {
            sample.value = value;
        }
    }
    let found = compare::compare(&run(1, 1.0, 1.0), &after).unwrap();
    assert_eq!(found.changes.iter().filter(|change| change.target == "steadfast").count(), 1);
    assert!(!compare::print(&found, true, STYLE).contains("NaN"));
}
