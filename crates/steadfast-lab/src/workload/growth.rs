//! The cost of an operation on a large volume, divided by its cost on a small one. The same
//! operations run on the same volume, first with few files and a small file, then with many files
//! and a large one.
//!
//! `create` makes a file of 1 KiB in one of many directories of 1000. `lookup` is a stat of random
//! files, after the kernel has dropped names. `overwrite` writes 4 KiB at random places of a file,
//! all made durable by one timed fsync. The value is the quotient of both costs: 1 means that size
//! does not matter.

use super::content::{Content, below};
use super::{Bench, TestSpec, Timed, Workload};
use crate::measure::drop_names;
use crate::result::Unit;
use crate::target::Open;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Costs with a small and with a large content.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// The small and the large number of files.
    pub files: (u64, u64),
    /// The small and the large size of the file, bytes: whole MiB.
    pub file_size: (u64, u64),
    /// Measured operations at each size.
    pub operations: u64,
}

const BYTES: usize = 1024;
const RECORD: usize = 4096;
const PIECE: usize = 1 << 20;
const IN_DIRECTORY: u64 = 1000;
const FILE: &str = "grown";

impl Growth {
    fn spec(&self, name: &str) -> TestSpec {
        let spec = TestSpec::new("growth", name, Unit::Ratio);
        match name {
            "overwrite" => {
                spec.with("small_size", self.file_size.0).with("large_size", self.file_size.1)
            }
            _ => spec.with("few_files", self.files.0).with("many_files", self.files.1),
        }
    }

    /// Makes files up to a number.
    fn create(&self, bench: &Bench<'_>, next: &mut u64, until: u64) -> Outcome<Timed> {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; BYTES];
        let files = bench.files()?;
        let mut timed = Timed::default();
        while *next < until {
            bench.check_stop()?;
            let directory = directory(*next);
            if next.is_multiple_of(IN_DIRECTORY) {
                files.mkdir(&directory).doing(|| format!("mkdir {directory}"))?;
            }
            let path = format!("{directory}/{next}");
            content.fill(&mut data, *next, 0, 1);
            let made = timed.operation(|| {
                let mut file = files.open(&path, Open::CREATE)?;
                file.write(&data)?;
                file.close()
            });
            made.doing(|| format!("create {path}"))?;
            *next += 1;
        }
        Ok(timed)
    }

    fn lookup(&self, bench: &Bench<'_>, count: u64) -> Outcome<Timed> {
        bench.settle()?;
        drop_names()?;
        let mut state = bench.seed;
        let mut timed = Timed::default();
        for _ in 0..self.operations {
            bench.check_stop()?;
            let number = below(&mut state, count);
            let path = format!("{}/{number}", directory(number));
            let files = bench.files()?;
            let found = timed.operation(|| files.stat(&path)).doing(|| format!("stat {path}"))?;
            if found.size != BYTES as u64 {
                return Err(Trouble::Wrong { what: format!("size of {path}: {}", found.size) });
            }
            timed.verification.items += 1;
        }
        Ok(timed)
    }

    /// Grows the file to its size, and overwrites parts of it.
    fn overwrite(&self, bench: &Bench<'_>, before: u64, size: u64) -> Outcome<Timed> {
        let content = Content::new(bench.seed, 0);
        let mut piece = vec![0; PIECE];
        let files = bench.files()?;
        let how = if before == 0 { Open::CREATE } else { Open::WRITE };
        let file = files.open(FILE, how).doing(|| format!("open {FILE}"))?;
        for offset in (before..size).step_by(PIECE) {
            bench.check_stop()?;
            content.fill(&mut piece, 0, offset, 1);
            file.write_at(&piece, offset).doing(|| format!("write {FILE} at {offset}"))?;
        }
        bench.settle()?;
        let (mut data, mut state) = (vec![0; RECORD], bench.seed);
        let mut timed = Timed::default();
        for _ in 0..self.operations {
            bench.check_stop()?;
            let offset = below(&mut state, size / RECORD as u64) * RECORD as u64;
            content.fill(&mut data, 0, offset, 2);
            timed
                .operation(|| file.write_at(&data, offset))
                .doing(|| format!("write {FILE} at {offset}"))?;
            timed.bytes += RECORD as u64;
        }
        timed.beside(|| file.sync(false)).doing(|| format!("fsync {FILE}"))?;
        file.close().doing(|| format!("close {FILE}"))?;
        Ok(timed)
    }

    fn enter(&self, bench: &mut Bench<'_>, name: &str, little: &Timed, much: Timed) {
        let cost = |timed: &Timed| timed.value(Unit::SecondsPerOperation);
        let quotient = cost(&much).zip(cost(little)).map(|(much, little)| much / little.max(1e-12));
        bench.enter_value(&self.spec(name), quotient, much);
    }
}

fn directory(number: u64) -> String {
    format!("g{}", number / IN_DIRECTORY)
}

impl Workload for Growth {
    fn label(&self) -> String {
        format!("growth to {} files, {} bytes", self.files.1, self.file_size.1)
    }

    fn tests(&self) -> Vec<TestSpec> {
        ["create", "lookup", "overwrite"].map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let (few, many) = self.files;
        let mut next = 0;
        // The first files only warm up.
        self.create(bench, &mut next, few.saturating_sub(self.operations))?;
        let created_few = self.create(bench, &mut next, few)?;
        let looked_up_few = self.lookup(bench, next)?;
        self.create(bench, &mut next, many.saturating_sub(self.operations))?;
        let created_many = self.create(bench, &mut next, many)?;
        let looked_up_many = self.lookup(bench, next)?;
        self.enter(bench, "create", &created_few, created_many);
        // The memory of the daemon after it has seen all files.
        bench.add_costs(None, 0);
        self.enter(bench, "lookup", &looked_up_few, looked_up_many);
        let little = self.overwrite(bench, 0, self.file_size.0)?;
        let much = self.overwrite(bench, self.file_size.0, self.file_size.1)?;
        self.enter(bench, "overwrite", &little, much);
        Ok(())
    }
}
