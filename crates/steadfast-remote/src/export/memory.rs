//! [`LentMemory`]: memory that is allocated on write and freed on trim.
//!
//! Invariants: an absent granule reads as zeros. A present granule is counted in the pool, and the
//! count never exceeds the limit. Two levels of tables keep untouched memory cheap: 16 bytes for
//! each 64 MiB, or for each 2 GiB in huge pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use super::granule::Granule;
use super::stock::Stock;
use super::{Export, ExportError, Stretch};

/// Granules of a group.
const GROUP: u64 = 1024;

type GranuleSlot = RwLock<Option<Granule>>;
type Group = Box<[GranuleSlot]>;

/// Memory lent under one name.
pub struct LentMemory {
    size: u64,
    groups: Box<[OnceLock<Group>]>,
    stock: Arc<Stock>,
    resident: AtomicU64,
}

/// The part of a request in one granule.
struct Piece {
    granule: u64,
    start: usize,
    at: usize,
    length: usize,
}

fn pieces(offset: u64, length: u64, granule: u64) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= length {
            return None;
        }
        let position = offset + at;
        let start = position % granule;
        let share = (granule - start).min(length - at);
        let piece = Piece {
            granule: position / granule,
            start: start as usize,
            at: at as usize,
            length: share as usize,
        };
        at += share;
        Some(piece)
    })
}

impl LentMemory {
    pub(super) fn new(size: u64, stock: Arc<Stock>) -> LentMemory {
        let groups = size.div_ceil(stock.size().bytes() * GROUP);
        LentMemory {
            size,
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
            stock,
            resident: AtomicU64::new(0),
        }
    }

    /// Bytes of memory in use.
    pub fn resident(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    fn granule(&self, index: u64) -> Option<&GranuleSlot> {
        self.groups.get((index / GROUP) as usize)?.get()?.get((index % GROUP) as usize)
    }

    fn granule_made(&self, index: u64) -> Option<&GranuleSlot> {
        let group = self.groups.get((index / GROUP) as usize)?;
        let group = group.get_or_init(|| (0..GROUP).map(|_| RwLock::new(None)).collect());
        group.get((index % GROUP) as usize)
    }

    /// A new granule with a part of a write.
    fn take(&self, start: usize, data: &[u8]) -> Result<Granule, ExportError> {
        let granule = self.stock.take(start, data).ok_or(ExportError::NoSpace)?;
        self.resident.fetch_add(self.stock.size().bytes(), Ordering::Relaxed);
        Ok(granule)
    }

    fn give(&self, granule: Granule) {
        self.resident.fetch_sub(self.stock.size().bytes(), Ordering::Relaxed);
        self.stock.give(granule);
    }

    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
        pieces(offset, length, self.stock.size().bytes())
    }

    fn clear(&self, offset: u64, length: u64, partly: bool) {
        for piece in self.pieces(offset, length) {
            let Some(granule) = self.granule(piece.granule) else { continue };
            if piece.length as u64 == self.stock.size().bytes() {
                let taken = granule.write().take();
                if let Some(taken) = taken {
                    self.give(taken);
                }
            } else if partly && let Some(bytes) = granule.write().as_mut() {
                bytes[piece.start..piece.start + piece.length].fill(0);
            }
        }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        self.stock.uncount(self.resident());
    }
}

impl Export for LentMemory {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        for piece in self.pieces(offset, buffer.len() as u64) {
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
        for piece in self.pieces(offset, data.len() as u64) {
            let source = &data[piece.at..piece.at + piece.length];
            let mut granule = self.granule_made(piece.granule).ok_or(ExportError::Invalid)?.write();
            match granule.as_mut() {
                Some(bytes) => {
                    bytes[piece.start..piece.start + piece.length].copy_from_slice(source)
                }
                None => *granule = Some(self.take(piece.start, source)?),
            }
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
        let hole_at = |index| {
            self.granule(index).is_none_or(|granule: &GranuleSlot| granule.read().is_none())
        };
        let mut pieces = self.pieces(offset, length);
        let Some(first) = pieces.next() else { return Stretch { length, hole: false } };
        let hole = hole_at(first.granule);
        let same = pieces.take_while(|piece| hole_at(piece.granule) == hole);
        Stretch {
            length: same.fold(first.length as u64, |sum, piece| sum + piece.length as u64),
            hole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::GranuleSize;

    const GRANULE: u64 = GranuleSize::Small.bytes();

    #[test]
    fn memory_is_taken_as_it_is_written_and_given_back() {
        let stock = Arc::new(Stock::new(2 * GRANULE, GranuleSize::Small));
        let memory = LentMemory::new(1 << 40, stock.clone());
        let mut found = [1; 100];
        memory.read(1 << 39, &mut found).unwrap();
        assert_eq!((found, stock.used()), ([0; 100], 0));
        memory.write(GRANULE - 50, &[7; 100]).unwrap();
        assert_eq!((memory.resident(), stock.used()), (2 * GRANULE, 2 * GRANULE));
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
        assert_eq!(stock.used(), 0);
    }

    #[test]
    fn huge_granules_hold_the_same_bytes_and_count_whole() {
        let huge = GranuleSize::Huge.bytes();
        // Without huge pages there is a message, and nothing to test.
        if let Err(why) = GranuleSize::Huge.check() {
            assert!(!why.contains('\n') && why.contains("huge pages"), "{why}");
            return;
        }
        let stock = Arc::new(Stock::new(2 * huge, GranuleSize::Huge));
        let memory = LentMemory::new(1 << 40, stock.clone());
        memory.write(huge - 50, &[7; 100]).unwrap();
        assert_eq!((memory.resident(), stock.used()), (2 * huge, 2 * huge));
        assert_eq!(memory.write(1 << 39, &[1]), Err(ExportError::NoSpace));
        let mut found = [1; 102];
        memory.read(huge - 51, &mut found).unwrap();
        assert_eq!((found[0], found[1], found[100], found[101]), (0, 7, 7, 0));
        memory.trim(0, 2 * huge - 1).unwrap();
        assert_eq!(stock.used(), huge);
        drop(memory);
        assert_eq!(stock.used(), 0);
    }
}
