//! The processor cost of a file system: user and system time of the process, of the daemon and of
//! the kernel's threads. It is given per GiB or per operation, and as a curve over time.
//!
//! There are four tests, each of which ends when everything is on the medium. `write` writes a file
//! in records of 128 KiB and calls fsync. `read` reads it with cold caches. `random-write` writes 4
//! KiB with an fsync each. `create-delete` makes files of 2 KiB, then deletes all of them.
//!
//! Making and comparing the data also costs processor time. That time of the calling thread is
//! measured and subtracted, and so is the cost of the sampling.

use super::content::{Content, below};
use super::{Bench, TestSpec, Timed, Workload};
use crate::measure::{CpuClock, Sampler, thread_seconds};
use crate::result::{Cache, Cpu, Unit};
use crate::target::{Open, Target};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Processor time of plain work.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Bytes of the file: whole records.
    pub file_size: u64,
    /// Number of random writes, and of files that are made and deleted.
    pub operations: u64,
}

const RECORD: usize = 128 << 10;
const SMALL_RECORD: usize = 4096;
const SMALL_FILE: usize = 2048;
const FILE: &str = "cost";
const DIRECTORY: &str = "cost.d";

/// Measures processor time from its start on.
struct Meter {
    clock: CpuClock,
    sampler: Sampler,
    daemon: Vec<u32>,
    /// Seconds that the calling thread spent on other work.
    aside: f64,
}

impl Meter {
    fn start(target: &dyn Target) -> Meter {
        let daemon = target.processes();
        Meter {
            sampler: Sampler::start(&daemon),
            clock: CpuClock::now(&daemon),
            daemon,
            aside: 0.0,
        }
    }

    /// Does work that is not part of the test.
    fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = thread_seconds();
        let value = work();
        self.aside += thread_seconds() - before;
        value
    }

    fn end(self, target: &dyn Target) -> Cpu {
        // The sampler ends first, because its own cost is known only then.
        let (curve, looking) = self.sampler.end();
        let used = self.clock.since(&self.daemon, target.in_process(), self.aside + looking);
        Cpu { curve, ..used }
    }
}

impl Cost {
    fn spec(&self, name: &str) -> TestSpec {
        match name {
            "write" | "read" => TestSpec::new("cpu", name, Unit::CpuSecondsPerGib)
                .with("file_size", self.file_size)
                .with("record_size", RECORD as u64)
                .cached(if name == "read" { Cache::Cold } else { Cache::Warm }),
            "random-write" => TestSpec::new("cpu", name, Unit::CpuSecondsPerOperation)
                .with("file_size", self.file_size)
                .with("record_size", SMALL_RECORD as u64),
            _ => TestSpec::new("cpu", name, Unit::CpuSecondsPerOperation)
                .with("files", self.operations)
                .with("file_bytes", SMALL_FILE as u64),
        }
    }

    fn write(&self, bench: &Bench<'_>, content: &Content, meter: &mut Meter) -> Outcome<Timed> {
        let mut data = vec![0; RECORD];
        let mut timed = Timed::default();
        let file = bench.files()?.open(FILE, Open::CREATE).doing(|| format!("open {FILE}"))?;
        for offset in (0..self.file_size).step_by(RECORD) {
            bench.check_stop()?;
            meter.aside(|| content.fill(&mut data, 0, offset, 1));
            timed
                .operation(|| file.write_at(&data, offset))
                .doing(|| format!("write {FILE} at {offset}"))?;
            timed.bytes += RECORD as u64;
        }
        timed.beside(|| file.sync(false)).doing(|| format!("fsync {FILE}"))?;
        file.close().doing(|| format!("close {FILE}"))?;
        Ok(timed)
    }

    fn read(&self, bench: &Bench<'_>, content: &Content, meter: &mut Meter) -> Outcome<Timed> {
        let (mut data, mut expected) = (vec![0; RECORD], vec![0; RECORD]);
        let mut timed = Timed::default();
        let file = bench.files()?.open(FILE, Open::READ).doing(|| format!("open {FILE}"))?;
        for offset in (0..self.file_size).step_by(RECORD) {
            bench.check_stop()?;
            let count = timed.operation(|| file.read_at(&mut data, offset));
            let count = count.doing(|| format!("read {FILE} at {offset}"))?;
            let found = data.get(..count).unwrap_or_default();
            meter.aside(|| content.compare(found, &mut expected, 0, offset, 1))?;
            timed.bytes += count as u64;
            timed.verification.bytes += count as u64;
        }
        file.close().doing(|| format!("close {FILE}"))?;
        Ok(timed)
    }

    fn random_write(
        &self,
        bench: &Bench<'_>,
        content: &Content,
        meter: &mut Meter,
    ) -> Outcome<Timed> {
        let mut data = vec![0; SMALL_RECORD];
        let mut timed = Timed::default();
        let mut state = bench.seed;
        let file = bench.files()?.open(FILE, Open::WRITE).doing(|| format!("open {FILE}"))?;
        for _ in 0..self.operations {
            bench.check_stop()?;
            let offset =
                below(&mut state, self.file_size / SMALL_RECORD as u64) * SMALL_RECORD as u64;
            meter.aside(|| content.fill(&mut data, 0, offset, 2));
            let done =
                timed.operation(|| file.write_at(&data, offset).and_then(|()| file.sync(true)));
            done.doing(|| format!("write {FILE} at {offset}"))?;
            timed.bytes += SMALL_RECORD as u64;
        }
        file.close().doing(|| format!("close {FILE}"))?;
        Ok(timed)
    }

    fn create_delete(
        &self,
        bench: &Bench<'_>,
        content: &Content,
        meter: &mut Meter,
    ) -> Outcome<Timed> {
        let mut data = vec![0; SMALL_FILE];
        let mut timed = Timed::default();
        let files = bench.files()?;
        files.mkdir(DIRECTORY).doing(|| format!("mkdir {DIRECTORY}"))?;
        for number in 0..self.operations {
            bench.check_stop()?;
            let path = format!("{DIRECTORY}/{number}");
            meter.aside(|| content.fill(&mut data, number, 0, 1));
            let made = timed.operation(|| {
                let mut file = files.open(&path, Open::CREATE)?;
                file.write(&data)?;
                file.close()
            });
            made.doing(|| format!("create {path}"))?;
            timed.bytes += SMALL_FILE as u64;
        }
        for number in 0..self.operations {
            bench.check_stop()?;
            let path = format!("{DIRECTORY}/{number}");
            timed.operation(|| files.unlink(&path)).doing(|| format!("delete {path}"))?;
        }
        timed.beside(|| files.sync()).doing(|| "sync".into())?;
        Ok(timed)
    }

    fn measure(&self, bench: &mut Bench<'_>, content: &Content, name: &str) -> Outcome {
        if name == "read" {
            bench.go_cold()?;
        }
        let before = bench.counters();
        let mut meter = Meter::start(bench.target);
        let timed = match name {
            "write" => self.write(bench, content, &mut meter),
            "read" => self.read(bench, content, &mut meter),
            "random-write" => self.random_write(bench, content, &mut meter),
            _ => self.create_delete(bench, content, &mut meter),
        }?;
        let cpu = meter.end(bench.target);
        let spec = self.spec(name);
        let count = match spec.unit {
            Unit::CpuSecondsPerGib => timed.bytes as f64 / f64::from(1 << 30),
            _ => timed.operations as f64,
        };
        let asked = if name == "read" { 0 } else { timed.bytes };
        let value = cpu.total() / count;
        bench.enter_value(&spec, Some(value), timed).cpu = Some(cpu);
        bench.add_costs(before, asked);
        Ok(())
    }
}

impl Workload for Cost {
    fn label(&self) -> String {
        format!("cpu file_size={} operations={}", self.file_size, self.operations)
    }

    fn tests(&self) -> Vec<TestSpec> {
        ["write", "read", "random-write", "create-delete"].map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let content = Content::new(bench.seed, 0);
        for spec in self.tests() {
            match self.measure(bench, &content, &spec.name) {
                Err(Trouble::Skip(reason)) => bench.skip(&spec, reason),
                measured => measured?,
            }
        }
        Ok(())
    }
}
