//! The cost of durability: the time until a record, or a small file, is durable on the medium.
//!
//! `fsync` and `fdatasync` append a record to a file and make that call; `o-sync` appends through
//! O_SYNC. One operation includes both. `small-file` makes a file of 4 KiB: write, fsync, close,
//! and fsync of its directory, as a mail server or a package manager does. No file is preallocated,
//! because logs append too.

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::Outcome;
use crate::result::Unit;
use crate::target::Open;
use crate::trouble::Doing;

/// Durable records of some sizes, and durable small files.
#[derive(Debug, Clone)]
pub struct Durability {
    /// Bytes of a record.
    pub record_sizes: Vec<u64>,
    /// Number of records of each size, and of small files.
    pub count: u64,
}

const CALLS: [&str; 3] = ["fsync", "fdatasync", "o-sync"];
const FILE: &str = "durable";
const SMALL: usize = 4096;

impl Durability {
    fn spec(&self, name: &str, record_size: u64) -> TestSpec {
        TestSpec::new("durability", name, Unit::SecondsPerOperation)
            .with("record_size", record_size)
    }

    fn small_spec() -> TestSpec {
        TestSpec::new("durability", "small-file", Unit::SecondsPerOperation)
            .with("file_bytes", SMALL as u64)
    }

    fn records(&self, bench: &Bench<'_>, call: &str, record_size: u64) -> Outcome<Timed> {
        let content = Content::new(bench.seed, 0);
        let length = usize::try_from(record_size).unwrap_or(0);
        let (mut data, mut expected) = (vec![0; length], vec![0; length]);
        let files = bench.files()?;
        let how = Open { sync: call == "o-sync", ..Open::CREATE };
        let mut file = files.open(FILE, how).doing(|| format!("open {FILE}"))?;
        let mut timed = Timed::default();
        for number in 0..self.count {
            bench.check_stop()?;
            let offset = number * record_size;
            content.fill(&mut data, 0, offset, 1);
            let done = timed.operation(|| {
                file.write(&data)?;
                if call == "o-sync" { Ok(()) } else { file.sync(call == "fdatasync") }
            });
            done.doing(|| format!("{call} {FILE} at {offset}"))?;
            timed.bytes += record_size;
        }
        for number in 0..self.count {
            let offset = number * record_size;
            let count = file.read_at(&mut data, offset).doing(|| format!("read {FILE}"))?;
            content.compare(data.get(..count).unwrap_or_default(), &mut expected, 0, offset, 1)?;
            timed.verification.bytes += count as u64;
        }
        file.close().doing(|| format!("close {FILE}"))?;
        files.unlink(FILE).doing(|| format!("unlink {FILE}"))?;
        Ok(timed)
    }

    fn small_files(&self, bench: &Bench<'_>) -> Outcome<Timed> {
        const DIRECTORY: &str = "small";
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; SMALL];
        let files = bench.files()?;
        files.mkdir(DIRECTORY).doing(|| format!("mkdir {DIRECTORY}"))?;
        let mut timed = Timed::default();
        for number in 0..self.count {
            bench.check_stop()?;
            let path = format!("{DIRECTORY}/{number}");
            content.fill(&mut data, number, 0, 1);
            let done = timed.operation(|| {
                let mut file = files.open(&path, Open::CREATE)?;
                file.write(&data)?;
                file.sync(false)?;
                file.close()?;
                files.sync_directory(DIRECTORY)
            });
            done.doing(|| format!("make {path} durable"))?;
            timed.bytes += SMALL as u64;
        }
        Ok(timed)
    }
}

impl Workload for Durability {
    fn label(&self) -> String {
        format!("durability count={}", self.count)
    }

    fn tests(&self) -> Vec<TestSpec> {
        let records =
            self.record_sizes.iter().flat_map(|size| CALLS.map(|call| self.spec(call, *size)));
        records.chain([Self::small_spec()]).collect()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        for record_size in &self.record_sizes {
            for call in CALLS {
                let timed = self.records(bench, call, *record_size);
                bench.enter_or_skip(&self.spec(call, *record_size), timed)?;
            }
        }
        let timed = self.small_files(bench);
        bench.enter_or_skip(&Self::small_spec(), timed)
    }
}
