//! From what the medium holds to a state that operations see, and back to the last transaction
//! point: opening, the log beside the tree, rollback, signs of a newer state that was lost.

pub(crate) mod newer;
pub(crate) mod open;
pub(crate) mod overlay;
pub(crate) mod rollback;
