//! A model of NAND that is faithful enough to be feared.
//!
//! It keeps the truth (what was programmed) apart from the damage (flipped bits, torn pages,
//! worn-out blocks), so that a test can always tell what should have been read. It enforces the
//! rules of the part: a page that is programmed out of order, too often or without being erased is
//! refused. It counts operations and prices them in modelled time: no result depends on the
//! machine. One seed is one part: the same operations give the same damage.
//!
//! A copy of a part costs one pointer for each erase block, so that a run can be branched at every
//! operation.
//!
//! - [`NandModel`] is the part; [`NandModel::new`] corrects flipped bits as the code of the part
//!   would, [`NandModel::raw`] gives them to a code in software.
//! - [`Interrupted`] says what a power cut leaves of the operation in flight.

mod cells;
mod cut;
mod part;
mod random;

pub use cut::{Interrupted, Struck};
pub use part::{Ageing, NandModel, OperationCounts};
