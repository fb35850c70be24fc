//! `lat_fs` of HBench-OS and lmbench creates N files of a size in one directory. Then it deletes
//! them, in the order of creation or in a random one. One creation is `creat`, `write` and `close`.
//!
//! Reference: A. Brown, M. Seltzer, "Operating System Benchmarking in the Wake of lmbench",
//! SIGMETRICS 1997.

use super::content::Content;
use super::iozone::Pattern;
use super::{Bench, TestSpec, Timed, Workload};
use crate::Outcome;
use crate::result::Unit;
use crate::target::Open;
use crate::trouble::Doing;

/// Create and delete.
#[derive(Debug, Clone, Copy)]
pub struct LatFs {
    /// Number of files.
    pub files: u64,
    /// Bytes in each.
    pub file_bytes: usize,
}

const DIRECTORY: &str = "lat_fs";

impl LatFs {
    fn spec(&self, name: &str) -> TestSpec {
        TestSpec::new("lat_fs", name, Unit::SecondsPerOperation)
            .with("files", self.files)
            .with("file_bytes", self.file_bytes as u64)
    }

    fn create(&self, bench: &mut Bench<'_>) -> Outcome<Timed> {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; self.file_bytes];
        let mut timed = Timed::default();
        for number in 0..self.files {
            bench.check_stop()?;
            let files = bench.files()?;
            let path = path(number);
            content.fill(&mut data, number, 0, 1);
            let made = timed.operation(|| {
                let mut file = files.open(&path, Open::CREATE)?;
                if !data.is_empty() {
                    file.write(&data)?;
                }
                file.close()
            });
            made.doing(|| format!("create {path}"))?;
        }
        timed.bytes = self.files * self.file_bytes as u64;
        Ok(timed)
    }

    fn delete(&self, bench: &mut Bench<'_>, order: Pattern) -> Outcome<Timed> {
        let mut timed = Timed::default();
        for number in order.records(self.files, bench.seed) {
            bench.check_stop()?;
            let path = path(number);
            let files = bench.files()?;
            timed.operation(|| files.unlink(&path)).doing(|| format!("delete {path}"))?;
        }
        Ok(timed)
    }
}

fn path(number: u64) -> String {
    format!("{DIRECTORY}/{number}")
}

impl Workload for LatFs {
    fn label(&self) -> String {
        format!("lat_fs files={} file_bytes={}", self.files, self.file_bytes)
    }

    fn tests(&self) -> Vec<TestSpec> {
        ["create", "delete", "delete-random"].map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        bench.check_directory(self.files)?;
        bench.files()?.mkdir(DIRECTORY).doing(|| format!("mkdir {DIRECTORY}"))?;
        let mut created = self.create(bench)?;
        created.verification.items += self.check(bench)?;
        bench.enter(&self.spec("create"), created);
        let deleted = self.delete(bench, Pattern::Forward)?;
        bench.enter(&self.spec("delete"), deleted);
        self.create(bench)?;
        let deleted = self.delete(bench, Pattern::Random)?;
        bench.enter(&self.spec("delete-random"), deleted);
        Ok(())
    }
}

impl LatFs {
    /// Checks that every file exists with its size; returns their number.
    fn check(&self, bench: &Bench<'_>) -> Outcome<u64> {
        let names = bench.files()?.readdir(DIRECTORY).doing(|| format!("list {DIRECTORY}"))?;
        if names.len() as u64 != self.files {
            let what =
                format!("directory {DIRECTORY}: {} names instead of {}", names.len(), self.files);
            return Err(crate::Trouble::Wrong { what });
        }
        for name in &names {
            let path = format!("{DIRECTORY}/{name}");
            let size = bench.files()?.stat(&path).doing(|| format!("stat {path}"))?.size;
            if size != self.file_bytes as u64 {
                return Err(crate::Trouble::Wrong { what: format!("size of {path}: {size}") });
            }
        }
        Ok(self.files)
    }
}
