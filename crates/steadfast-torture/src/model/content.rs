//! The bytes of a regular file in the model: sparse, cheap to copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::{Digest, digest_of};

/// Bytes in a page. Absent pages read as zeros.
const PAGE: u64 = 4096;

/// The bytes of a regular file. Absent pages are zeros. Whether zeros are a hole or data is not
/// part of the content.
#[derive(Debug, Clone, Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` from `offset`; bytes beyond the end are zeros.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(buffer.len() - done);
            if let Some(page) = self.pages.get(&(at / PAGE)) {
                buffer[done..done + count].copy_from_slice(&page[within..within + count]);
            }
            done += count;
        }
    }

    /// The result of a read of `length` bytes at `offset`.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let count = self.size.saturating_sub(offset).min(length as u64) as usize;
        let mut data = vec![0; count];
        self.fill(offset, &mut data);
        data
    }

    /// Stores `data` at `offset` and grows the file if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.store(offset, data);
        self.size = self.size.max(offset.saturating_add(data.len() as u64));
    }

    fn store(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(data.len() - done);
            let page =
                self.pages.entry(at / PAGE).or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
            Arc::make_mut(page)[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
    }

    /// Copies `count` bytes of `source` from `from` on to `at`, and grows the file if needed. The
    /// cost depends on the stored bytes of the source, not on the length of the range.
    pub fn copy_from(&mut self, source: &Content, from: u64, at: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.zero(at, count);
        for (start, length) in source.ranges() {
            let (first, last) = (start.max(from), (start + length).min(from + count));
            if first < last {
                self.store(at + (first - from), &source.read(first, (last - first) as usize));
            }
        }
        self.size = self.size.max(at + count);
    }

    /// Sets the size. Bytes beyond it are dropped, and added bytes read as zeros.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// Makes a range inside the file read as zeros; the size stays.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let touched: Vec<u64> = self
            .pages
            .range(offset / PAGE..=end.saturating_sub(1) / PAGE)
            .map(|(index, _)| *index)
            .collect();
        for index in touched {
            let start = offset.max(index * PAGE) - index * PAGE;
            let stop = end.min((index + 1).saturating_mul(PAGE)) - index * PAGE;
            if start == 0 && stop == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                Arc::make_mut(page)[start as usize..stop as usize].fill(0);
            }
        }
    }

    /// Ranges, in order, that may hold bytes other than zeros: (first byte, length). Everything
    /// between them reads as zeros.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for index in self.pages.keys() {
            let start = index * PAGE;
            let length = PAGE.min(self.size.saturating_sub(start));
            match ranges.last_mut() {
                Some((first, count)) if *first + *count == start => *count += length,
                _ if length > 0 => ranges.push((start, length)),
                _ => {}
            }
        }
        ranges
    }

    /// Adds the size and the bytes to a digest; pages of zeros count as holes.
    pub fn add_to(&self, digest: &mut Digest) {
        digest.number(self.size);
        for (index, page) in &self.pages {
            if page.iter().any(|byte| *byte != 0) {
                digest.number(*index).number(digest_of(page) as u64);
            }
        }
    }

    /// Whether a range reads as zeros.
    pub fn is_zero(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        self.pages.range(offset / PAGE..=end.saturating_sub(1) / PAGE).all(|(index, page)| {
            let start = (offset.max(index * PAGE) - index * PAGE) as usize;
            let stop = (end.min((index + 1).saturating_mul(PAGE)) - index * PAGE) as usize;
            page[start..stop].iter().all(|byte| *byte == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_bytes_do_not_come_back() {
        let mut content = Content::default();
        content.write(10, b"hello");
        content.set_size(12);
        content.set_size(20);
        assert_eq!(content.read(8, 100), b"\0\0he\0\0\0\0\0\0\0\0");
        content.write((1 << 62) + 5, b"far");
        assert_eq!(content.size(), (1 << 62) + 8);
        assert_eq!(content.read((1 << 62) + 4, 100), b"\0far");
        assert!(content.is_zero(20, 1 << 61) && !content.is_zero(0, 11));
        assert_eq!(content.ranges().len(), 2);
        content.zero(0, 1 << 62);
        assert!(content.is_zero(0, 1 << 62));
    }
}
