//! Printed, drawn and written reports of results: ordinary ones, empty ones, and hostile ones.

mod sample;

use std::path::{Path, PathBuf};

use resvg::usvg::roxmltree;
use sample::*;
use steadfast_lab::report::comparison::View;
use steadfast_lab::report::terminal::{ReportPart, Style};
use steadfast_lab::report::{self, ReportError, terminal};
use steadfast_lab::result::*;
use steadfast_lab::statistics::Verdict;

const STYLE: Style = Style { width: 160, colour: false };
const PARTS: [ReportPart; 3] = [ReportPart::Summary, ReportPart::Full, ReportPart::Iozone];

/// Writes a report and checks the rules for every report. Pictures exist in both forms and are well
/// formed. One page is self-contained. Tables have one line per row. With STEADFAST_REPORT_KEEP=DIR
/// the pages are kept for inspection.
fn written(run: &RunResult, name: &str) -> (String, Vec<String>) {
    let temporary = tempfile::tempdir().expect("a directory");
    let kept = std::env::var_os("STEADFAST_REPORT_KEEP").map(|path| PathBuf::from(path).join(name));
    let directory = kept.unwrap_or_else(|| temporary.path().to_owned());
    let page = report::write(run, None, &directory).expect("a report");
    let page = std::fs::read_to_string(page).expect("the page");
    check_page(&page);
    let names = check_pictures(&directory.join(report::PICTURES), &page);
    for part in PARTS {
        for style in [STYLE, Style { width: 60, colour: true }] {
            let text = terminal::print(run, None, part, style).expect("tables");
            let plain = text
                .replace("\u{1b}[34;1m", "")
                .replace("\u{1b}[33;1m", "")
                .replace("\u{1b}[0m", "");
            assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{plain}");
            assert!(!plain.contains("NaN") && !plain.contains("inf "), "{plain}");
        }
    }
    (page, names)
}

fn check_page(page: &str) {
    assert!(
        page.chars()
            .all(|c| c == '\n' || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c))
    );
    for never in ["<script", "http:", "https:", "url(//", "<link", "<iframe", "javascript:"] {
        assert!(!page.contains(never), "the page has {never}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
    assert_eq!(page.matches("<figure").count(), page.matches("</figure>").count());
    let shown = page.split_once("</style>").expect("a style").1;
    assert!(!shown.contains("NaN") && !shown.contains(">inf"), "a number that is none");
}

/// Names of the pictures; each occurs once.
fn check_pictures(directory: &Path, page: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("pictures");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let mut names = Vec::new();
    for path in
        paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "svg"))
    {
        let text = std::fs::read_to_string(path).expect("a picture");
        let document = roxmltree::Document::parse(&text).expect("well formed");
        for node in document.descendants().filter(|node| node.is_element()) {
            for attribute in node.attributes() {
                let value = attribute.value();
                assert!(
                    !value.contains("NaN") && !value.contains("inf"),
                    "{}: {value}",
                    path.display()
                );
            }
        }
        let png = std::fs::read(path.with_extension("png")).expect("the same as PNG");
        assert!(png.starts_with(b"\x89PNG") && png.len() > 500);
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(page.contains(&format!("<figure id=\"{name}\"")), "{name} is not on the page");
        names.push(name);
    }
    names
}

#[test]
fn an_ordinary_run_has_its_page_pictures_and_tables() {
    let matrix = if std::env::var_os("STEADFAST_REPORT_KEEP").is_some() {
        Matrix::Full
    } else {
        Matrix::Small
    };
    let run = rich(usual(), "ext4", matrix);
    let (page, pictures) = written(&run, "ordinary");
    for picture in [
        "overview",
        "b5-curves-write",
        "b5-curves-rewrite",
        "b5-ratio-steadfast",
        "b5-ratio-xfs",
        "b5-cpu-write",
        "b1-fileops",
        "b1-fileops-latency",
        "b1-lat-fs-over-files",
        "b1-mount",
        "b1-general",
    ] {
        assert!(pictures.iter().any(|name| name == picture), "{picture} is missing: {pictures:?}");
    }
    for text in
        ["Published, and here", "dosFs, transactional", "mkfs.btrfs is not installed", "fio"]
    {
        assert!(page.contains(text), "{text} is missing");
    }
    // One panel per measured file system.
    let curves = page.split("<figure id=\"b5-curves-write\"").nth(1).expect("the curves");
    let curves = curves.split("</figure>").next().expect("their end");
    assert_eq!(curves.matches("<svg").count(), 5);
    let text = terminal::print(&run, None, ReportPart::Summary, STYLE).expect("tables");
    assert!(text.contains("skipped btrfs: mkfs.btrfs is not installed"), "{text}");
    assert!(text.contains("Reliance to dosFs") && text.contains("1.39×"), "{text}");
}

#[test]
fn iozones_table_is_iozones() {
    let run = rich(usual(), "ext4", Matrix::Small);
    let text = terminal::print(&run, None, ReportPart::Iozone, STYLE).expect("tables");
    let mut lines = text.lines().skip_while(|line| !line.contains("reclen"));
    let head: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    assert_eq!(head[..8], ["kB", "reclen", "write", "rewrite", "read", "reread", "read", "write"]);
    let row: Vec<&str> = lines.next().expect("a row").split_whitespace().collect();
    assert_eq!((row[0], row[1], row.len()), ("64", "4", 4), "two tests were run");
    let test = &run.suites[0].tests[0];
    let median =
        steadfast_lab::statistics::median(&test.measurement("ext4").unwrap().values()).unwrap();
    assert_eq!(row[2], format!("{:.0}", median / 1024.0));
    assert!(text.contains("b5: ext4") && text.contains("b5: steadfast-lib"));
}

#[test]
fn a_planted_slow_target_is_seen_and_noise_is_no_win() {
    let targets = vec![
        target("peer", "Peer", Access::Kernel),
        target("slow", "Planted slow", Access::Kernel),
        target("same", "The same again", Access::Kernel),
    ];
    let mut run = empty(targets, Some("peer"));
    let mut chance = Chance::new(3);
    let mut tests = Vec::new();
    for record in 1..=20 {
        let mut values = |factor: f64| rounds(&mut chance, 1e8 * factor, 0.03);
        let measurements = vec![
            measurement("peer", &values(1.0)),
            measurement("slow", &values(0.5)),
            measurement("same", &values(1.0)),
        ];
        let parameters = [("record_size", Parameter::Number(record * 512))];
        tests.push(test(
            "iozone",
            "write",
            &parameters,
            Unit::BytesPerSecond,
            Better::Higher,
            measurements,
        ));
    }
    run.suites.push(suite("b5", "title", tests));
    let view = View::new(&run, None).unwrap();
    for test in &run.suites[0].tests {
        let verdict = |id: &str| view.cell(test, run.target(id).unwrap()).against.unwrap().verdict;
        assert_eq!(verdict("slow"), Verdict::Worse);
        assert_eq!(verdict("same"), Verdict::WithinNoise);
    }
    let (page, _) = written(&run, "planted");
    assert!(page.contains("▲ better in 0, ▼ worse in 20, ≈ within the noise in 0 of 20 tests"));
    assert!(page.contains("▲ better in 0, ▼ worse in 0, ≈ within the noise in 20 of 20 tests"));
    // Compared with the slow target, the others are twice as good.
    let text = terminal::print(&run, Some("slow"), ReportPart::Summary, STYLE).unwrap();
    assert!(text.contains("times better than slow") && text.contains("(▲20)"), "{text}");
}

#[test]
fn one_target_has_no_factors() {
    let mut run = rich(vec![target("ext4", "ext4", Access::Kernel)], "ext4", Matrix::Small);
    run.peer = None;
    let (page, pictures) = written(&run, "one");
    assert!(!pictures.iter().any(|name| name == "overview" || name.contains("ratio")));
    assert!(!page.contains("▲ better in"));
}

#[test]
fn twenty_targets_fit() {
    let names = (0..20).map(|index| {
        target(&format!("target-{index}"), &format!("Target {index}"), Access::Kernel)
    });
    let mut run = rich(names.collect(), "target-3", Matrix::Small);
    // Pictures of twenty targets take a while, so half of the contents must suffice.
    run.suites[1].tests.retain(|test| test.workload != "mount" && test.workload != "fileops");
    let (page, _) = written(&run, "twenty");
    assert!(page.contains("target-3, target-0, target-1"), "the peer comes first");
}

#[test]
fn nothing_is_a_report_too() {
    let (page, pictures) = written(&empty(Vec::new(), None), "nothing");
    assert!(page.contains("Nothing was measured") && pictures.is_empty());
    let mut run = empty(usual(), Some("ext4"));
    run.suites.push(suite("b2", "no tests", Vec::new()));
    run.progress.complete = false;
    let (page, _) = written(&run, "empty");
    assert!(page.contains("stopped before its end"));
    let text = terminal::print(&run, None, ReportPart::Summary, STYLE).unwrap();
    assert!(text.contains("--resume goes on"), "{text}");
}

#[test]
fn an_unknown_peer_is_refused_in_one_line() {
    let run = rich(usual(), "ext4", Matrix::Small);
    let error = terminal::print(&run, Some("zfs"), ReportPart::Summary, STYLE).unwrap_err();
    assert_eq!(
        error,
        "'zfs' was not measured in this run; it has steadfast, steadfast-lib, ext4, xfs, fuse2fs"
    );
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        report::write(&run, Some("btrfs"), directory.path()),
        Err(ReportError::Peer(_))
    ));
    // The peer of the run was skipped: there are no factors, and no error.
    let mut run = rich(usual(), "btrfs", Matrix::Small);
    run.suites.truncate(1);
    assert!(!terminal::print(&run, None, ReportPart::Summary, STYLE).unwrap().contains('▲'));
}

#[test]
fn failures_are_said_and_not_measured() {
    let mut run = rich(usual(), "ext4", Matrix::Small);
    let test = &mut run.suites[1].tests[0];
    test.measurements[0].status = Status::Failed { reason: "byte 4711 is wrong".into() };
    test.measurements[1].status = Status::Skipped { reason: "no such call".into() };
    run.suites.remove(0);
    let (page, _) = written(&run, "failed");
    assert!(page.contains("1 failure.") && page.contains("byte 4711 is wrong"));
    let text = terminal::print(&run, None, ReportPart::Summary, STYLE).unwrap();
    assert!(
        text.contains("1 failure:\n  steadfast, mkdir, 1,000 files: byte 4711 is wrong"),
        "{text}"
    );
    let row = text.lines().find(|line| line.contains("mkdir, 1,000 files")).unwrap();
    assert!(row.contains("failed") && row.contains("skipped"), "{row}");
}

#[test]
fn hostile_names_stay_text() {
    let bad = "<script>alert('x')</script>&\"\u{1b}[2J\u{202e}\n\u{0}";
    let long = "very-long-name/".repeat(40);
    let targets = vec![
        target(bad, bad, Access::Directory),
        target(&long, &long, Access::Directory),
        target("ext4", "ext4", Access::Kernel),
    ];
    let mut run = rich(targets, "ext4", Matrix::Small);
    run.provenance.host = bad.into();
    run.provenance.command = vec![bad.into(), long.clone()];
    run.noise.warnings = vec![bad.into()];
    for suite in &mut run.suites {
        suite.id += bad;
        suite.title = bad.into();
        suite.missing = vec![long.clone()];
        for test in &mut suite.tests {
            test.title += bad;
            test.workload += bad;
            test.parameters.insert(bad.into(), Parameter::Text(bad.into()));
        }
    }
    let (page, pictures) = written(&run, "hostile-names");
    assert!(page.contains("&#60;script&#62;") || page.contains("&lt;script&gt;"));
    assert!(
        pictures.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
    );
}

#[test]
fn hostile_numbers_leave_a_report_behind() {
    let values = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e308, 5e-324, f64::MAX];
    let mut run = rich(usual(), "ext4", Matrix::Small);
    run.noise.floor = f64::NAN;
    run.noise.stolen = f64::INFINITY;
    run.progress.seconds = -5.0;
    run.provenance.started = u64::MAX;
    let mut next = values.iter().cycle();
    let mut value = || *next.next().unwrap();
    for test in run.suites.iter_mut().flat_map(|suite| &mut suite.tests) {
        for parameter in test.parameters.values_mut() {
            if let Parameter::Number(number) = parameter {
                *number = if *number % 3 == 0 { 0 } else { u64::MAX / *number };
            }
        }
        for measurement in &mut test.measurements {
            for sample in &mut measurement.samples {
                (sample.value, sample.seconds, sample.bytes) = (value(), value(), u64::MAX);
            }
            if let Some(latency) = &mut measurement.latency {
                (latency.least, latency.most) = (value(), value());
                for bucket in &mut latency.buckets {
                    (bucket.upper, bucket.count) = (value(), u64::MAX);
                }
            }
            if let Some(cpu) = &mut measurement.cpu {
                (cpu.user, cpu.elapsed) = (value(), value());
                for point in &mut cpu.curve {
                    (point.at, point.process, point.machine) = (value(), value(), value());
                }
            }
            measurement.verification.bytes = u64::MAX;
        }
    }
    written(&run, "hostile-numbers");
}

#[test]
fn markdown_has_every_suite_and_stays_in_its_cells() {
    let mut run = rich(usual(), "ext4", Matrix::Small);
    run.targets[0].id = "a|b".into();
    let tests = run.suites.iter_mut().flat_map(|suite| &mut suite.tests);
    for measurement in tests.flat_map(|test| &mut test.measurements) {
        if measurement.target == "steadfast" {
            measurement.target = "a|b".into();
        }
    }
    let text = report::markdown::print(&run, None).expect("a peer");
    for suite in &run.suites {
        assert!(text.contains(&format!("### {}: ", suite.id)), "{}", suite.id);
    }
    assert!(text.contains("a\\|b") && text.contains("× "));
    // All rows of a table have the same number of columns.
    for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let first = table.lines().next().map(columns);
        assert!(table.lines().all(|line| Some(columns(line)) == first), "{table}");
    }
    assert!(report::markdown::print(&run, Some("no such")).is_err());
}

/// A run of two file systems with given rounds of one test.
fn two(unit: Unit, better: Better, ours: &[f64], theirs: &[f64]) -> RunResult {
    let targets = vec![
        target("steadfast", "Steadfast", Access::Fuse),
        target("ext4", "ext4", Access::Kernel),
    ];
    let mut run = empty(targets, Some("ext4"));
    let measurements = vec![measurement("steadfast", ours), measurement("ext4", theirs)];
    let tests = vec![test("general", "operations", &[], unit, better, measurements)];
    run.suites.push(suite("b1", "title", tests));
    run
}

#[test]
fn a_factor_that_contradicts_the_medians_beside_it_is_explained() {
    // Round by round equal on average, but the median of one is twice that of the other.
    let ours = [100.0, 200.0, 200.0, 50.0, 200.0];
    let theirs = [200.0, 100.0, 100.0, 400.0, 100.0];
    let run = two(Unit::OperationsPerMinute, Better::Higher, &ours, &theirs);
    let text = terminal::print(&run, None, ReportPart::Full, STYLE).expect("tables");
    assert!(text.contains("≈*") && text.contains("* Taken round by round."), "{text}");
    let (page, _) = written(&run, "contradicting");
    assert!(page.contains("≈*") && page.contains("the two medians alone give 2.00×"));
    assert!(page.matches("* Taken round by round.").count() >= 2, "below both tables");
    let text = report::markdown::print(&run, None).expect("a peer");
    assert!(text.contains("≈\\*") && text.contains("\n\\* Taken round by round."), "{text}");

    // A factor that the medians give too needs no explanation, in either direction.
    for better in [Better::Higher, Better::Lower] {
        let run = two(Unit::Seconds, better, &[2.0, 2.2, 2.1], &[1.0, 1.1, 1.04]);
        let text = terminal::print(&run, None, ReportPart::Full, STYLE).expect("tables");
        assert!(!text.contains('*'), "{text}");
    }
}

#[test]
fn counts_are_not_judged_by_the_noise_of_timings() {
    let mut run = two(Unit::Ratio, Better::Lower, &[2.0, 2.01, 2.0, 2.0], &[3.0, 3.0, 3.01, 3.0]);
    run.noise.floor = 6.37;
    let verdict = |run: &RunResult| {
        let view = View::new(run, None).unwrap();
        view.cell(&run.suites[0].tests[0], run.target("steadfast").unwrap())
            .against
            .unwrap()
            .verdict
    };
    assert_eq!(verdict(&run), Verdict::WithinNoise, "a time on such a machine");
    run.suites[0].tests[0].counted = true;
    assert_eq!(verdict(&run), Verdict::Better);
    let text = serde_json::to_string(&run).expect("JSON");
    let read: RunResult = serde_json::from_str(&text).expect("the same");
    assert_eq!(verdict(&read), Verdict::Better);
}

#[test]
fn noise_above_the_whole_is_a_factor_everywhere() {
    let mut run = rich(usual(), "ext4", Matrix::Small);
    run.noise.floor = 6.37;
    let (page, _) = written(&run, "noisy");
    let text = terminal::print(&run, None, ReportPart::Summary, STYLE).unwrap();
    let markdown = report::markdown::print(&run, None).expect("a peer");
    for text in [page, text, markdown] {
        assert!(text.contains("7.37× in either direction") && !text.contains("637 %"), "{text}");
    }
}

#[test]
fn a_narrow_page_names_each_value_of_a_row() {
    let run = rich(usual(), "ext4", Matrix::Small);
    let (page, _) = written(&run, "narrow");
    for part in page.split("<table class=\"cards\">").skip(1) {
        let rows = part.split("<tbody>").nth(1).expect("rows").split("</tbody>").next().unwrap();
        for row in rows.split("<tr>").skip(1) {
            let cells = row.matches("<td").count();
            assert_eq!(row.matches(" data-head=\"").count(), cells - 1, "{row}");
        }
    }
    assert!(page.contains("content: attr(data-head)"));
}

/// Where several tests answer a published row, the peer has neither a value nor a factor.
#[test]
fn a_published_table_has_no_empty_column() {
    let run = rich(usual(), "ext4", Matrix::Small);
    let (page, _) = written(&run, "columns");
    let mut columns = Vec::new();
    for part in page.split("<h3>Published, and here</h3>").skip(1) {
        let table = part.split("</table>").next().unwrap();
        for head in table.split("<th class=\"id").skip(1) {
            let name = head.split('>').nth(1).unwrap().split('<').next().unwrap();
            let cell = format!(" data-head=\"{name} here\">");
            assert!(table.split(&cell).skip(1).any(|rest| !rest.starts_with("</td>")), "{name}");
            columns.push(name);
        }
    }
    assert!(columns.contains(&"steadfast") && columns.contains(&"ext4"), "{columns:?}");
}
