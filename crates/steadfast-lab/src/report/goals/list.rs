//! The list of goals.

use crate::report::format;
use crate::result::Test;

/// A goal.
#[derive(Debug, Clone)]
pub struct Goal {
    /// The name in the table.
    pub name: &'static str,
    /// The target that has this goal.
    pub on: &'static str,
    /// The purpose of the tests, as the suite names it.
    pub purpose: &'static str,
    /// Selects the tests.
    pub tests: fn(&Test) -> bool,
    /// The property of the tests.
    pub measure: Measure,
    /// The requirements; one of several is enough.
    pub asked: Vec<Asked>,
    /// The target that shows the reachable limit: it has the same transport or the same medium, and
    /// does less.
    pub floor: Option<&'static str>,
}

impl Goal {
    fn with_floor(self, target: &'static str) -> Goal {
        Goal { floor: Some(target), ..self }
    }
}

/// The property that a goal considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The values of the rounds.
    Value,
    /// The time that 99.9 % of the operations do not exceed.
    P999,
    /// Write requests with data at the medium, per operation.
    Writes,
    /// Flushes of the medium, per operation.
    Flushes,
    /// The largest median of the tests divided by the smallest.
    Flatness,
    /// Memory of the daemon, bytes.
    Memory,
}

/// A requirement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asked {
    /// At least this many times better than this peer.
    Beside {
        /// Id of the target.
        peer: &'static str,
        /// The factor.
        factor: f64,
    },
    /// At most this number.
    AtMost(f64),
    /// No requirement: the value is only shown, with these words.
    Shown(&'static str),
}

impl Asked {
    /// The target of the comparison.
    pub fn peer(&self) -> Option<&'static str> {
        match self {
            Asked::Beside { peer, .. } => Some(peer),
            Asked::AtMost(_) | Asked::Shown(_) => None,
        }
    }

    /// The requirement as text.
    pub fn text(&self) -> String {
        match self {
            Asked::Beside { peer, factor } => format!("≥ {} {peer}", format::factor(*factor)),
            Asked::AtMost(most) => format!("≤ {most}"),
            Asked::Shown(words) => (*words).into(),
        }
    }
}

fn any(_: &Test) -> bool {
    true
}

fn is(test: &Test, name: &str, key: &str, value: u64) -> bool {
    test.name == name && test.number(key) == Some(value)
}

fn aged(test: &Test) -> bool {
    test.parameters.get("condition").is_some_and(|condition| condition.to_string().contains("aged"))
}

fn alone(test: &Test) -> bool {
    test.number("clients") == Some(1)
}

fn several(test: &Test) -> bool {
    test.number("clients") == Some(2)
}

/// The test reaches the file system, not only the kernel's cache.
fn asked_for_real(test: &Test) -> bool {
    !matches!(test.name.as_str(), "stat" | "open-read" | "readdir")
}

/// The test runs as a program would: the kernel may answer from its cache.
fn as_it_comes(test: &Test) -> bool {
    !test.name.ends_with("-forgotten")
}

/// All goals, in the order of the table.
pub fn goals() -> Vec<Goal> {
    let mut goals = Vec::new();
    durable(&mut goals);
    data(&mut goals);
    names(&mut goals);
    whole(&mut goals);
    goals
}

fn beside(
    name: &'static str,
    on: &'static str,
    purpose: &'static str,
    tests: fn(&Test) -> bool,
    peers: &[(&'static str, f64)],
) -> Goal {
    let asked =
        peers.iter().map(|(peer, factor)| Asked::Beside { peer, factor: *factor }).collect();
    Goal { name, on, purpose, tests, measure: Measure::Value, asked, floor: None }
}

fn durable(goals: &mut Vec<Goal>) {
    let one = |test: &Test| is(test, "overwrite-fdatasync", "threads", 1);
    let purpose = "durable writes";
    // bindfs shows what FUSE leaves of ext4's own overwrite: one page and one flush. It serves one
    // caller at a time, so it is no floor for four threads.
    let overwrite = "overwrite 4 KiB at random + fdatasync, 1 thread";
    goals.push(beside(overwrite, "steadfast", purpose, one, &[("bindfs", 0.95)]));
    goals.push(beside(
        "the same, 4 threads",
        "steadfast",
        purpose,
        |test| is(test, "overwrite-fdatasync", "threads", 4),
        &[("ext4", 1.3)],
    ));
    goals.push(beside(
        "append 4 KiB + fdatasync",
        "steadfast",
        purpose,
        |test| test.name == "append-fdatasync",
        &[("ext4", 1.3)],
    ));
    for (name, measure) in [
        ("device writes for one such overwrite", Measure::Writes),
        ("flushes for one such overwrite", Measure::Flushes),
    ] {
        let asked = vec![Asked::AtMost(1.0)];
        goals.push(Goal {
            name,
            on: "steadfast",
            purpose,
            tests: one,
            measure,
            asked,
            floor: None,
        });
    }
    goals.push(beside(
        "create a file of 2 KiB + fsync",
        "steadfast",
        "ageing",
        |test| test.name == "create" && !aged(test),
        &[("ext4", 2.0)],
    ));
    goals.push(beside(
        "SQLite, WAL and rollback journal",
        "steadfast",
        "databases",
        any,
        &[("ext4", 1.2)],
    ));
    goals.push(beside(
        "atomic update of 100 files",
        "steadfast",
        "atomic update",
        |test| test.name == "atomic-update",
        &[("ext4", 10.0)],
    ));
    let overwrite = "library: overwrite 4 KiB at random + fdatasync, 1 thread";
    goals.push(beside(overwrite, "steadfast-lib", purpose, one, &[("ext4", 0.95)]));
}

fn data(goals: &mut Vec<Goal>) {
    let on = "steadfast";
    let library = "steadfast-lib";
    // Through FUSE the null file system is slower than ext4 here: the mount is compared with it.
    let small = "IOzone, 64 MiB of memory, fsync: every column";
    goals.push(beside(small, on, "small memory", any, &[("null", 0.9)]));
    let small = "library: IOzone, 64 MiB of memory, fsync: every column";
    goals.push(beside(small, library, "small memory", any, &[("ext4", 1.0)]));
    let enough = "IOzone, memory enough: every column";
    goals.push(beside(enough, on, "memory enough", any, &[("null", 0.9)]));
    let enough = "library: IOzone, memory enough: every column";
    goals.push(beside(enough, library, "memory enough", any, &[("ext4", 0.9)]));
    let reads = |test: &Test| test.name.contains("read");
    goals.push(beside("cached reads", on, "cached reads", reads, &[("null", 0.95)]));
    let cached = "library: cached reads";
    goals.push(beside(cached, library, "cached reads", reads, &[("ext4", 0.95)]));
    // A library has no memory maps.
    goals.push(beside("reads through a memory map", on, "mapped reads", reads, &[("null", 0.95)]));
    let peers = [("ext4", 0.9), ("null", 0.9)];
    let sequence = "in sequence";
    let writes = |test: &Test| test.name.contains("write");
    goals
        .push(beside("write in sequence + fsync", on, sequence, writes, &peers).with_floor("null"));
    let cold = |test: &Test| test.name == "read";
    goals.push(beside("cold read in sequence", on, sequence, cold, &peers).with_floor("null"));
    let random = |test: &Test| test.name == "random-write";
    goals.push(
        beside(
            "write 4 KiB at random, buffered",
            on,
            "random buffered write",
            random,
            &[("ext4", 0.9)],
        )
        .with_floor("null"),
    );
    // ext4 without a transport is far behind null without a device, so null is no peer here.
    let direct = "direct reads";
    for (name, depth) in [
        ("read 4 KiB with O_DIRECT, depth 1", shallow as fn(&Test) -> bool),
        ("read 4 KiB with O_DIRECT, depth 16", deep),
    ] {
        goals.push(beside(name, on, direct, depth, &[("ext4", 0.9)]));
    }
}

fn shallow(test: &Test) -> bool {
    test.number("depth") == Some(1)
}

fn deep(test: &Test) -> bool {
    test.number("depth") == Some(16)
}

fn names(goals: &mut Vec<Goal>) {
    let one = |test: &Test| alone(test) && asked_for_real(test);
    let two = |test: &Test| several(test) && asked_for_real(test);
    let warm = |test: &Test| alone(test) && as_it_comes(test);
    let mut push = |name, on, tests, peer, factor| {
        goals.push(beside(name, on, "names", tests, &[(peer, factor)]));
    };
    push("names and attributes, 1 client", "steadfast", one as fn(&Test) -> bool, "null", 0.85);
    push("the same, 2 clients", "steadfast", two, "null", 0.85);
    let library = "steadfast-lib";
    push("library: the same, beside system calls", library, warm, "ext4", 2.0);
    // The null file system reaches none of these factors with one client.
    push("library: the same, 1 client, beside bindfs", library, one, "bindfs", 1.5);
    push("library: the same, 2 clients, beside bindfs", library, two, "bindfs", 1.5);
    push("library: the same, 1 client, beside gocryptfs", library, one, "gocryptfs", 1.5);
    push("library: the same, 2 clients, beside gocryptfs", library, two, "gocryptfs", 1.5);
    push("library: the same, 1 client, beside fuse2fs", library, one, "fuse2fs", 3.0);
    push("library: the same, 2 clients, beside fuse2fs", library, two, "fuse2fs", 3.0);
    let create_delete = |test: &Test| test.name != "delete-random";
    goals.push(beside(
        "library: lat_fs, 2 KB, create and delete",
        "steadfast-lib",
        "lat_fs",
        create_delete,
        &[("ext4", 3.0)],
    ));
    let general = "general";
    goals.push(beside(
        "library: general operations",
        "steadfast-lib",
        general,
        any,
        &[("ext4", 2.0)],
    ));
    goals.push(beside("general operations", "steadfast", general, any, &[("null", 0.85)]));
    goals.push(beside(
        "general operations, beside transactions masked out",
        "steadfast",
        general,
        any,
        &[("steadfast-manual", 0.9)],
    ));
}

fn whole(goals: &mut Vec<Goal>) {
    let opening = |test: &Test| test.workload == "opening";
    let library = "steadfast-lib";
    let purpose = "opening";
    goals.push(beside(
        "open after a power cut to first stat",
        library,
        purpose,
        opening,
        &[("ext4", 2.0)],
    ));
    goals.push(beside("the same, beside btrfs", library, purpose, opening, &[("btrfs", 1.0)]));
    let flat = |name, measure, asked| Goal {
        name,
        on: library,
        purpose,
        tests: opening,
        measure,
        asked,
        floor: None,
    };
    goals.push(flat(
        "the same: the slowest over the fastest volume",
        Measure::Flatness,
        vec![Asked::AtMost(1.3)],
    ));
    goals.push(Goal {
        name: "process start, handshake and mount",
        on: "steadfast",
        purpose,
        tests: |test| test.workload == "mount" && test.name == "mount",
        measure: Measure::Value,
        asked: vec![Asked::Shown("shown")],
        floor: None,
    });
    for (name, on) in [("growth of costs, library", library), ("growth of costs", "steadfast")] {
        let asked = vec![Asked::AtMost(1.5)];
        goals.push(Goal {
            name,
            on,
            purpose: "growth",
            tests: any,
            measure: Measure::Value,
            asked,
            floor: None,
        });
    }
    goals.push(Goal {
        name: "memory of the daemon with many files",
        on: "steadfast",
        purpose: "growth",
        tests: |test| test.name == "create",
        measure: Measure::Memory,
        asked: vec![Asked::Shown("bounded by --cache")],
        floor: None,
    });
    let amplified = |test: &Test| test.name == "amplification" && aged(test);
    let ageing = "ageing";
    let measure = Measure::Value;
    goals.push(Goal {
        name: "write amplification, 90 % full, aged",
        on: "steadfast",
        purpose: ageing,
        tests: amplified,
        measure,
        asked: vec![Asked::AtMost(2.5)],
        floor: None,
    });
    goals.push(beside(
        "the same, beside ext4 with its journal",
        "steadfast",
        ageing,
        amplified,
        &[("ext4", 1.0)],
    ));
    goals.push(Goal {
        measure: Measure::P999,
        ..beside(
            "99.9 % of operations, 90 % full, aged",
            "steadfast",
            ageing,
            |test| aged(test) && test.name != "amplification",
            &[("ext4", 1.0)],
        )
    });
    let large = |test: &Test| matches!(test.name.as_str(), "write" | "read");
    for (name, on, peer) in [
        ("processor for a GiB written and read", "steadfast", "null"),
        ("library: processor for a GiB written and read", library, "ext4"),
    ] {
        goals.push(beside(name, on, "processor", large, &[(peer, 1.0 / 1.5)]));
    }
}
