//! The environment of a workload: the target, the clock, and the list of findings.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::measure::{Histogram, MediumCounters, drop_caches, resident_most};
use crate::result::{
    Better, Cache, Cpu, CrossCheck, MediumTraffic, Memory, Parameter, Sample, Status, Unit,
    Verification,
};
use crate::run::Stop;
use crate::target::{Files, Target};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The definition of a test, before it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSpec {
    /// The family: `iozone`.
    pub workload: &'static str,
    /// Its name in the family: `random-write`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// See [`crate::result::Test::parameters`].
    pub parameters: BTreeMap<String, Parameter>,
    /// The unit of its samples.
    pub unit: Unit,
    /// The direction in which values are better.
    pub better: Better,
    /// See [`crate::result::Test::counted`].
    pub counted: bool,
    /// The state of the caches at the start.
    pub cache: Cache,
}

impl TestSpec {
    /// A test with warm caches; more is better for rates, less for times.
    pub fn new(workload: &'static str, name: &str, unit: Unit) -> TestSpec {
        let rate = matches!(
            unit,
            Unit::BytesPerSecond | Unit::OperationsPerSecond | Unit::OperationsPerMinute
        );
        TestSpec {
            workload,
            name: name.into(),
            title: name.replace('-', " "),
            parameters: BTreeMap::new(),
            unit,
            better: if rate { Better::Higher } else { Better::Lower },
            counted: false,
            cache: Cache::Warm,
        }
    }

    /// Marks the samples as counts; see [`crate::result::Test::counted`].
    pub fn counts(mut self) -> TestSpec {
        self.counted = true;
        self
    }

    /// Adds a number as a parameter.
    pub fn with(mut self, key: &str, value: u64) -> TestSpec {
        self.parameters.insert(key.into(), Parameter::Number(value));
        self
    }

    /// Adds a word as a parameter.
    pub fn with_text(mut self, key: &str, value: &str) -> TestSpec {
        self.parameters.insert(key.into(), Parameter::Text(value.into()));
        self
    }

    /// Changes the state of the caches.
    pub fn cached(mut self, cache: Cache) -> TestSpec {
        self.cache = cache;
        self
    }

    /// Name of the test in its suite.
    pub fn id(&self) -> String {
        let parameters: Vec<String> =
            self.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let slash = if parameters.is_empty() { "" } else { "/" };
        format!("{}/{}{slash}{}", self.workload, self.name, parameters.join(","))
    }
}

/// The value of one test in one round, and further observations.
#[derive(Debug, Clone)]
pub struct Finding {
    /// [`TestSpec::id`].
    pub test: String,
    /// The reason why there is no value, if there is none.
    pub status: Status,
    /// The value.
    pub sample: Option<Sample>,
    /// Times of single operations.
    pub latency: Histogram,
    /// Processor time, if counted.
    pub cpu: Option<Cpu>,
    /// Memory, if counted.
    pub memory: Option<Memory>,
    /// Traffic of the medium, if counted.
    pub medium: Option<MediumTraffic>,
    /// The data that was compared.
    pub verification: Verification,
    /// fio's value for the same.
    pub cross_check: Option<CrossCheck>,
}

/// A stopwatch for operations.
#[derive(Debug, Clone, Default)]
pub struct Timed {
    /// Times of single operations.
    pub latency: Histogram,
    /// The sum of the timed calls.
    pub total: Duration,
    /// Number of operations; a timed call is not always an operation.
    pub operations: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// The data that was compared.
    pub verification: Verification,
}

impl Timed {
    /// Times one operation.
    pub fn operation<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = work();
        let time = start.elapsed();
        self.latency.add(time);
        self.total += time;
        self.operations += 1;
        value
    }

    /// Times a call that belongs to the test without being one of its operations, such as the flush
    /// at the end.
    pub fn beside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = work();
        self.total += start.elapsed();
        value
    }

    /// Adds the work of a concurrent thread: the time is that of the slower one.
    pub fn join_beside(&mut self, other: Timed) {
        self.latency.merge(&other.latency);
        self.total = self.total.max(other.total);
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.verification.bytes += other.verification.bytes;
        self.verification.items += other.verification.items;
    }

    /// Adds later work: the times add up.
    pub fn join_after(&mut self, other: Timed) {
        let total = self.total + other.total;
        self.join_beside(other);
        self.total = total;
    }

    /// The value in a unit, if the clock determines it.
    pub fn value(&self, unit: Unit) -> Option<f64> {
        // A clock that shows no elapsed time would make rates infinite.
        let seconds = self.total.as_secs_f64().max(1e-9);
        let operations = self.operations as f64;
        match unit {
            Unit::BytesPerSecond => Some(self.bytes as f64 / seconds),
            Unit::OperationsPerSecond => Some(operations / seconds),
            Unit::OperationsPerMinute => Some(operations / seconds * 60.0),
            Unit::Seconds => Some(seconds),
            Unit::SecondsPerOperation => (self.operations > 0).then(|| seconds / operations),
            Unit::CpuSecondsPerGib | Unit::CpuSecondsPerOperation | Unit::Bytes | Unit::Ratio => {
                None
            }
        }
    }
}

/// One round of one workload on one target.
pub struct Bench<'t> {
    /// The target, with a fresh volume.
    pub target: &'t mut dyn Target,
    /// The seed of all random choices: the same for every target, different in each round.
    pub seed: u64,
    /// Counted from 0.
    pub round: u32,
    /// The `steadfast-lab` program.
    program: &'t Path,
    stop: &'t Stop,
    findings: Vec<Finding>,
    /// The parameter and the value of the memory limit in force.
    limit: Option<(&'static str, u64)>,
    /// The parameter and the value of the purpose of the tests.
    purpose: Option<(&'static str, &'static str)>,
}

impl<'t> Bench<'t> {
    /// The environment for one round.
    pub fn new(
        target: &'t mut dyn Target,
        (seed, round): (u64, u32),
        program: &'t Path,
        stop: &'t Stop,
    ) -> Bench<'t> {
        Bench {
            target,
            seed,
            round,
            program,
            stop,
            findings: Vec::new(),
            limit: None,
            purpose: None,
        }
    }

    /// The file system.
    ///
    /// # Errors
    /// It is not mounted.
    pub fn files(&self) -> Outcome<&dyn Files> {
        self.target.files()
    }

    /// From here on memory is limited: every value belongs to the test with this parameter.
    pub fn limited(&mut self, parameter: &'static str, bytes: u64) {
        self.limit = Some((parameter, bytes));
    }

    /// From here on every value belongs to the test with this parameter.
    pub fn serve(&mut self, parameter: &'static str, purpose: &'static str) {
        self.purpose = Some((parameter, purpose));
    }

    /// The `steadfast-lab` program, for processes that work for a test.
    pub fn program(&self) -> &Path {
        self.program
    }

    /// The user's request to stop, for threads.
    pub fn stop(&self) -> &Stop {
        self.stop
    }

    /// Checks for a request to stop; workloads call it regularly.
    ///
    /// # Errors
    /// `Stopped` if the user has requested a stop.
    pub fn check_stop(&self) -> Outcome {
        if self.stop.is_set() { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Adds the measurement of a stopwatch.
    pub fn enter(&mut self, spec: &TestSpec, timed: Timed) -> &mut Finding {
        let value = timed.value(spec.unit);
        self.enter_value(spec, value, timed)
    }

    /// Adds a value that is not the stopwatch's own.
    pub fn enter_value(
        &mut self,
        spec: &TestSpec,
        value: Option<f64>,
        timed: Timed,
    ) -> &mut Finding {
        let sample = value.filter(|value| value.is_finite()).map(|value| Sample {
            round: self.round,
            value,
            seconds: timed.total.as_secs_f64(),
            operations: timed.operations,
            bytes: timed.bytes,
        });
        let status = match sample {
            Some(_) => Status::Ok,
            None => Status::Skipped { reason: "nothing was measured".into() },
        };
        let finding = Finding {
            test: self.id(spec),
            status,
            sample,
            latency: timed.latency,
            cpu: None,
            memory: None,
            medium: None,
            verification: timed.verification,
            cross_check: None,
        };
        self.push(finding)
    }

    /// Records that a test cannot be done here, and continues; other troubles are returned.
    ///
    /// # Errors
    /// Everything except `Skip`.
    pub fn enter_or_skip(&mut self, spec: &TestSpec, outcome: Outcome<Timed>) -> Outcome {
        match outcome {
            Ok(timed) => {
                self.enter(spec, timed);
                Ok(())
            }
            Err(Trouble::Skip(reason)) => {
                self.skip(spec, reason);
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// The counters of the medium now, if the target has its own device.
    pub fn counters(&self) -> Option<MediumCounters> {
        MediumCounters::of(&self.target.device()?)
    }

    /// Adds to the last value the traffic of the medium since `before`, and the memory of the
    /// target's daemon.
    pub fn add_costs(&mut self, before: Option<MediumCounters>, bytes_asked: u64) {
        let medium =
            before.zip(self.counters()).map(|(before, now)| before.until(&now, bytes_asked));
        let daemon = self.target.processes();
        // The memory of a file system in the kernel is unknown, and in this process other code uses
        // memory too.
        let resident = if daemon.is_empty() { None } else { resident_most(&daemon) };
        if let Some(finding) = self.findings.last_mut().filter(|finding| finding.sample.is_some()) {
            finding.medium = medium;
            let limit = self.limit.map(|(_, bytes)| bytes);
            finding.memory = resident.map(|resident_most| Memory { resident_most, limit });
        }
    }

    /// Records the reason why a test has no value.
    pub fn skip(&mut self, spec: &TestSpec, reason: String) {
        let finding = self.enter_value(spec, None, Timed::default());
        finding.status = Status::Skipped { reason };
    }

    /// The name of a test, with the parameters that hold for all tests.
    fn id(&self, spec: &TestSpec) -> String {
        let mut spec = spec.clone();
        if let Some((parameter, bytes)) = self.limit {
            spec = spec.with(parameter, bytes);
        }
        if let Some((parameter, purpose)) = self.purpose {
            spec = spec.with_text(parameter, purpose);
        }
        spec.id()
    }

    fn push(&mut self, finding: Finding) -> &mut Finding {
        let place = self.findings.len();
        self.findings.push(finding);
        // The finding was just pushed.
        &mut self.findings[place]
    }

    /// Whether a test has a value.
    pub fn has_value(&self, spec: &TestSpec) -> bool {
        let id = self.id(spec);
        self.findings.iter().any(|finding| finding.test == id && finding.sample.is_some())
    }

    /// Unmounts, empties the caches and mounts again, so that nothing is cached. The time is that
    /// of the mount. A target that would lose its contents stays mounted.
    ///
    /// # Errors
    /// `Skip` if that is not possible.
    pub fn go_cold(&mut self) -> Outcome<Duration> {
        if self.target.is_volatile() {
            self.settle()?;
            drop_caches()?;
            return Ok(Duration::ZERO);
        }
        self.target.unmount()?;
        drop_caches()?;
        self.target.mount()
    }

    /// Unmounts and mounts again, untimed, so that everything is written. A target that would lose
    /// its contents stays mounted.
    ///
    /// # Errors
    /// Those of the target.
    pub fn remount(&mut self) -> Outcome {
        if self.target.is_volatile() {
            return self.settle();
        }
        self.target.unmount()?;
        self.target.mount().map(drop)
    }

    /// Checks that a directory of this target can have this many files.
    ///
    /// # Errors
    /// `Skip` if not.
    pub fn check_directory(&self, files: u64) -> Outcome {
        match self.target.directory_entries_most() {
            Some(most) if files > most => Err(Trouble::Skip(format!(
                "{files} files in a directory: {} searches all of them each time",
                self.target.id()
            ))),
            _ => Ok(()),
        }
    }

    /// Makes everything durable, untimed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn settle(&self) -> Outcome {
        self.files()?.sync().doing(|| "sync".into())
    }

    /// The findings.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}
