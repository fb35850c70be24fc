//! `steadfast torture` as a person and a script use it.

mod common;

use common::{Scratch, failed, succeeded};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_campaign_counts_its_cuts_and_finds_nothing() {
    let scratch = Scratch::new();
    let output = scratch.line("torture --cuts 100 --seed 1 --json --report report.html");
    let report = json(&succeeded(&output, "torture"));
    assert!(report["cuts"].as_u64() >= Some(100), "{report}");
    assert_eq!((&report["violations"], &report["first_seed"]), (&0.into(), &1.into()), "{report}");
    assert!(report["seeds"].as_u64() >= Some(1) && report["seconds"].is_f64(), "{report}");
    assert!(report["cuts_per_second"].as_f64() > Some(0.0) && report["version"].is_string(), "{report}");
    // No bar where there is no terminal.
    assert!(output.stderr.is_empty());
    let page = std::fs::read_to_string(scratch.path("report.html")).expect("the report");
    assert!(page.contains("No violation in") && page.trim_end().ends_with("</html>"));
}

#[test]
fn a_medium_that_lies_is_a_violation_that_can_be_played_again() {
    let scratch = Scratch::new();
    let output = scratch.line("torture --for 1m --seed 0 --jobs 1 --lie flush --json");
    assert_eq!(output.status.code(), Some(1));
    let line = failed(&output, 1, "torture");
    assert!(line.contains("violation") && line.contains("--replay"), "{line}");
    let report = json(&String::from_utf8(output.stdout).expect("text"));
    assert!(report["violations"].as_u64() >= Some(1), "{report}");
    let first = &report["findings"][0];
    assert!(!first["operations"].as_array().expect("operations").is_empty());
    let command = first["replay"].as_str().expect("a command").strip_prefix("steadfast ").expect("ours");

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
    let caught = json(&Scratch::new().ok("torture --self-test --json"));
    let caught = caught.as_array().expect("a list");
    assert!(caught.len() >= 9 && caught.iter().all(|fault| fault["caught"] == true), "{caught:?}");
}

#[test]
fn wrong_calls_are_refused_before_anything_runs() {
    let scratch = Scratch::new();
    for line in [
        "torture --for never",
        "torture --cuts 0",
        "torture --jobs 0",
        "torture --profile nothing",
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
