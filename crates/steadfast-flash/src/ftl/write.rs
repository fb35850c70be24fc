//! What the host asks for: writing, trimming, flushing, closing; and the bounded upkeep before
//! each.

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
/// Pages that are trimmed between two rounds of upkeep.
const TRIMMED_MAX: u32 = 16;

impl<N: Nand> Ftl<N> {
    /// Writes one logical page. Durable after [`flush`](Self::flush).
    ///
    /// # Errors
    /// The part's; [`FlashError::WornOut`] where no spare block is left.
    pub fn write_page(&mut self, logical: u32, data: &[u8]) -> Result<()> {
        self.write_hinted(logical, data, Temperature::Cold)
    }

    /// As [`write_page`](Self::write_page), with a hint of how long the contents will live.
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

    /// The longest contents of a logical page that the journal takes. The file system's log has two
    /// pages that change in turn; both are to fit a journal page together with the state, or one of
    /// them is spilled each time.
    fn short_max(&self) -> usize {
        self.geometry.page_size as usize * 5 / 16
    }

    /// Bytes of such contents at most: six pages.
    fn short_total(&self) -> usize {
        6 * self.geometry.page_size as usize
    }

    /// Pages of the host that are programmed without a journal page at most.
    fn journal_every(&self) -> u32 {
        if self.layout.has_long_ring() { JOURNAL_EVERY / 2 } else { JOURNAL_EVERY }
    }

    /// Programs a logical page and enters where it is now.
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

    /// Forgets logical pages; they read as zeros. A power cut before the next journal page may
    /// bring them back: a flush does not write one for them.
    ///
    /// # Errors
    /// The part's.
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

    /// Makes everything that was written durable. Pages that have a page of their own are so
    /// already.
    ///
    /// # Errors
    /// The part's.
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

    /// Flushes, and says that nothing is under way: the next mount need not look for more.
    ///
    /// # Errors
    /// The part's.
    pub fn close(&mut self) -> Result<()> {
        if self.failed.is_some() || !self.begun {
            return Ok(());
        }
        self.guarded(|ftl| {
            ftl.store_reads_at_close()?;
            ftl.write_structures()?;
            // Twice: the power may go in the second, which can then be read at one time and not at
            // another. Whoever found it and whoever does not are to find the same.
            ftl.write_journal(0)?;
            ftl.write_journal(FLAG_CLEAN)?;
            ftl.begun = false;
            Ok(())
        })
    }

    /// The upkeep before each change, bounded: begins the session, writes the map when it is due,
    /// empties blocks.
    pub(super) fn upkeep(&mut self) -> Result<()> {
        self.begin()?;
        // One or the other: together they would make one write long.
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

    /// While contents in the journal take more than half of the room for them, a few of them get
    /// pages of their own.
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
