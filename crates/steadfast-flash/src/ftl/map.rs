//! Finds the place of a logical page: from the changes first, then from the map through its
//! directory.

use alloc::vec;
use alloc::vec::Vec;

use super::cache::MapPage;
use super::codec::UNMAPPED;
use super::error::{FlashError, Result};
use super::state::{Ftl, RECENT_MAX};
use super::tag::{Kind, TAG_SIZE, Tag};
use crate::nand::{EccStatus, Nand};

impl<N: Nand> Ftl<N> {
    /// The words of a map or directory page; all unmapped if it was never written.
    pub(super) fn map_words(&mut self, page: MapPage) -> Result<&[u32]> {
        if self.cache.get(page).is_none() {
            let address = self.map_address(page)?;
            let words = if address == UNMAPPED {
                vec![UNMAPPED; self.layout.words as usize]
            } else {
                match page {
                    MapPage::Map(id) => self.read_words(address, Kind::Map, id)?,
                    MapPage::Directory(id) => self.read_twice(address, Kind::Directory, id)?,
                }
            };
            let pages = self.geometry.pages();
            if words.iter().any(|word| *word != UNMAPPED && *word >= pages) {
                return Err(FlashError::Damaged { page: address, what: "page of the map" });
            }
            self.cache.put(page, words);
        }
        Ok(self.cache.get(page).map_or(&[], Vec::as_slice))
    }

    /// The place of a map or directory page.
    pub(super) fn map_address(&mut self, page: MapPage) -> Result<u32> {
        let words = self.layout.words;
        Ok(match page {
            MapPage::Directory(id) => self.directory.get(id as usize).copied().unwrap_or(UNMAPPED),
            MapPage::Map(id) => {
                let directory = self.map_words(MapPage::Directory(id / words))?;
                directory.get((id % words) as usize).copied().unwrap_or(UNMAPPED)
            }
        })
    }

    /// The place of a logical page according to the map.
    pub(super) fn mapped(&mut self, logical: u32) -> Result<u32> {
        let words = self.layout.words;
        let map = self.map_words(MapPage::Map(logical / words))?;
        Ok(map.get((logical % words) as usize).copied().unwrap_or(UNMAPPED))
    }

    /// The current page of a logical page; [`UNMAPPED`] if it has none.
    pub(super) fn place(&mut self, logical: u32) -> Result<u32> {
        match self.delta.get(&logical) {
            Some(delta) => Ok(delta.place()),
            None => self.mapped(logical),
        }
    }

    /// Reads one logical page into `data`, which is a page long.
    ///
    /// # Errors
    /// [`FlashError::Uncorrectable`], or an error of the part.
    pub fn read_page(&mut self, logical: u32, data: &mut [u8]) -> Result<()> {
        if data.len() != self.geometry.page_size as usize {
            return Err(FlashError::Damaged {
                page: logical,
                what: "request outside of the medium",
            });
        }
        if let Some(short) = self.shorts.get(&logical) {
            data.fill(0);
            if let Some(front) = data.get_mut(..short.len()) {
                front.copy_from_slice(short);
            }
            return Ok(());
        }
        let place = self.place(logical)?;
        if place == UNMAPPED {
            data.fill(0);
            return Ok(());
        }
        if let Some((_, recent)) = self.recent.iter().find(|(page, _)| *page == place) {
            data.copy_from_slice(recent);
            return Ok(());
        }
        match self.read_tagged(place, data)? {
            Some(tag) if tag.kind == Kind::Data && tag.id == logical => {
                self.note_recent(&tag, place, data.to_vec());
                self.store_reads_due();
                Ok(())
            }
            _ => Err(FlashError::Uncorrectable { page: logical }),
        }
    }

    /// Keeps the contents of a data page, in place of the oldest ones.
    pub(super) fn note_recent(&mut self, tag: &Tag, page: u32, data: Vec<u8>) {
        if tag.kind == Kind::Data {
            self.recent.truncate(RECENT_MAX - 1);
            self.recent.push_front((page, data));
        }
    }

    /// The tag of a page without its data, not verified.
    pub(super) fn glance(&mut self, page: u32) -> Result<Option<Tag>> {
        let mut oob = [0; TAG_SIZE];
        self.info.page_reads += 1;
        let status = self.nand.read(crate::nand::PageAddress(page), &mut [], &mut oob)?;
        Ok(if status == EccStatus::Uncorrectable { None } else { Tag::unchecked(&oob) })
    }
}
