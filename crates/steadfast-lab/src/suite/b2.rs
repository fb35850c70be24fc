//! B2: a cluster file system on one node (OCFS2, ext3).

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    // Small records, with which the published system became very slow, and records above 16 KiB.
    let file = effort.pick("2m", "32m", "256m");
    let records = effort.pick(
        "-r 4k -r 32k",
        "-r 2k -r 4k -r 8k -r 16k -r 64k",
        "-r 1k -r 2k -r 4k -r 8k -r 16k -r 64k -r 256k",
    );
    Ok(PlannedSuite {
        id: "b2".into(),
        title: "Cluster file system on one node".into(),
        answers:
            "OCFS2 and ext3 on one node: Linux 2.6.6, Pentium 3 900 MHz, IDE disk, IOzone 3.217"
                .into(),
        missing: vec!["nodes of a cluster: bench/cluster.sh runs this suite on them".into()],
        workloads: iozone_words(&format!("-s {file} {records} -i 0 -i 1 -i 2 -i 3 -i 4 -i 5"))?,
    })
}
