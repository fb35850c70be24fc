//! Reads of 4 KiB that bypass the page cache (O_DIRECT), at random places of one file. The number
//! of threads is the number of concurrent requests.

use super::aligned::Aligned;
use super::content::{Content, below};
use super::parallel::{self, check};
use super::{Bench, TestSpec, Timed, Workload};
use crate::Outcome;
use crate::result::{Cache, Unit};
use crate::run::Stop;
use crate::target::{Files, Open};
use crate::trouble::Doing;

/// Random reads at a depth.
#[derive(Debug, Clone, Copy)]
pub struct DirectReads {
    /// Number of concurrent reads.
    pub depth: u64,
    /// Bytes of the file: whole MiB.
    pub file_size: u64,
    /// Reads per thread.
    pub operations: u64,
}

const FILE: &str = "direct";
const PIECE: usize = 1 << 20;

impl DirectReads {
    fn spec(&self) -> TestSpec {
        TestSpec::new("direct-reads", "random-read", Unit::OperationsPerSecond)
            .with("record_size", Aligned::UNIT as u64)
            .with("depth", self.depth)
            .cached(Cache::Bypassed)
    }

    fn read(
        &self,
        files: &dyn Files,
        stop: &Stop,
        state: &mut u64,
        content: &Content,
    ) -> Outcome<Timed> {
        let open = Open { direct: true, ..Open::READ };
        let file = files.open(FILE, open).doing(|| format!("open {FILE}"))?;
        let (mut buffer, mut expected) = (Aligned::new(Aligned::UNIT), Aligned::new(Aligned::UNIT));
        let mut timed = Timed::default();
        for _ in 0..self.operations {
            check(stop)?;
            let offset = below(state, self.file_size / Aligned::UNIT as u64) * Aligned::UNIT as u64;
            let data = buffer.bytes();
            let count = timed.operation(|| file.read_at(data, offset));
            let count = count.doing(|| format!("read {FILE} at {offset}"))?;
            let found = data.get(..count).unwrap_or_default();
            content.compare(found, expected.bytes(), 0, offset, 1)?;
            timed.bytes += count as u64;
            timed.verification.bytes += count as u64;
        }
        Ok(timed)
    }
}

impl Workload for DirectReads {
    fn label(&self) -> String {
        format!("direct reads depth={}", self.depth)
    }

    fn tests(&self) -> Vec<TestSpec> {
        vec![self.spec()]
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let files = bench.files()?;
        let file = files.open(FILE, Open::CREATE).doing(|| format!("open {FILE}"))?;
        let mut data = vec![0; PIECE];
        for offset in (0..self.file_size).step_by(PIECE) {
            content.fill(&mut data, 0, offset, 1);
            file.write_at(&data, offset).doing(|| format!("write {FILE} at {offset}"))?;
        }
        file.close().doing(|| format!("close {FILE}"))?;
        bench.settle()?;
        let mut states: Vec<u64> =
            (0..self.depth.max(1)).map(|n| bench.seed.wrapping_add(n)).collect();
        let done = parallel::each(bench, &mut states, |state, files, stop| {
            self.read(files, stop, state, &content)
        });
        let mut timed = Timed::default();
        done?.into_iter().for_each(|one| timed.join_beside(one));
        bench.enter(&self.spec(), timed);
        Ok(())
    }
}
