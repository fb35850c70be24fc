//! The published tables as data.

use super::Value::{Is, Nothing, Said};
use super::{Published, PublishedRow, TestSelection, Value};
use crate::result::Better::{Higher, Lower};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// One test of IOzone's set at these sizes.
const fn iozone(
    names: &'static [&'static str],
    near: &'static [(&'static str, u64)],
) -> TestSelection {
    TestSelection { workload: "iozone", names, near, condition: "", limited: None }
}

/// All comparisons that suites answer.
pub const ALL: &[Published] = &[B1, B2, B3, B4, B5];

/// A row of a comparison that was published as curves: words, and all sizes of a test together.
const fn curve(
    test: &'static str,
    values: &'static [Value],
    names: &'static [&'static str],
) -> PublishedRow {
    PublishedRow { test, unit: "", better: Higher, values, answer: iozone(names, &[]) }
}

/// The same for tests with a memory limit, or for those without.
const fn configuration(
    test: &'static str,
    limited: bool,
    values: &'static [Value],
    names: &'static [&'static str],
) -> PublishedRow {
    let answer = TestSelection { limited: Some(limited), ..iozone(names, &[]) };
    PublishedRow { test, unit: "", better: Higher, values, answer }
}

const B1: Published = Published {
    suite: "b1",
    title: "A transactional file system on the disk of an RTOS",
    source: "Reliance beside dosFs and dosFs with a transactional layer: VxWorks 6.0, Celeron 1.8 GHz, ATA disk of 40 GB, \
             volume of 335 MB, blocks of 8 KiB",
    columns: &["Reliance", "dosFs", "dosFs, transactional", "Reliance, 128 KiB records"],
    factor: (0, 1),
    rows: &[
        PublishedRow {
            test: "sequential write, 100 MB, records of 8 KiB",
            unit: "MB/s",
            better: Higher,
            values: &[Is("2.04"), Is("1.47"), Is("0.04"), Is("2.95")],
            answer: iozone(&["write"], &[("file_size", 100 * MIB), ("record_size", 8 * KIB)]),
        },
        PublishedRow {
            test: "sequential read",
            unit: "MB/s",
            better: Higher,
            values: &[Is("2.70"), Is("2.56"), Is("2.04"), Is("2.81")],
            answer: iozone(&["read"], &[("file_size", 100 * MIB), ("record_size", 8 * KIB)]),
        },
        PublishedRow {
            test: "random write, \"database\" of 10 MB",
            unit: "MB/s",
            better: Higher,
            // The text of the publication says 0.50 for dosFs, its table 0.53.
            values: &[Is("0.91"), Is("0.53"), Is("0.02"), Is("2.93")],
            answer: iozone(&["random-write"], &[("file_size", 10 * MIB), ("record_size", 8 * KIB)]),
        },
        PublishedRow {
            test: "random read",
            unit: "MB/s",
            better: Higher,
            values: &[Is("0.83"), Is("0.67"), Is("0.59"), Is("2.47")],
            answer: iozone(&["random-read"], &[("file_size", 10 * MIB), ("record_size", 8 * KIB)]),
        },
        PublishedRow {
            test: "general file operations, 5 minutes",
            unit: "/min",
            better: Higher,
            values: &[Is("1393"), Is("1934"), Is("418"), Nothing],
            answer: TestSelection {
                workload: "general",
                names: &["operations"],
                near: &[],
                condition: "",
                limited: None,
            },
        },
        PublishedRow {
            test: "boot: mount, volume of 1 GB",
            unit: "s",
            better: Lower,
            values: &[Is("0.05"), Is("0.20"), Is("7.3"), Is("0.05")],
            answer: TestSelection {
                workload: "mount",
                names: &["mount"],
                near: &[],
                condition: "power cut",
                limited: None,
            },
        },
    ],
    lesson: "Transactions need not cost throughput: the transactional system was ahead of the plain one in all but mixed file \
             operations, while transactions added as a layer cost a factor of 20 and more in writes.",
};

const B2: Published = Published {
    suite: "b2",
    title: "A cluster file system on one node",
    source: "OCFS2 beside ext3, IOzone 3.217: Linux 2.6.6, Pentium III 900 MHz, 256 MB, IDE disk; two nodes were promised \
             and never published",
    columns: &["OCFS2 beside ext3"],
    factor: (0, 0),
    rows: &[
        curve("write", &[Said("1–10× slower, jagged")], &["write"]),
        curve("re-write", &[Said("within 1×")], &["rewrite"]),
        curve("read, re-read", &[Said("100× slower")], &["read", "reread"]),
        curve("random read", &[Said("up to 1000× slower")], &["random-read"]),
        curve("backward read", &[Said("up to 1000× slower")], &["backward-read"]),
        curve("stride read", &[Said("200–600× slower")], &["stride-read"]),
        curve("record re-write", &[Said("about equal")], &["record-rewrite"]),
    ],
    lesson: "Nothing was cached: a cluster file system must cache under its locks.",
};

const B3: Published = Published {
    suite: "b3",
    title: "Memory of other machines as a block device",
    source: "HBench-OS lat_fs, files of 2 KB: Pentium II 233 MHz, 64 MB, Linux 2.0.33, two servers of 128 MB over \
             ATM and Ethernet",
    columns: &["remote memory", "magnetic disk"],
    factor: (0, 1),
    rows: &[
        PublishedRow {
            test: "create 16,384 files, each",
            unit: "ms",
            better: Lower,
            values: &[Is("7.601"), Is("12.629")],
            answer: TestSelection {
                workload: "lat_fs",
                names: &["create"],
                near: &[("files", 16_384), ("file_bytes", 2048)],
                condition: "",
                limited: None,
            },
        },
        PublishedRow {
            test: "delete them in random order",
            unit: "",
            better: Lower,
            values: &[Said("ahead in every version"), Nothing],
            answer: TestSelection {
                workload: "lat_fs",
                names: &["delete-random", "random-delete"],
                near: &[("files", 16_384), ("file_bytes", 2048)],
                condition: "",
                limited: None,
            },
        },
    ],
    lesson: "The reliable version (parity over the servers) was very close to the unreliable one.",
};

const B4: Published = Published {
    suite: "b4",
    title: "A file system for NAND as a loadable module",
    source: "TargetFS-LKM beside JFFS2 and UBIFS: LPC3250 (ARM926), Linux 2.6.39, SLC NAND of 1 Gbit; mount of a completely \
             full volume of 978 blocks",
    columns: &["TargetFS-LKM", "JFFS2", "UBIFS"],
    factor: (0, 1),
    rows: &[
        PublishedRow {
            test: "load the module, attach",
            unit: "s",
            better: Lower,
            values: &[Is("0.17"), Nothing, Is("0.39")],
            answer: TestSelection {
                workload: "mount",
                names: &["attach"],
                near: &[],
                condition: "",
                limited: None,
            },
        },
        PublishedRow {
            test: "mount, full",
            unit: "s",
            better: Lower,
            values: &[Is("0.47"), Is("18.75"), Is("0.12")],
            answer: TestSelection {
                workload: "mount",
                names: &["mount"],
                near: &[],
                condition: "full",
                limited: None,
            },
        },
        PublishedRow {
            test: "both",
            unit: "s",
            better: Lower,
            values: &[Is("0.64"), Is("18.75"), Is("0.51")],
            answer: TestSelection {
                workload: "mount",
                names: &["attach-and-mount"],
                near: &[],
                condition: "full",
                limited: None,
            },
        },
    ],
    lesson: "Mount time is what people see of a power cut. It was claimed to be constant, also after one.",
};

const B5: Published = Published {
    suite: "b5",
    title: "An extent-based transactional file system on eMMC",
    source: "Reliance Nitro beside ext3 and ext4, IOzone 3.397, files of 64 KB to 128 MB: OMAP4430, Linux 2.6.39, eMMC of \
             4 GB (reads about 25 MB/s, writes about 11 MB/s); configuration 1: 64 MB of memory and fsync, 2: 463 MB, no fsync",
    columns: &["Nitro beside ext4"],
    factor: (0, 0),
    rows: &[
        configuration(
            "write, 64 MB of memory, fsync",
            true,
            &[Said("comparable")],
            &["write", "rewrite"],
        ),
        configuration("write, memory free", false, &[Said("behind")], &["write", "rewrite"]),
        configuration(
            "random write, 64 MB of memory, fsync",
            true,
            &[Said("ahead from files of 16 MB up")],
            &["random-write"],
        ),
        configuration("random write, memory free", false, &[Said("behind")], &["random-write"]),
        configuration("read, 64 MB of memory", true, &[Said("comparable")], &["read", "reread"]),
        configuration("read, memory free", false, &[Said("comparable")], &["read", "reread"]),
        configuration(
            "random read, 64 MB of memory",
            true,
            &[Said("comparable")],
            &["random-read"],
        ),
        configuration("random read, memory free", false, &[Said("comparable")], &["random-read"]),
    ],
    lesson: "With fsync the transactional system kept up while it protected data as well as metadata; without, it lost because it \
             went around the page cache. One thread, one file, a fresh volume: this lab removes those limits.",
};
