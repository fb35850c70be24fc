//! The time of mounting, and of the first write after it, by the contents and the state of the
//! volume.
//!
//! The caches are empty each time: the volume was unmounted and the kernel's caches were dropped.
//! The time is that of the command (`mount`, `steadfast mount`; for a library, of the call), from
//! its start to its return. `first-write` makes, writes and fsyncs a file of 4 KiB immediately
//! after the mount.
//!
//! "after a power cut" means that files were made, half of them fsynced, and then nothing more is
//! written. The daemon is killed, the library's volume is dropped, or a file system in the kernel
//! is shut down without its log (`XFS_IOC_GOINGDOWN`). Then the contents of the medium are mounted,
//! with the recovery that they need. Every fsynced file must exist.

use std::time::Duration;

use super::content::Content;
use super::{Bench, TestSpec, Timed, Workload};
use crate::measure::drop_caches;
use crate::result::{Cache, Unit};
use crate::statistics::median;
use crate::target::Open;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The contents of the volume when it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Empty,
    /// Files of 1 MiB in half of the space.
    HalfFull,
    /// Files in all of the space.
    Full,
    /// This many small files.
    ManyFiles(u64),
    /// The state after a power cut during work.
    AfterPowerCut,
}

/// Mounting in one condition.
#[derive(Debug, Clone, Copy)]
pub struct Mount {
    /// The contents.
    pub condition: Condition,
    /// Number of mounts in each round; the median time counts.
    pub times: u32,
}

/// Bytes of the files that fill a volume.
const LARGE: usize = 1 << 20;
/// Bytes of the small files.
const SMALL: usize = 1024;
/// Small files per directory.
const DIRECTORY: u64 = 1000;
/// Files made around the power cut.
const INTERRUPTED: u64 = 400;

impl Mount {
    fn spec(&self, name: &str) -> TestSpec {
        let spec = TestSpec::new("mount", name, Unit::Seconds).cached(Cache::Cold);
        match self.condition {
            Condition::Empty => spec.with_text("condition", "empty"),
            Condition::HalfFull => spec.with_text("condition", "half full"),
            Condition::Full => spec.with_text("condition", "completely full"),
            Condition::ManyFiles(count) => {
                spec.with_text("condition", "many files").with("files", count)
            }
            Condition::AfterPowerCut => spec.with_text("condition", "after a power cut"),
        }
    }

    fn prepare(&self, bench: &Bench<'_>) -> Outcome {
        match self.condition {
            Condition::Empty => Ok(()),
            Condition::HalfFull => {
                let free = bench.files()?.free().doing(|| "ask for free space".into())?;
                fill(bench, free / 2)
            }
            Condition::Full => fill(bench, u64::MAX),
            Condition::ManyFiles(count) => small_files(bench, count, 0),
            Condition::AfterPowerCut => small_files(bench, INTERRUPTED, 2),
        }
    }
}

/// Makes files of 1 MiB until they hold this many bytes or the volume is full.
fn fill(bench: &Bench<'_>, bytes: u64) -> Outcome {
    let content = Content::new(bench.seed, 0);
    let mut data = vec![0; LARGE];
    let files = bench.files()?;
    let mut done = 0;
    while done < bytes {
        bench.check_stop()?;
        let path = format!("fill{done}");
        content.fill(&mut data, done, 0, 1);
        let written = files.open(&path, Open::CREATE).and_then(|mut file| {
            file.write(&data)?;
            file.sync(false)?;
            file.close()
        });
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
            written => written.doing(|| format!("write {path}"))?,
        }
        done += LARGE as u64;
    }
    Ok(())
}

/// Makes small files; every `sync_every`-th is made durable (0: none).
fn small_files(bench: &Bench<'_>, count: u64, sync_every: u64) -> Outcome {
    let content = Content::new(bench.seed, 0);
    let mut data = vec![0; SMALL];
    let files = bench.files()?;
    for number in 0..count {
        bench.check_stop()?;
        let directory = format!("d{}", number / DIRECTORY);
        if number % DIRECTORY == 0 {
            files.mkdir(&directory).doing(|| format!("mkdir {directory}"))?;
        }
        let path = format!("{directory}/{number}");
        content.fill(&mut data, number, 0, 1);
        let written = files.open(&path, Open::CREATE).and_then(|mut file| {
            file.write(&data)?;
            if sync_every > 0 && number % sync_every == 0 {
                file.sync(false)?;
            }
            file.close()
        });
        written.doing(|| format!("write {path}"))?;
    }
    Ok(())
}

/// Checks that the files that were durable before the power cut exist and are complete.
fn check_after_cut(bench: &Bench<'_>) -> Outcome<u64> {
    let content = Content::new(bench.seed, 0);
    let (mut data, mut expected) = (vec![0; SMALL + 1], vec![0; SMALL]);
    let mut bytes = 0;
    for number in (0..INTERRUPTED).step_by(2) {
        let path = format!("d{}/{number}", number / DIRECTORY);
        let lost = |error: std::io::Error| Trouble::Wrong {
            what: format!("{path}: it was fsynced and is gone: {error}"),
        };
        let mut file = bench.files()?.open(&path, Open::READ).map_err(lost)?;
        let count = file.read(&mut data).doing(|| format!("read {path}"))?;
        content.compare(data.get(..count).unwrap_or_default(), &mut expected, number, 0, 1)?;
        bytes += count as u64;
    }
    Ok(bytes)
}

impl Workload for Mount {
    fn label(&self) -> String {
        match self.condition {
            Condition::ManyFiles(count) => format!("mount many files ({count})"),
            Condition::Empty => "mount empty".into(),
            Condition::HalfFull => "mount half full".into(),
            Condition::Full => "mount completely full".into(),
            Condition::AfterPowerCut => "mount after a power cut".into(),
        }
    }

    fn tests(&self) -> Vec<TestSpec> {
        ["mount", "first-write"].map(|name| self.spec(name)).into()
    }

    fn run(&self, bench: &mut Bench<'_>) -> Outcome {
        if bench.target.is_volatile() {
            return Err(Trouble::Skip(format!(
                "{} holds nothing when it is not mounted",
                bench.target.id()
            )));
        }
        let (mut mounted, mut first) = (Timed::default(), Timed::default());
        let (mut mount_times, mut write_times) = (Vec::new(), Vec::new());
        self.prepare(bench)?;
        for time in 0..self.times {
            bench.check_stop()?;
            if self.condition == Condition::AfterPowerCut {
                if time > 0 {
                    bench.target.make()?;
                    self.prepare(bench)?;
                }
                bench.target.cut_power()?;
            } else {
                bench.target.unmount()?;
            }
            drop_caches()?;
            let took = bench.target.mount()?;
            note(&mut mounted, took, &mut mount_times);
            if self.condition == Condition::AfterPowerCut {
                mounted.verification.bytes += check_after_cut(bench)?;
                continue;
            }
            let took = first_write(bench)?;
            note(&mut first, took, &mut write_times);
        }
        bench.enter_value(&self.spec("mount"), median(&mount_times), mounted);
        match self.condition {
            // The comparison has warmed the caches.
            Condition::AfterPowerCut => {
                bench.skip(&self.spec("first-write"), "what is read to compare comes first".into())
            }
            Condition::Full => bench.skip(&self.spec("first-write"), "the volume is full".into()),
            _ => {
                bench.enter_value(&self.spec("first-write"), median(&write_times), first);
            }
        }
        Ok(())
    }
}

fn note(timed: &mut Timed, took: Duration, times: &mut Vec<f64>) {
    timed.latency.add(took);
    timed.total += took;
    timed.operations += 1;
    times.push(took.as_secs_f64());
}

fn first_write(bench: &Bench<'_>) -> Outcome<Duration> {
    const FILE: &str = "first";
    let files = bench.files()?;
    let mut timed = Timed::default();
    let written = timed.beside(|| {
        let mut file = files.open(FILE, Open::CREATE)?;
        file.write(&[7; 4096])?;
        file.sync(false)?;
        file.close()
    });
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
        written => written.doing(|| format!("write {FILE}"))?,
    }
    match files.unlink(FILE) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        unlinked => unlinked.doing(|| format!("unlink {FILE}"))?,
    }
    Ok(timed.total)
}
