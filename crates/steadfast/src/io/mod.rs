//! Reading and writing the medium.

pub(crate) mod retry;
