//! The lab for users: what `steadfast torture` runs.
//!
//! - [`campaign`]: seed after seed on the simulator, on several threads, until a time or a number
//!   of cuts is reached;
//! - [`finding`]: a violation made short, and the words with which it is played again;
//! - [`self_test`]: planted faults that a campaign must find, or it proves nothing;
//! - [`report`]: the page that says what was tried and what was found;
//! - [`device`]: the same question put to a real medium, as far as software can.
//!
//! Nothing here decides what is right: that is the business of [`powercut`](crate::powercut), the
//! model and the ledger.

pub mod campaign;
pub mod device;
pub mod finding;
pub mod report;
pub mod self_test;
