//! Evidence that a state newer than the opened one was durable once and is damaged.
//!
//! A power cut spoils only what is being written: one copy of a metaroot, the last record of the
//! log. Damage beyond that means that the state was acknowledged, or that the medium has damaged
//! stored data.

use core::fmt;

use crate::types::{BlockAddress, Generation, Lsn};

/// See the module. [`Display`](fmt::Display) gives it in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NewerState {
    /// Both copies of one of the two metaroots.
    Metaroot {
        /// The state of the other metaroot.
        left: Generation,
    },
    /// Records of the intent log.
    Records {
        /// Block of the first of them.
        block: BlockAddress,
        /// The first damaged record.
        first: Lsn,
        /// The last record that existed.
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
