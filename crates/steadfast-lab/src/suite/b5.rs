//! B5: an extent-based transactional file system on eMMC (Reliance Nitro, ext3, ext4).

use super::{boxed, iozone_words};
use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::Workload;
use crate::workload::iozone::Iozone;
use crate::workload::limited::Limited;

/// Memory of configuration 1, bytes.
const MEMORY: u64 = 64 << 20;

/// With `--quick`: the tests of the published curves.
const CHOSEN: &str = "-i 0 -i 1 -i 2";

/// The suite.
///
/// # Errors
/// None, because the words are fixed.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    // Configuration 1 of the published test is `-Raze -+w 1 -q 16m -g 128m`, with fsync in the
    // measured time, on a machine with 64 MB. Configuration 2 is the same without -e on a machine
    // with enough memory.
    let words: Vec<String> = match effort {
        Effort::Quick => ["64k", "1m", "8m"]
            .map(|file| format!("-s {file} -r 4k -r 64k -r 1m -+w 1 {CHOSEN}"))
            .into(),
        Effort::Default => vec!["-Raz -+w 1 -g 32m -q 16m".into()],
        Effort::Full => vec!["-Raz -+w 1 -g 128m -q 16m".into()],
    };
    let mut workloads: Vec<Box<dyn Workload>> = Vec::new();
    for words in words {
        let limited = Iozone::parse(&format!("{words} -e"))?.into_iter();
        workloads.extend(boxed(limited.map(|inner| Limited { inner, bytes: MEMORY }).collect()));
        workloads.extend(iozone_words(&words)?);
    }
    Ok(PlannedSuite {
        id: "b5".into(),
        title: "Extent-based transactional file system on eMMC".into(),
        answers: "Reliance Nitro, ext3 and ext4: OMAP4430, Linux 2.6.39, 4 GB eMMC, IOzone 3.397 -Raze -+w 1 -q 16m -g 128m"
            .into(),
        missing: vec![
            "an eMMC".into(),
            "configuration 1's machine with 64 MB: here the process, its page cache and a daemon of the file system together \
             have 64 MiB (memory_limit), the kernel itself has more"
                .into(),
        ],
        workloads,
    })
}
