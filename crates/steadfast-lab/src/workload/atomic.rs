//! Updates of many files, after which a power cut should leave all files new or all old. Installing
//! an update, or saving a configuration of several files, needs this.
//!
//! Two tests use the same files, each of which is written whole:
//! - `replace-files`: the usual way on any file system. It writes a new file, fsyncs it, and
//!   renames it over the old one. It fsyncs the directory at the end. Each file is old or new, but
//!   some may be old and others new.
//! - `atomic-update`: all files together or none, if the file system supports that. On Steadfast
//!   the files are written in place inside one atomic group, which ends in one transaction point.
//!   Other file systems have no such operation, so `replace-files` runs once more instead. So the
//!   ratio compares the two ways.

use std::io;

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::Outcome;
use crate::result::Unit;
use crate::target::{Files, Open};
use crate::trouble::Doing;

/// Updates of the same files.
#[derive(Debug, Clone, Copy)]
pub struct AtomicUpdate {
    /// Number of files.
    pub files: u64,
    /// Bytes of each.
    pub file_bytes: usize,
    /// Number of updates in each test.
    pub updates: u64,
}

const DIRECTORY: &str = "update";
const TESTS: [&str; 2] = ["replace-files", "atomic-update"];

impl AtomicUpdate {
    fn spec(&self, name: &str) -> TestSpec {
        TestSpec::new("atomic", name, Unit::SecondsPerOperation)
            .with("files", self.files)
            .with("file_bytes", self.file_bytes as u64)
    }

    /// The contents of all files in this version, in order.
    fn contents(&self, bench: &Bench<'_>, version: u64) -> Vec<Vec<u8>> {
        let content = Content::new(bench.seed, 0);
        let whole = |number| {
            let mut data = vec![0; self.file_bytes];
            content.fill(&mut data, number, 0, version);
            data
        };
        (0..self.files).map(whole).collect()
    }

    fn update(&self, bench: &Bench<'_>, first: u64, atomic: bool) -> Outcome<Timed> {
        let files = bench.files()?;
        let mut timed = Timed::default();
        for version in first..first + self.updates {
            bench.check_stop()?;
            let contents = self.contents(bench, version);
            let done = timed.operation(|| {
                let together = atomic
                    .then(|| files.atomically(&mut || write_in_place(files, &contents)))
                    .flatten();
                together.unwrap_or_else(|| replace_each(files, &contents))
            });
            done.doing(|| format!("update {} files", self.files))?;
            timed.bytes += self.files * self.file_bytes as u64;
        }
        timed.verification.bytes += self.check(bench, first + self.updates - 1)?;
        Ok(timed)
    }

    /// Checks that all files are of this version; returns their bytes.
    fn check(&self, bench: &Bench<'_>, version: u64) -> Outcome<u64> {
        let content = Content::new(bench.seed, 0);
        // One extra byte, so that a file that is too long is detected.
        let (mut data, mut expected) = (vec![0; self.file_bytes + 1], vec![0; self.file_bytes]);
        for number in 0..self.files {
            let path = path(number);
            let file = bench.files()?.open(&path, Open::READ).doing(|| format!("open {path}"))?;
            let count = file.read_at(&mut data, 0).doing(|| format!("read {path}"))?;
            content.compare(
                data.get(..count).unwrap_or_default(),
                &mut expected,
                number,
                0,
                version,
            )?;
        }
        Ok(self.files * self.file_bytes as u64)
    }
}

fn path(number: u64) -> String {
    format!("{DIRECTORY}/{number}")
}

fn write_in_place(files: &dyn Files, contents: &[Vec<u8>]) -> io::Result<()> {
    for (number, data) in contents.iter().enumerate() {
        let file = files.open(&path(number as u64), Open::WRITE)?;
        file.write_at(data, 0)?;
        file.close()?;
    }
    Ok(())
}

fn replace_each(files: &dyn Files, contents: &[Vec<u8>]) -> io::Result<()> {
    let new = format!("{DIRECTORY}/new");
    for (number, data) in contents.iter().enumerate() {
        let file = files.open(&new, Open::CREATE)?;
        file.write_at(data, 0)?;
        file.sync(false)?;
        file.close()?;
        files.rename(&new, &path(number as u64))?;
    }
    files.sync_directory(DIRECTORY)
}

impl Workload for AtomicUpdate {
    fn label(&self) -> String {
        format!("atomic update of {} files of {} bytes", self.files, self.file_bytes)
    }

    fn tests(&self) -> Vec<TestSpec> {
        TESTS.map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let files = bench.files()?;
        files.mkdir(DIRECTORY).doing(|| format!("mkdir {DIRECTORY}"))?;
        for (number, data) in self.contents(bench, 0).iter().enumerate() {
            let path = path(number as u64);
            let file = files.open(&path, Open::CREATE).doing(|| format!("create {path}"))?;
            file.write_at(data, 0).doing(|| format!("write {path}"))?;
            file.close().doing(|| format!("close {path}"))?;
        }
        let mut first = 1;
        for name in TESTS {
            // Earlier changes are not part of the test.
            bench.settle()?;
            let before = bench.counters();
            let timed = self.update(bench, first, name == "atomic-update");
            first += self.updates;
            let asked = timed.as_ref().map_or(0, |timed| timed.bytes);
            bench.enter_or_skip(&self.spec(name), timed)?;
            bench.add_costs(before, asked);
        }
        Ok(())
    }
}
