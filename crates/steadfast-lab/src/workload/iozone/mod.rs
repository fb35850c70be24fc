//! The tests of IOzone 3 (W. Norcott, D. Capps, iozone.org), as its source and documentation define
//! them.
//!
//! For one file size and each record size, the tests run on one file. They are write, re-write,
//! read, re-read, random read, random write, backward read, record re-write, stride read, fwrite
//! and fread, pwrite and pread. Both fwrite and fread use a buffered stream with a buffer of one
//! record. Each test can also use a memory map (`-B`) or bypass the page cache (`-I`).
//!
//! The file is opened before the clock starts. The time includes `fsync` with `-e`, and `close`
//! with `-c`. Without `-e`, written data is made durable after the clock has stopped, so that no
//! test pays for the previous one.
//!
//! With `-t N` this many processes do that at once, with `-T -t N` this many threads. Each has its
//! own file, and the value is the sum of their results.
//!
//! There is one deliberate difference from IOzone: only the calls are timed, so that every byte
//! read can be compared.

mod child;
mod map;
mod options;
mod pass;
mod pattern;
mod processes;
mod throughput;

pub use child::serve as serve_child;
pub use options::{Options, TestGroup, Way};
pub use pattern::Pattern;

use super::content::Content;
use super::{Bench, TestSpec, Workload};
use crate::result::{Cache, Unit};
use crate::{Outcome, Trouble};
use pass::{Call, Pass};
use throughput::Crew;

/// IOzone's tests on a file of one size, with each record size in turn.
#[derive(Debug, Clone)]
pub struct Iozone {
    /// Size of the file, bytes.
    pub file_size: u64,
    /// Sizes of the records, bytes, each at most the file size.
    pub record_sizes: Vec<u64>,
    /// The other options.
    pub options: Options,
}

/// The tests in their order, with their calls. The number is IOzone's `-i`.
const TESTS: [(TestGroup, &str, Pattern, bool, Call); 17] = {
    use Call::{Positional, Sequential, Stream};
    use Pattern::{Backward, Forward, Random, Same};
    [
        (TestGroup::Write, "write", Forward, true, Sequential),
        (TestGroup::Write, "rewrite", Forward, true, Sequential),
        (TestGroup::Read, "read", Forward, false, Sequential),
        (TestGroup::Read, "reread", Forward, false, Sequential),
        (TestGroup::Random, "random-read", Random, false, Sequential),
        (TestGroup::Random, "random-write", Random, true, Sequential),
        (TestGroup::Backward, "backward-read", Backward, false, Sequential),
        (TestGroup::RecordRewrite, "record-rewrite", Same, true, Sequential),
        (TestGroup::Stride, "stride-read", Pattern::Stride(17), false, Sequential),
        (TestGroup::Fwrite, "fwrite", Forward, true, Stream),
        (TestGroup::Fwrite, "frewrite", Forward, true, Stream),
        (TestGroup::Fread, "fread", Forward, false, Stream),
        (TestGroup::Fread, "freread", Forward, false, Stream),
        (TestGroup::Pwrite, "pwrite", Forward, true, Positional),
        (TestGroup::Pwrite, "repwrite", Forward, true, Positional),
        (TestGroup::Pread, "pread", Forward, false, Positional),
        (TestGroup::Pread, "repread", Forward, false, Positional),
    ]
};

impl Iozone {
    fn spec(&self, name: &str, write: bool, record_size: u64) -> TestSpec {
        let spec = TestSpec::new("iozone", name, Unit::BytesPerSecond)
            .with("file_size", self.file_size)
            .with("record_size", record_size);
        let spec = match self.options.way {
            Way::Calls => spec,
            way => spec.with_text("way", way.name()),
        };
        let spec = if self.options.sync && write { spec.with_text("open", "O_SYNC") } else { spec };
        let spec = match self.options.threads {
            1 => spec,
            count => spec.with(self.options.crew(), count),
        };
        // Without it, the data just written is still in the cache.
        let cache = match (self.options.way, self.options.cold && !write) {
            (Way::Direct, _) => Cache::Bypassed,
            (_, true) => Cache::Cold,
            _ => Cache::Warm,
        };
        spec.cached(cache)
    }

    /// The tests for a record size: those of the selected groups, and the write that all of them
    /// need.
    fn chosen(&self) -> impl Iterator<Item = (&'static str, Pattern, bool, Call)> {
        let groups = self.options.groups.clone();
        let stride = self.options.stride;
        TESTS
            .into_iter()
            .filter(move |(group, ..)| groups.is_empty() || groups.contains(group))
            .map(move |(_, name, pattern, write, call)| match pattern {
                Pattern::Stride(_) => (name, Pattern::Stride(stride), write, call),
                _ => (name, pattern, write, call),
            })
    }
}

impl Workload for Iozone {
    fn label(&self) -> String {
        let way = if self.options.way == Way::Calls { "" } else { self.options.way.name() };
        let space = if way.is_empty() { "" } else { " " };
        let sync = if self.options.sync { " O_SYNC" } else { "" };
        let records: Vec<String> = self.record_sizes.iter().map(u64::to_string).collect();
        let threads = match self.options.threads {
            1 => String::new(),
            count => format!(" {}={count}", self.options.crew()),
        };
        format!(
            "iozone{space}{way}{sync}{threads} file_size={} record_size={}",
            self.file_size,
            records.join("+")
        )
    }

    fn tests(&self) -> Vec<TestSpec> {
        let mut tests = Vec::new();
        for record_size in &self.record_sizes {
            tests.extend(
                self.chosen().map(|(name, _, write, _)| self.spec(name, write, *record_size)),
            );
        }
        tests
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        let content = Content::new(bench.seed, self.options.dedupable);
        for record_size in &self.record_sizes {
            let mut crew = Crew::new(bench, self, &content, *record_size)?;
            if !self.chosen().any(|(name, ..)| name == "write") {
                crew.prepare(bench)?;
            }
            for (name, pattern, write, call) in self.chosen() {
                let spec = self.spec(name, write, *record_size);
                if self.options.cold && !write {
                    bench.go_cold()?;
                }
                let pass = Pass {
                    pattern,
                    write,
                    call,
                    fresh: matches!(name, "write" | "fwrite" | "pwrite"),
                };
                let before = bench.counters();
                let passed = crew.run(bench, pass);
                let asked =
                    if write { passed.as_ref().map_or(0, |(_, timed)| timed.bytes) } else { 0 };
                match passed {
                    Ok((value, timed)) => {
                        bench.enter_value(&spec, Some(value), timed);
                    }
                    Err(Trouble::Skip(reason)) => bench.skip(&spec, reason),
                    Err(trouble) => return Err(trouble),
                }
                // The written data is durable by now, with or without -e.
                bench.add_costs(before, asked);
            }
            crew.remove(bench)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_those_that_were_asked_for() {
        let options =
            Options { groups: vec![TestGroup::Read, TestGroup::Random], ..Options::default() };
        let iozone = Iozone { file_size: 65536, record_sizes: vec![4096, 8192], options };
        let ids: Vec<String> = iozone.tests().iter().map(TestSpec::id).collect();
        assert_eq!(ids.len(), 8);
        assert_eq!(ids[0], "iozone/read/file_size=65536,record_size=4096");
        let all = Iozone { options: Options::default(), ..iozone };
        assert_eq!(all.tests().len(), 34);
    }
}
