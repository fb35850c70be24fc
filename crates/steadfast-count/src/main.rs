//! The program `steadfast-count`: measures, checks, and shows where instructions are spent.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Parser, Subcommand};
use steadfast_count::allocations::CountingAllocator;
use steadfast_count::check::check;
use steadfast_count::drive::{Driver, Job, STEADFAST};
use steadfast_count::operations::{OPERATIONS, Operation};
use steadfast_count::page::{self, GOAL_FILES, VOLUMES};
use steadfast_count::table::{Row, Table};
use steadfast_count::volume::Kind;
use steadfast_count::work::work;
use steadfast_count::{Result, region};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Counts what each operation of the core costs.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure every operation on every volume; write the table and its page
    Measure {
        #[command(flatten)]
        places: Places,
        /// Measure only these operations, and keep the other rows (may be repeated)
        #[arg(long)]
        only: Vec<String>,
        /// Measure only volumes of so many files, and keep the other rows (may be repeated)
        #[arg(long)]
        files: Vec<u64>,
        /// A program with workers that count other systems
        #[arg(long)]
        peers: Option<PathBuf>,
    },
    /// Measure the smaller volumes; fail if a count grew by more than 5 % over the table
    Check {
        #[command(flatten)]
        places: Places,
        /// Compare only these operations (may be repeated)
        #[arg(long)]
        only: Vec<String>,
    },
    /// Write the page from the table
    Page {
        #[command(flatten)]
        places: Places,
    },
    /// Show the functions that an operation spends its instructions in
    Top {
        #[command(flatten)]
        places: Places,
        /// The operation, as in the table
        operation: String,
        /// Files of the volume
        #[arg(long, default_value_t = GOAL_FILES)]
        files: u64,
        /// An aged volume
        #[arg(long)]
        aged: bool,
        /// How many functions
        #[arg(long, default_value_t = 12)]
        count: usize,
    },
    /// Measure one operation in this process, as the other commands do under valgrind
    #[command(hide = true)]
    Work {
        operation: String,
        files: u64,
        image: PathBuf,
        #[arg(long)]
        aged: bool,
        #[arg(long)]
        stack: bool,
    },
}

#[derive(Args)]
struct Places {
    /// The committed table
    #[arg(long, default_value = "docs/counts.json")]
    table: PathBuf,
    /// The page that is made from it
    #[arg(long, default_value = "docs/COUNTS.md")]
    page: PathBuf,
    /// Where prepared volumes and profiles are kept
    #[arg(long, default_value = "target/count")]
    directory: PathBuf,
}

impl Places {
    fn driver(&self) -> Result<Driver> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err("counting needs Linux on x86-64: the table is of that processor".into());
        }
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        Driver::new(&self.directory, &program)
    }

    fn write_page(&self, table: &Table) -> Result<()> {
        let told = |error| format!("{}: {error}", self.page.display());
        std::fs::write(&self.page, page::page(table)).map_err(told)
    }
}

fn operation(name: &str) -> Result<&'static Operation> {
    Operation::named(name).ok_or_else(|| {
        let known: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        format!("{name}: no such operation: one of {}", known.join(", "))
    })
}

/// First line that a program prints; tables name what they were measured with.
fn version_of(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text.ok().and_then(|text| text.lines().next().map(str::to_owned));
    line.unwrap_or_else(|| format!("{program} unknown"))
}

fn show(row: &Row) {
    let aged = if row.aged { " aged" } else { "" };
    let volume = format!("{}{aged}", row.files);
    let Row { system, operation, instructions, .. } = row;
    println!("{system:<10} {operation:<24} {volume:>14} {instructions:>12} instructions");
}

fn jobs(only: &[String], volumes: &[(u64, bool)]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (files, aged) in volumes {
        for operation in OPERATIONS {
            if only.is_empty() || only.iter().any(|name| name == operation.name) {
                jobs.push(Job {
                    system: STEADFAST.into(),
                    operation: operation.name.into(),
                    kind: Kind { files: *files, aged: *aged },
                    whole: (*files, *aged) == (GOAL_FILES, false),
                });
            }
        }
    }
    jobs
}

/// What a program with workers of peers can count.
fn peer_jobs(program: &Path) -> Result<Vec<Job>> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", program.display());
    let output = Command::new(program).arg("list").output().map_err(|error| told(&error))?;
    let list: Vec<(String, String)> =
        serde_json::from_slice(&output.stdout).map_err(|error| told(&error))?;
    let kind = Kind { files: GOAL_FILES, aged: false };
    Ok(list
        .into_iter()
        .map(|(system, operation)| Job { system, operation, kind, whole: false })
        .collect())
}

fn count(driver: &Driver, jobs: &[Job], done: &(dyn Fn(&Row) + Sync)) -> Result<Vec<Row>> {
    jobs.iter().try_for_each(|job| driver.prepare(job))?;
    driver.rows(jobs, done)
}

fn measure(places: &Places, only: &[String], files: &[u64], peers: Option<&Path>) -> Result<()> {
    only.iter().try_for_each(|name| operation(name).map(|_| ()))?;
    if let Some(unknown) = files.iter().find(|files| !VOLUMES.contains(&(**files, false))) {
        return Err(format!("--files {unknown}: no such volume: one of 100, 10000, 1000000"));
    }
    let known = places.table.exists();
    let mut table = if known { Table::read(&places.table)? } else { Table::default() };
    table.valgrind = version_of("valgrind", "--version");
    table.compiler = version_of("rustc", "--version");
    table.c_library = version_of("getconf", "GNU_LIBC_VERSION");
    // Written after each volume, so that a run that is stopped keeps what it has.
    let mut keep = |rows: Vec<Row>| {
        rows.into_iter().for_each(|row| table.put(row));
        table.write(&places.table)?;
        places.write_page(&table)
    };
    let driver = places.driver()?;
    for volume in VOLUMES.iter().filter(|(count, _)| files.is_empty() || files.contains(count)) {
        keep(count(&driver, &jobs(only, &[*volume]), &show)?)?;
    }
    if let Some(program) = peers {
        let driver = Driver::new(&places.directory, program)?;
        keep(count(&driver, &peer_jobs(program)?, &show)?)?;
    }
    Ok(())
}

/// Whether no count grew.
fn compare(places: &Places, only: &[String]) -> Result<bool> {
    only.iter().try_for_each(|name| operation(name).map(|_| ()))?;
    let table = Table::read(&places.table)?;
    let driver = places.driver()?;
    let volumes = [(100, false), (GOAL_FILES, false)];
    let mut jobs = jobs(only, &volumes);
    jobs.iter_mut().for_each(|job| job.whole = false);
    let rows = count(&driver, &jobs, &|_| {})?;
    let findings = check(&table, &rows);
    findings.better.iter().for_each(|line| println!("less: {line}"));
    findings.worse.iter().for_each(|line| println!("MORE: {line}"));
    if findings.better.is_empty() && findings.worse.is_empty() {
        println!("{} rows, each within 5 % of {}", rows.len(), places.table.display());
    } else {
        println!(
            "the table is no longer true: {}: run 'make count' and commit it",
            places.table.display()
        );
    }
    Ok(findings.worse.is_empty())
}

fn top(places: &Places, job: &Job, count: usize) -> Result<()> {
    let driver = places.driver()?;
    driver.prepare(job)?;
    let (profile, counts) = driver.profile(job)?;
    let units = counts.units.max(1);
    let total = profile.total(&["Ir"]).unwrap_or(0);
    println!("{:>12} {:>6}  function", "instructions", "share");
    println!("{:>12} {:>6}  all", total / units, "100 %");
    for (name, own) in profile.top().into_iter().take(count) {
        let share = 100.0 * own as f64 / total as f64;
        println!("{:>12} {share:>4.1} %  {name}", own / units);
    }
    Ok(())
}

fn worker(name: &str, kind: Kind, image: &Path, stack: bool) -> Result<()> {
    let counts: region::Counts = work(operation(name)?, kind, image, stack)?;
    let text = serde_json::to_string(&counts).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

fn run(task: Task) -> Result<bool> {
    match task {
        Task::Measure { places, only, files, peers } => {
            measure(&places, &only, &files, peers.as_deref())?;
        }
        Task::Check { places, only } => return compare(&places, &only),
        Task::Page { places } => places.write_page(&Table::read(&places.table)?)?,
        Task::Top { places, operation: name, files, aged, count } => {
            let name = operation(&name)?.name.to_owned();
            let kind = Kind { files, aged };
            let job = Job { system: STEADFAST.into(), operation: name, kind, whole: false };
            top(&places, &job, count)?;
        }
        Task::Work { operation, files, image, aged, stack } => {
            worker(&operation, Kind { files, aged }, &image, stack)?;
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("steadfast-count: {problem}");
            ExitCode::FAILURE
        }
    }
}
