//! Flush points, for the write-behind log: the flushed state of the array, and what has changed
//! since a point.

use super::{Array, ArrayError, Fleet};

/// A state of the array at which everything was flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Point {
    /// Stamp of the session, and epoch within it.
    pub order: (u64, u64),
    /// Every record up to this one was flushed.
    pub sequence: u64,
    /// Time of the flush in milliseconds since 1970; 0 if unknown.
    pub time_ms: u64,
}

impl<F: Fleet> Array<F> {
    /// What the last flush has made durable. A caller that compares it with its own writes must
    /// keep other writers out meanwhile.
    pub fn point(&self) -> Point {
        let sequence = self.log.lock().durable;
        Point { order: self.members.read().superblock.order(), sequence, time_ms: 0 }
    }

    /// Whether the state on the servers is later than this point: the array was opened in that
    /// session and knew of its epoch.
    pub fn follows(&self, point: &Point) -> bool {
        let members = self.members.read();
        let stamp = point.order.0;
        point.order <= members.found
            && (stamp == members.found.0
                || members.superblock.cutoffs.iter().any(|(session, _)| *session == stamp))
    }

    /// The first block from `from` on that was written after a point that the array
    /// [follows](Self::follows). A block that was only moved since then counts too.
    pub fn changed_since(&self, point: &Point, from: u32) -> Option<u32> {
        let map = self.map.read();
        (from..self.shape.blocks).find(|block| {
            map.entry(*block).is_some_and(|entry| {
                let segment = map.segments.get(entry.slot as usize);
                segment
                    .and_then(|segment| segment.record_at(entry.offset))
                    .is_none_or(|record| record.sequence > point.sequence)
            })
        })
    }

    /// The first block from `from` on that was written and not discarded since then.
    pub fn next_written(&self, from: u32) -> Option<u32> {
        let map = self.map.read();
        (from..self.shape.blocks)
            .find(|block| map.entry(*block).is_some() || map.pending.contains_key(block))
    }

    /// Records on the servers that the contents of the array are complete: from now on it can be
    /// opened.
    ///
    /// # Errors
    /// More servers were lost than the policy survives.
    pub fn finish(&self) -> Result<(), ArrayError> {
        self.flush_all()?;
        let _log = self.log.lock();
        self.members.write().superblock.unfinished = false;
        self.publish()
    }
}
