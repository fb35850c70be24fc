//! The same work on a fresh volume, and on one that is nearly full and has been used for long.
//!
//! Ageing makes files of 4 KiB to 1 MiB, each doubling equally often, until nine tenths of the
//! space are used. Then it deletes random files and makes others in their place, until the amount
//! of [`Ageing::churn`] was written again. Part of that amount is overwrites in the middle of
//! files. Free space is fragmented then.
//!
//! The tests run before and after ageing, each time on new files. `random-write` writes 4 KiB with
//! an fdatasync each, in a file of some MiB. `create` makes files of 2 KiB with an fsync each.
//! `write` writes a file in records of 64 KiB, and calls fsync. The bytes that reached the medium
//! are counted too: `amplification` is their quotient for random writes.

use super::content::{Content, below};
use super::{Bench, TestSpec, Timed, Workload};
use crate::result::Unit;
use crate::target::Open;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Work before and after ageing.
#[derive(Debug, Clone, Copy)]
pub struct Ageing {
    /// Number of random writes, and of new files.
    pub operations: u64,
    /// Bytes of the written file: whole records.
    pub file_size: u64,
    /// Amount written again to age the volume, in percent of its contents.
    pub churn: u64,
}

const RECORD: usize = 64 << 10;
const SMALL: usize = 4096;
const SMALL_FILE: usize = 2048;
/// Sizes of the files that fill the volume: 4 KiB shifted by at most this.
const SHIFT_MOST: u64 = 8;
/// Share of the space that is used, in percent.
const FULL: u64 = 90;
/// Files per directory.
const IN_DIRECTORY: u64 = 500;
/// The file for random writes.
const TARGET: &str = "random";

/// The files that fill the volume.
struct Filling {
    state: u64,
    data: Vec<u8>,
    /// Number and bytes.
    files: Vec<(u64, u64)>,
    next: u64,
    bytes: u64,
}

impl Ageing {
    fn spec(&self, name: &str, condition: &str) -> TestSpec {
        let spec = match name {
            "random-write" => TestSpec::new("ageing", name, Unit::SecondsPerOperation)
                .with("record_size", SMALL as u64),
            "amplification" => TestSpec::new("ageing", name, Unit::Ratio)
                .with("record_size", SMALL as u64)
                .counts(),
            "create" => TestSpec::new("ageing", name, Unit::SecondsPerOperation)
                .with("file_bytes", SMALL_FILE as u64),
            _ => TestSpec::new("ageing", name, Unit::BytesPerSecond)
                .with("file_size", self.file_size)
                .with("record_size", RECORD as u64),
        };
        spec.with_text("condition", condition)
    }

    /// Runs the three tests, and removes their files.
    fn measure(&self, bench: &mut Bench<'_>, condition: &str) -> Outcome {
        self.random_write(bench, condition)?;
        self.create(bench, condition)?;
        self.write(bench, condition)
    }

    fn random_write(&self, bench: &mut Bench<'_>, condition: &str) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; SMALL];
        let files = bench.files()?;
        let file = files.open(TARGET, Open::CREATE).doing(|| format!("open {TARGET}"))?;
        for offset in (0..self.file_size).step_by(SMALL) {
            content.fill(&mut data, 0, offset, 1);
            file.write_at(&data, offset).doing(|| format!("write {TARGET} at {offset}"))?;
        }
        file.close().doing(|| format!("close {TARGET}"))?;
        // Pending writes must not count for the next test.
        bench.remount()?;
        let files = bench.files()?;
        let file = files.open(TARGET, Open::WRITE).doing(|| format!("open {TARGET}"))?;
        let first = file.write_at(&data, 0).and_then(|()| file.sync(true));
        first.doing(|| format!("write {TARGET}"))?;
        let before = bench.counters();
        let mut timed = Timed::default();
        let mut state = bench.seed;
        for _ in 0..self.operations {
            bench.check_stop()?;
            let offset = below(&mut state, self.file_size / SMALL as u64) * SMALL as u64;
            content.fill(&mut data, 0, offset, 2);
            let done =
                timed.operation(|| file.write_at(&data, offset).and_then(|()| file.sync(true)));
            done.doing(|| format!("write {TARGET} at {offset}"))?;
            timed.bytes += SMALL as u64;
        }
        file.close().doing(|| format!("close {TARGET}"))?;
        // Pending metadata is part of the cost of these writes; an unmounted file system has
        // written all of it.
        bench.remount()?;
        let medium =
            before.zip(bench.counters()).map(|(before, now)| before.until(&now, timed.bytes));
        bench.enter(&self.spec("random-write", condition), timed.clone()).medium = medium;
        let quotient = medium.map(|medium| medium.bytes_written as f64 / timed.bytes.max(1) as f64);
        let spec = self.spec("amplification", condition);
        match quotient {
            Some(_) => {
                bench.enter_value(&spec, quotient, Timed::default());
            }
            None => bench.skip(&spec, "there is no device of its own to count at".into()),
        }
        bench.files()?.unlink(TARGET).doing(|| format!("delete {TARGET}"))
    }

    fn create(&self, bench: &mut Bench<'_>, condition: &str) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; SMALL_FILE];
        let files = bench.files()?;
        let directory = "made";
        files.mkdir(directory).doing(|| format!("mkdir {directory}"))?;
        bench.settle()?;
        let before = bench.counters();
        let mut timed = Timed::default();
        for number in 0..self.operations {
            bench.check_stop()?;
            let path = format!("{directory}/{number}");
            content.fill(&mut data, number, 0, 1);
            let made = timed.operation(|| {
                let mut file = files.open(&path, Open::CREATE)?;
                file.write(&data)?;
                file.sync(false)?;
                file.close()
            });
            made.doing(|| format!("create {path}"))?;
            timed.bytes += SMALL_FILE as u64;
        }
        for number in 0..self.operations {
            let path = format!("{directory}/{number}");
            files.unlink(&path).doing(|| format!("delete {path}"))?;
        }
        files.rmdir(directory).doing(|| format!("rmdir {directory}"))?;
        let asked = timed.bytes;
        bench.enter(&self.spec("create", condition), timed);
        bench.add_costs(before, asked);
        Ok(())
    }

    fn write(&self, bench: &mut Bench<'_>, condition: &str) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; RECORD];
        bench.settle()?;
        let before = bench.counters();
        let mut timed = Timed::default();
        let files = bench.files()?;
        let file = files.open(TARGET, Open::CREATE).doing(|| format!("open {TARGET}"))?;
        for offset in (0..self.file_size).step_by(RECORD) {
            bench.check_stop()?;
            content.fill(&mut data, 0, offset, 3);
            timed
                .operation(|| file.write_at(&data, offset))
                .doing(|| format!("write {TARGET} at {offset}"))?;
            timed.bytes += RECORD as u64;
        }
        timed.beside(|| file.sync(false)).doing(|| format!("fsync {TARGET}"))?;
        file.close().doing(|| format!("close {TARGET}"))?;
        files.unlink(TARGET).doing(|| format!("delete {TARGET}"))?;
        let asked = timed.bytes;
        bench.enter(&self.spec("write", condition), timed);
        bench.add_costs(before, asked);
        Ok(())
    }

    /// Fills and uses the volume.
    fn age(&self, bench: &Bench<'_>) -> Outcome {
        let free = bench.files()?.free().doing(|| "look for free space".into())?;
        let mut filling =
            Filling { state: bench.seed, data: Vec::new(), files: Vec::new(), next: 0, bytes: 0 };
        let room = free * FULL / 100;
        while filling.bytes < room {
            bench.check_stop()?;
            filling.make(bench)?;
        }
        let used = filling.bytes;
        let mut written = 0;
        while written < used * self.churn / 100 {
            bench.check_stop()?;
            written +=
                if below(&mut filling.state, 4) == 0 { filling.overwrite(bench)? } else { 0 };
            filling.delete(bench)?;
            while filling.bytes < used {
                written += filling.make(bench)?;
            }
        }
        bench.settle()
    }
}

impl Filling {
    fn path(number: u64) -> String {
        format!("full{}/{number}", number / IN_DIRECTORY)
    }

    /// Makes a file; returns its bytes.
    fn make(&mut self, bench: &Bench<'_>) -> Outcome<u64> {
        let (number, size) = (self.next, (SMALL as u64) << below(&mut self.state, SHIFT_MOST + 1));
        self.next += 1;
        let path = Filling::path(number);
        let files = bench.files()?;
        if number % IN_DIRECTORY == 0 {
            let directory = format!("full{}", number / IN_DIRECTORY);
            files.mkdir(&directory).doing(|| format!("mkdir {directory}"))?;
        }
        self.data.resize(size as usize, 0);
        Content::new(bench.seed, 0).fill(&mut self.data, number, 0, 1);
        let made = files.open(&path, Open::CREATE).and_then(|mut file| {
            file.write(&self.data)?;
            file.close()
        });
        made.doing(|| format!("write {path}"))?;
        self.files.push((number, size));
        self.bytes += size;
        Ok(size)
    }

    /// Overwrites half of a file at a random place; returns the bytes.
    fn overwrite(&mut self, bench: &Bench<'_>) -> Outcome<u64> {
        let place = below(&mut self.state, self.files.len() as u64) as usize;
        let Some((number, size)) = self.files.get(place).copied() else { return Ok(0) };
        let path = Filling::path(number);
        let offset = below(&mut self.state, size / 2 + 1);
        self.data.resize((size / 2) as usize, 0);
        Content::new(bench.seed, 0).fill(&mut self.data, number, offset, 2);
        let written = bench.files()?.open(&path, Open::WRITE).and_then(|file| {
            file.write_at(&self.data, offset)?;
            file.close()
        });
        written.doing(|| format!("write {path} at {offset}"))?;
        Ok(size / 2)
    }

    fn delete(&mut self, bench: &Bench<'_>) -> Outcome {
        let place = below(&mut self.state, self.files.len() as u64) as usize;
        if place >= self.files.len() {
            return Err(Trouble::Skip("the volume is too small to be aged: use --size".into()));
        }
        let (number, size) = self.files.swap_remove(place);
        self.bytes -= size;
        let path = Filling::path(number);
        bench.files()?.unlink(&path).doing(|| format!("delete {path}"))
    }
}

impl Workload for Ageing {
    fn label(&self) -> String {
        format!("ageing operations={} churn={} %", self.operations, self.churn)
    }

    fn tests(&self) -> Vec<TestSpec> {
        let conditions = ["fresh", "90 % full, aged"];
        let names = ["random-write", "amplification", "create", "write"];
        let all =
            names.iter().flat_map(|name| conditions.map(|condition| self.spec(name, condition)));
        all.collect()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        if bench.target.device().is_none() {
            return Err(Trouble::Skip("there is no device of its own to fill".into()));
        }
        self.measure(bench, "fresh")?;
        self.age(bench)?;
        self.measure(bench, "90 % full, aged")
    }
}
