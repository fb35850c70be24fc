//! The bytes of several writes, collected in one piece of memory and sent to a device together. See
//! [`behind`](super::behind).

use std::ops::Range;

use zerocopy::FromZeros;

/// Bytes of a batch: a huge page of common processors, which a device gets as one piece of memory.
pub(super) const CAPACITY: usize = 2 << 20;

/// Bytes that are written together.
pub(super) struct Batch {
    /// The order in which batches were sealed. No batch has a larger number than the one being
    /// filled.
    pub(super) number: u64,
    pub(super) memory: Memory,
    filled: usize,
    pub(super) pieces: Vec<Piece>,
}

/// One write, or several writes with adjacent offsets.
#[derive(Clone)]
pub(super) struct Piece {
    /// Offset on the medium.
    pub(super) offset: u64,
    /// Offset in the memory.
    at: usize,
    length: usize,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length as u64
    }
}

impl Batch {
    pub(super) fn new(memory: Memory) -> Batch {
        Batch { number: u64::MAX, memory, filled: 0, pieces: Vec::new() }
    }

    pub(super) fn room(&self) -> usize {
        CAPACITY - self.filled
    }

    /// The caller has checked that there is room.
    pub(super) fn add(&mut self, offset: u64, buffers: &[&[u8]], length: usize) {
        let at = self.filled;
        for buffer in buffers {
            self.memory.bytes_mut()[self.filled..][..buffer.len()].copy_from_slice(buffer);
            self.filled += buffer.len();
        }
        match self.pieces.last_mut() {
            Some(last) if last.end() == offset => last.length += length,
            _ => self.pieces.push(Piece { offset, at, length }),
        }
    }

    pub(super) fn bytes(&self, piece: &Piece) -> &[u8] {
        &self.memory.bytes()[piece.at..][..piece.length]
    }

    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.pieces.iter().any(|piece| piece.offset < range.end && range.start < piece.end())
    }
}

/// [`CAPACITY`] bytes, in one huge page if the system has one, otherwise in ordinary pages.
pub(super) struct Memory {
    storage: Box<[u8]>,
    start: usize,
}

impl Memory {
    pub(super) fn new() -> Option<Memory> {
        // Enough room to start at the boundary of a huge page. The system supplies zeroed bytes
        // without touching them.
        let mut storage = <[u8]>::new_box_zeroed_with_elems(2 * CAPACITY).ok()?;
        let start = storage.as_ptr().addr().wrapping_neg() % CAPACITY;
        let page = storage[start..][..CAPACITY].as_mut_ptr();
        // SAFETY: the range consists of whole pages inside an allocation that this code owns
        // exclusively. The advice does not change the contents.
        #[allow(unsafe_code)]
        unsafe {
            // A failure only costs speed.
            libc::madvise(page.cast(), CAPACITY, libc::MADV_HUGEPAGE);
        }
        Some(Memory { storage, start })
    }

    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..][..CAPACITY]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..CAPACITY]
    }
}
