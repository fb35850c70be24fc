//! What shows that a state was durable once that is newer than the one that a volume opens in, and
//! is damaged.
//!
//! A power cut spoils what is being written, and no more: one copy of a metaroot, the last record
//! of the log. What is here was found beyond that, so it was acknowledged, or a medium has damaged
//! what it should have kept.

use core::fmt;

use crate::types::{BlockAddress, Generation, Lsn};

/// See the module. [`Display`](fmt::Display) gives it in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewerState {
    /// Both copies of one of the two metaroots.
    Metaroot {
        /// The state of the other one.
        left: Generation,
    },
    /// Records of the intent log.
    Records {
        /// Block where the first of them is.
        block: BlockAddress,
        /// The first record that is damaged.
        first: Lsn,
        /// The last one that was there.
        last: Lsn,
    },
}

impl fmt::Display for NewerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NewerState::Metaroot { left } => write!(
                f,
                "both copies of a metaroot are damaged: a state newer than generation {} may be lost",
                left.0
            ),
            NewerState::Records { block, first, last } => write!(
                f,
                "intent log record {} at block {} is damaged: records {} to {} and the transaction points that they \
                 set are lost",
                first.0, block.0, first.0, last.0
            ),
        }
    }
}
