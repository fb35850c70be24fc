//! Work of devices beyond the published comparisons: databases, updates, several programs at once,
//! and an old and full volume.

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::ageing::Ageing;
use crate::workload::atomic::AtomicUpdate;
use crate::workload::cost::Cost;
use crate::workload::durability::Durability;
use crate::workload::sqlite::Sqlite;

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    let mut workloads: Vec<Box<dyn crate::workload::Workload>> = vec![
        Box::new(Sqlite { transactions: effort.pick(100, 1000, 10_000) }),
        Box::new(AtomicUpdate { files: 100, file_bytes: 4096, updates: effort.pick(2, 5, 20) }),
    ];
    if effort != Effort::Quick {
        // With --quick, b4 covers this.
        let count = effort.pick(100, 1000, 10_000);
        workloads.push(Box::new(Durability { record_sizes: vec![4096], count }));
    }
    let file = effort.pick("4m", "32m", "128m");
    workloads.extend(iozone_words(&format!("-T -t 2 -s {file} -r 64k -i 0 -i 1 -i 2 -e"))?);
    // The same by processes; a library exists in one process only.
    workloads.extend(iozone_words(&format!("-t 2 -s {file} -r 64k -i 0 -i 1 -e"))?);
    if effort != Effort::Quick {
        workloads.extend(iozone_words(&format!("-T -t 4 -s {file} -r 64k -i 0 -i 1 -i 2 -e"))?);
    }
    let (file_size, operations) =
        effort.pick((32 << 20, 200), (256 << 20, 2000), (512 << 20, 10_000));
    workloads.push(Box::new(Cost { file_size, operations }));
    let (file_size, operations, churn) =
        effort.pick((4 << 20, 100, 20), (8 << 20, 1000, 200), (16 << 20, 5000, 500));
    workloads.push(Box::new(Ageing { operations, file_size, churn }));
    Ok(PlannedSuite {
        id: "device".into(),
        title: "What devices do".into(),
        answers: String::new(),
        missing: Vec::new(),
        workloads,
    })
}
