//! Results computed by formulas, for tests of printing and drawing: nothing here was measured.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;

use steadfast_lab::result::*;
use steadfast_media::random::Random;

/// Pseudo-random shares: the same on every machine.
pub struct Chance(Random);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// A number from 0 to 1.
    pub fn next(&mut self) -> f64 {
        (self.0.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number around 1, within a share.
    pub fn around_one(&mut self, share: f64) -> f64 {
        1.0 + (self.next() * 2.0 - 1.0) * share
    }
}

pub fn target(id: &str, name: &str, access: Access) -> TargetDescription {
    TargetDescription {
        id: id.into(),
        name: name.into(),
        access,
        status: Status::Ok,
        volume_size: Some(1 << 30),
        format: format!("mkfs.{id} -q"),
        mount_options: "rw,relatime".into(),
        version: "1.0".into(),
        remarks: if access == Access::Library {
            vec!["in process: no system calls, no page cache".into()]
        } else {
            Vec::new()
        },
    }
}

/// A run with these targets, without tests.
pub fn empty(targets: Vec<TargetDescription>, peer: Option<&str>) -> RunResult {
    RunResult {
        kind: KIND.into(),
        schema: SCHEMA,
        provenance: Provenance {
            command: ["steadfast", "lab", "run", "--suite", "all", "--out", "report"]
                .map(str::to_owned)
                .to_vec(),
            version: "0.1.0".into(),
            commit: Some("0123456789ab".into()),
            profile: "release".into(),
            started: 1_760_000_000,
            updated: 1_760_000_600,
            seed: 1,
            effort: "default".into(),
            host: "example".into(),
            kernel: "Linux 6.12.0 x86_64".into(),
            system: "Debian GNU/Linux 13".into(),
            cpu: "Example CPU".into(),
            cpus: 2,
            governor: None,
            virtualisation: Some("kvm".into()),
            memory: 8 << 30,
            memory_available: 6 << 30,
            backing: BackingDescription {
                path: "/var/tmp".into(),
                file_system: "ext4".into(),
                device: "/dev/vda".into(),
                model: None,
                rotational: Some(true),
                write_cache: Some("write back".into()),
                available: 40 << 30,
            },
        },
        noise: steadfast_lab::result::Noise {
            probes: vec![
                Probe {
                    name: "processor".into(),
                    title: "hash 64 MiB".into(),
                    seconds: vec![0.1, 0.101, 0.1],
                    spread: 0.005,
                },
                Probe {
                    name: "medium-sync".into(),
                    title: "write 4 KiB and fdatasync".into(),
                    seconds: vec![0.001, 0.0011, 0.0009],
                    spread: 0.04,
                },
            ],
            load: (0.1, 1.2),
            stolen: 0.002,
            floor: 0.04,
            warnings: vec!["something else kept 0.4 of 2 processors busy".into()],
        },
        targets,
        peer: peer.map(str::to_owned),
        suites: Vec::new(),
        progress: Progress {
            complete: true,
            steps: 100,
            done: Vec::new(),
            seconds: 431.0,
            resumed: 0,
        },
    }
}

pub fn measurement(target: &str, values: &[f64]) -> Measurement {
    let sample = |(round, value): (usize, &f64)| Sample {
        round: round as u32,
        value: *value,
        seconds: 1.5,
        operations: 1000,
        bytes: 1 << 24,
    };
    Measurement {
        target: target.into(),
        status: Status::Ok,
        samples: values.iter().enumerate().map(sample).collect(),
        latency: None,
        cpu: None,
        memory: None,
        medium: None,
        verification: Verification { bytes: 1 << 24, items: 3 },
        cross_check: None,
    }
}

pub fn test(
    workload: &str,
    name: &str,
    parameters: &[(&str, Parameter)],
    unit: Unit,
    better: Better,
    measurements: Vec<Measurement>,
) -> Test {
    let parameters: BTreeMap<String, Parameter> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let listed: Vec<String> =
        parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Test {
        id: format!("{workload}/{name}/{}", listed.join(",")),
        workload: workload.into(),
        name: name.into(),
        title: name.replace('-', " "),
        parameters,
        unit,
        better,
        counted: false,
        cache: Cache::Warm,
        measurements,
    }
}

pub fn suite(id: &str, title: &str, tests: Vec<Test>) -> Suite {
    Suite {
        id: id.into(),
        title: title.into(),
        answers: "a published comparison".into(),
        missing: vec!["an eMMC".into()],
        tests,
    }
}

/// Rounds around a value.
pub fn rounds(noise: &mut Chance, value: f64, spread: f64) -> Vec<f64> {
    (0..5).map(|_| value * noise.around_one(spread)).collect()
}

fn latency(noise: &mut Chance, typical: f64) -> Latency {
    let mut times: Vec<f64> = (0..4000)
        .map(|_| {
            let tail = 1.0 / (1.0 - noise.next()).max(1e-4);
            typical * noise.around_one(0.2) * if tail > 50.0 { tail.powf(0.6) } else { 1.0 }
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut upper = times[0];
    for time in &times {
        if buckets.is_empty() || *time > upper {
            while *time > upper {
                upper *= 1.07;
            }
            buckets.push(Bucket { upper, count: 0 });
        }
        buckets.last_mut().unwrap().count += 1;
    }
    Latency {
        count: 4000,
        mean: times.iter().sum::<f64>() / 4000.0,
        least: times[0],
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        most: times[3999],
        buckets,
    }
}

/// The number of sizes of files and records in a run.
#[derive(Clone, Copy)]
pub enum Matrix {
    /// Three by two sizes, two tests: for quick tests.
    Small,
    /// The sizes of IOzone's automatic mode.
    Full,
}

/// A run with everything that the report can show, on these targets.
pub fn rich(targets: Vec<TargetDescription>, peer: &str, matrix: Matrix) -> RunResult {
    let measured = targets.iter().filter(|target| target.status == Status::Ok);
    let ids: Vec<String> = measured.map(|target| target.id.clone()).collect();
    let speed = |id: &str| {
        1.0 + 0.35 * ((id.len() * 7 + id.bytes().map(usize::from).sum::<usize>()) % 9) as f64
    };
    let mut noise = Chance::new(7);
    let mut run = empty(targets, Some(peer));
    let number = Parameter::Number;

    let mut iozone = Vec::new();
    let (file_step, last_record, last_test) = match matrix {
        Matrix::Small => (6, 16, 2),
        Matrix::Full => (1, 24, 7),
    };
    for file_power in (16..=29).step_by(file_step) {
        for record_power in (12..=last_record).step_by(if last_record > 16 { 2 } else { 4 }) {
            if record_power > file_power {
                continue;
            }
            let names = [
                "write",
                "rewrite",
                "read",
                "reread",
                "random-read",
                "random-write",
                "backward-read",
            ];
            for (index, name) in names.into_iter().enumerate().take(last_test) {
                let (file, record) = (1u64 << file_power, 1u64 << record_power);
                let measurements = ids.iter().map(|id| {
                    let cached = if file_power > 26 { 0.3 } else { 1.0 };
                    let base =
                        4e7 * (1.0 + index as f64) * (record as f64 / 4096.0).powf(0.35) * cached;
                    let mut found = measurement(id, &rounds(&mut noise, base * speed(id), 0.03));
                    found.cpu = Some(Cpu {
                        elapsed: 7.5,
                        user: 0.2,
                        system: 1.5,
                        daemon: 0.8,
                        kernel_threads: 0.1,
                        curve: (0..file_power * 2)
                            .map(|step| CpuPoint {
                                at: f64::from(step) * 0.1,
                                process: 0.5 * noise.around_one(0.3),
                                file_system: 0.3 * noise.around_one(0.5),
                                machine: 1.1 * noise.around_one(0.1),
                            })
                            .collect(),
                    });
                    found.medium = Some(MediumTraffic {
                        bytes_asked: file,
                        bytes_written: file + file / 9,
                        bytes_read: 0,
                        writes: 9,
                        reads: 0,
                        flushes: Some(1),
                    });
                    found.memory = Some(Memory { resident_most: 48 << 20, limit: None });
                    if *name == *"write" && file_power == 28 && record_power == 12 {
                        found.cross_check = Some(CrossCheck {
                            command: "fio".into(),
                            version: "fio-3.39".into(),
                            values: vec![base],
                            ratio: speed(id) / speed("ext4"),
                            agrees: id == "ext4",
                            explanation: (id != "ext4").then(|| "fio opens the file once".into()),
                        });
                    }
                    found
                });
                let parameters = [("file_size", number(file)), ("record_size", number(record))];
                let measurements = measurements.collect();
                iozone.push(test(
                    "iozone",
                    name,
                    &parameters,
                    Unit::BytesPerSecond,
                    Better::Higher,
                    measurements,
                ));
            }
        }
    }
    run.suites.push(suite("b5", "Extent-based transactional file system on eMMC", iozone));

    let mut mixed = Vec::new();
    for (name, base) in
        [("mkdir", 4e-5), ("create", 6e-5), ("stat", 2e-6), ("unlink", 3e-5), ("rename", 5e-5)]
    {
        let measurements = ids.iter().map(|id| {
            let mut found = measurement(id, &rounds(&mut noise, base / speed(id), 0.02));
            found.latency = Some(latency(&mut noise, base / speed(id)));
            found
        });
        let measurements = measurements.collect();
        mixed.push(test(
            "fileops",
            name,
            &[("files", number(1000))],
            Unit::SecondsPerOperation,
            Better::Lower,
            measurements,
        ));
    }
    for files in [1u64, 16, 256, 4096, 16_384] {
        for (bytes, name) in [(0u64, "create"), (2048, "create"), (2048, "delete-random")] {
            let measurements = ids.iter().map(|id| {
                let base = 3e-5 * (1.0 + files as f64 / 9000.0) * (1.0 + bytes as f64 / 4096.0);
                measurement(id, &rounds(&mut noise, base / speed(id), 0.05))
            });
            let measurements = measurements.collect();
            let parameters = [("files", number(files)), ("file_bytes", number(bytes))];
            mixed.push(test(
                "lat_fs",
                name,
                &parameters,
                Unit::SecondsPerOperation,
                Better::Lower,
                measurements,
            ));
        }
    }
    for (condition, factor) in [
        ("empty", 1.0),
        ("half full", 1.1),
        ("full", 1.2),
        ("many files", 1.5),
        ("after a power cut", 2.0),
    ] {
        let measurements = ids.iter().map(|id| {
            let base = 0.012 * if id == "ext4" { factor } else { 1.0 };
            measurement(id, &rounds(&mut noise, base / speed(id), 0.1))
        });
        let measurements = measurements.collect();
        let parameters = [("condition", Parameter::Text(condition.into()))];
        mixed.push(test("mount", "mount", &parameters, Unit::Seconds, Better::Lower, measurements));
    }
    let measurements =
        ids.iter().map(|id| measurement(id, &rounds(&mut noise, 90_000.0, 0.2))).collect();
    let parameters = [("seed", number(1))];
    mixed.push(test(
        "general",
        "operations",
        &parameters,
        Unit::OperationsPerMinute,
        Better::Higher,
        measurements,
    ));
    run.suites.push(suite("b1", "Transactional file system on an RTOS disk", mixed));
    run
}

/// The targets of most runs.
pub fn usual() -> Vec<TargetDescription> {
    let mut btrfs = target("btrfs", "btrfs", Access::Kernel);
    btrfs.status =
        Status::Skipped { reason: "mkfs.btrfs is not installed: install btrfs-progs".into() };
    vec![
        target("steadfast", "Steadfast (FUSE)", Access::Fuse),
        target("steadfast-lib", "Steadfast (library)", Access::Library),
        target("ext4", "ext4", Access::Kernel),
        target("xfs", "XFS", Access::Kernel),
        target("fuse2fs", "ext4 (fuse2fs)", Access::Fuse),
        btrfs,
    ]
}
