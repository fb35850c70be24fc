//! The example result matches the schema, and survives reading and writing.

use std::path::Path;

use steadfast_lab::result::{self, ResultError};
use steadfast_lab::statistics::{self, Verdict};

fn example() -> result::RunResult {
    result::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/example.json"))
        .expect("the example")
}

#[test]
fn the_example_survives_writing_and_reading() {
    let example = example();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    result::write(&example, &path).expect("written");
    assert!(result::read(&path).expect("read") == example, "another result was read");
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("listed").count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn other_files_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.json");
    for text in ["", "no", "[]", "{}", r#"{"kind":"other","schema":1}"#] {
        std::fs::write(&path, text).expect("written");
        let error = result::read(&path).expect_err(text);
        assert!(matches!(error, ResultError::NotAResult { .. }), "{error}");
        assert!(
            error.to_string().contains("x.json") && !error.to_string().contains('\n'),
            "{error}"
        );
    }
    std::fs::write(&path, r#"{"kind":"steadfast-lab-run","schema":99}"#).expect("written");
    assert!(matches!(result::read(&path), Err(ResultError::OtherSchema { found: 99, .. })));
}

#[test]
fn noise_in_the_example_is_no_win() {
    let example = example();
    let test = example.suites[1]
        .tests
        .iter()
        .find(|test| test.workload == "general")
        .expect("the noisy test");
    let pair =
        (test.measurement("steadfast").expect("ours"), test.measurement("ext4").expect("theirs"));
    let ratio = statistics::ratio_paired(pair.0, pair.1).expect("a ratio");
    assert_eq!(statistics::judge(&ratio, test.better, example.noise.floor), Verdict::WithinNoise);
}
