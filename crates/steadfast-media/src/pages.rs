//! A sparse array of bytes; its copies share pages.
//!
//! Invariants: an absent page or chunk reads as zeros. A page of two images is never written
//! (`Arc::make_mut` copies it first). Copying an image costs one pointer for each chunk of 1 MiB in
//! use. So a test can branch a power cut at every request of a run.

use alloc::collections::BTreeMap;

use crate::sync::Arc;

/// Bytes of a page, which a write after a branch must copy.
const PAGE: u64 = 4096;
/// Pages of a chunk; a branch copies one pointer for each chunk.
const CHUNK_PAGES: usize = 256;
const CHUNK: u64 = PAGE * CHUNK_PAGES as u64;

type Page = [u8; PAGE as usize];

#[derive(Clone)]
struct Chunk([Option<Arc<Page>>; CHUNK_PAGES]);

/// The image. It has no length: its owner checks bounds.
#[derive(Clone, Default)]
pub(crate) struct PagedImage {
    chunks: BTreeMap<u64, Arc<Chunk>>,
}

/// The part of a request in one page.
struct Piece {
    chunk: u64,
    page: usize,
    /// First byte within the page.
    start: usize,
    /// First byte within the request.
    at: usize,
    length: usize,
}

/// Splits a request at page boundaries.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= length {
            return None;
        }
        let position = offset + at as u64;
        let start = (position % PAGE) as usize;
        let piece = Piece {
            chunk: position / CHUNK,
            page: (position % CHUNK / PAGE) as usize,
            start,
            at,
            length: (PAGE as usize - start).min(length - at),
        };
        at += piece.length;
        Some(piece)
    })
}

impl PagedImage {
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.at..piece.at + piece.length];
            match self.chunks.get(&piece.chunk).and_then(|chunk| chunk.0[piece.page].as_ref()) {
                Some(page) => {
                    target.copy_from_slice(&page[piece.start..piece.start + piece.length])
                }
                None => target.fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        for piece in pieces(offset, data.len()) {
            let source = &data[piece.at..piece.at + piece.length];
            if let Some(page) = self.page_mut(&piece, || source.iter().any(|byte| *byte != 0)) {
                page[piece.start..piece.start + piece.length].copy_from_slice(source);
            }
        }
    }

    /// Sets `length` bytes to `byte`; zeros free whole pages.
    pub(crate) fn fill(&mut self, offset: u64, length: u64, byte: u8) {
        let end = offset + length;
        if byte == 0 {
            // Whole chunks are removed at once, whatever the size of the range.
            let whole = offset.div_ceil(CHUNK)..end / CHUNK;
            if whole.start < whole.end {
                self.chunks.extract_if(whole, |_, _| true).for_each(drop);
            }
        }
        let mut at = offset;
        while at < end {
            let chunk = at / CHUNK;
            let next = end.min((chunk + 1) * CHUNK);
            if byte == 0 && !self.chunks.contains_key(&chunk) {
                // Already zeros: continue at the next existing chunk.
                match self.chunks.range(chunk..).next() {
                    Some((index, _)) => at = (index * CHUNK).max(next),
                    None => return,
                }
                continue;
            }
            for piece in pieces(at, (next - at) as usize) {
                self.fill_piece(&piece, byte);
            }
            at = next;
        }
    }

    fn fill_piece(&mut self, piece: &Piece, byte: u8) {
        if byte == 0 && piece.length == PAGE as usize {
            if let Some(chunk) = self.chunks.get_mut(&piece.chunk)
                && chunk.0[piece.page].is_some()
            {
                Arc::make_mut(chunk).0[piece.page] = None;
            }
        } else if let Some(page) = self.page_mut(piece, || byte != 0) {
            page[piece.start..piece.start + piece.length].fill(byte);
        }
    }

    /// The page of `piece`. If it is absent, it is created only if `wanted` (a page of zeros need
    /// not exist).
    fn page_mut(&mut self, piece: &Piece, wanted: impl FnOnce() -> bool) -> Option<&mut Page> {
        let present =
            self.chunks.get(&piece.chunk).is_some_and(|chunk| chunk.0[piece.page].is_some());
        if !present && !wanted() {
            return None;
        }
        let chunk = self
            .chunks
            .entry(piece.chunk)
            .or_insert_with(|| Arc::new(Chunk([const { None }; CHUNK_PAGES])));
        let slot = &mut Arc::make_mut(chunk).0[piece.page];
        let page = slot.get_or_insert_with(|| Arc::new([0; PAGE as usize]));
        Some(Arc::make_mut(page))
    }

    /// Bytes of the pages in use, shared pages included.
    pub(crate) fn resident(&self) -> u64 {
        let pages: usize = self
            .chunks
            .values()
            .map(|chunk| chunk.0.iter().filter(|page| page.is_some()).count())
            .sum();
        pages as u64 * PAGE
    }

    /// Whether both images hold the same `size` bytes; shared pages are not compared byte by byte.
    pub(crate) fn same(&self, other: &PagedImage) -> bool {
        let chunks = self.chunks.keys().chain(other.chunks.keys());
        for index in chunks {
            let (ours, theirs) = (self.chunks.get(index), other.chunks.get(index));
            if let (Some(ours), Some(theirs)) = (ours, theirs)
                && Arc::ptr_eq(ours, theirs)
            {
                continue;
            }
            for page in 0..CHUNK_PAGES {
                let ours = ours.and_then(|chunk| chunk.0[page].as_ref());
                let theirs = theirs.and_then(|chunk| chunk.0[page].as_ref());
                let equal = match (ours, theirs) {
                    (None, None) => true,
                    (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs) || ours == theirs,
                    (Some(page), None) | (None, Some(page)) => page.iter().all(|byte| *byte == 0),
                };
                if !equal {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::random::Random;

    const SIZE: usize = 3 << 20;

    #[test]
    fn behaves_like_a_flat_array() {
        let mut random = Random::new(1);
        let mut image = PagedImage::default();
        let mut flat = vec![0_u8; SIZE];
        for round in 0..400 {
            let offset = random.below(SIZE as u64) as usize;
            let length = random.below((SIZE - offset) as u64 + 1).min(if round % 20 == 0 {
                2 << 20
            } else {
                9000
            });
            let range = offset..offset + length as usize;
            if random.below(3) == 0 {
                let byte = [0, 0, 0xdb][random.below(3) as usize];
                image.fill(offset as u64, length, byte);
                flat[range].fill(byte);
            } else {
                let mut data = vec![0; length as usize];
                random.fill(&mut data);
                image.write(offset as u64, &data);
                flat[range].copy_from_slice(&data);
            }
        }
        let mut found = vec![1; SIZE];
        image.read(0, &mut found);
        assert!(found == flat);
    }

    #[test]
    fn copies_are_independent_and_zeros_cost_nothing() {
        let mut image = PagedImage::default();
        image.write(1 << 40, &[0; 8192]);
        assert_eq!(image.resident(), 0);
        image.write(1 << 40, &[1; 8192]);
        let copy = image.clone();
        assert!(copy.same(&image));
        image.write((1 << 40) + 10, &[2]);
        assert!(!copy.same(&image));
        let mut byte = [0];
        copy.read((1 << 40) + 10, &mut byte);
        assert_eq!(byte, [1]);
        image.fill(1 << 40, 8192, 0);
        assert_eq!((image.resident(), copy.resident()), (0, 8192));
        assert!(image.same(&PagedImage::default()));
    }
}
