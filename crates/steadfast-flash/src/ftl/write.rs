//! Host operations: writing, trimming, flushing, closing; and the bounded upkeep before each.

use steadfast_media::Temperature;

use super::JOURNAL_EVERY;
use super::codec::{FLAG_CLEAN, UNMAPPED};
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;
use crate::sabotage::{Sabotage, planted};

/// Contents in the journal that get pages of their own at a time.
const EVICTED_MAX: u32 = 6;
/// Pages trimmed between two rounds of upkeep.
const TRIMMED_MAX: u32 = 16;

impl<N: Nand> Ftl<N> {
    /// Writes one logical page. Durable after [`flush`](Self::flush).
    ///
    /// # Errors
    /// Errors of the part; [`FlashError::WornOut`] if no spare block is left.
    pub fn write_page(&mut self, logical: u32, data: &[u8]) -> Result<()> {
        self.write_hinted(logical, data, Temperature::Cold)
    }

    /// As [`write_page`](Self::write_page), with a hint of the lifetime of the contents.
    ///
    /// # Errors
    /// As [`write_page`](Self::write_page).
    pub fn write_hinted(
        &mut self,
        logical: u32,
        data: &[u8],
        temperature: Temperature,
    ) -> Result<()> {
        if logical >= self.layout.user_pages || data.len() != self.geometry.page_size as usize {
            return Err(FlashError::Damaged {
                page: logical,
                what: "request outside of the medium",
            });
        }
        self.guarded(|ftl| {
            ftl.upkeep()?;
            ftl.info.host_pages += 1;
            let length = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if length == 0 {
                ftl.volatile |= !planted(Sabotage::ForgetZeros);
                return ftl.set_place(logical, UNMAPPED);
            }
            if length <= ftl.short_max() && ftl.short_bytes + length <= ftl.short_total() {
                ftl.info.short_pages += 1;
                ftl.volatile = true;
                return ftl.set_short(logical, data.get(..length).unwrap_or(data));
            }
            let (stream, count) = match temperature {
                Temperature::Hot => (Stream::Hot, &mut ftl.info.hot_pages),
                Temperature::Cold => (Stream::Host, &mut ftl.info.cold_pages),
            };
            *count += 1;
            ftl.program_data(stream, Kind::Data, logical, data).map(drop)
        })
    }

    /// The longest contents of a logical page that the journal accepts. The file system's log has
    /// two pages that change in turn. Both must fit into a journal page together with the state,
    /// otherwise one is spilled each time.
    fn short_max(&self) -> usize {
        self.geometry.page_size as usize * 5 / 16
    }

    /// Most bytes of such contents: six pages.
    fn short_total(&self) -> usize {
        6 * self.geometry.page_size as usize
    }

    /// Most host pages programmed without a journal page.
    fn journal_every(&self) -> u32 {
        if self.layout.has_long_ring() { JOURNAL_EVERY / 2 } else { JOURNAL_EVERY }
    }

    /// Programs a logical page and enters its new place.
    pub(super) fn program_data(
        &mut self,
        stream: Stream,
        kind: Kind,
        logical: u32,
        data: &[u8],
    ) -> Result<u32> {
        if stream.is_of_host() {
            if self.begun && self.journal.host_since >= self.journal_every() {
                self.write_journal(0)?;
            }
            self.journal.host_since += 1;
        }
        let page = self.program(stream, kind, logical, data)?;
        self.set_place(logical, page)?;
        Ok(page)
    }

    /// Discards logical pages; they read as zeros. A power cut before the next journal page may
    /// restore them, because a flush does not write a journal page for them.
    ///
    /// # Errors
    /// Errors of the part.
    pub fn trim(&mut self, first: u32, count: u32) -> Result<()> {
        let end = first.saturating_add(count).min(self.layout.user_pages);
        self.guarded(|ftl| {
            let mut trimmed = 0_u32;
            for logical in first..end {
                let changed = match ftl.delta.get(&logical) {
                    Some(delta) => delta.place() != UNMAPPED || ftl.shorts.contains_key(&logical),
                    None => ftl.mapped(logical)? != UNMAPPED,
                };
                if changed {
                    if trimmed.is_multiple_of(TRIMMED_MAX) {
                        ftl.upkeep()?;
                    }
                    trimmed += 1;
                    ftl.set_place(logical, UNMAPPED)?;
                }
            }
            Ok(())
        })
    }

    /// Makes all writes durable. Pages with a page of their own are durable already.
    ///
    /// # Errors
    /// Errors of the part.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.guarded(|ftl| {
            if ftl.volatile {
                ftl.begin()?;
                if ftl.volatile {
                    ftl.write_journal(0)?;
                }
            }
            ftl.sync_frontiers();
            Ok(())
        })
    }

    /// Flushes, and records a clean close: the next mount need not search for more.
    ///
    /// # Errors
    /// Errors of the part.
    pub fn close(&mut self) -> Result<()> {
        if self.failed.is_some() || !self.begun {
            return Ok(());
        }
        self.guarded(|ftl| {
            ftl.store_reads_at_close()?;
            ftl.write_structures()?;
            // Twice: a power cut in the second write can leave a page that is readable only
            // sometimes. A mount must find the same state with and without that page.
            ftl.write_journal(0)?;
            ftl.write_journal(FLAG_CLEAN)?;
            ftl.begun = false;
            Ok(())
        })
    }

    /// The bounded upkeep before each change: begins the session, writes the map if it is due, or
    /// runs garbage collection.
    pub(super) fn upkeep(&mut self) -> Result<()> {
        self.begin()?;
        // Only one of them: both would make one write long.
        if !self.map_is_due() || self.free.len() <= self.layout.reserve as usize {
            self.collect()?;
        }
        if self.map_is_due() {
            self.write_map_step(false)?;
            self.evict_shorts()?;
        } else if !self.collector.stuck.is_empty() {
            self.rescue()?;
        }
        Ok(())
    }

    /// Moves a few contents from the journal to pages of their own, while they use more than half
    /// of their room.
    fn evict_shorts(&mut self) -> Result<()> {
        for _ in 0..EVICTED_MAX {
            if self.short_bytes <= self.short_total() / 2 {
                break;
            }
            let first = self
                .shorts
                .first_key_value()
                .map(|(logical, contents)| (*logical, contents.clone()));
            let Some((logical, mut contents)) = first else { break };
            contents.resize(self.geometry.page_size as usize, 0);
            self.program_data(Stream::Hot, Kind::Data, logical, &contents)?;
        }
        Ok(())
    }
}
