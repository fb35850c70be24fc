//! The part of the lab behind `steadfast torture`.
//!
//! - [`campaign`]: runs seed after seed on the simulator, on several threads, until a time or a
//!   number of cuts is reached;
//! - [`finding`]: a shortened violation, and the name that replays it;
//! - [`self_test`]: planted faults that a campaign must find, or it proves nothing;
//! - [`report`]: the page with the tries and the findings;
//! - [`device`]: the same test on a real medium, as far as software can do it.
//!
//! This module does not define correctness: [`powercut`](crate::powercut), the model and the ledger
//! do.

pub mod campaign;
pub mod device;
pub mod finding;
pub mod report;
pub mod self_test;
