//! Second copies: each page of the block table and of the map's directory exists twice, in
//! different blocks. One page names the places of the second copies (and of the read counts). It is
//! read only when needed.

use alloc::vec;
use alloc::vec::Vec;

use super::codec::{Second, UNMAPPED};
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

impl<N: Nand> Ftl<N> {
    /// Places of the second copies, read if not known. If that page is unreadable, there are none
    /// until the structures are written again.
    pub(super) fn second(&mut self) -> Result<&mut Second> {
        if self.second.is_none() {
            let found = match self.second_page {
                UNMAPPED => None,
                page => {
                    let mut data = vec![0; self.geometry.page_size as usize];
                    let tag = self.read_tagged(page, &mut data)?;
                    let ours = tag.is_some_and(|tag| tag.kind == Kind::Second);
                    ours.then(|| Second::decode(&data, self.volume, &self.geometry)).flatten()
                }
            };
            self.second = found;
        }
        let (directory, table) = (self.directory.len(), self.table.pages.len());
        let second = self.second.get_or_insert_default();
        second.directory.resize(directory, UNMAPPED);
        second.table.resize(table, UNMAPPED);
        second.reads.resize(self.reads.pages() as usize, UNMAPPED);
        Ok(second)
    }

    /// Reads a directory or table page; its second copy if the first is unreadable.
    pub(super) fn read_twice(&mut self, address: u32, kind: Kind, id: u32) -> Result<Vec<u32>> {
        let first = match self.read_words(address, kind, id) {
            Err(error @ FlashError::Damaged { .. }) => error,
            read => return read,
        };
        let second = self.second()?;
        let list = if kind == Kind::Table { &second.table } else { &second.directory };
        let Some(copy) = list.get(id as usize).copied().filter(|copy| *copy != UNMAPPED) else {
            return Err(first);
        };
        let words = self.read_words(copy, kind, id).map_err(|_| first)?;
        self.info.copies_used += 1;
        self.refresh(self.block_of(address));
        Ok(words)
    }

    /// Programs the second copy of a directory or table page.
    pub(super) fn write_copy(&mut self, kind: Kind, id: u32, words: &[u32]) -> Result<()> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(self.geometry.page_size as usize, 0);
        let page = self.program(Stream::Copy, kind, id, &bytes)?;
        self.increment(self.block_of(page))?;
        self.info.map_pages += 1;
        let second = self.second()?;
        let list = if kind == Kind::Table { &mut second.table } else { &mut second.directory };
        let old = list.get_mut(id as usize).map_or(UNMAPPED, |slot| core::mem::replace(slot, page));
        self.supersede(old)
    }

    /// Writes the places of the copies. The next journal page names this page.
    pub(super) fn write_second(&mut self) -> Result<()> {
        let volume = self.volume;
        let mut bytes = self.second()?.encode(volume);
        bytes.resize(self.geometry.page_size as usize, 0);
        let page = self.program(Stream::Copy, Kind::Second, 0, &bytes)?;
        self.increment(self.block_of(page))?;
        self.info.map_pages += 1;
        let old = core::mem::replace(&mut self.second_page, page);
        self.supersede(old)
    }
}
