//! The storage below a FAT: a seekable stream of bytes, with a page cache above a medium that takes
//! only whole pages.
//!
//! A FAT driver reads and writes a few bytes at a time, so every such driver caches sectors. This
//! cache holds 8 MiB of 4 KiB pages. It writes them back on request ([`Write::flush`]), or when it
//! needs their memory; neighbours go together. Sequential reads cause read-ahead.
//!
//! # Invariants
//! - After `flush`, everything written is on the medium, and durable.
//! - After [`Pages::cut`], nothing reaches the medium any more.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The storage below, in whole pages.
pub(super) trait Below {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Reads whole pages.
    fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()>;
    /// Writes whole pages.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes everything written so far durable.
    fn flush(&mut self) -> io::Result<()>;
}

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages in memory.
const PAGES_MOST: usize = 2048;
/// Pages read at once in a sequential read.
const READ_AHEAD: u64 = 32;
/// Maximum number of pages written at once.
const RUN_MOST: usize = 256;

struct CachedPage {
    data: Box<[u8]>,
    dirty: bool,
    /// Time of the last use.
    used: u64,
}

/// A cache of pages.
pub(super) struct Pages<B> {
    below: B,
    pages: BTreeMap<u64, CachedPage>,
    position: u64,
    /// Counts uses.
    now: u64,
    /// The page after the last one that was read from below.
    expected: u64,
    cut: bool,
}

impl<B: Below> Pages<B> {
    /// An empty cache.
    pub fn new(below: B) -> Pages<B> {
        Pages { below, pages: BTreeMap::new(), position: 0, now: 0, expected: u64::MAX, cut: false }
    }

    /// Simulates a power cut: pages that are only in memory are lost, and later writes are not
    /// kept.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// The page with this number, from memory or from below. `whole`: the caller overwrites all of
    /// it, so the contents below do not matter.
    fn page(&mut self, number: u64, whole: bool) -> io::Result<&mut CachedPage> {
        self.now += 1;
        let now = self.now;
        if !self.pages.contains_key(&number) {
            self.make_room()?;
            if whole {
                self.pages.insert(
                    number,
                    CachedPage { data: vec![0; PAGE].into(), dirty: false, used: now },
                );
            } else {
                self.read_in(number)?;
            }
        }
        let page = self.pages.get_mut(&number).ok_or(io::ErrorKind::UnexpectedEof)?;
        page.used = now;
        Ok(page)
    }

    fn read_in(&mut self, number: u64) -> io::Result<()> {
        let ahead = if number == self.expected { READ_AHEAD } else { 1 };
        let last = self.below.size() / PAGE as u64;
        let free = (number..number.saturating_add(ahead).min(last))
            .take_while(|next| !self.pages.contains_key(next));
        let count = free.count();
        let mut data = vec![0; count * PAGE];
        self.below.read(number * PAGE as u64, &mut data)?;
        let now = self.now;
        for (next, page) in (number..).zip(data.chunks(PAGE)) {
            self.pages.insert(next, CachedPage { data: page.into(), dirty: false, used: now });
        }
        self.expected = number + count as u64;
        Ok(())
    }

    /// Evicts the older half if memory is full.
    fn make_room(&mut self) -> io::Result<()> {
        if self.pages.len() < PAGES_MOST {
            return Ok(());
        }
        self.write_back()?;
        let mut uses: Vec<u64> = self.pages.values().map(|page| page.used).collect();
        uses.sort_unstable();
        let middle = uses.get(uses.len() / 2).copied().unwrap_or(0);
        self.pages.retain(|_, page| page.used > middle);
        Ok(())
    }

    /// Writes the dirty pages, neighbours together.
    fn write_back(&mut self) -> io::Result<()> {
        if self.cut {
            return Ok(());
        }
        let dirty: Vec<u64> =
            self.pages.iter().filter(|(_, page)| page.dirty).map(|(number, _)| *number).collect();
        for run in dirty.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(RUN_MOST))
        {
            let Some(first) = run.first() else { continue };
            let mut data = Vec::with_capacity(run.len() * PAGE);
            run.iter()
                .filter_map(|number| self.pages.get(number))
                .for_each(|page| data.extend(&page.data[..]));
            self.below.write(first * PAGE as u64, &data)?;
            for number in run {
                if let Some(page) = self.pages.get_mut(number) {
                    page.dirty = false;
                }
            }
        }
        Ok(())
    }

    /// The current position: page, offset in it, and how many of `wanted` bytes the page holds
    /// before the end.
    fn place(&self, wanted: usize) -> (u64, usize, usize) {
        let inside = (self.position % PAGE as u64) as usize;
        let left =
            usize::try_from(self.below.size().saturating_sub(self.position)).unwrap_or(usize::MAX);
        (self.position / PAGE as u64, inside, wanted.min(PAGE - inside).min(left))
    }
}

impl<B: Below> Read for Pages<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (number, inside, count) = self.place(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let page = self.page(number, false)?;
        if let (Some(to), Some(from)) =
            (buffer.get_mut(..count), page.data.get(inside..inside + count))
        {
            to.copy_from_slice(from);
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl<B: Below> Write for Pages<B> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let (number, inside, count) = self.place(data.len());
        if count == 0 {
            return Ok(0);
        }
        let page = self.page(number, count == PAGE)?;
        if let (Some(to), Some(from)) =
            (page.data.get_mut(inside..inside + count), data.get(..count))
        {
            to.copy_from_slice(from);
        }
        page.dirty = true;
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_back()?;
        if self.cut { Ok(()) } else { self.below.flush() }
    }
}

impl<B: Below> Seek for Pages<B> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.below.size().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::content::below as draw;

    #[derive(Default)]
    struct Memory {
        data: Vec<u8>,
        flushes: u32,
        largest: usize,
    }

    impl Below for Memory {
        fn size(&self) -> u64 {
            self.data.len() as u64
        }
        fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
            data.copy_from_slice(&self.data[offset as usize..][..data.len()]);
            Ok(())
        }
        fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.data[offset as usize..][..data.len()].copy_from_slice(data);
            self.largest = self.largest.max(data.len());
            Ok(())
        }
        fn flush(&mut self) -> io::Result<()> {
            self.flushes += 1;
            Ok(())
        }
    }

    #[test]
    fn it_is_the_medium_below_it() {
        // More data than fits into memory, at random places, in random sizes.
        let size = PAGES_MOST * PAGE * 2;
        let mut pages = Pages::new(Memory { data: vec![0; size], ..Memory::default() });
        let mut model = vec![0u8; size];
        let mut state = 5;
        for round in 0..20_000u32 {
            let start = draw(&mut state, size as u64 - 10_000);
            let length = draw(&mut state, 9000) as usize + 1;
            pages.seek(SeekFrom::Start(start)).expect("seek");
            if round % 3 == 0 {
                let mut data = vec![0; length];
                pages.read_exact(&mut data).expect("read");
                assert_eq!(data, model[start as usize..][..length], "{round}");
            } else {
                let data = vec![round as u8; length];
                pages.write_all(&data).expect("write");
                model[start as usize..][..length].copy_from_slice(&data);
            }
            assert!(pages.pages.len() <= PAGES_MOST + READ_AHEAD as usize);
        }
        pages.flush().expect("flush");
        assert!(
            pages.below.data == model && pages.below.flushes == 1 && pages.below.largest > PAGE
        );
        pages.seek(SeekFrom::End(-10)).expect("seek");
        let mut end = Vec::new();
        pages.read_to_end(&mut end).expect("read");
        assert_eq!(end.len(), 10);
        assert!(pages.seek(SeekFrom::Current(-1 - size as i64)).is_err());
    }

    #[test]
    fn after_a_power_cut_nothing_is_written() {
        let mut pages = Pages::new(Memory { data: vec![0; PAGE], ..Memory::default() });
        pages.write_all(&[1]).expect("write");
        pages.flush().expect("flush");
        pages.write_all(&[2]).expect("write");
        pages.cut();
        pages.flush().expect("flush");
        assert_eq!((pages.below.data[0], pages.below.data[1], pages.below.flushes), (1, 0, 1));
    }
}
