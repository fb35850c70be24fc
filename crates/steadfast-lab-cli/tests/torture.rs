//! `steadfast torture` as users and scripts call it.

#[path = "../../steadfast-cli/tests/common/mod.rs"]
mod common;
mod programs;

use common::{Scratch, failed, succeeded};
use serde_json::Value;

fn scratch() -> Scratch {
    programs::built();
    Scratch::new()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_campaign_counts_its_cuts_and_finds_nothing() {
    let scratch = scratch();
    let output = scratch.line("torture --cuts 100 --seed 1 --json --report report.html");
    let report = json(&succeeded(&output, "torture"));
    assert!(report["cuts"].as_u64() >= Some(100), "{report}");
    assert_eq!((&report["violations"], &report["first_seed"]), (&0.into(), &1.into()), "{report}");
    assert!(report["seeds"].as_u64() >= Some(1) && report["seconds"].is_f64(), "{report}");
    assert!(
        report["cuts_per_second"].as_f64() > Some(0.0) && report["version"].is_string(),
        "{report}"
    );
    // There is no progress bar without a terminal.
    assert!(output.stderr.is_empty());
    let page = std::fs::read_to_string(scratch.path("report.html")).expect("the report");
    assert!(page.contains("No violation in") && page.trim_end().ends_with("</html>"));
}

#[test]
fn a_medium_that_lies_is_a_violation_that_can_be_played_again() {
    let scratch = scratch();
    let output = scratch.line("torture --for 1m --seed 0 --jobs 1 --lie flush --json");
    assert_eq!(output.status.code(), Some(1));
    let line = failed(&output, 1, "torture");
    assert!(line.contains("violation") && line.contains("--replay"), "{line}");
    let report = json(&String::from_utf8(output.stdout).expect("text"));
    assert!(report["violations"].as_u64() >= Some(1), "{report}");
    let first = &report["findings"][0];
    assert!(!first["operations"].as_array().expect("operations").is_empty());
    let command =
        first["replay"].as_str().expect("a command").strip_prefix("steadfast ").expect("ours");

    let again = scratch.line(&format!("{command} --json"));
    failed(&again, 1, command);
    let again = json(&String::from_utf8(again.stdout).expect("text"));
    for field in ["run", "what", "world", "operations", "cuts"] {
        assert_eq!(again["findings"][0][field], first[field], "{field}");
    }
    let people = scratch.line(command);
    failed(&people, 1, command);
    let text = String::from_utf8(people.stdout).expect("text");
    assert!(
        text.contains("VIOLATION") && text.contains(&format!("play it again: steadfast {command}")),
        "{text}"
    );
}

#[test]
fn the_self_test_catches_everything() {
    let caught = json(&scratch().ok("torture --self-test --json"));
    let caught = caught.as_array().expect("a list");
    assert!(caught.len() >= 9 && caught.iter().all(|fault| fault["caught"] == true), "{caught:?}");
}

#[test]
fn wrong_calls_are_refused_before_anything_runs() {
    let scratch = scratch();
    for line in [
        "torture --for never",
        "torture --cuts 0",
        "torture --jobs 0",
        "torture --profile nothing",
        "torture --medium nothing",
        "torture --replay x",
        "torture --replay 1:nothing",
        "torture --replay 1 --for 1m",
        "torture --self-test --lie flush",
        "torture --lie twice",
        "torture disk.img",
    ] {
        scratch.fails(2, line);
    }
    scratch.fails(1, "torture --report nowhere/report.html");
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    let scratch = scratch();
    scratch.ok("mkfs --size 24M disk.img");
    let line = scratch.fails(5, "torture --device disk.img --cuts 1");
    assert!(line.contains("Steadfast volume") && line.contains("--yes"), "{line}");
    scratch.ok("check disk.img");
    let report = json(&scratch.ok("torture --device disk.img --yes --cuts 4 --seed 7 --json"));
    assert_eq!((&report["cuts"], &report["violations"]), (&4.into(), &0.into()), "{report}");
    assert!(
        report["committed"].as_u64() >= Some(1)
            && report["found"].as_u64() >= report["committed"].as_u64(),
        "{report}"
    );
    scratch.ok("torture --device disk.img --verify");
}

#[test]
fn a_witness_tells_what_is_missing_and_who_has_lost_it() {
    let scratch = scratch();
    scratch.write("disk.img", &vec![0; 24 << 20]);
    // An empty image needs no consent.
    let told = scratch.ok(
        "torture --device disk.img --until-power-fails --for 300ms --seed 3 --witness - --quiet",
    );
    assert!(
        told.starts_with("steadfast-witness 1 ") && told.contains("\nflushed 1\ncommitted 1\n"),
        "{told}"
    );
    scratch.write("witness.log", told.as_bytes());
    let found = scratch.ok("torture --device disk.img --verify --witness witness.log");
    assert!(found.contains("nothing is missing"), "{found}");
    let image = std::fs::read(scratch.path("disk.img")).expect("image");

    // The witness knows one transaction more than the volume has. The raw records are complete, so
    // the volume lost it.
    let committed = told.lines().filter_map(|line| line.strip_prefix("committed ")).count() as u64;
    scratch.write("more.log", format!("{told}committed {}\n", committed + 1).as_bytes());
    let line = scratch.fails(1, "torture --device disk.img --verify --witness more.log");
    assert!(line.contains("Steadfast, please report"), "{line}");
    // The witness knows one raw record more: the medium has lost it.
    scratch.write("flushed.log", format!("{told}flushed {}\n", committed + 1).as_bytes());
    let output = scratch.line("torture --device disk.img --verify --witness flushed.log --json");
    let line = failed(&output, 1, "verify");
    assert!(line.contains("the medium broke its promises"), "{line}");
    let report = json(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!(report["violations"], 1, "{report}");
    let verified =
        scratch.with_input("torture --device disk.img --verify --witness -", told.as_bytes());
    succeeded(&verified, "a witness on standard input");
    assert!(
        std::fs::read(scratch.path("disk.img")).expect("image") == image,
        "judging changes nothing"
    );
}

#[test]
fn a_device_is_not_overwritten_by_mistake() {
    let scratch = scratch();
    scratch.fails(1, "torture --device nowhere.img --yes");
    scratch.write("small.img", &[0; 4096]);
    scratch.fails(6, "torture --device small.img");
    let mut ext4 = vec![0; 24 << 20];
    ext4[0x438..0x43a].copy_from_slice(b"\x53\xef");
    scratch.write("ext4.img", &ext4);
    let line = scratch.fails(5, "torture --device ext4.img --until-power-fails");
    assert!(line.contains("ext4"), "{line}");
    assert!(std::fs::read(scratch.path("ext4.img")).expect("image") == ext4);
    scratch.fails(3, "torture --device ext4.img --verify");
    scratch.write("blank.img", &vec![0; 24 << 20]);
    scratch.fails(1, "torture --device blank.img --until-power-fails --witness tcp:nowhere");
    scratch.fails(1, "torture --device blank.img --verify --witness nothing.log");
    scratch.write("empty.log", b"");
    scratch.fails(1, "torture --device blank.img --verify --witness empty.log");
    for line in [
        "torture --yes",
        "torture --verify",
        "torture --device a --replay 1",
        "torture --device a --jobs 2",
    ] {
        scratch.fails(2, line);
    }
    // A medium in use is refused even with --yes.
    if common::can_mount() {
        scratch.volume("64M");
        scratch.mounted("");
        let line = scratch.fails(5, "torture --device disk.img --yes");
        assert!(line.contains("mnt"), "{line}");
    }
}

#[test]
fn a_report_is_written_into_a_device_and_through_a_link() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let scratch = scratch();
    let report = |to: &str| {
        scratch.ok(&format!("torture --quiet --cuts 20 --seed 1 --report {to}"));
    };
    let target = scratch.write("target", b"old");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).expect("mode");
    symlink("target", scratch.path("link")).expect("a link");
    report("link");
    assert!(std::fs::symlink_metadata(scratch.path("link")).expect("the link").is_symlink());
    let page = std::fs::read_to_string(&target).expect("the report");
    assert!(page.trim_end().ends_with("</html>"));
    let mode = std::fs::metadata(&target).expect("the report").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let device = scratch.path("device");
    let mode = Mode::RUSR | Mode::WUSR;
    if mknodat(CWD, &device, FileType::CharacterDevice, mode, makedev(1, 3)).is_err() {
        eprintln!("skipped: making a device needs root");
        return;
    }
    report("device");
    assert!(std::fs::metadata(&device).expect("device").file_type().is_char_device());
}
