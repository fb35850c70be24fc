//! A check of the lab itself: the same loads by fio.

use crate::Outcome;
use crate::run::{Effort, PlannedSuite};
use crate::workload::crosscheck::AgainstFio;

/// The suite.
///
/// # Errors
/// None.
pub(super) fn suite(effort: Effort) -> Outcome<PlannedSuite> {
    let (file_size, operations) =
        effort.pick((16 << 20, 200), (64 << 20, 2000), (256 << 20, 10_000));
    Ok(PlannedSuite {
        id: "check".into(),
        title: "The lab beside fio".into(),
        answers: String::new(),
        missing: vec!["targets without a directory: fio needs one".into()],
        workloads: vec![Box::new(AgainstFio { file_size, operations })],
    })
}
