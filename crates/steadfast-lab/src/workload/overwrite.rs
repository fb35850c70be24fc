//! Small durable writes: 4 KiB at a random place of an existing file, or at its end, and fdatasync.
//! One thread does them, or several at once, each on its own file.
//!
//! One operation is both calls. The value is the sum over all threads in the time of the slowest.
//! The requests that reached the medium meanwhile are counted too. Durability needs at least one
//! write and one flush, and several threads can share a flush. At the end every byte is read and
//! compared.

use super::content::{Content, below};
use super::parallel::{self, check};
use super::{Bench, TestSpec, Timed, Workload};
use crate::Outcome;
use crate::result::Unit;
use crate::run::Stop;
use crate::target::{Files, Open};
use crate::trouble::Doing;

/// The position of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePosition {
    /// Random records of a fully written file.
    Inside,
    /// After the end.
    End,
}

/// Durable writes of 4 KiB.
#[derive(Debug, Clone, Copy)]
pub struct DurableWrites {
    /// The position of the writes.
    pub position: WritePosition,
    /// Number of threads, each with its own file.
    pub threads: u64,
    /// Bytes of each file at the start, for writes inside it: whole records.
    pub file_size: u64,
    /// Writes per thread.
    pub operations: u64,
}

const RECORD: usize = 4096;

/// The file of a thread.
struct ThreadFile {
    number: u64,
    state: u64,
    /// Number of writes of each record.
    versions: Vec<u64>,
}

impl ThreadFile {
    fn path(&self) -> String {
        format!("durable.{}", self.number)
    }
}

impl DurableWrites {
    fn spec(&self) -> TestSpec {
        let name = match self.position {
            WritePosition::Inside => "overwrite-fdatasync",
            WritePosition::End => "append-fdatasync",
        };
        TestSpec::new("durable-writes", name, Unit::OperationsPerSecond)
            .with("record_size", RECORD as u64)
            .with("threads", self.threads)
    }

    fn prepare(&self, files: &dyn Files, part: &mut ThreadFile, content: &Content) -> Outcome {
        let path = part.path();
        let file = files.open(&path, Open::CREATE).doing(|| format!("open {path}"))?;
        if self.position == WritePosition::Inside {
            let mut data = vec![0; RECORD];
            for offset in (0..self.file_size).step_by(RECORD) {
                content.fill(&mut data, part.number, offset, 1);
                file.write_at(&data, offset).doing(|| format!("write {path} at {offset}"))?;
                part.versions.push(1);
            }
        }
        file.sync(false).doing(|| format!("fsync {path}"))?;
        file.close().doing(|| format!("close {path}"))
    }

    fn write(
        &self,
        files: &dyn Files,
        stop: &Stop,
        part: &mut ThreadFile,
        content: &Content,
    ) -> Outcome<Timed> {
        let path = part.path();
        let file = files.open(&path, Open::WRITE).doing(|| format!("open {path}"))?;
        let mut data = vec![0; RECORD];
        let mut timed = Timed::default();
        for _ in 0..self.operations {
            check(stop)?;
            let record = match self.position {
                WritePosition::Inside => {
                    below(&mut part.state, part.versions.len() as u64) as usize
                }
                WritePosition::End => part.versions.len(),
            };
            if self.position == WritePosition::End {
                part.versions.push(0);
            }
            let Some(version) = part.versions.get_mut(record) else { continue };
            *version += 1;
            let offset = (record * RECORD) as u64;
            content.fill(&mut data, part.number, offset, *version);
            let done =
                timed.operation(|| file.write_at(&data, offset).and_then(|()| file.sync(true)));
            done.doing(|| format!("write {path} at {offset}"))?;
            timed.bytes += RECORD as u64;
        }
        file.close().doing(|| format!("close {path}"))?;
        Ok(timed)
    }

    fn compare(&self, files: &dyn Files, part: &ThreadFile, content: &Content) -> Outcome<u64> {
        let path = part.path();
        let file = files.open(&path, Open::READ).doing(|| format!("open {path}"))?;
        let (mut data, mut expected) = (vec![0; RECORD], vec![0; RECORD]);
        for (record, version) in part.versions.iter().enumerate() {
            let offset = (record * RECORD) as u64;
            let count =
                file.read_at(&mut data, offset).doing(|| format!("read {path} at {offset}"))?;
            let found = data.get(..count).unwrap_or_default();
            content.compare(found, &mut expected, part.number, offset, *version)?;
        }
        Ok((part.versions.len() * RECORD) as u64)
    }
}

impl Workload for DurableWrites {
    fn label(&self) -> String {
        format!("{} threads={}", self.spec().name, self.threads)
    }

    fn tests(&self) -> Vec<TestSpec> {
        vec![self.spec()]
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let part = |number| ThreadFile {
            number,
            state: bench.seed.wrapping_add(number),
            versions: Vec::new(),
        };
        let mut parts: Vec<ThreadFile> = (0..self.threads.max(1)).map(part).collect();
        for part in &mut parts {
            self.prepare(bench.files()?, part, &content)?;
        }
        bench.settle()?;
        let before = bench.counters();
        let done = parallel::each(bench, &mut parts, |part, files, stop| {
            self.write(files, stop, part, &content)
        });
        let mut timed = Timed::default();
        done?.into_iter().for_each(|one| timed.join_beside(one));
        // The counters are read at once, because later background writes belong to many operations.
        let after = bench.counters();
        for part in &parts {
            timed.verification.bytes += self.compare(bench.files()?, part, &content)?;
        }
        let asked = timed.bytes;
        let medium = before.zip(after).map(|(before, after)| before.until(&after, asked));
        bench.enter(&self.spec(), timed).medium = medium;
        Ok(())
    }
}
