//! The lab compared with fio: the same loads on the same mount in the same round. So the lab's
//! clock need not be trusted.
//!
//! There are five loads. The lab and fio run each of them in turn, on separate files of the same
//! size. The order alternates from round to round. `write` and `read` use records of 128 KiB, with
//! an fsync every 16 records when writing. `random-read` reads 4 KiB; all reads have cold caches.
//! `random-write` writes 4 KiB with an fdatasync each, and `append` appends 4 KiB with an fsync
//! each.
//!
//! Both count only the time of the calls. For fio that is the mean of its latencies times their
//! number. fio must make no other calls. Without `--fadvise_hint=0` it announces random or
//! sequential access to the kernel, which then reads ahead not at all or twice as much. Without
//! `--invalidate=0` it drops the file from the cache before it writes. The program fio makes no
//! durability call after the last write, so the lab does not time its own call there either.

use std::path::Path;

use serde_json::Value;

use super::content::Content;
use super::iozone::Pattern;
use super::{Bench, TestSpec, Timed, Workload};
use crate::result::{Cache, CrossCheck, Unit};
use crate::target::{Open, run_tool, version_of};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Loads by the lab and by fio.
#[derive(Debug, Clone, Copy)]
pub struct AgainstFio {
    /// Bytes of each file: a multiple of 8 MiB.
    pub file_size: u64,
    /// Number of durable calls in the tests that make them, and of random reads.
    pub operations: u64,
}

/// A load that both run.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    /// fio's name of the load.
    rw: &'static str,
    record_size: u64,
    /// The load uses a new file.
    fresh: bool,
    write: bool,
    /// The durability call, and the number of writes between two of them.
    sync: Option<(&'static str, u64)>,
}

const LARGE: u64 = 128 << 10;
const SMALL: u64 = 4 << 10;
const OURS: &str = "check.lab";
const THEIRS: &str = "check.fio";

const LOADS: [Load; 5] = [
    Load {
        name: "write",
        rw: "write",
        record_size: LARGE,
        fresh: true,
        write: true,
        sync: Some(("fsync", 16)),
    },
    Load { name: "read", rw: "read", record_size: LARGE, fresh: false, write: false, sync: None },
    Load {
        name: "random-read",
        rw: "randread",
        record_size: SMALL,
        fresh: false,
        write: false,
        sync: None,
    },
    Load {
        name: "random-write",
        rw: "randwrite",
        record_size: SMALL,
        fresh: false,
        write: true,
        sync: Some(("fdatasync", 1)),
    },
    Load {
        name: "append",
        rw: "write",
        record_size: SMALL,
        fresh: true,
        write: true,
        sync: Some(("fsync", 1)),
    },
];

impl AgainstFio {
    fn spec(&self, load: &Load) -> TestSpec {
        let spec = TestSpec::new("check", load.name, Unit::BytesPerSecond)
            .with("file_size", self.bytes(load).max(self.file_size * u64::from(!load.fresh)))
            .with("record_size", load.record_size);
        if load.write { spec } else { spec.cached(Cache::Cold) }
    }

    /// The amount read or written.
    fn bytes(&self, load: &Load) -> u64 {
        if load.record_size == LARGE {
            self.file_size
        } else {
            (self.operations * SMALL).min(self.file_size)
        }
    }

    /// Runs the load in the lab.
    fn ours(&self, bench: &Bench<'_>, load: &Load, content: &Content) -> Outcome<Timed> {
        let length = usize::try_from(load.record_size).unwrap_or(0);
        let (mut data, mut expected) = (vec![0; length], vec![0; length]);
        let how = match (load.fresh, load.write) {
            (true, _) => Open::CREATE,
            (_, true) => Open::WRITE,
            _ => Open::READ,
        };
        let random = load.rw.starts_with("rand");
        let order = if random { Pattern::Random } else { Pattern::Forward };
        let records = if random { self.file_size } else { self.bytes(load) } / load.record_size;
        let count = usize::try_from(self.bytes(load) / load.record_size).unwrap_or(0);
        let file = bench.files()?.open(OURS, how).doing(|| format!("open {OURS}"))?;
        let mut timed = Timed::default();
        for (number, record) in
            order.records(records, bench.seed).into_iter().take(count).enumerate()
        {
            bench.check_stop()?;
            let offset = record * load.record_size;
            if load.write {
                content.fill(&mut data, 0, offset, 1);
                timed
                    .operation(|| file.write_at(&data, offset))
                    .doing(|| format!("write {OURS} at {offset}"))?;
            } else {
                let read = timed.operation(|| file.read_at(&mut data, offset));
                let read = read.doing(|| format!("read {OURS} at {offset}"))?;
                content.compare(
                    data.get(..read).unwrap_or_default(),
                    &mut expected,
                    0,
                    offset,
                    1,
                )?;
                timed.verification.bytes += read as u64;
            }
            timed.bytes += load.record_size;
            if let Some((call, every)) = load.sync
                && (number as u64 + 1).is_multiple_of(every)
                && number + 1 < count
            {
                timed
                    .beside(|| file.sync(call == "fdatasync"))
                    .doing(|| format!("{call} {OURS}"))?;
            }
        }
        if load.write {
            file.sync(false).doing(|| format!("fsync {OURS}"))?;
        }
        file.close().doing(|| format!("close {OURS}"))?;
        Ok(timed)
    }

    /// Runs the load in fio: returns bytes per second, and the command.
    fn theirs(&self, directory: &Path, load: &Load, seed: u64) -> Outcome<(f64, String)> {
        let count = self.bytes(load) / load.record_size;
        let size = if load.rw.starts_with("rand") { self.file_size } else { self.bytes(load) };
        let mut words = vec![
            "--name=check".to_owned(),
            format!("--filename={}", directory.join(THEIRS).display()),
            format!("--rw={}", load.rw),
            format!("--bs={}", load.record_size),
            format!("--size={size}"),
            format!("--number_ios={count}"),
            format!("--randseed={seed}"),
            "--ioengine=psync".to_owned(),
            "--thread".to_owned(),
            "--fallocate=none".to_owned(),
            // The lab gives the kernel no advice, and drops nothing from its cache before a write.
            "--fadvise_hint=0".to_owned(),
            "--invalidate=0".to_owned(),
            "--output-format=json".to_owned(),
        ];
        words.extend(load.sync.map(|(call, every)| format!("--{call}={every}")));
        let output = run_tool("fio", &words)?;
        let value = bytes_per_second(&output, load.write).ok_or_else(|| Trouble::Tool {
            command: format!("fio {}", words.join(" ")),
            output: "it does not say how long its calls took".into(),
        })?;
        Ok((value, format!("fio {}", words.join(" "))))
    }

    /// Makes the files to read, for the lab and for fio.
    fn prepare(&self, bench: &Bench<'_>, content: &Content) -> Outcome {
        let mut data = vec![0; 1 << 20];
        for name in [OURS, THEIRS] {
            let file = bench.files()?.open(name, Open::CREATE).doing(|| format!("open {name}"))?;
            for offset in (0..self.file_size).step_by(data.len()) {
                content.fill(&mut data, 0, offset, 1);
                file.write_at(&data, offset).doing(|| format!("write {name} at {offset}"))?;
            }
            file.sync(false).doing(|| format!("fsync {name}"))?;
            file.close().doing(|| format!("close {name}"))?;
        }
        Ok(())
    }

    fn remove(&self, bench: &Bench<'_>) -> Outcome {
        for name in [OURS, THEIRS] {
            match bench.files()?.unlink(name) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                unlinked => unlinked.doing(|| format!("unlink {name}"))?,
            }
        }
        Ok(())
    }

    fn both(
        &self,
        bench: &mut Bench<'_>,
        load: &Load,
        content: &Content,
        version: &str,
    ) -> Outcome {
        self.remove(bench)?;
        if !load.fresh {
            self.prepare(bench, content)?;
        }
        let (mut ours, mut theirs) = (None, None);
        for time in 0..2 {
            if load.write {
                bench.settle()?;
            } else {
                bench.go_cold()?;
            }
            if (time + bench.round).is_multiple_of(2) {
                ours = Some(self.ours(bench, load, content)?);
            } else {
                let Some(directory) = bench.files()?.directory() else {
                    return Err(Trouble::Skip("fio needs a directory".into()));
                };
                theirs = Some(self.theirs(directory, load, bench.seed)?);
            }
        }
        // Both have run, one in each turn.
        let (Some(timed), Some((value, command))) = (ours, theirs) else { return Ok(()) };
        let check = CrossCheck {
            command,
            version: version.to_owned(),
            values: vec![value],
            // The final value, over all rounds, replaces this one later.
            ratio: timed.value(Unit::BytesPerSecond).unwrap_or(0.0) / value,
            agrees: false,
            explanation: None,
        };
        bench.enter(&self.spec(load), timed).cross_check = Some(check);
        Ok(())
    }
}

/// The rate from fio's JSON: bytes divided by the time of its calls.
fn bytes_per_second(output: &str, write: bool) -> Option<f64> {
    // fio prints notes before the JSON.
    let json: Value = serde_json::from_str(output.get(output.find('{')?..)?).ok()?;
    let job = json.pointer("/jobs/0")?;
    let side = job.get(if write { "write" } else { "read" })?;
    let bytes = side.get("io_bytes")?.as_f64()?;
    let time = |part: &Value| {
        let times = part.get("lat_ns")?;
        Some(times.get("mean")?.as_f64()? * times.get("N")?.as_f64()? / 1e9)
    };
    let calls = time(side)?;
    let syncs = job.get("sync").and_then(time).unwrap_or(0.0);
    (calls > 0.0).then(|| bytes / (calls + syncs))
}

impl Workload for AgainstFio {
    fn label(&self) -> String {
        format!("beside fio file_size={} operations={}", self.file_size, self.operations)
    }

    fn tests(&self) -> Vec<TestSpec> {
        LOADS.iter().map(|load| self.spec(load)).collect()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        if bench.files()?.directory().is_none() {
            return Err(Trouble::Skip("fio needs a directory".into()));
        }
        let Some(version) = version_of("fio", "--version") else {
            return Err(Trouble::Skip("fio is not installed: install fio".into()));
        };
        let content = Content::new(bench.seed, 0);
        for load in &LOADS {
            match self.both(bench, load, &content, &version) {
                Err(Trouble::Skip(reason)) => bench.skip(&self.spec(load), reason),
                both => both?,
            }
        }
        self.remove(bench)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fios_words() {
        let output = r#"fio: a note
            {"jobs": [{"write": {"io_bytes": 8192, "lat_ns": {"mean": 1000000.0, "N": 2}},
                       "sync": {"total_ios": 0, "lat_ns": {"mean": 3000000.0, "N": 2}}}]}"#;
        assert_eq!(bytes_per_second(output, true), Some(8192.0 / 0.008));
        assert_eq!(bytes_per_second(output, false), None);
        assert_eq!(bytes_per_second("fio: failed", true), None);
    }
}
