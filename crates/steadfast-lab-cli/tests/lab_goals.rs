//! The suite `goals`, small, on the targets that it covers. The tests need root and loop devices,
//! and print a message if these are missing. File systems that this machine does not have are left
//! out.

mod programs;

use std::path::Path;
use std::process::Command;

use steadfast_lab::result::{RunResult, Status};
use steadfast_lab::run::{self, Effort, Observer, Plan, PlannedSuite, StepReport, Stop};
use steadfast_lab::target::{self, Site};
use steadfast_lab::workload::Workload;
use steadfast_lab::workload::direct::DirectReads;
use steadfast_lab::workload::general::General;
use steadfast_lab::workload::growth::Growth;
use steadfast_lab::workload::iozone::Iozone;
use steadfast_lab::workload::metadata::Metadata;
use steadfast_lab::workload::opening::Opening;
use steadfast_lab::workload::overwrite::{DurableWrites, WritePosition};
use steadfast_lab::workload::purpose::Purposeful;

/// Prints the messages of a run.
struct Printer;

impl Observer for Printer {
    fn step(&mut self, _: &StepReport) {}
    fn message(&mut self, text: &str) {
        println!("{text}");
    }
}

/// Loop devices and mounts that belong to a directory.
fn left_behind(directory: &Path) -> String {
    let losetup = Command::new("losetup").arg("--all").output().expect("losetup");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let text = String::from_utf8_lossy(&losetup.stdout).into_owned() + &mounts;
    let name = directory.display().to_string();
    text.lines().filter(|line| line.contains(&name)).collect::<Vec<_>>().join("\n")
}

fn measure(base: &Path, names: &[&str], workloads: Vec<Box<dyn Workload>>) -> RunResult {
    programs::built();
    let site = Site {
        scratch: base.to_owned(),
        device: None,
        volume_size: 112 << 20,
        program: programs::STEADFAST.into(),
        lab: programs::LAB.into(),
    };
    let suite = PlannedSuite {
        id: "smoke".into(),
        title: "smoke".into(),
        answers: String::new(),
        missing: Vec::new(),
        workloads,
    };
    let plan = Plan {
        suites: vec![suite],
        targets: names.iter().map(|name| target::by_name(name, &site).expect("known")).collect(),
        peer: None,
        rounds: 1,
        seed: 1,
        effort: Effort::Quick,
        program: programs::LAB.into(),
        backing: base.to_owned(),
        result: base.join("result.json"),
        resume: false,
    };
    let result = run::run(plan, &mut Printer, &Stop::new()).expect("a result");
    assert!(result.progress.complete);
    assert_eq!(left_behind(base), "");
    result
}

#[test]
fn the_work_of_the_goals_on_the_targets_of_the_goals() {
    let can = rustix::process::geteuid().is_root()
        && Path::new("/dev/loop-control").exists()
        && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root, /dev/loop-control and /dev/fuse");
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").expect("a directory");
    const ALL: &[&str] = &[
        "steadfast",
        "steadfast-manual",
        "steadfast-lib",
        "null",
        "ext4",
        "btrfs",
        "bindfs",
        "gocryptfs",
    ];
    const OURS: &[&str] = &["steadfast", "steadfast-lib", "null"];
    const OPENING: &[&str] = &["steadfast-lib", "ext4", "btrfs"];
    let mut workloads: Vec<Box<dyn Workload>> = Vec::new();
    let mut add = |targets, inner: Box<dyn Workload>| {
        workloads.push(Box::new(Purposeful { inner, purpose: "smoke", targets }));
    };
    add(ALL, Box::new(Metadata { clients: 2, files: 20 }));
    let writes = DurableWrites {
        position: WritePosition::Inside,
        threads: 2,
        file_size: 1 << 20,
        operations: 4,
    };
    add(OURS, Box::new(writes));
    add(OURS, Box::new(DurableWrites { position: WritePosition::End, threads: 1, ..writes }));
    add(OURS, Box::new(DirectReads { depth: 4, file_size: 1 << 20, operations: 10 }));
    add(OURS, Box::new(Growth { files: (20, 60), file_size: (1 << 20, 2 << 20), operations: 10 }));
    add(&["null"], Box::new(General { operations: 400, files: 40 }));
    for inner in Iozone::parse("-s 1m -r 64k -e -U").expect("words") {
        add(&["null"], Box::new(inner));
    }
    let opening = Opening { volume_size: None, files: 10, full: false };
    add(OPENING, Box::new(opening));
    add(&["steadfast-lib", "ext4"], Box::new(Opening { volume_size: Some(1 << 40), ..opening }));
    add(&["steadfast-lib", "ext4"], Box::new(Opening { files: 0, full: true, ..opening }));
    let result = measure(base.path(), ALL, workloads);
    for target in &result.targets {
        if let Status::Skipped { reason } = &target.status {
            assert!(
                !target.id.starts_with("steadfast") && target.id != "null",
                "{}: {reason}",
                target.id
            );
            println!("skipped {}: {reason}", target.id);
        }
    }
    let mut count = 0;
    for test in &result.suites[0].tests {
        for found in &test.measurements {
            let place = format!("{} {}", found.target, test.id);
            match &found.status {
                Status::Ok => assert_eq!(found.samples.len(), 1, "{place}"),
                Status::Failed { reason } => panic!("{place}: {reason}"),
                // A library has no O_DIRECT, and a container may be forbidden to drop the caches of
                // names.
                Status::Skipped { reason } => assert!(
                    (test.workload == "direct-reads" && found.target == "steadfast-lib")
                        || reason.contains("caches"),
                    "{place}: {reason}"
                ),
            }
            count += usize::from(found.status == Status::Ok);
        }
    }
    assert!(count > 50, "{count}");
}
