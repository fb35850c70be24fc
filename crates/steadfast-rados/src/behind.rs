//! Writes that have returned and that RADOS has not acknowledged yet.
//!
//! Invariants:
//! - at most [`BYTES_MAX`] bytes are on their way; a further write waits;
//! - a flush waits for every change that began before it;
//! - the first error stays: RADOS may or may not have that write, and later ones do not change
//!   that.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Most bytes on their way. Enough for the round trips of a fast network.
const BYTES_MAX: usize = 16 << 20;
/// Most changes on their way.
const CHANGES_MAX: usize = 256;

/// The changes on their way.
#[derive(Debug, Default)]
pub struct Behind {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    on_their_way: BTreeSet<u64>,
    bytes: usize,
    /// The negative result of the first change that failed.
    failed: Option<i32>,
}

/// A change on its way.
#[derive(Debug)]
pub struct Change {
    behind: Arc<Behind>,
    number: u64,
    bytes: usize,
}

impl Behind {
    /// Begins a change of `bytes` bytes, when there is room for it.
    ///
    /// # Errors
    /// The negative result of an earlier change.
    pub fn begin(self: &Arc<Behind>, bytes: usize) -> Result<Change, i32> {
        let mut state = self.state.lock();
        while state.failed.is_none()
            && !state.on_their_way.is_empty()
            && (state.bytes + bytes > BYTES_MAX || state.on_their_way.len() >= CHANGES_MAX)
        {
            self.ended.wait(&mut state);
        }
        if let Some(error) = state.failed {
            return Err(error);
        }
        let number = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.on_their_way.insert(number);
        Ok(Change { behind: Arc::clone(self), number, bytes })
    }

    /// Waits for all changes that have begun.
    ///
    /// # Errors
    /// The negative result of the first change that ever failed.
    pub fn wait(&self) -> Result<(), i32> {
        let mut state = self.state.lock();
        let next = state.next;
        while state.on_their_way.first().is_some_and(|first| *first < next) {
            self.ended.wait(&mut state);
        }
        state.failed.map_or(Ok(()), Err)
    }
}

impl Change {
    /// Notes the result of the change.
    pub fn end(self, result: i32) {
        let mut state = self.behind.state.lock();
        state.on_their_way.remove(&self.number);
        state.bytes -= self.bytes;
        if result < 0 {
            state.failed.get_or_insert(result);
        }
        self.behind.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flush_waits_for_what_began_before_it_only() {
        let behind = Arc::<Behind>::default();
        let (early, other) = (behind.begin(10).unwrap(), behind.begin(10).unwrap());
        let (told, flushed) = channel();
        let waiting = Arc::clone(&behind);
        let flush = thread::spawn(move || told.send(waiting.wait()).unwrap());
        other.end(0);
        assert!(flushed.recv_timeout(Duration::from_millis(100)).is_err());
        let late = behind.begin(10).unwrap();
        early.end(0);
        assert_eq!(flushed.recv().unwrap(), Ok(()));
        flush.join().unwrap();
        late.end(0);
    }

    #[test]
    fn an_error_stays() {
        let behind = Arc::<Behind>::default();
        let (good, bad) = (behind.begin(10).unwrap(), behind.begin(10).unwrap());
        bad.end(-5);
        good.end(-6);
        assert_eq!(behind.wait(), Err(-5));
        assert_eq!(behind.begin(10).map(drop), Err(-5));
        assert_eq!(behind.wait(), Err(-5));
    }

    #[test]
    fn a_write_waits_for_room() {
        let behind = Arc::<Behind>::default();
        let first = behind.begin(BYTES_MAX).unwrap();
        let (told, begun) = channel();
        let waiting = Arc::clone(&behind);
        let second = thread::spawn(move || {
            let change = waiting.begin(1).unwrap();
            told.send(()).unwrap();
            change.end(0);
        });
        assert!(begun.recv_timeout(Duration::from_millis(100)).is_err());
        first.end(0);
        begun.recv().unwrap();
        second.join().unwrap();
        // A single change larger than all room goes alone.
        behind.begin(2 * BYTES_MAX).unwrap().end(0);
        assert_eq!(behind.wait(), Ok(()));
    }
}
