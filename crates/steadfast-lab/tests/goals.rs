//! The table of the goals: met, not met, too close to say, and the column that decides.

mod sample;

use sample::{empty, measurement, suite, target, test};
use steadfast_lab::report::comparison::View;
use steadfast_lab::report::goals;
use steadfast_lab::report::table::{Table, TableRow};
use steadfast_lab::result::{Access, Better, MediumTraffic, Parameter, RunResult, Test, Unit};
use steadfast_lab::run::Effort;
use steadfast_lab::suite as suites;

fn goal(purpose: &str) -> (&'static str, Parameter) {
    ("goal", Parameter::Text(purpose.into()))
}

fn run(tests: Vec<Test>) -> RunResult {
    let targets = vec![
        target("steadfast", "Steadfast (FUSE)", Access::Fuse),
        target("null", "null", Access::Fuse),
        target("ext4", "ext4", Access::Kernel),
    ];
    let mut run = empty(targets, Some("ext4"));
    run.noise.floor = 0.05;
    run.suites = vec![suite("goals", "The goals", tests)];
    run
}

fn table(run: &RunResult) -> Table {
    goals::table(&View::new(run, None).expect("a view")).expect("the suite is there")
}

fn row<'t>(table: &'t Table, name: &str) -> Option<&'t TableRow> {
    table.rows.iter().find(|row| row.name == name)
}

/// Value, verdict, and column.
fn said<'t>(table: &'t Table, name: &str) -> (&'t str, &'t str, &'t str) {
    let cells = &row(table, name).unwrap_or_else(|| panic!("no row '{name}'")).cells;
    (&cells[1].value, &cells[3].comparison, &cells[5].value)
}

fn overwrite(threads: u64, ours: &[f64], theirs: &[f64]) -> Test {
    let parameters = [goal("durable writes"), ("threads", Parameter::Number(threads))];
    let all = ["ext4", "bindfs"].map(|peer| measurement(peer, theirs));
    let all = [measurement("steadfast", ours)].into_iter().chain(all).collect();
    test(
        "durable-writes",
        "overwrite-fdatasync",
        &parameters,
        Unit::OperationsPerSecond,
        Better::Higher,
        all,
    )
}

#[test]
fn met_missed_and_too_close() {
    let peer = [1000.0, 1010.0, 990.0];
    for (ours, wanted) in [
        ([2000.0, 2010.0, 1990.0], "met"),
        ([500.0, 505.0, 495.0], "not met"),
        ([960.0, 970.0, 955.0], "within noise"),
        // The mean is far away, but the rounds contradict each other.
        ([300.0, 4000.0, 1500.0], "within noise"),
    ] {
        let run = run(vec![overwrite(1, &ours, &peer)]);
        let table = table(&run);
        assert_eq!(
            said(&table, "overwrite 4 KiB at random + fdatasync, 1 thread").1,
            wanted,
            "{ours:?}"
        );
        assert!(goals::count(&table).starts_with(if wanted == "met" { "1 met" } else { "0 met" }));
    }
    let run = run(vec![overwrite(1, &[3000.0], &[1000.0])]);
    assert_eq!(
        said(&table(&run), "overwrite 4 KiB at random + fdatasync, 1 thread").1,
        "one round"
    );
}

#[test]
fn the_worst_column_counts_and_sizes_of_one_are_taken_together() {
    let cell = |name: &str, size: u64, factor: f64| {
        let parameters = [goal("memory enough"), ("file_size", Parameter::Number(size))];
        let theirs = [100.0, 101.0, 99.0];
        let both = vec![
            measurement("steadfast", &theirs.map(|value| value * factor)),
            measurement("null", &theirs),
        ];
        test("iozone", name, &parameters, Unit::BytesPerSecond, Better::Higher, both)
    };
    // Geometric means: write 1, read 0.5.
    let tests = vec![
        cell("write", 1, 4.0),
        cell("write", 2, 0.25),
        cell("read", 1, 0.5),
        cell("read", 2, 0.5),
    ];
    let run = run(tests);
    assert_eq!(
        said(&table(&run), "IOzone, memory enough: every column"),
        ("0.50×", "not met", "read")
    );
}

#[test]
fn of_alternatives_the_nearer_one_counts() {
    let write = |ours: f64| {
        let parameters = [goal("in sequence"), ("record_size", Parameter::Number(131_072))];
        let all = vec![
            measurement("steadfast", &[ours, ours * 1.01, ours * 0.99]),
            measurement("null", &[100.0, 101.0, 99.0]),
            measurement("ext4", &[1000.0, 1010.0, 990.0]),
        ];
        run(vec![test("iozone", "write", &parameters, Unit::BytesPerSecond, Better::Higher, all)])
    };
    let name = "write in sequence + fsync";
    let found = write(120.0);
    assert_eq!(
        (said(&table(&found), name).0, said(&table(&found), name).1),
        ("1.20× (null)", "met")
    );
    assert_eq!(said(&table(&write(50.0)), name).1, "not met");
}

#[test]
fn the_floor_stands_beside_the_column_that_counts_and_the_peer_it_is_judged_by() {
    let floor = |table: &Table, name: &str| row(table, name).map(|row| row.cells[4].value.clone());
    let (low, high) = ([100.0, 101.0, 99.0], [1000.0, 1010.0, 990.0]);
    let column = |threads: u64, ours: &[f64], null: &[f64]| {
        let parameters = [goal("random buffered write"), ("threads", Parameter::Number(threads))];
        let all = vec![
            measurement("steadfast", ours),
            measurement("null", null),
            measurement("ext4", &high),
        ];
        test("iozone", "random-write", &parameters, Unit::BytesPerSecond, Better::Higher, all)
    };
    let name = "write 4 KiB at random, buffered";
    let found = run(vec![column(1, &high, &high), column(2, &low, &low)]);
    assert_eq!(floor(&table(&found), name).as_deref(), Some("0.10× (null)"));
    // Nothing where the floor did not take part.
    let mut one = column(1, &low, &low);
    one.measurements.retain(|measurement| measurement.target != "null");
    assert_eq!(floor(&table(&run(vec![one])), name).as_deref(), Some(""));
    // Beside the null file system it is no floor of its own.
    let parameters = [goal("names"), ("clients", Parameter::Number(1))];
    let all = vec![measurement("steadfast", &low), measurement("null", &high)];
    let create =
        test("metadata", "create", &parameters, Unit::OperationsPerSecond, Better::Higher, all);
    assert_eq!(
        floor(&table(&run(vec![create])), "names and attributes, 1 client").as_deref(),
        Some("")
    );
}

#[test]
fn what_is_counted_needs_no_rounds() {
    let mut one = overwrite(1, &[1000.0], &[1000.0]);
    // The sample has 1000 operations.
    let medium = |writes| MediumTraffic {
        bytes_asked: 1,
        bytes_written: 1,
        bytes_read: 0,
        writes,
        reads: 0,
        flushes: Some(1000),
    };
    one.measurements[0].medium = Some(medium(2100));
    let found = run(vec![one.clone()]);
    let table_of_two = table(&found);
    assert_eq!(said(&table_of_two, "device writes for one such overwrite").1, "not met");
    assert_eq!(said(&table_of_two, "flushes for one such overwrite").1, "met");
    one.measurements[0].medium = Some(medium(1001));
    let found = run(vec![one]);
    assert_eq!(said(&table(&found), "device writes for one such overwrite").1, "met");
}

#[test]
fn rows_without_their_targets_are_not_there() {
    let found = run(vec![overwrite(1, &[1.0], &[1.0])]);
    let table = table(&found);
    assert!(row(&table, "the same, 4 threads").is_none());
    let none = RunResult { suites: Vec::new(), ..found };
    assert!(goals::table(&View::new(&none, None).expect("a view")).is_none());
}

#[test]
fn every_goal_has_its_tests_in_the_suite_and_no_two_tests_are_one() {
    for effort in [Effort::Quick, Effort::Default, Effort::Full] {
        let planned = suites::by_name(goals::ID, effort).expect("the suite");
        let mut tests = Vec::new();
        for spec in planned.workloads.iter().flat_map(|workload| workload.tests()) {
            let (id, parameters) = (spec.id(), spec.parameters);
            assert!(!tests.iter().any(|test: &Test| test.id == id), "twice: {id}");
            let values = [100.0, 101.0, 99.0];
            let ids = [
                "steadfast",
                "steadfast-lib",
                "steadfast-manual",
                "null",
                "ext4",
                "btrfs",
                "bindfs",
            ];
            let all = ids.iter().chain(&["gocryptfs", "fuse2fs"]);
            let measurements = all.map(|target| {
                let mut found = measurement(target, &values);
                found.memory =
                    Some(steadfast_lab::result::Memory { resident_most: 1 << 20, limit: None });
                found.medium = Some(MediumTraffic {
                    bytes_asked: 1,
                    bytes_written: 1,
                    bytes_read: 0,
                    writes: 1,
                    reads: 0,
                    flushes: Some(1),
                });
                found.latency = Some(steadfast_lab::result::Latency {
                    count: 1,
                    mean: 1.0,
                    least: 1.0,
                    p50: 1.0,
                    p90: 1.0,
                    p99: 1.0,
                    p999: 1.0,
                    most: 1.0,
                    buckets: Vec::new(),
                });
                found
            });
            tests.push(Test {
                id,
                workload: spec.workload.into(),
                name: spec.name,
                title: spec.title,
                parameters,
                unit: spec.unit,
                better: spec.better,
                counted: spec.counted,
                cache: spec.cache,
                measurements: measurements.collect(),
            });
        }
        let found = run(tests);
        assert_eq!(table(&found).rows.len(), goals::all(), "{effort:?}");
    }
}
