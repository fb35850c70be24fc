//! The newest log entry of each key, in memory: the log as a map.
//!
//! Each key that a record has gets one entry, for its newest mutation. The values stay in the
//! payloads that were kept when the log was read. So the map takes little more memory than the
//! payloads, and exists only if all of them were kept.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::payload::{self, Encoded};
use crate::log::LogContent;
use crate::memory;
use crate::sort::sort_by_key;

/// The newest mutation of a key.
#[derive(Debug, Clone, Copy)]
struct OverlayEntry {
    key: Key,
    /// Index of the record that has it.
    record: u32,
    /// Place of its value in the payload of that record; `None` if the key is removed.
    value: Option<(u32, u16)>,
}

/// See the module.
#[derive(Debug)]
pub struct LogOverlay {
    log: LogContent,
    /// In the order of the keys.
    entries: Vec<OverlayEntry>,
}

impl LogOverlay {
    /// The map of a log. Returns the log itself if not all of it was kept, or if there is no memory
    /// for the map.
    ///
    /// # Errors
    /// Those of `check`, which sees every mutation.
    pub fn of(
        log: LogContent,
        check: impl Fn(&Key, Option<&[u8]>) -> Result<()>,
    ) -> Result<core::result::Result<LogOverlay, LogContent>> {
        let mut entries: Vec<OverlayEntry> = Vec::new();
        for record in 0..log.len() {
            let Some(payload) = log.kept(record) else { return Ok(Err(log)) };
            let mut end = 0;
            for (key, _, value) in Encoded(payload) {
                check(&key, value)?;
                end += payload::size_of(value.map(<[u8]>::len));
                let value = value.map(|value| ((end - value.len()) as u32, value.len() as u16));
                if memory::push(&mut entries, OverlayEntry { key, record: record as u32, value })
                    .is_err()
                {
                    return Ok(Err(log));
                }
            }
        }
        // The newest entry of a key comes first.
        sort_by_key(&mut entries, |entry| (entry.key, core::cmp::Reverse(entry.record)));
        entries.dedup_by_key(|entry| entry.key);
        Ok(Ok(LogOverlay { log, entries }))
    }

    /// The log.
    pub fn log(&self) -> &LogContent {
        &self.log
    }

    /// Memory that it takes, bytes.
    pub fn memory(&self) -> usize {
        self.log.kept_bytes() + self.entries.capacity() * size_of::<OverlayEntry>()
    }

    /// The log's entry for a key, if any: its value, or its removal.
    pub fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        let at = self.entries.binary_search_by_key(key, |entry| entry.key).ok()?;
        Some(self.value(&self.entries[at]))
    }

    /// The first key in `from..=to` with an entry in the log.
    pub fn next(&self, from: &Key, to: &Key) -> Option<(Key, Option<&[u8]>)> {
        let at = self.entries.partition_point(|entry| entry.key < *from);
        self.entries
            .get(at)
            .filter(|entry| entry.key <= *to)
            .map(|entry| (entry.key, self.value(entry)))
    }

    /// The last key in `from..=to` with an entry in the log.
    pub fn previous(&self, from: &Key, to: &Key) -> Option<(Key, Option<&[u8]>)> {
        let at = self.entries.partition_point(|entry| entry.key <= *to).checked_sub(1)?;
        self.entries
            .get(at)
            .filter(|entry| entry.key >= *from)
            .map(|entry| (entry.key, self.value(entry)))
    }

    fn value(&self, entry: &OverlayEntry) -> Option<&[u8]> {
        let (at, length) = entry.value?;
        let payload = self.log.kept(entry.record as usize)?;
        payload.get(at as usize..at as usize + usize::from(length))
    }
}
