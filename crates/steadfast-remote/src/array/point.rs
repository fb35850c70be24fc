//! Flush points, for who keeps a second state beside the servers: where the array is, and what has
//! changed since.

use super::{Array, ArrayError, Fleet};

/// A state that an array was at when everything was flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Point {
    /// Stamp of the session, and epoch within it.
    pub order: (u64, u64),
    /// Every record up to this one was flushed.
    pub sequence: u64,
    /// When that was, in milliseconds since 1970; 0 where nobody said.
    pub time_ms: u64,
}

impl<F: Fleet> Array<F> {
    /// What the last flush has made durable. Who compares it with what he has written keeps others
    /// from writing meanwhile.
    pub fn point(&self) -> Point {
        let sequence = self.log.lock().durable;
        Point { order: self.members.read().superblock.order(), sequence, time_ms: 0 }
    }

    /// Whether the state on the servers comes after the one at this point: the array was opened in
    /// that session, and knew of its epoch.
    pub fn follows(&self, point: &Point) -> bool {
        let members = self.members.read();
        let stamp = point.order.0;
        point.order <= members.found
            && (stamp == members.found.0
                || members.superblock.cutoffs.iter().any(|(session, _)| *session == stamp))
    }

    /// The first block from `from` on that was written after a point of which the array says that
    /// it [follows](Self::follows) it. A block that was only moved since counts, too.
    pub fn changed_since(&self, point: &Point, from: u32) -> Option<u32> {
        let map = self.map.read();
        (from..self.shape.blocks).find(|block| {
            map.entry(*block).is_some_and(|entry| {
                if entry.is_home() {
                    let made = map.made.get((*block / self.shape.sums_each()) as usize);
                    return made.is_none_or(|made| *made > point.sequence);
                }
                let segment = map.segments.get(entry.slot as usize);
                segment
                    .and_then(|segment| segment.record_at(entry.offset))
                    .is_none_or(|record| record.sequence > point.sequence)
            })
        })
    }

    /// The first block from `from` on that was written and not discarded since.
    pub fn next_written(&self, from: u32) -> Option<u32> {
        let map = self.map.read();
        (from..self.shape.blocks)
            .find(|block| map.entry(*block).is_some() || map.pending.contains_key(block))
    }

    /// Says on the servers that everything is there that belongs into the array: from now on it can
    /// be opened.
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
