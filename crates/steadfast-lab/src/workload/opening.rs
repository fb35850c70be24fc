//! The time until a volume that lost its power is usable again: from opening it to the first stat,
//! inside a running process.
//!
//! A library opens the volume with a call. A file system in the kernel is mounted by mount(2)
//! itself. The start of `mount` or of a daemon, and FUSE's handshake, are not included; the tests
//! `mount` cover them. Caches are cold. The power is cut as in `mount`, during work that is not
//! durable: every fsynced file must exist.
//!
//! Volumes of another size than the run's are on sparse files.

use std::time::Instant;

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::measure::drop_caches;
use crate::result::{Cache, Unit};
use crate::target::Open;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The volume at the moment of the power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Bytes of the volume; `None` means the size of the run.
    pub volume_size: Option<u64>,
    /// Number of files of 1 KiB on it.
    pub files: u64,
    /// Whether the rest of it is full.
    pub full: bool,
}

const BYTES: usize = 1024;
const LARGE: usize = 1 << 20;
const IN_DIRECTORY: u64 = 1000;
/// Number of files made, but not made durable, before the power failure.
const UNDER_WAY: u64 = 300;
const LAST: &str = "last";

impl Opening {
    fn spec(&self) -> TestSpec {
        let spec = TestSpec::new("opening", "open-to-stat", Unit::Seconds).cached(Cache::Cold);
        let spec = spec.with("files", self.files);
        let spec = if self.full { spec.with_text("condition", "completely full") } else { spec };
        match self.volume_size {
            Some(size) => spec.with("volume_size", size),
            None => spec,
        }
    }

    fn prepare(&self, bench: &Bench<'_>) -> Outcome {
        let content = Content::new(bench.seed, 0);
        let mut data = vec![0; BYTES];
        let files = bench.files()?;
        let mut make = |number: u64| -> Outcome {
            bench.check_stop()?;
            let directory = format!("o{}", number / IN_DIRECTORY);
            if number.is_multiple_of(IN_DIRECTORY) {
                files.mkdir(&directory).doing(|| format!("mkdir {directory}"))?;
            }
            let path = format!("{directory}/{number}");
            content.fill(&mut data, number, 0, 1);
            let made = files.open(&path, Open::CREATE).and_then(|mut file| {
                file.write(&data)?;
                file.close()
            });
            made.doing(|| format!("create {path}"))
        };
        (0..self.files).try_for_each(&mut make)?;
        bench.settle()?;
        if self.full {
            // No further work is possible on a full volume.
            return fill(bench);
        }
        // These files begin in a new directory.
        let first = self.files.next_multiple_of(IN_DIRECTORY);
        (first..first + UNDER_WAY).try_for_each(&mut make)?;
        let written = files.open(LAST, Open::CREATE).and_then(|mut file| {
            file.write(&[7; 4096])?;
            file.sync(false)?;
            file.close()
        });
        written.doing(|| format!("write {LAST}"))
    }
}

/// Writes until the volume is full.
fn fill(bench: &Bench<'_>) -> Outcome {
    let files = bench.files()?;
    let data = vec![3; LARGE];
    for number in 0.. {
        bench.check_stop()?;
        let path = format!("fill{number}");
        let written = files.open(&path, Open::CREATE).and_then(|mut file| {
            file.write(&data)?;
            file.sync(false)?;
            file.close()
        });
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
            written => written.doing(|| format!("write {path}"))?,
        }
    }
    Ok(())
}

impl Workload for Opening {
    fn label(&self) -> String {
        self.spec().id()
    }

    fn tests(&self) -> Vec<TestSpec> {
        vec![self.spec()]
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        if let Some(size) = self.volume_size {
            bench.target.make_sparse(size)?;
        }
        self.prepare(bench)?;
        bench.target.cut_power()?;
        drop_caches()?;
        let path = match (self.files, self.full) {
            (0, true) => "fill0",
            (0, false) => LAST,
            _ => "o0/0",
        };
        let mut timed = Timed::default();
        let start = Instant::now();
        bench.target.mount_inside()?;
        let found = bench.files()?.stat(path);
        timed.total = start.elapsed();
        timed.latency.add(timed.total);
        timed.operations = 1;
        found.map_err(|error| Trouble::Wrong {
            what: format!("{path}: it was fsynced and is gone: {error}"),
        })?;
        timed.verification.items += 1;
        bench.enter(&self.spec(), timed);
        Ok(())
    }
}
