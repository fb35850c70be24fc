//! [`LentMemory`]: bytes in memory, taken as they are written and given back as they are trimmed.
//!
//! Invariants: a granule that is absent reads as zeros; a granule is present only while it is counted in the pool, and
//! what the pool has counted never exceeds its limit; two levels of tables, so that what is never touched costs 16 bytes
//! for each 64 MiB.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use super::{Export, ExportError, Stretch};

/// Bytes that are taken and given back at once.
pub(super) const GRANULE: u64 = 64 << 10;
/// Granules of a group.
const GROUP: u64 = 1024;

/// How much of the server's memory is in use, and how much may be.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Budget {
        Budget { used: AtomicU64::new(0), limit }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let more = |used: u64| used.checked_add(GRANULE).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self) {
        self.used.fetch_sub(GRANULE, Ordering::Relaxed);
    }
}

type Granule = RwLock<Option<Box<[u8]>>>;
type Group = Box<[Granule]>;

/// Memory lent under one name.
pub struct LentMemory {
    size: u64,
    groups: Box<[OnceLock<Group>]>,
    budget: Arc<Budget>,
    resident: AtomicU64,
}

/// One granule's share of a request.
struct Piece {
    granule: u64,
    start: usize,
    at: usize,
    length: usize,
}

fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= length {
            return None;
        }
        let position = offset + at;
        let start = position % GRANULE;
        let share = (GRANULE - start).min(length - at);
        let piece = Piece {
            granule: position / GRANULE,
            start: start as usize,
            at: at as usize,
            length: share as usize,
        };
        at += share;
        Some(piece)
    })
}

impl LentMemory {
    pub(super) fn new(size: u64, budget: Arc<Budget>) -> LentMemory {
        let groups = size.div_ceil(GRANULE * GROUP);
        LentMemory {
            size,
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
            budget,
            resident: AtomicU64::new(0),
        }
    }

    /// Bytes of memory in use.
    pub fn resident(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    fn granule(&self, index: u64) -> Option<&Granule> {
        self.groups.get((index / GROUP) as usize)?.get()?.get((index % GROUP) as usize)
    }

    fn granule_made(&self, index: u64) -> Option<&Granule> {
        let group = self.groups.get((index / GROUP) as usize)?;
        let group = group.get_or_init(|| (0..GROUP).map(|_| RwLock::new(None)).collect());
        group.get((index % GROUP) as usize)
    }

    fn take(&self) -> Result<Box<[u8]>, ExportError> {
        if !self.budget.take() {
            return Err(ExportError::NoSpace);
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(GRANULE as usize).is_err() {
            self.budget.give();
            return Err(ExportError::NoSpace);
        }
        bytes.resize(GRANULE as usize, 0);
        self.resident.fetch_add(GRANULE, Ordering::Relaxed);
        Ok(bytes.into_boxed_slice())
    }

    fn give(&self) {
        self.budget.give();
        self.resident.fetch_sub(GRANULE, Ordering::Relaxed);
    }

    fn clear(&self, offset: u64, length: u64, partly: bool) {
        for piece in pieces(offset, length) {
            let Some(granule) = self.granule(piece.granule) else { continue };
            if piece.length == GRANULE as usize {
                if granule.write().take().is_some() {
                    self.give();
                }
            } else if partly && let Some(bytes) = granule.write().as_mut() {
                bytes[piece.start..piece.start + piece.length].fill(0);
            }
        }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        let granules = self.resident() / GRANULE;
        (0..granules).for_each(|_| self.budget.give());
    }
}

impl Export for LentMemory {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        for piece in pieces(offset, buffer.len() as u64) {
            let target = &mut buffer[piece.at..piece.at + piece.length];
            let granule = self.granule(piece.granule).map(|granule| granule.read());
            match granule.as_deref() {
                Some(Some(bytes)) => {
                    target.copy_from_slice(&bytes[piece.start..piece.start + piece.length]);
                }
                _ => target.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), ExportError> {
        for piece in pieces(offset, data.len() as u64) {
            let source = &data[piece.at..piece.at + piece.length];
            let mut granule = self.granule_made(piece.granule).ok_or(ExportError::Invalid)?.write();
            let bytes = match granule.as_mut() {
                Some(bytes) => bytes,
                None => granule.insert(self.take()?),
            };
            bytes[piece.start..piece.start + piece.length].copy_from_slice(source);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.clear(offset, length, false);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, _keep: bool) -> Result<(), ExportError> {
        self.clear(offset, length, true);
        Ok(())
    }

    fn stretch(&self, offset: u64, length: u64) -> Stretch {
        let hole_at = |index| self.granule(index).is_none_or(|granule: &Granule| granule.read().is_none());
        let mut pieces = pieces(offset, length);
        let Some(first) = pieces.next() else { return Stretch { length, hole: false } };
        let hole = hole_at(first.granule);
        let same = pieces.take_while(|piece| hole_at(piece.granule) == hole);
        Stretch { length: same.fold(first.length as u64, |sum, piece| sum + piece.length as u64), hole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_as_it_is_written_and_given_back() {
        let budget = Arc::new(Budget::new(2 * GRANULE));
        let memory = LentMemory::new(1 << 40, budget.clone());
        let mut found = [1; 100];
        memory.read(1 << 39, &mut found).unwrap();
        assert_eq!((found, budget.used()), ([0; 100], 0));
        memory.write(GRANULE - 50, &[7; 100]).unwrap();
        assert_eq!((memory.resident(), budget.used()), (2 * GRANULE, 2 * GRANULE));
        assert_eq!(memory.write(1 << 39, &[1]), Err(ExportError::NoSpace));
        memory.read(GRANULE - 50, &mut found).unwrap();
        assert_eq!(found, [7; 100]);
        assert_eq!(memory.stretch(0, 1 << 39), Stretch { length: 2 * GRANULE, hole: false });
        memory.trim(0, GRANULE).unwrap();
        assert_eq!(memory.stretch(10, 1 << 39), Stretch { length: GRANULE - 10, hole: true });
        memory.write_zeroes(GRANULE, 20, false).unwrap();
        memory.read(GRANULE - 50, &mut found).unwrap();
        assert_eq!((found[69], found[70], found[99]), (0, 7, 7));
        drop(memory);
        assert_eq!(budget.used(), 0);
    }
}
