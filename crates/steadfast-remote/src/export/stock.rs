//! [`Stock`]: how much a server lends, and granules that came back and are still warm.
//!
//! A client that appends and trims, as an array does, takes as many granules as it gives back.
//! Memory that the kernel has just given is a page fault and a page of zeros for each 4 KiB; a
//! granule that has come back is neither. So some are kept for whoever needs one next.
//!
//! Invariants: what is counted never exceeds the limit, and what is lent and kept together never
//! the most that was lent at a time; at most an eighth of the limit is kept; what nobody has needed
//! between two looks of [`Stock::tend`] goes back to the kernel; nobody sees what somebody else had
//! in a granule.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::granule::{Granule, GranuleSize};

/// How much of the server's memory is in use, how much may be, and what is ready to be used again.
pub(super) struct Stock {
    size: GranuleSize,
    used: AtomicU64,
    limit: u64,
    spare: Mutex<Spare>,
}

#[derive(Default)]
struct Spare {
    /// The last one came back last: the processor may still have it at hand.
    granules: Vec<Granule>,
    /// The fewest that there were since somebody looked: nobody has needed those.
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

    /// A granule with `data` from `start` on, and zeros around it. `None` where the limit or the
    /// memory of the machine is reached.
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

    /// A granule comes back.
    pub(super) fn give(&self, granule: Granule) {
        self.uncount(self.size.bytes());
        let mut spare = self.spare.lock();
        if spare.granules.len() < self.spare_max() {
            spare.granules.push(granule);
        }
    }

    /// So many bytes are not lent any more; their granules are gone.
    pub(super) fn uncount(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives the kernel back what nobody has needed since the last time.
    pub(super) fn tend(&self) {
        let idle: Vec<Granule> = {
            let mut spare = self.spare.lock();
            let count = spare.idle.min(spare.granules.len());
            let idle = spare.granules.drain(..count).collect();
            spare.idle = spare.granules.len();
            idle
        };
        // Outside the lock: there may be gigabytes of them.
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
        // They have only just come.
        stock.tend();
        assert_eq!(stock.kept(), 4);
        // One is in use, now and then; the others are not.
        stock.give(stock.take(0, &[]).unwrap());
        stock.tend();
        assert_eq!(stock.kept(), 1);
        stock.tend();
        stock.tend();
        assert_eq!(stock.kept(), 0);
    }
}
