//! B3: network RamDisk (remote memory as a block device), measured by creating and deleting files.

use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::Workload;
use crate::workload::lat_fs::LatFs;

/// The suite.
///
/// # Errors
/// None.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    let small: &[u64] = &[256, 1024];
    let counts = effort.pick(
        small,
        &[1, 16, 256, 4096, 16_384],
        &[1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144],
    );
    let mut workloads: Vec<Box<dyn Workload>> = Vec::new();
    // 2 KB is the published size; the others are those of lat_fs.
    workloads.extend(
        counts
            .iter()
            .map(|files| Box::new(LatFs { files: *files, file_bytes: 2048 }) as Box<dyn Workload>),
    );
    let others: &[usize] = effort.pick(&[0], &[0, 1024, 4096, 10_240], &[0, 1024, 4096, 10_240]);
    workloads.extend(others.iter().map(|file_bytes| {
        Box::new(LatFs { files: 1000, file_bytes: *file_bytes }) as Box<dyn Workload>
    }));
    Ok(PlannedSuite {
        id: "b3".into(),
        title: "Creating and deleting small files".into(),
        answers:
            "Network RamDisk, HBench-OS lat_fs with files of 2 KB: Pentium II 233, Linux 2.0.33"
                .into(),
        missing: vec!["remote memory: Steadfast has no such medium yet".into()],
        workloads,
    })
}
