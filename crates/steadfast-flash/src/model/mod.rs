//! A faithful model of NAND, and one of NOR.
//!
//! It keeps the programmed data apart from the damage (flipped bits, torn pages, worn-out blocks),
//! so a test always knows the correct data. It enforces the rules of the part: it refuses a program
//! that is out of order, too frequent or without an erasure. It counts operations and adds up
//! modelled time, so no result depends on the machine. The same seed and the same operations give
//! the same damage.
//!
//! A copy of a part costs one pointer for each erase block, so a run can be branched at every
//! operation.
//!
//! - [`NandModel`] is the part. [`NandModel::new`] corrects flipped bits as the code of the part
//!   would; [`NandModel::raw`] passes them on to a software code.
//! - [`NorModel`] is a serial NOR part, with bytes that are torn and bits that are unstable.
//! - [`Interrupted`] is the state after a power cut of the operation in flight.

mod cells;
mod cut;
mod interrupted;
mod nor;
mod part;

pub use interrupted::{Interrupted, Struck};
pub use nor::NorModel;
pub use part::{Ageing, NandModel, OperationCounts};
