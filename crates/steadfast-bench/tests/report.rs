//! What is printed, drawn and written about results: ordinary ones, empty ones, and hostile ones.

mod sample;

use sample::*;
use steadfast_bench::report::{self, terminal};
use steadfast_bench::result::*;

const STYLE: terminal::Style = terminal::Style { width: 160, colour: false };

/// With STEADFAST_REPORT_KEEP=DIR the pages stay there, to be looked at.
fn written(run: &RunResult, name: &str) -> (String, Vec<(String, Vec<u8>)>) {
    let temporary = tempfile::tempdir().expect("a directory");
    let kept =
        std::env::var_os("STEADFAST_REPORT_KEEP").map(|path| std::path::PathBuf::from(path).join(name));
    let directory = kept.unwrap_or_else(|| temporary.path().to_owned());
    let page = report::write(run, None, &directory).expect("a report");
    let pictures = std::fs::read_dir(directory.join(report::PICTURES)).expect("pictures");
    let mut files: Vec<(String, Vec<u8>)> = pictures
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    (std::fs::read_to_string(page).expect("the page"), files)
}

#[test]
fn an_ordinary_run_has_its_page_pictures_and_tables() {
    let run = rich(usual(), "ext4");
    let (page, files) = written(&run, "ordinary");
    assert!(page.contains("Published, and here"));
    assert!(!files.is_empty());
    let text = terminal::print(&run, None, terminal::Part::Summary, STYLE).expect("tables");
    println!("{text}");
    println!("{}", terminal::print(&run, None, terminal::Part::Iozone, STYLE).expect("tables"));
}
