//! Keeps direct writes to a device apart from writes through its page cache.
//!
//! Linux caches a device in folios, and read-ahead makes large ones. A direct write drops the
//! folios that it touches, before and after. If meanwhile a write through the page cache has changed
//! other bytes of such a folio, Linux cannot drop it: its readers get old bytes, and the next flush
//! fails with EIO ("Page cache invalidation failure on direct I/O" in the kernel's log).
//!
//! Invariant: a direct write and a write through the page cache that may touch the same folio are
//! never under way together. Direct writes do not exclude each other.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// The largest folio of Linux: a huge page, but at most 2,048 pages.
fn folio_max() -> u64 {
    let page = rustix::param::page_size() as u64;
    page * (page / 8).min(2048)
}

/// The writes that are under way or wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Apart {
    writes: Mutex<Writes>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Writes {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
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
    ticket: u64,
}

impl Apart {
    /// Waits for all earlier writes that go the other way near these bytes. Later ones wait for this
    /// one, so that none waits for ever.
    pub(super) fn enter(&self, way: Way, offset: u64, length: usize) -> Entered<'_> {
        let folio = folio_max();
        let folios = offset / folio..(offset + length as u64).div_ceil(folio);
        let mut writes = self.writes.lock();
        let ticket = writes.next;
        writes.next += 1;
        writes.entries.push(Entry { ticket, way, folios: folios.clone() });
        let collides = |other: &Entry| {
            other.ticket < ticket
                && other.way != way
                && other.folios.start < folios.end
                && folios.start < other.folios.end
        };
        while writes.entries.iter().any(collides) {
            self.ended.wait(&mut writes);
        }
        Entered { apart: self, ticket }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.apart.writes.lock().entries.retain(|entry| entry.ticket != self.ticket);
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
        let (apart, folio) = (Apart::default(), folio_max());
        let first = apart.enter(Way::Direct, folio - 4096, 4096);
        let second = apart.enter(Way::Direct, folio - 8192, 8192);
        let far = apart.enter(Way::Cached, folio, 1);
        let (entered, enters) = channel();
        thread::scope(|scope| {
            let waits = |way| {
                let (apart, entered, before) = (&apart, entered.clone(), apart.writes.lock().next);
                scope.spawn(move || {
                    let _near = apart.enter(way, 0, 1);
                    entered.send(way).unwrap();
                });
                while apart.writes.lock().next == before {
                    thread::yield_now();
                }
            };
            waits(Way::Cached);
            // It comes after the one that waits, although it meets none that is under way.
            waits(Way::Direct);
            drop((first, far));
            assert!(enters.try_recv().is_err(), "the second is still under way");
            drop(second);
            assert_eq!(enters.recv(), Ok(Way::Cached));
            assert_eq!(enters.recv(), Ok(Way::Direct));
        });
        assert!(apart.writes.lock().entries.is_empty());
    }
}
