//! Tests of the suite itself: names, verdicts and limits are reported correctly. If
//! `POSIX_SUITE_DIR` names a directory, the whole suite also runs there.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use steadfast_posix::{List, Options, Stop, Summary, run, suites};

fn run_list(list: List, options: &Options) -> (Summary, String) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut out = Vec::new();
    let summary =
        run(directory, &list.into_checks(), options, &mut out).expect("the directory is writable");
    (summary, String::from_utf8(out).expect("text"))
}

#[test]
fn names_are_unique_and_many() {
    let checks = suites::all();
    let names: HashSet<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names.len(), checks.len());
    assert!(checks.len() > 900, "{} checks", checks.len());
}

#[test]
fn each_verdict_is_counted() {
    let mut list = List::default();
    list.group("own");
    list.add("passes", || Ok(()));
    list.add("fails", || Err(Stop::failed("planted")));
    list.add("skips", || Err(Stop::skipped("planted")));
    list.add("lacks", || Err(Stop::Unsupported("planted".into())));
    list.add("panics", || panic!("planted"));
    list.add("deviates", || Err(Stop::failed("planted")));
    list.add("deviates-no-more", || Ok(()));
    let deviations = vec!["own/deviates".to_owned(), "own/deviates-no-more".to_owned()];
    let (summary, text) =
        run_list(list, &Options { require_all: true, deviations, ..Options::default() });
    assert_eq!(summary.passed, 1);
    let failed: Vec<&str> = summary.failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(failed, ["own/fails", "own/lacks", "own/panics", "own/deviates-no-more"]);
    assert_eq!(summary.deviating.len(), 1);
    assert_eq!(summary.skipped.len(), 1);
    assert!(text.contains("FAIL  own/fails: suite.rs:"), "{text}");
}

#[test]
fn a_check_that_hangs_is_given_up_and_the_next_one_runs() {
    let mut list = List::default();
    list.group("own");
    list.add("hangs", || {
        std::thread::sleep(Duration::from_secs(3600));
        Ok(())
    });
    list.add("runs", || Ok(std::fs::write("here", b"")?));
    let (summary, _) =
        run_list(list, &Options { limit: Duration::from_millis(200), ..Options::default() });
    assert_eq!((summary.passed, summary.failed.len()), (1, 1));
}

#[test]
fn checks_start_in_empty_directories_of_their_own_with_umask_zero() {
    let mut list = List::default();
    list.group("own");
    for name in ["first", "second"] {
        list.add(name, || {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::read_dir(".")?.count(), 0);
            std::fs::create_dir("d")?;
            assert_eq!(std::fs::metadata("d")?.permissions().mode() & 0o777, 0o777);
            Ok(())
        });
    }
    let here = std::env::current_dir().expect("a working directory");
    let (summary, _) = run_list(list, &Options::default());
    assert_eq!(summary.passed, 2, "{summary:?}");
    assert_eq!(std::env::current_dir().expect("a working directory"), here);
}

#[test]
fn whole_suite_on_a_directory_from_the_environment() {
    let Some(directory) = std::env::var_os("POSIX_SUITE_DIR") else { return };
    let options = Options::default();
    let summary = run(Path::new(&directory), &suites::all(), &options, &mut std::io::stderr())
        .expect("it runs");
    assert!(summary.failed.is_empty(), "{:#?}", summary.failed);
}
