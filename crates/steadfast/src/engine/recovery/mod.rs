//! Opening makes a state that operations see from what the medium holds. Rollback returns to the
//! last transaction point. The log beside the tree and the signs of a newer, lost state are here
//! too.

mod damaged_newest;
pub(crate) mod open;
pub(crate) mod overlay;
pub(crate) mod rollback;
