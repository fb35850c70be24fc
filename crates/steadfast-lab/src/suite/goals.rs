//! The goals of Steadfast, each with the workload that tests it and with its targets.
//! [`crate::report::goals`] has the requirements; the purposes here are its keys.
//!
//! A complete run needs
//! `steadfast,steadfast-lib,steadfast-manual,null,ext4,btrfs,bindfs,gocryptfs,fuse2fs`. With fewer
//! targets, the rows that need the missing ones are absent.

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::Workload;
use crate::workload::ageing::Ageing;
use crate::workload::atomic::AtomicUpdate;
use crate::workload::cost::Cost;
use crate::workload::direct::DirectReads;
use crate::workload::general::General;
use crate::workload::growth::Growth;
use crate::workload::iozone::Iozone;
use crate::workload::lat_fs::LatFs;
use crate::workload::limited::Limited;
use crate::workload::metadata::Metadata;
use crate::workload::mount::{Condition, Mount};
use crate::workload::opening::Opening;
use crate::workload::overwrite::{DurableWrites, WritePosition};
use crate::workload::purpose::Purposeful;
use crate::workload::sqlite::Sqlite;

/// Id of the suite.
pub const ID: &str = "goals";

/// Memory of configuration 1 of B5, bytes.
const MEMORY: u64 = 64 << 20;
/// Size of the sparse volume.
const HUGE: u64 = 1 << 40;

const DISK: &[&str] = &["steadfast", "ext4"];
const DURABLE: &[&str] = &["steadfast", "steadfast-lib", "ext4", "bindfs"];
const FLOOR: &[&str] = &["steadfast", "null", "ext4"];
const DATA: &[&str] = &["steadfast", "steadfast-lib", "null", "ext4"];
const NAMES: &[&str] =
    &["steadfast", "steadfast-lib", "null", "ext4", "bindfs", "gocryptfs", "fuse2fs"];
const LIBRARY: &[&str] = &["steadfast-lib", "ext4"];
const GENERAL: &[&str] = &["steadfast", "steadfast-lib", "steadfast-manual", "null", "ext4"];
const OPENING: &[&str] = &["steadfast-lib", "ext4", "btrfs"];
const OURS: &[&str] = &["steadfast", "steadfast-lib", "ext4"];

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    let mut list = List(Vec::new());
    durable(&mut list, effort);
    data(&mut list, effort)?;
    names(&mut list, effort);
    whole(&mut list, effort);
    Ok(PlannedSuite {
        id: ID.into(),
        title: "The goals".into(),
        answers: String::new(),
        missing: missing(effort),
        workloads: list.0,
    })
}

/// Goals that this effort does not reach.
fn missing(effort: Effort) -> Vec<String> {
    let mut missing = vec![
        "littlefs-fuse: Debian has no package of it".to_owned(),
        "growth to a file of 64 GiB: the file grows to what fits the volume's size".to_owned(),
    ];
    if effort != Effort::Full {
        missing.push(
            "1,000,000 files (--full with --size 20G) and IOzone's whole matrix (--full)"
                .to_owned(),
        );
    }
    missing
}

/// Workloads with their purposes.
struct List(Vec<Box<dyn Workload>>);

impl List {
    fn add(
        &mut self,
        purpose: &'static str,
        targets: &'static [&'static str],
        work: impl Workload + 'static,
    ) {
        self.0.push(Box::new(Purposeful { inner: Box::new(work), purpose, targets }));
    }

    /// IOzone with these words.
    fn iozone(
        &mut self,
        purpose: &'static str,
        targets: &'static [&'static str],
        words: &str,
    ) -> Outcome {
        for inner in iozone_words(words)? {
            self.0.push(Box::new(Purposeful { inner, purpose, targets }));
        }
        Ok(())
    }
}

/// Workloads about durable changes.
fn durable(list: &mut List, effort: Effort) {
    let operations = effort.pick(200, 1000, 5000);
    let file_size = effort.pick(4 << 20, 32 << 20, 64 << 20);
    for (position, threads) in
        [(WritePosition::Inside, 1), (WritePosition::Inside, 4), (WritePosition::End, 1)]
    {
        let operations = operations / threads.min(2);
        list.add(
            "durable writes",
            DURABLE,
            DurableWrites { position, threads, file_size, operations },
        );
    }
    list.add("databases", DISK, Sqlite { transactions: effort.pick(100, 1000, 10_000) });
    let updates = effort.pick(2, 5, 20);
    list.add("atomic update", DISK, AtomicUpdate { files: 100, file_bytes: 4096, updates });
    let (file_size, operations, churn) =
        effort.pick((4 << 20, 200, 20), (8 << 20, 1000, 200), (16 << 20, 5000, 500));
    list.add("ageing", DISK, Ageing { operations, file_size, churn });
}

/// Workloads that move data.
fn data(list: &mut List, effort: Effort) -> Outcome {
    let matrix = effort.pick(
        &["-s 1m -r 4k -r 64k -r 1m", "-s 8m -r 64k -r 1m"][..],
        &["-s 64k -r 4k -r 64k", "-s 1m -r 4k -r 64k -r 1m", "-s 32m -r 64k -r 1m -r 16m"],
        &["-a -z -g 128m -q 16m"],
    );
    for words in matrix {
        for inner in Iozone::parse(&format!("{words} -+w 1 -e"))? {
            list.add("small memory", DATA, Limited { inner, bytes: MEMORY });
        }
        list.iozone("memory enough", DATA, &format!("{words} -+w 1"))?;
    }
    let file = effort.pick("8m", "64m", "256m");
    list.iozone("cached reads", DATA, &format!("-s {file} -r 4k -r 64k -i 0 -i 1 -i 2"))?;
    list.iozone("mapped reads", FLOOR, &format!("-s {file} -r 4k -r 64k -i 0 -i 1 -i 2 -B"))?;
    let large = effort.pick("32m", "128m", "256m");
    list.iozone("in sequence", FLOOR, &format!("-s {large} -r 128k -r 1m -i 0 -i 1 -e -U"))?;
    let file = effort.pick("16m", "64m", "256m");
    list.iozone("random buffered write", FLOOR, &format!("-s {file} -r 4k -i 0 -i 2"))?;
    let (file_size, operations) =
        effort.pick((16 << 20, 1600), (64 << 20, 16_000), (256 << 20, 64_000));
    for depth in [1, 16] {
        let operations = operations / depth;
        list.add("direct reads", FLOOR, DirectReads { depth, file_size, operations });
    }
    let (file_size, operations) =
        effort.pick((32 << 20, 200), (256 << 20, 2000), (512 << 20, 10_000));
    list.add("processor", DATA, Cost { file_size, operations });
    Ok(())
}

/// Workloads on names and attributes.
fn names(list: &mut List, effort: Effort) {
    let files = effort.pick(1000, 5000, 20_000);
    for clients in [1, 2] {
        list.add("names", NAMES, Metadata { clients, files: files / clients });
    }
    let files = effort.pick(4096, 16_384, 16_384);
    list.add("lat_fs", LIBRARY, LatFs { files, file_bytes: 2048 });
    let (operations, files) = effort.pick((5000, 500), (30_000, 2000), (300_000, 10_000));
    list.add("general", GENERAL, General { operations, files });
}

/// Workloads on whole volumes.
fn whole(list: &mut List, effort: Effort) {
    // ext4 has 65,536 inodes per GiB; a million files of 1 KiB do not fit there anyway.
    let many = effort.pick(20_000, 50_000, 1_000_000);
    let opening = Opening { volume_size: None, files: 0, full: false };
    list.add("opening", OPENING, opening);
    list.add("opening", OPENING, Opening { files: effort.pick(2000, 20_000, 20_000), ..opening });
    list.add("opening", OPENING, Opening { files: many, ..opening });
    list.add("opening", OPENING, Opening { full: true, ..opening });
    list.add("opening", OPENING, Opening { volume_size: Some(HUGE), ..opening });
    let times = effort.pick(1, 3, 5);
    list.add("opening", DISK, Mount { condition: Condition::AfterPowerCut, times });
    let growth = Growth {
        files: (1000, many),
        file_size: effort.pick((4 << 20, 128 << 20), (64 << 20, 512 << 20), (64 << 20, 512 << 20)),
        operations: effort.pick(500, 1000, 1000),
    };
    list.add("growth", OURS, growth);
}
