//! Calls that consist of steps: the possible states between two of them.
//!
//! A clone, and a copy that shares blocks, handles a few extents at a time. Between two steps a
//! full volume may set a transaction point. The next step may find no space or fail, and the blocks
//! shared before stay. So the possible states are those in which a prefix of the range, up to the
//! end of a block, is done.

use super::Session;
use crate::model::{Model, State};
use crate::subject::{Call, Subject};

/// Maximum number of prefixes tried, blocks. The generators draw shorter ranges.
const PREFIX_BLOCKS_MAX: u64 = 1024;

impl<S: Subject> Session<'_, S> {
    /// The states that a call passes through before it is done, in order: the state `before` it,
    /// and those between steps.
    pub(crate) fn steps(&self, call: &Call<'_>, before: &State) -> Vec<State> {
        let mut states = vec![before.clone()];
        let model = Model { state: before.clone(), ..self.model.clone() };
        let (range, copies) = match *call {
            Call::CloneRange { from, from_offset, to, to_offset, length } => {
                ((from, from_offset, to, to_offset, length), false)
            }
            Call::CopyRange { from, from_offset, to, to_offset, length } => {
                ((from, from_offset, to, to_offset, length), true)
            }
            _ => return states,
        };
        let (from, from_offset, to, to_offset, length) = range;
        let length = match copies {
            true => model.copy_length(from, from_offset, to, to_offset, length),
            false => model.clone_length(from, from_offset, to, to_offset, length),
        };
        let Ok(length) = length else { return states };
        let block = self.model.limits.block_size.max(1);
        let first = block - to_offset % block;
        for blocks in 0..PREFIX_BLOCKS_MAX {
            let count = first + blocks * block;
            if count >= length {
                break;
            }
            let mut part = model.clone();
            let done = match copies {
                true => part.copy_range(from, from_offset, to, to_offset, count),
                false => part.clone_range(from, from_offset, to, to_offset, count),
            };
            if done.is_err() {
                break;
            }
            states.push(part.state);
        }
        states
    }

    /// Compares the volume with the model after a refused call. If the volume did the first steps
    /// of the call, the model does them too.
    ///
    /// # Errors
    /// The difference, if the volume is in none of the states that the call passes through.
    pub(crate) fn compare_refused(&mut self, call: &Call<'_>) -> Result<(), String> {
        let Err(what) = self.compare() else { return Ok(()) };
        let before = self.model.state.clone();
        for state in self.steps(call, &before).into_iter().skip(1) {
            self.model.state = state;
            if self.compare().is_ok() {
                self.dirty_since_ms = self.dirty_since_ms.or(Some(self.monotonic_ms));
                return Ok(());
            }
        }
        self.model.state = before;
        Err(what)
    }
}
