//! The bytes of a medium, cheap to copy: a branch at every I/O copies pointers, not bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::{Digest, digest_of};

/// Bytes in a page of an image.
const PAGE: usize = 4096;

type ImagePage = [u8; PAGE];

/// The contents of a medium. Copies share the pages that neither has written since.
#[derive(Debug, Clone)]
pub struct Image {
    size: u64,
    pages: Vec<Arc<ImagePage>>,
    /// Unreadable stretches, start and end, until they are written.
    bad: Arc<BTreeMap<u64, u64>>,
}

impl Image {
    /// An image of zeros.
    pub fn new(size: u64) -> Image {
        let zero = Arc::new([0; PAGE]);
        Image { size, pages: vec![zero; size.div_ceil(PAGE as u64) as usize], bad: Arc::default() }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether `length` bytes at `offset` lie inside the image.
    pub fn holds(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size)
    }

    /// Fills `buffer` from `offset`; the range must lie inside.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min(rest.len());
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&self.pages[(at / PAGE as u64) as usize][within..within + count]);
            at += count as u64;
            rest = tail;
        }
    }

    /// Makes this stretch unreadable, as a page with too many bit errors is.
    pub fn spoil(&mut self, offset: u64, length: u64) {
        Arc::make_mut(&mut self.bad).insert(offset, offset + length);
    }

    /// Whether the whole stretch is readable.
    pub fn is_readable(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        self.bad.range(..end).next_back().is_none_or(|(_, bad_end)| *bad_end <= offset)
    }

    /// Stores `data` at `offset`; the range must lie inside. Unreadable bytes in it become
    /// readable.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if !self.is_readable(offset, data.len() as u64) {
            let end = offset + data.len() as u64;
            Arc::make_mut(&mut self.bad)
                .retain(|start, bad_end| *start >= end || *bad_end <= offset);
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min(rest.len());
            let page = Arc::make_mut(&mut self.pages[(at / PAGE as u64) as usize]);
            page[within..within + count].copy_from_slice(&rest[..count]);
            at += count as u64;
            rest = &rest[count..];
        }
    }

    /// A digest of the differences from `origin`, of which this image is a changed copy. It skips
    /// pages that both still share, so it costs little. Images with equal digests hold the same
    /// bytes.
    pub fn digest_since(&self, origin: &Image) -> u128 {
        let mut digest = Digest::default();
        for (index, (page, before)) in self.pages.iter().zip(&origin.pages).enumerate() {
            if !Arc::ptr_eq(page, before) {
                digest.number(index as u64).number(digest_of(&page[..]) as u64);
            }
        }
        for (start, end) in self.bad.iter() {
            digest.number(*start).number(*end);
        }
        digest.value()
    }

    /// The whole image as one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_apart() {
        let mut one = Image::new(10_000);
        one.write(4090, &[7; 100]);
        let mut two = one.clone();
        two.write(4095, &[8; 2]);
        let mut seen = [0; 3];
        one.read(4094, &mut seen);
        assert_eq!(seen, [7, 7, 7]);
        two.read(4094, &mut seen);
        assert_eq!(seen, [7, 8, 8]);
        assert_eq!(one.digest_since(&one), two.digest_since(&two));
        assert_ne!(one.digest_since(&one), two.digest_since(&one));
        two.spoil(4096, 512);
        let readable = [(4000, 96), (4000, 97), (4607, 1), (4608, 100)];
        assert_eq!(
            readable.map(|(at, length)| two.is_readable(at, length)),
            [true, false, false, true]
        );
        assert!(one.is_readable(0, 10_000));
        two.write(4096, &[1; 512]);
        assert!(two.is_readable(0, 10_000));
        assert!(one.holds(9_999, 1) && !one.holds(9_999, 2) && !one.holds(u64::MAX, 2));
    }
}
