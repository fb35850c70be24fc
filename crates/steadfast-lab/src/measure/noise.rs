//! The variation of the machine itself: the same work several times, and the load from other
//! processes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;
use crate::result::{Noise, Probe};
use crate::statistics::summarise;
use crate::target::cleanup;
use crate::trouble::Doing;

/// Number of runs of each probe.
const TIMES: usize = 9;

/// Smaller differences never count, however quiet the machine is.
const FLOOR_LEAST: f64 = 0.02;

/// A larger share of busy processors is reported.
const BUSY_MOST: f64 = 0.1;

/// Runs the probes, about a second: in a file below the directory `place`, or at the beginning of
/// that block device.
///
/// # Errors
/// Nothing can be written there.
pub fn probe(place: &Path) -> Outcome<Noise> {
    let directory = place.is_dir();
    let path = if directory { place.join("noise") } else { place.to_owned() };
    // A block device is not removed.
    let _guard = directory.then(|| cleanup::file(&path));
    let doing = || format!("write {}", path.display());
    let opened = if directory {
        fs::File::create(&path)
    } else {
        fs::File::options().write(true).open(&path)
    };
    let mut file = opened.doing(doing)?;
    file.write_all(&vec![1; 1 << 20]).and_then(|()| file.sync_all()).doing(doing)?;
    let mut numbers = vec![1u64; 4 << 20];
    let probes = vec![
        repeat("processor", "arithmetic on 1,000,000 numbers", || {
            let mut sum = 1u64;
            for number in 0..1_000_000u64 {
                sum = std::hint::black_box(sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
            }
            Ok(())
        }),
        repeat("memory", "add 1 to 32 MiB", || {
            numbers.iter_mut().for_each(|number| *number = std::hint::black_box(*number + 1));
            Ok(())
        }),
        repeat("medium-write", "write 1 MiB and fdatasync", || {
            file.write_all_at(&[2; 1 << 20], 0)?;
            file.sync_data()
        }),
        repeat("medium-sync", "16 times: write 4 KiB and fdatasync", || {
            for number in 0..16 {
                file.write_all_at(&[3; 4096], number * 8192)?;
                file.sync_data()?;
            }
            Ok(())
        }),
    ];
    let probes = probes.into_iter().collect::<std::io::Result<Vec<Probe>>>().doing(doing)?;
    let largest = probes.iter().map(|probe| probe.spread).fold(0.0, f64::max);
    Ok(Noise {
        probes,
        load: (load(), load()),
        stolen: 0.0,
        floor: largest.max(FLOOR_LEAST),
        warnings: Vec::new(),
    })
}

fn repeat(
    name: &str,
    title: &str,
    mut work: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<Probe> {
    let mut seconds = Vec::new();
    // The first run only warms up.
    for time in 0..=TIMES {
        let start = Instant::now();
        work()?;
        if time > 0 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let spread = summarise(&seconds).map_or(0.0, |summary| summary.spread);
    Ok(Probe { name: name.into(), title: title.into(), seconds, spread })
}

/// Watches the other load of the machine, from the start of a run to its end.
#[derive(Debug)]
pub struct Watch {
    start: Option<Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    all: u64,
    stolen: u64,
}

impl Watch {
    /// Starts with a measurement of the load while the lab does nothing.
    pub fn start(noise: &mut Noise) -> Watch {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get()) as f64;
        if let (Some(before), idle) = (busy(), std::time::Duration::from_millis(300)) {
            std::thread::sleep(idle);
            let used = busy().map_or(0.0, |after| (after - before).max(0.0)) / idle.as_secs_f64();
            if used > BUSY_MOST * cpus {
                // A resumed run measures again: the last measurement counts.
                let warning = "something else kept";
                noise.warnings.retain(|text| !text.starts_with(warning));
                noise.warnings.push(format!(
                    "{warning} {used:.1} of {cpus} processors busy at the start: figures are doubtful"
                ));
            }
        }
        Watch { start: times() }
    }

    /// Ends the watch: load and stolen time go into the result.
    pub fn end(&self, noise: &mut Noise) {
        noise.load.1 = load();
        if let (Some(start), Some(end)) = (self.start, times()) {
            let all = end.all.saturating_sub(start.all).max(1) as f64;
            noise.stolen = end.stolen.saturating_sub(start.stolen) as f64 / all;
            let warning = "a hypervisor took processor time away";
            noise.warnings.retain(|text| !text.starts_with(warning));
            if noise.stolen > 0.01 {
                noise.warnings.push(format!("{warning}: {:.1} %", noise.stolen * 100.0));
            }
        }
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn words() -> Option<Vec<u64>> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    Some(
        text.lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .collect(),
    )
}

fn times() -> Option<Times> {
    let words = words()?;
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal; guest time is included
    // in user.
    Some(Times { all: words.iter().take(8).sum(), stolen: *words.get(7)? })
}

/// Busy seconds of all processors together.
pub(super) fn busy() -> Option<f64> {
    let words = words()?;
    let idle = words.get(3)? + words.get(4)?;
    let all: u64 = words.iter().take(7).sum();
    Some(all.saturating_sub(idle) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_floor_is_at_least_two_percent() {
        let directory = tempfile::tempdir().expect("a directory");
        let noise = super::probe(directory.path()).expect("probed");
        assert!(noise.floor >= 0.02 && noise.probes.len() == 4);
        assert!(noise.probes.iter().all(|probe| probe.seconds.iter().all(|time| *time > 0.0)));
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
    }
}
