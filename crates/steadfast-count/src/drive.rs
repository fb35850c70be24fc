//! Runs workers under callgrind, two at a time or as many as there are processors.
//!
//! A worker gets the same addresses in each run: no randomised addresses, a fixed environment, a
//! fixed command line in a fixed directory. So its counts are the same in each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;
use std::time::SystemTime;

use crate::Result;
use crate::profile::{self, Profile};
use crate::region::Counts;
use crate::table::Row;
use crate::volume::{self, Kind};

/// Sizes, associativity and lines of the modelled caches.
const CACHES: [&str; 4] =
    ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"];

/// Name of the copy of the program that workers run.
const WORKER: &str = "worker";

/// Copies as loops of wide moves. Otherwise the C library uses string instructions for long ones,
/// of which valgrind counts each byte as an instruction.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=0x100000000:\
                        glibc.cpu.x86_rep_stosb_threshold=0x100000000";

/// Frames that DHAT keeps of a stack: enough to reach the region from any function.
const CALLERS: u32 = 100;

/// The system whose workers are this program.
pub const STEADFAST: &str = "steadfast";

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// [`STEADFAST`], or a peer.
    pub system: String,
    /// The operation.
    pub operation: String,
    /// The volume.
    pub kind: Kind,
    /// Whether caches, copied bytes and the stack are measured, too. It takes longer.
    pub whole: bool,
}

impl Job {
    fn is_of_a_peer(&self) -> bool {
        self.system != STEADFAST
    }

    /// Name of the file that keeps what the operation is measured on.
    fn image(&self) -> String {
        let name = self.kind.file_name();
        if self.is_of_a_peer() { format!("{}-{name}", self.system) } else { name }
    }

    /// Name of a file for what a tool writes.
    fn output(&self, tool: &str) -> String {
        format!("{}.{}.{tool}", self.image(), self.operation)
    }
}

/// Where workers run, and what they are.
pub struct Driver {
    directory: PathBuf,
    program: String,
    /// When the program was built: older volumes are made anew.
    built: Option<SystemTime>,
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|found| found.modified()).ok()
}

fn told<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Driver {
    /// A driver with `program` as its workers, which keeps volumes in `directory`.
    ///
    /// # Errors
    /// If the directory cannot be made, or valgrind or setarch is missing.
    pub fn new(directory: &Path, program: &Path) -> Result<Driver> {
        fs::create_dir_all(directory).map_err(told(directory.display()))?;
        // The command line, and with it each address of the stack, is the same for every program.
        let worker = directory.join(WORKER);
        let _ = fs::remove_file(&worker);
        fs::copy(program, &worker).map_err(told(worker.display()))?;
        for tool in ["valgrind", "setarch"] {
            Command::new(tool).arg("--version").output().map_err(|error| {
                format!("{tool}: {error}: install valgrind and util-linux, as 'make count' does")
            })?;
        }
        let directory = directory.canonicalize().map_err(told(directory.display()))?;
        Ok(Driver { directory, program: format!("./{WORKER}"), built: modified(program) })
    }

    /// Makes what the job is measured on, unless this program has made it before.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn prepare(&self, job: &Job) -> Result<()> {
        let image = self.directory.join(job.image());
        if modified(&image).zip(self.built).is_some_and(|(image, built)| image > built) {
            return Ok(());
        }
        if !job.is_of_a_peer() {
            return volume::prepare(job.kind, &image);
        }
        let mut command = Command::new(self.directory.join(&self.program));
        command.args(["prepare", "--system", &job.system]).arg(job.kind.files.to_string());
        self.succeed(command.arg(&image), job).map(|_| ())
    }

    fn succeed(&self, command: &mut Command, job: &Job) -> Result<Output> {
        let output = command.current_dir(&self.directory).output().map_err(told(&self.program))?;
        if output.status.success() {
            return Ok(output);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().rfind(|line| !line.starts_with("=="));
        let (line, status) = (line.unwrap_or_default(), output.status);
        Err(format!("{} on {}: {status}: {line}", job.operation, job.image()))
    }

    fn run(&self, prefix: &[String], job: &Job, stack: bool) -> Result<Output> {
        let mut command = Command::new("setarch");
        command.arg("--addr-no-randomize").args(prefix).arg(&self.program);
        command.args(["work", &job.operation]).arg(job.kind.files.to_string()).arg(job.image());
        if job.is_of_a_peer() {
            command.args(["--system", &job.system]);
        }
        if job.kind.aged {
            command.arg("--aged");
        }
        if stack {
            command.arg("--stack");
        }
        command.env_clear().env("PATH", "/usr/bin:/bin").env("GLIBC_TUNABLES", TUNABLES);
        self.succeed(&mut command, job)
    }

    /// Bytes that functions of the C library copy in the region.
    fn copied(&self, job: &Job) -> Result<u64> {
        let file = job.output("dhat");
        let prefix = [
            "valgrind".to_owned(),
            "--tool=dhat".into(),
            "--mode=copy".into(),
            format!("--num-callers={CALLERS}"),
            format!("--dhat-out-file={file}"),
        ];
        self.run(&prefix, job, false)?;
        profile::copied_bytes(&self.directory.join(file))
    }

    /// Runs a worker under callgrind: its profile, and what it counted itself.
    ///
    /// # Errors
    /// If the worker or valgrind fails.
    pub fn profile(&self, job: &Job) -> Result<(Profile, Counts)> {
        let file = job.output("callgrind");
        let mut prefix: Vec<String> = [
            "valgrind",
            "--tool=callgrind",
            "--toggle-collect=*counted_region*",
            "--compress-strings=no",
            "--compress-pos=no",
        ]
        .map(String::from)
        .into();
        prefix.push(format!("--callgrind-out-file={file}"));
        if job.whole {
            prefix.extend(CACHES.map(String::from));
        }
        let counts = counts(&self.run(&prefix, job, false)?)?;
        let profile = Profile::read(&self.directory.join(file))?;
        Ok((profile, counts))
    }

    /// Measures one row.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub fn row(&self, job: &Job) -> Result<Row> {
        let (profile, counts) = self.profile(job)?;
        let mut row = row(job, &profile, &counts)?;
        if job.whole {
            let units = counts.units.max(1);
            row.copied_bytes = Some((self.copied(job)? + units / 2) / units);
            row.stack = Some(self::counts(&self.run(&[], job, true)?)?.stack_max);
        }
        Ok(row)
    }

    /// Measures all rows, and calls `done` with each.
    ///
    /// # Errors
    /// The first one of a row; the rows that were begun are finished.
    pub fn rows(&self, jobs: &[Job], done: &(dyn Fn(&Row) + Sync)) -> Result<Vec<Row>> {
        let next = Mutex::new(jobs.iter().enumerate());
        let results = Mutex::new(Vec::new());
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let job = next.lock().expect("no panics").next();
                        let Some((index, job)) = job else { break };
                        let row = self.row(job);
                        row.iter().for_each(done);
                        results.lock().expect("no panics").push((index, row));
                    }
                });
            }
        });
        let mut results = results.into_inner().expect("no panics");
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, row)| row).collect()
    }
}

fn counts(output: &Output) -> Result<Counts> {
    serde_json::from_slice(&output.stdout).map_err(told("what a worker printed"))
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn row(job: &Job, profile: &Profile, counts: &Counts) -> Result<Row> {
    let units = counts.units.max(1);
    let each = |sum: u64| (sum + units / 2) / units;
    let mean = |sum: u64| rounded(sum as f64 / units as f64);
    let total = profile.total(&["Ir"]).filter(|total| *total > 0);
    let total = total.ok_or_else(|| format!("{}: callgrind saw no region", job.operation))?;
    let medium = ["counted_medium_read", "counted_medium_write"];
    Ok(Row {
        system: job.system.clone(),
        operation: job.operation.clone(),
        files: job.kind.files,
        aged: job.kind.aged,
        instructions: each(total),
        checksum: each(profile.inclusive("counted_checksum")),
        medium: each(medium.iter().map(|name| profile.inclusive(name)).sum()),
        copying: each(profile.own(profile::copies)),
        allocator: each(profile.own(profile::allocates)),
        allocations: mean(counts.allocations),
        allocated_bytes: each(counts.allocated_bytes),
        copied_bytes: None,
        first_level_misses: profile.total(&["D1mr", "D1mw"]).map(mean),
        last_level_misses: profile.total(&["ILmr", "DLmr", "DLmw"]).map(mean),
        reads: mean(counts.reads),
        read_bytes: each(counts.read_bytes),
        writes: mean(counts.writes),
        written_bytes: each(counts.written_bytes),
        flushes: mean(counts.flushes),
        discards: mean(counts.discards),
        stack: None,
    })
}
