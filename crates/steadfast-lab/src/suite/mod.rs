//! The suites: the workloads that answer each published comparison, further work of devices, and
//! the lab's own check.
//!
//! A suite holds what can be run today. [`PlannedSuite::missing`] lists the other parts of the
//! published comparison: rows are not invented.

mod b1;
mod b2;
mod b3;
mod b4;
mod b5;
mod check;
mod device;
pub(crate) mod goals;

use crate::run::{Effort, PlannedSuite};
use crate::workload::Workload;
use crate::workload::iozone::Iozone;
use crate::{Outcome, Trouble};

/// The suites of `all`, in its order.
pub const NAMES: [&str; 7] = ["b1", "b2", "b3", "b4", "b5", "device", "check"];

/// The suite of this name: one of [`NAMES`], or `goals`, which repeats measurements of the others
/// for one table.
///
/// # Errors
/// `Skip` if there is no suite of this name.
pub fn by_name(name: &str, effort: Effort) -> Outcome<PlannedSuite> {
    match name {
        "b1" => b1::suite(effort),
        "b2" => b2::suite(effort),
        "b3" => b3::suite(effort),
        "b4" => b4::suite(effort),
        "b5" => b5::suite(effort),
        "device" => device::suite(effort),
        "check" => check::suite(effort),
        goals::ID => goals::suite(effort),
        _ => Err(Trouble::Skip(format!(
            "there is no suite '{name}': known are {}, goals and all",
            NAMES.join(", ")
        ))),
    }
}

/// IOzone with the words of its own command line.
///
/// # Errors
/// `Skip` with the word that is not understood.
pub fn iozone(words: &str) -> Outcome<PlannedSuite> {
    Ok(PlannedSuite {
        id: "iozone".into(),
        title: format!("IOzone {words}"),
        answers: String::new(),
        missing: Vec::new(),
        workloads: boxed(Iozone::parse(words)?),
    })
}

fn boxed<W: Workload + 'static>(workloads: Vec<W>) -> Vec<Box<dyn Workload>> {
    workloads.into_iter().map(|workload| Box::new(workload) as Box<dyn Workload>).collect()
}

/// IOzone's workloads for fixed words of the program.
fn iozone_words(words: &str) -> Outcome<Vec<Box<dyn Workload>>> {
    Iozone::parse(words).map(boxed)
}
