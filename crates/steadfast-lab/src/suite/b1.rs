//! B1: a transactional file system on an RTOS disk (Reliance, dosFs, dosFs with a transactional
//! layer).

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::general::General;
use crate::workload::mount::{Condition, Mount};

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    // 100 MB sequential and a 10 MB "database" in records of 8 KiB; "tuned" means records of 128
    // KiB. Reads are cold, because the published system could not cache so much.
    let sequential = effort.pick("32m", "100m", "100m");
    let database = effort.pick("4m", "10m", "10m");
    let mut workloads = iozone_words(&format!("-s {sequential} -r 8k -r 128k -i 0 -i 1 -e -U"))?;
    workloads.extend(iozone_words(&format!("-s {database} -r 8k -r 128k -i 0 -i 2 -e -U"))?);
    let (operations, files) = effort.pick((3000, 300), (30_000, 2000), (300_000, 10_000));
    workloads.push(Box::new(General { operations, files }));
    let times = effort.pick(1, 3, 5);
    for condition in [Condition::Empty, Condition::AfterPowerCut] {
        workloads.push(Box::new(Mount { condition, times }));
    }
    Ok(PlannedSuite {
        id: "b1".into(),
        title: "Transactional file system on an RTOS disk".into(),
        answers: "Reliance, dosFs and dosFs with a transactional layer: VxWorks 6.0, Celeron 1.8 GHz, ATA disk, volume of \
                  335 MB, 8 KiB blocks"
            .into(),
        missing: vec![
            "general file operations for five minutes: here a fixed number of operations, the same for all".into(),
            "FAT, with and without a transactional layer".into(),
        ],
        workloads,
    })
}
