//! What reads change: access times, and the count of repeated reads.

use steadfast_media::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether reads store the time.
pub(crate) struct AccessTimes {
    stored: AtomicBool,
    read_only: bool,
}

impl AccessTimes {
    pub(super) fn new(stored: bool, read_only: bool) -> AccessTimes {
        AccessTimes { stored: AtomicBool::new(stored), read_only }
    }

    pub fn are_stored(&self) -> bool {
        self.stored.load(Ordering::Relaxed) && !self.read_only
    }

    pub fn set(&self, stored: bool) {
        self.stored.store(stored, Ordering::Relaxed);
    }
}

/// Counts the reads that were repeated because their data did not match its checksum. Valid causes
/// are a concurrent rollback and damage. Any other repeat means that blocks were reused under a
/// reader.
#[derive(Default)]
pub(crate) struct RepeatedReads(AtomicU32);

impl RepeatedReads {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
