//! `steadfast lab` on real volumes: small, once, within seconds. The tests need root and loop
//! devices, and print a message if these are missing.

mod programs;

use std::path::Path;
use std::process::Command;

use steadfast_lab::result::{self, Status, Test};
use steadfast_lab::run::{self, Effort, Observer, Plan, PlannedSuite, StepReport, Stop};
use steadfast_lab::target::{self, Site};
use steadfast_lab::workload::Workload;
use steadfast_lab::workload::ageing::Ageing;
use steadfast_lab::workload::atomic::AtomicUpdate;
use steadfast_lab::workload::cost::Cost;
use steadfast_lab::workload::crosscheck::AgainstFio;
use steadfast_lab::workload::durability::Durability;
use steadfast_lab::workload::fileops::FileOperations;
use steadfast_lab::workload::general::General;
use steadfast_lab::workload::iozone::Iozone;
use steadfast_lab::workload::lat_fs::LatFs;
use steadfast_lab::workload::limited::Limited;
use steadfast_lab::workload::mount::{Condition, Mount};
use steadfast_lab::workload::sqlite::Sqlite;

/// Prints the messages of a run.
struct Printer;

impl Observer for Printer {
    fn step(&mut self, _: &StepReport) {}
    fn message(&mut self, text: &str) {
        println!("{text}");
    }
}

/// Whether volumes can be made here.
fn can_make_volumes() -> bool {
    let can = rustix::process::geteuid().is_root()
        && Path::new("/dev/loop-control").exists()
        && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root, /dev/loop-control and /dev/fuse");
    }
    can
}

/// Loop devices and mounts that belong to a directory.
fn left_behind(directory: &Path) -> String {
    let losetup = Command::new("losetup").arg("--all").output().expect("losetup");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let text = String::from_utf8_lossy(&losetup.stdout).into_owned() + &mounts;
    let name = directory.display().to_string();
    text.lines().filter(|line| line.contains(&name)).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_workload_on_every_file_system_that_is_here() {
    if !can_make_volumes() {
        return;
    }
    programs::built();
    // The directory is on a disk, because tmpfs does not offer direct I/O for loop devices on all
    // kernels.
    let base = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let site = Site {
        scratch: base.path().to_owned(),
        device: None,
        volume_size: 48 << 20,
        program: programs::STEADFAST.into(),
        lab: programs::LAB.into(),
    };
    let names = ["steadfast", "steadfast-lib", "null", "ext4", "xfs", "fat", "fat-on-steadfast"];
    let mut workloads: Vec<Box<dyn Workload>> = vec![
        Box::new(FileOperations { force: 2, file_bytes: 4096 }),
        Box::new(LatFs { files: 30, file_bytes: 2048 }),
        Box::new(Durability { record_sizes: vec![4096], count: 5 }),
        Box::new(General { operations: 400, files: 40 }),
        Box::new(Sqlite { transactions: 3 }),
        Box::new(AtomicUpdate { files: 5, file_bytes: 4096, updates: 2 }),
        Box::new(Cost { file_size: 1 << 20, operations: 10 }),
        Box::new(Ageing { operations: 5, file_size: 1 << 20, churn: 5 }),
        Box::new(AgainstFio { file_size: 8 << 20, operations: 5 }),
        Box::new(Mount { condition: Condition::AfterPowerCut, times: 1 }),
        Box::new(Mount { condition: Condition::Full, times: 1 }),
    ];
    // Emptying the caches takes long on a busy machine, so only the cases that test it use it.
    for words in [
        "-s 256k -r 4k -r 64k -e",
        "-s 64k -r 64k -i 1 -e -U",
        "-T -t 2 -s 128k -r 16k -e",
        "-t 2 -s 128k -r 16k -e",
    ] {
        for iozone in Iozone::parse(words).expect("words") {
            workloads.push(Box::new(iozone));
        }
    }
    for inner in Iozone::parse("-s 128k -r 64k -i 0 -i 1").expect("words") {
        workloads.push(Box::new(Limited { inner, bytes: 96 << 20 }));
    }
    let plan = Plan {
        suites: vec![PlannedSuite {
            id: "smoke".into(),
            title: "smoke".into(),
            answers: String::new(),
            missing: Vec::new(),
            workloads,
        }],
        targets: names.iter().map(|name| target::by_name(name, &site).expect("known")).collect(),
        peer: None,
        rounds: 1,
        seed: 1,
        effort: Effort::Quick,
        program: programs::LAB.into(),
        backing: base.path().to_owned(),
        result: base.path().join("result.json"),
        resume: false,
    };
    let result = run::run(plan, &mut Printer, &Stop::new()).expect("a result");
    assert!(result.progress.complete);
    // 48 MiB are too little for XFS: it is skipped with a reason, and the run continues.
    let Some(Status::Skipped { reason }) = result.target("xfs").map(|target| &target.status) else {
        panic!("{:?}", result.target("xfs"))
    };
    assert!(reason.contains("xfs"), "{reason}");
    for id in ["steadfast", "steadfast-lib", "null", "ext4", "fat", "fat-on-steadfast"] {
        let target = result.target(id).expect("the target");
        if let Status::Skipped { reason } = &target.status {
            // mkfs.ext4 may be missing; the other targets are always available.
            assert!(id == "ext4", "{id}: {reason}");
            println!("skipped {id}: {reason}");
            continue;
        }
        for test in &result.suites[0].tests {
            check(test, id);
        }
    }
    assert_eq!(left_behind(base.path()), "");
}

/// Checks one test on one target: it has a value, or a valid reason for having none.
fn check(test: &Test, id: &str) {
    let measurement = test.measurement(id).unwrap_or_else(|| panic!("{id} has no {}", test.id));
    let place = format!("{id} {}", test.id);
    match &measurement.status {
        Status::Ok => assert_eq!(measurement.samples.len(), 1, "{place}"),
        Status::Skipped { reason } => assert!(may_be_skipped(test, id), "{place}: {reason}"),
        Status::Failed { reason } => panic!("{place}: {reason}"),
    }
    if measurement.status != Status::Ok {
        return;
    }
    if test.name == "write" && test.workload == "iozone" && !id.starts_with("fat") && id != "null" {
        let medium = measurement.medium.expect("counted");
        let crew = test.number("threads").or_else(|| test.number("processes")).unwrap_or(1);
        let asked = test.number("file_size").expect("a size") * crew;
        assert!(
            medium.bytes_asked == asked && medium.bytes_written >= asked,
            "{place}: {medium:?}"
        );
    }
    if test.workload == "cpu" {
        let cpu = measurement.cpu.as_ref().expect("counted");
        assert!(cpu.total() > 0.0 && cpu.elapsed > 0.0, "{place}: {cpu:?}");
        assert_eq!(cpu.daemon > 0.0, id == "steadfast" || id == "null", "{place}: {cpu:?}");
    }
    if test.workload == "check" {
        let check = measurement.cross_check.as_ref().expect("fio");
        assert!(check.values.len() == 1 && check.values[0] > 0.0, "{place}: {check:?}");
    }
    if test.number("memory_limit").is_some() && id == "steadfast" {
        let memory = measurement.memory.expect("counted");
        assert_eq!(memory.limit, test.number("memory_limit"), "{place}");
        assert!(memory.resident_most <= 96 << 20, "{place}: {memory:?}");
    }
}

/// What may be missing on a target or on this machine.
fn may_be_skipped(test: &Test, id: &str) -> bool {
    let library = id == "steadfast-lib" || id.starts_with("fat");
    let fio = Command::new("fio").arg("--version").output().is_ok();
    match test.workload.as_str() {
        // `null` loses its contents when it is unmounted, and has no device.
        "mount" | "ageing" if id == "null" => true,
        // Only the first write after a mount may be skipped.
        "mount" => test.name == "first-write",
        "sqlite" => library,
        "check" => library || !fio,
        "fileops" => id.starts_with("fat"),
        // A container may be forbidden to make control groups.
        "iozone" if test.number("memory_limit").is_some() => true,
        "iozone" if test.number("processes").is_some() => library,
        "iozone" => id.starts_with("fat") && test.number("threads").is_some(),
        _ => false,
    }
}

#[test]
fn the_command_writes_result_and_report_and_shows_them() {
    let base = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let out = base.path().join("out");
    let backing = base.path().to_str().expect("UTF-8");
    programs::built();
    let run = |words: &[&str]| {
        let output =
            Command::new(programs::STEADFAST).arg("lab").args(words).output().expect("runs");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let place = out.to_str().expect("UTF-8");
    let words = [
        "run",
        "--iozone",
        "-s 64k -r 4k -i 0 -i 1",
        "--dir",
        backing,
        "--backing",
        backing,
        "--rounds",
        "2",
        "--out",
        place,
    ];
    let (code, text) = run(&words);
    assert_eq!(code, Some(0), "{text}");
    assert!(out.join("index.html").is_file() && out.join("result.json").is_file(), "{text}");
    let result = result::read(&out.join("result.json")).expect("a result");
    assert_eq!(result.suites[0].tests.len(), 4);
    for words in
        [vec!["show", place], vec!["show", "--iozone", place], vec!["compare", place, place]]
    {
        let (code, text) = run(&words);
        assert_eq!(code, Some(0), "{words:?}: {text}");
    }
    for (words, wanted) in [
        (vec!["run", "--suite", "b9", "--dir", backing, "--out", place], "no suite 'b9'"),
        (vec!["run", "--suite", "b1", "--on", "zfs", "--out", place], "no target 'zfs'"),
        (vec!["run", "--suite", "b1", "--out", place], "nothing to measure"),
        (vec!["run", "--iozone", "-x", "--dir", backing, "--out", place], "-x"),
        (vec!["show", "/no/such/file"], "/no/such/file"),
    ] {
        let (code, text) = run(&words);
        assert_ne!(code, Some(0), "{words:?}");
        assert!(text.contains(wanted) && text.trim_end().lines().count() == 1, "{words:?}: {text}");
    }
}
