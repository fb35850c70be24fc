//! B5: an extent-based transactional file system on eMMC (Reliance Nitro, ext3, ext4).

use super::iozone_words;
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};

/// The suite.
///
/// # Errors
/// None: the words are ours.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    // Configuration 1 of the published test is `-Raze -+w 1 -q 16m -g 128m`: fsync in the time. Configuration 2 is the same
    // without -e.
    let sizes = effort.pick("-n 64k -g 8m -y 4k -q 1m", "-g 32m -q 16m", "-g 128m -q 16m");
    let mut workloads = Vec::new();
    match effort {
        Effort::Quick => {
            for file in ["64k", "1m", "8m"] {
                workloads.extend(iozone_words(&format!("-s {file} -r 4k -r 64k -r 1m -+w 1 -e"))?);
            }
        }
        _ => workloads.extend(iozone_words(&format!("-Raze -+w 1 {sizes}"))?),
    }
    Ok(PlannedSuite {
        id: "b5".into(),
        title: "Extent-based transactional file system on eMMC".into(),
        answers: "Reliance Nitro, ext3 and ext4: OMAP4430, Linux 2.6.39, 4 GB eMMC, IOzone 3.397 -Raze -+w 1 -q 16m -g 128m"
            .into(),
        missing: vec![
            "an eMMC".into(),
            "configuration 1's limit of 64 MB of memory".into(),
            "configuration 2, without fsync".into(),
        ],
        workloads,
    })
}
