//! [`Sending`]: the way to a peer, and what has gone there.

use std::io::{self, Write};

use super::deltas::Changes;
use super::executions::Executions;
use super::frame::AnswerFrame;
use super::guest::Guest;

/// Bytes of deltas that a peer keeps. Beyond them the owner sets a transaction point.
const KEPT_BY_PEER: usize = 1 << 20;

/// See the module. A frame is written whole under its lock.
pub(super) struct Sending {
    writer: Box<dyn Write + Send>,
    /// The batch of the last delta, as the peer has it. 0: the next one is a whole one.
    seen: u64,
    /// Bytes that the peer keeps, and the durable batch since when.
    kept: (u64, usize),
}

impl Sending {
    pub(super) fn new(writer: Box<dyn Write + Send>) -> Sending {
        Sending { writer, seen: 0, kept: (0, 0) }
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// The connection breaks.
    pub(super) fn write(&mut self, frame: &AnswerFrame) -> io::Result<()> {
        frame.write(&mut *self.writer)
    }

    /// Puts what has changed since the last answer into this one, with the executed requests. If
    /// the peer keeps much, a transaction point comes first.
    pub(super) fn put_changes(
        &mut self,
        guest: &dyn Guest,
        executions: &Executions,
        answer: &mut AnswerFrame,
    ) {
        if self.kept.1 > KEPT_BY_PEER {
            guest.set_point();
            self.kept.1 = 0;
        }
        answer.changes = guest.changes(self.seen);
        if let Changes::New(delta) = &answer.changes {
            // Requests that make batches meanwhile are in the list only with what the delta has.
            match executions.in_state(delta.sequence) {
                Some(executed) => answer.executed = executed,
                None => answer.changes = Changes::Untold,
            }
        }
        match &answer.changes {
            Changes::Same => {}
            // Later changes alone would not lead on from what the peer has.
            Changes::Untold => (self.seen, self.kept) = (0, (0, 0)),
            Changes::New(delta) => {
                self.seen = delta.sequence;
                if self.kept.0 != delta.durable_sequence {
                    self.kept = (delta.durable_sequence, 0);
                }
                self.kept.1 += delta.payload.len();
            }
        }
    }
}
