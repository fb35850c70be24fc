//! [`Link`]: a connection between two nodes, whatever carries it.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// A connection. Reading and writing happen on different threads at once.
pub struct Link {
    /// Receives. It must fail some time after the other side has gone without a word.
    pub reader: Box<dyn Read + Send>,
    /// Sends.
    pub writer: Box<dyn Write + Send>,
    /// Makes both sides' pending and later calls fail.
    pub close: Arc<dyn Fn() + Send + Sync>,
}

/// Whether a node may act as the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No other node can take over for this long.
    Sure(Duration),
    /// Perhaps: it must not answer until it knows.
    Unsure,
    /// Another node has taken over, or the term has ended.
    Over,
}

impl Standing {
    pub(super) fn is_sure(self) -> bool {
        matches!(self, Standing::Sure(_))
    }
}

/// Tells whether this node is the owner.
pub type Authority = Arc<dyn Fn() -> Standing + Send + Sync>;

/// Waits until this node knows that it is the owner, before it lets an answer go. Returns whether
/// it is.
pub(super) fn wait_until_sure(authority: &Authority) -> bool {
    loop {
        match authority() {
            Standing::Sure(_) => return true,
            Standing::Over => return false,
            Standing::Unsure => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
