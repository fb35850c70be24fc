//! The engine on directories, without privileges: planted faults are found, a stopped run
//! continues, impossible tests are skipped.

use std::path::Path;

use steadfast_lab::result::{RunResult, Status};
use steadfast_lab::run::{self, Effort, Observer, Plan, RunError, StepReport, Stop};
use steadfast_lab::statistics::{Verdict, judge, ratio_paired};
use steadfast_lab::suite;
use steadfast_lab::target::{self, DirectoryTarget, Site, Target};

/// Counts steps, and stops the run at one of them.
struct Watcher {
    stop: Stop,
    stop_at: usize,
    steps: usize,
    messages: Vec<String>,
}

impl Observer for Watcher {
    fn step(&mut self, _: &StepReport) {
        self.steps += 1;
        if self.steps == self.stop_at {
            self.stop.set();
        }
    }

    fn message(&mut self, text: &str) {
        self.messages.push(text.to_owned());
    }
}

fn plan(base: &Path, words: &str, names: &[&str], rounds: u32) -> Plan {
    let site = Site {
        scratch: base.to_owned(),
        device: None,
        volume_size: 64 << 20,
        program: "steadfast".into(),
        lab: "steadfast-lab".into(),
    };
    let named = |name: &&str| match *name {
        "dir" => Box::new(DirectoryTarget::new(base)) as Box<dyn Target>,
        name => target::by_name(name, &site).expect("known"),
    };
    Plan {
        suites: vec![suite::iozone(words).expect("words")],
        targets: names.iter().map(named).collect(),
        peer: None,
        rounds,
        seed: 1,
        effort: Effort::Quick,
        program: "steadfast-lab".into(),
        backing: base.to_owned(),
        result: base.join("result.json"),
        resume: false,
    }
}

fn run_to_end(plan: Plan) -> (RunResult, Watcher) {
    let mut watcher = Watcher { stop: Stop::new(), stop_at: 0, steps: 0, messages: Vec::new() };
    let stop = watcher.stop.clone();
    (run::run(plan, &mut watcher, &stop).expect("a result"), watcher)
}

#[test]
fn a_slow_target_is_seen_as_slower() {
    let base = tempfile::tempdir().expect("a directory");
    let (result, _) =
        run_to_end(plan(base.path(), "-s 64k -r 4k -i 0 -i 1 -i 2", &["dir", "planted-slow"], 5));
    assert!(result.progress.complete);
    for test in &result.suites[0].tests {
        let [ours, slow] = &test.measurements[..] else {
            panic!("{}: {:?}", test.id, test.measurements)
        };
        assert_eq!((&ours.status, &slow.status), (&Status::Ok, &Status::Ok), "{}", test.id);
        assert_eq!(slow.samples.len(), 5);
        let ratio = ratio_paired(slow, ours).expect("a ratio");
        // A read of 4 KiB takes a microsecond, the planted delay 200 more; the noise of the machine
        // is far smaller.
        assert!(ratio.value < 0.5, "{}: {ratio:?}", test.id);
        if test.name.contains("read") {
            assert_eq!(judge(&ratio, test.better, 0.1), Verdict::Worse, "{}: {ratio:?}", test.id);
            assert_eq!(slow.verification.bytes, 5 * 65536);
        }
        assert_eq!(slow.latency.as_ref().expect("times").count, 5 * 16);
    }
}

#[test]
fn a_corrupting_target_fails_the_run() {
    let base = tempfile::tempdir().expect("a directory");
    let (result, watcher) =
        run_to_end(plan(base.path(), "-s 128k -r 16k", &["dir", "planted-corrupting"], 1));
    let reading = |test: &&steadfast_lab::result::Test| test.name.contains("read");
    let first = result.suites[0].tests.iter().find(reading).expect("a read");
    assert_eq!(first.measurements[0].status, Status::Ok);
    let Status::Failed { reason } = &first.measurements[1].status else {
        panic!("{:?}", first.measurements[1])
    };
    assert!(reason.contains("wrong byte at offset 32768"), "{reason}");
    assert!(first.measurements[1].samples.is_empty());
    assert!(watcher.messages.iter().any(|text| text.contains("FAILED")), "{:?}", watcher.messages);
}

#[test]
fn every_way_of_access_works_and_what_does_not_is_skipped() {
    let base = tempfile::tempdir().expect("a directory");
    for way in ["-B", "-I", "-o", "-ce", "-+w 50"] {
        let words = format!("-s 64k -r 4k -r 64k {way}");
        let (result, watcher) = run_to_end(plan(base.path(), &words, &["dir"], 1));
        for test in &result.suites[0].tests {
            match &test.measurements[0].status {
                Status::Failed { reason } => panic!("{way} {}: {reason}", test.id),
                // The backing directory may lack O_DIRECT, as tmpfs once did; and streams have only
                // one way of access.
                Status::Skipped { reason } => {
                    assert!(way == "-I" || reason.contains("streams"), "{way}: {reason}")
                }
                Status::Ok => assert_eq!(test.measurements[0].samples.len(), 1),
            }
        }
        assert!(
            !watcher.messages.iter().any(|text| text.contains("FAILED")),
            "{way}: {:?}",
            watcher.messages
        );
    }
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let base = tempfile::tempdir().expect("a directory");
    let make = || plan(base.path(), "-n 64k -g 256k -r 16k -i 0 -i 1", &["dir", "planted-slow"], 2);
    let mut watcher = Watcher { stop: Stop::new(), stop_at: 6, steps: 0, messages: Vec::new() };
    let stop = watcher.stop.clone();
    let stopped = run::run(make(), &mut watcher, &stop).expect("a result");
    assert!(!stopped.progress.complete);
    assert_eq!((stopped.progress.steps, stopped.progress.done.len()), (12, 5));
    let (result, watcher) = run_to_end(Plan { resume: true, ..make() });
    assert_eq!((watcher.steps, result.progress.resumed, result.progress.done.len()), (7, 1, 12));
    for measurement in result.suites[0].tests.iter().flat_map(|test| &test.measurements) {
        let rounds: Vec<u32> = measurement.samples.iter().map(|sample| sample.round).collect();
        assert_eq!(rounds, [0, 1], "{measurement:?}");
    }
    let other = Plan { resume: true, seed: 2, ..make() };
    let refused = run::run(other, &mut Watcher { steps: 0, ..watcher }, &Stop::new());
    assert!(matches!(refused, Err(RunError::OtherRun(_))), "{refused:?}");
}

#[test]
fn nothing_is_left_behind() {
    let base = tempfile::tempdir().expect("a directory");
    run_to_end(plan(base.path(), "-s 64k -r 4k -i 0", &["dir"], 1));
    let left: Vec<_> = std::fs::read_dir(base.path())
        .expect("listed")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["result.json"]);
}

#[test]
fn every_workload_runs_on_a_directory_and_what_it_cannot_do_is_skipped() {
    use steadfast_lab::workload::{
        Workload,
        durability::Durability,
        fileops::FileOperations,
        general::General,
        lat_fs::LatFs,
        mount::{Condition, Mount},
    };
    let base = tempfile::tempdir().expect("a directory");
    let mut plan = plan(base.path(), "-s 64k -r 4k -i 0", &["dir"], 1);
    let workloads: Vec<Box<dyn Workload>> = vec![
        Box::new(FileOperations { force: 3, file_bytes: 4096 }),
        Box::new(LatFs { files: 40, file_bytes: 2048 }),
        Box::new(Durability { record_sizes: vec![512, 4096], count: 4 }),
        Box::new(General { operations: 3000, files: 60 }),
        Box::new(Mount { condition: Condition::Empty, times: 1 }),
    ];
    plan.suites[0].workloads = workloads;
    let (result, watcher) = run_to_end(plan);
    assert!(!watcher.messages.iter().any(|text| text.contains("FAILED")), "{:?}", watcher.messages);
    for test in &result.suites[0].tests {
        let measurement = &test.measurements[0];
        match test.workload.as_str() {
            "mount" => assert!(matches!(measurement.status, Status::Skipped { .. }), "{}", test.id),
            _ => {
                assert_eq!(
                    (&measurement.status, measurement.samples.len()),
                    (&Status::Ok, 1),
                    "{}",
                    test.id
                )
            }
        }
    }
    let operations =
        result.suites[0].tests.iter().find(|test| test.workload == "general").expect("the test");
    let found = &operations.measurements[0];
    assert!(
        found.samples[0].operations >= 3000
            && found.verification.bytes > 100_000
            && found.verification.items > 100
    );
    let count = |name: &str| {
        let test = result.suites[0]
            .tests
            .iter()
            .find(|test| test.workload == "fileops" && test.name == name);
        test.and_then(|test| test.measurements[0].latency.as_ref()).map(|latency| latency.count)
    };
    assert_eq!(
        [count("mkdir"), count("create"), count("readdir"), count("unlink")],
        [Some(12), Some(27), Some(9), Some(27)]
    );
}
