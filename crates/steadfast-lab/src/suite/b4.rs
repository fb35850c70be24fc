//! B4: a NAND file system as a loadable module (TargetFS-LKM, JFFS2, UBIFS).

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::cost::Cost;
use crate::workload::durability::Durability;
use crate::workload::fileops::FileOperations;
use crate::workload::mount::{Condition, Mount};

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    let file = effort.pick("2m", "16m", "64m");
    let mut workloads = iozone_words(&format!("-s {file} -r 4k -r 64k -i 0 -i 1 -i 2 -e"))?;
    let force = effort.pick(6, 12, 25);
    workloads.push(Box::new(FileOperations { force, file_bytes: 4096 }));
    let (record_sizes, count) = effort.pick(
        (vec![4096], 100),
        (vec![512, 4096, 65_536], 1000),
        (vec![512, 4096, 65_536], 10_000),
    );
    workloads.push(Box::new(Durability { record_sizes, count }));
    let (file_size, operations) =
        effort.pick((16 << 20, 100), (64 << 20, 1000), (256 << 20, 10_000));
    workloads.push(Box::new(Cost { file_size, operations }));
    let times = effort.pick(1, 3, 5);
    let many = Condition::ManyFiles(effort.pick(2000, 20_000, 200_000));
    let conditions = match effort {
        Effort::Quick => vec![Condition::Empty, many],
        _ => vec![
            Condition::Empty,
            Condition::HalfFull,
            Condition::Full,
            many,
            Condition::AfterPowerCut,
        ],
    };
    for condition in conditions {
        workloads.push(Box::new(Mount { condition, times }));
    }
    Ok(PlannedSuite {
        id: "b4".into(),
        title: "NAND file system as a loadable module".into(),
        answers: "TargetFS-LKM, JFFS2 and UBIFS: LPC3250, Linux 2.6.39, 1 Gbit SLC NAND".into(),
        missing: vec![
            "NAND flash, and with it JFFS2 and UBIFS".into(),
            "the asynchronous and the synchronous configuration: only the default one is run"
                .into(),
        ],
        workloads,
    })
}
