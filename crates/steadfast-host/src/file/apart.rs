//! Keeps direct writes to a device apart from writes through its page cache.
//!
//! Linux caches a device in folios, and read-ahead makes large ones. A direct write drops the folios
//! that it touches, before and after. If meanwhile a write through the page cache has changed other
//! bytes of such a folio, Linux cannot drop it: its readers get old bytes, and the next flush fails
//! with EIO ("Page cache invalidation failure on direct I/O" in the kernel's log).
//!
//! Invariant: a direct write and a write through the page cache that may touch the same folio are
//! never under way together. Direct writes do not exclude each other.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// The largest folio of a page cache with pages of 4 KiB: a huge page.
const FOLIO: u64 = 2 << 20;

/// The writes that are under way.
#[derive(Debug, Default)]
pub(super) struct Apart {
    under_way: Mutex<Vec<UnderWay>>,
    ended: Condvar,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UnderWay {
    way: Way,
    folios: Range<u64>,
}

/// How a write goes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// A write is under way as long as this exists.
pub(super) struct Entered<'a> {
    apart: &'a Apart,
    entry: UnderWay,
}

impl Apart {
    /// Waits for all writes that go the other way near these bytes.
    pub(super) fn enter(&self, way: Way, offset: u64, length: usize) -> Entered<'_> {
        let folios = offset / FOLIO..(offset + length as u64).div_ceil(FOLIO);
        let entry = UnderWay { way, folios };
        let mut under_way = self.under_way.lock();
        while under_way.iter().any(|other| other.collides(&entry)) {
            self.ended.wait(&mut under_way);
        }
        under_way.push(entry.clone());
        Entered { apart: self, entry }
    }
}

impl UnderWay {
    fn collides(&self, other: &UnderWay) -> bool {
        self.way != other.way
            && self.folios.start < other.folios.end
            && other.folios.start < self.folios.end
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut under_way = self.apart.under_way.lock();
        // Equal entries stand for each other.
        if let Some(place) = under_way.iter().position(|entry| *entry == self.entry) {
            under_way.swap_remove(place);
        }
        drop(under_way);
        self.apart.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn only_near_writes_of_the_other_way_wait() {
        let apart = Apart::default();
        let first = apart.enter(Way::Direct, FOLIO - 4096, 4096);
        let second = apart.enter(Way::Direct, FOLIO - 8192, 8192);
        let far = apart.enter(Way::Cached, FOLIO, 1);
        let (entered, enters) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _near = apart.enter(Way::Cached, 0, 1);
                entered.send(()).unwrap();
            });
            drop(first);
            drop(far);
            assert!(enters.try_recv().is_err(), "the second is still under way");
            drop(second);
            enters.recv().unwrap();
        });
        assert!(apart.under_way.lock().is_empty());
    }
}
