//! `steadfast lab show` and `compare` on existing results: what is printed, written and refused.

#[path = "../../steadfast-cli/tests/common/mod.rs"]
mod common;
mod programs;

use std::fs;

use common::Scratch;
use serde_json::Value;

const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../steadfast-lab/tests/fixtures/example.json");

fn example() -> Value {
    serde_json::from_slice(&fs::read(EXAMPLE).unwrap()).unwrap()
}

fn scratch() -> Scratch {
    programs::built();
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("run")).unwrap();
    fs::copy(EXAMPLE, scratch.path("run/result.json")).unwrap();
    scratch
}

#[test]
fn tables_json_and_page() {
    let scratch = scratch();
    // A directory stands for the result file in it.
    let text = scratch.ok("lab show run");
    assert_eq!(text, scratch.ok("lab show run/result.json"));
    assert!(
        text.contains("Factors are times better than ext4")
            && text.contains("mkfs.btrfs is not installed")
    );
    assert!(!text.contains('\x1b'), "colours in a pipe");
    assert!(scratch.ok("lab show run --peer steadfast").contains("times better than steadfast"));
    assert!(scratch.ok("lab show run --full").lines().count() > text.lines().count());
    let table = scratch.ok("lab show run --iozone");
    assert!(table.contains("reclen") && table.contains("b5: steadfast-lib"), "{table}");
    let document: Value = serde_json::from_str(&scratch.ok("lab show run --json")).unwrap();
    assert_eq!(document["provenance"]["command"], example()["provenance"]["command"]);
    assert_eq!(document["suites"][0]["tests"][0]["id"], example()["suites"][0]["tests"][0]["id"]);
    assert!(scratch.ok("lab show run --report page").ends_with("report: page/index.html\n"));
    assert!(fs::read_to_string(scratch.path("page/index.html")).unwrap().contains("<svg"));
    assert!(scratch.path("page/pictures/overview.png").exists());
}

#[test]
fn two_runs_are_compared() {
    let scratch = scratch();
    assert!(
        scratch
            .ok("lab compare run run --fail-if-worse")
            .contains("Nothing changed by more than noise.")
    );
    let mut slow = example();
    for test in slow["suites"][0]["tests"].as_array_mut().unwrap() {
        for sample in test["measurements"][0]["samples"].as_array_mut().unwrap() {
            sample["value"] = (sample["value"].as_f64().unwrap() / 2.0).into();
        }
    }
    scratch.write("slow.json", slow.to_string().as_bytes());
    let text = scratch.ok("lab compare run slow.json");
    assert!(
        text.contains("b5: write, file 64 KiB, record 4 KiB") && text.contains("0.50× ▼"),
        "{text}"
    );
    let output = scratch.line("lab compare run slow.json --fail-if-worse");
    assert_eq!(output.status.code(), Some(1));
    let document: Value =
        serde_json::from_str(&scratch.ok("lab compare run slow.json --json")).unwrap();
    assert_eq!(document["changes"][0]["verdict"], "worse");
    assert_eq!(document["peer"], "ext4");
}

#[test]
fn bad_input_is_one_line() {
    let scratch = scratch();
    scratch.write("text.json", b"not JSON");
    scratch.write("other.json", b"{\"kind\":\"something else\",\"schema\":1}");
    scratch.write("newer.json", b"{\"kind\":\"steadfast-lab-run\",\"schema\":99}");
    let mut other = example();
    for suite in other["suites"].as_array_mut().unwrap() {
        suite["id"] = "x".into();
    }
    scratch.write("foreign.json", other.to_string().as_bytes());
    fs::create_dir(scratch.path("empty")).unwrap();
    for (line, exit, expected) in [
        ("lab show missing.json", 1, "cannot read"),
        ("lab show empty", 1, "empty/result.json"),
        ("lab show text.json", 1, "not a result of 'steadfast lab run'"),
        ("lab show other.json", 1, "it is of another kind"),
        ("lab show newer.json", 1, "its schema is 99, this program reads 1"),
        ("lab show run --peer zfs", 2, "'zfs' was not measured in this run"),
        ("lab show run --report page --peer zfs", 2, "'zfs' was not measured in this run"),
        ("lab show run --report run/result.json", 1, "cannot write"),
        ("lab compare run text.json", 1, "text.json"),
        ("lab compare run foreign.json", 1, "no test in common: the first has b5, b1 on"),
    ] {
        let said = scratch.fails(exit, line);
        assert!(said.contains(expected), "{line}: {said}");
        for file in ["missing.json", "text.json", "newer.json", "empty/result.json"] {
            assert!(said.matches(file).count() <= 1, "{line}: {said}");
        }
    }
    assert!(!scratch.path("page").exists(), "nothing is written for a peer that is not there");
}
