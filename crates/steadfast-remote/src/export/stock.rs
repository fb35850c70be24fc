//! [`Stock`]: counts the memory that a server lends, and keeps returned granules for reuse.
//!
//! A client that appends and trims, such as an array, takes as many granules as it returns. Fresh
//! memory costs a page fault and a zeroed page for each 4 KiB; a returned granule costs neither. So
//! some granules are kept for the next request.
//!
//! Invariants: the lent bytes never exceed the limit. Lent and kept granules together never exceed
//! the highest amount lent so far. At most an eighth of the limit is kept. Granules not needed
//! between two calls of [`Stock::tend`] go back to the kernel. No client sees another client's data
//! in a granule.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::granule::{Granule, GranuleSize};

/// Lent memory, its limit, and granules ready for reuse.
pub(super) struct Stock {
    size: GranuleSize,
    used: AtomicU64,
    limit: u64,
    spare: Mutex<Spare>,
}

#[derive(Default)]
struct Spare {
    /// The last one was returned last: it may still be in the CPU cache.
    granules: Vec<Granule>,
    /// The lowest number of granules since the last look: that many were not needed.
    idle: usize,
}

impl Stock {
    pub(super) fn new(limit: u64, size: GranuleSize) -> Stock {
        Stock { size, used: AtomicU64::new(0), limit, spare: Mutex::default() }
    }

    pub(super) fn size(&self) -> GranuleSize {
        self.size
    }

    /// Bytes that are lent.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Most granules that are kept.
    fn spare_max(&self) -> usize {
        (self.limit / 8 / self.size.bytes()) as usize
    }

    /// A granule with `data` at `start`, and zeros around it. `None` at the limit, or if memory is
    /// short.
    pub(super) fn take(&self, start: usize, data: &[u8]) -> Option<Granule> {
        let bytes = self.size.bytes();
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let spare = {
            let mut spare = self.spare.lock();
            let granule = spare.granules.pop();
            spare.idle = spare.idle.min(spare.granules.len());
            granule
        };
        let taken = match spare {
            Some(mut granule) => {
                granule.refill(start, data);
                Some(granule)
            }
            None => Granule::with(self.size, start, data),
        };
        if taken.is_none() {
            self.uncount(bytes);
        }
        taken
    }

    /// Returns a granule.
    pub(super) fn give(&self, granule: Granule) {
        self.uncount(self.size.bytes());
        let mut spare = self.spare.lock();
        if spare.granules.len() < self.spare_max() {
            spare.granules.push(granule);
        }
    }

    /// Counts bytes as returned; their granules are freed.
    pub(super) fn uncount(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frees granules that were not needed since the last call.
    pub(super) fn tend(&self) {
        let idle: Vec<Granule> = {
            let mut spare = self.spare.lock();
            let count = spare.idle.min(spare.granules.len());
            let idle = spare.granules.drain(..count).collect();
            spare.idle = spare.granules.len();
            idle
        };
        // Outside the lock: there may be gigabytes.
        drop(idle);
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.spare.lock().granules.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = GranuleSize::Small.bytes();

    #[test]
    fn what_comes_back_is_kept_within_bounds_and_shows_nothing_of_what_it_held() {
        let stock = Stock::new(32 * SMALL, GranuleSize::Small);
        let taken: Vec<Granule> = (0..32).map(|_| stock.take(0, &[7; 100]).unwrap()).collect();
        assert!(stock.take(0, &[]).is_none());
        for mut granule in taken {
            granule.fill(7);
            stock.give(granule);
        }
        assert_eq!((stock.used(), stock.kept()), (0, 4));
        for (start, length) in
            [(0, 10), (500, 10), (SMALL as usize - 10, 10), (0, SMALL as usize), (0, 0)]
        {
            let granule = stock.take(start, &vec![9; length]).unwrap();
            let right = |(at, byte): (usize, &u8)| {
                *byte == 9 * u8::from((start..start + length).contains(&at))
            };
            assert!(granule.iter().enumerate().all(right), "{start}+{length}");
        }
    }

    #[test]
    fn what_nobody_needs_goes_back_to_the_kernel() {
        let stock = Stock::new(32 * SMALL, GranuleSize::Small);
        let taken: Vec<Granule> = (0..4).map(|_| stock.take(0, &[]).unwrap()).collect();
        taken.into_iter().for_each(|granule| stock.give(granule));
        // They were returned since the last call.
        stock.tend();
        assert_eq!(stock.kept(), 4);
        // One is in use now and then; the others are not.
        stock.give(stock.take(0, &[]).unwrap());
        stock.tend();
        assert_eq!(stock.kept(), 1);
        stock.tend();
        stock.tend();
        assert_eq!(stock.kept(), 0);
    }
}
