//! [`Granule`]: the unit in which memory is lent and returned: 64 KiB of the heap, or 2 MiB for a
//! huge page.
//!
//! A huge granule is a mapping of twice its size, of which the aligned half is used; untouched
//! memory is never allocated. The kernel is asked for huge pages and uses small pages if it has
//! none.

use std::fs;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

use crate::sabotage::{Sabotage, planted};

/// Size of granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GranuleSize {
    /// 64 KiB.
    #[default]
    Small,
    /// 2 MiB: a huge page of most processors.
    Huge,
}

impl GranuleSize {
    /// Bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            GranuleSize::Small => 64 << 10,
            GranuleSize::Huge => 2 << 20,
        }
    }

    /// Whether the kernel of this machine supports granules of this size.
    ///
    /// # Errors
    /// A message for the user: why not.
    pub fn check(self) -> Result<(), String> {
        if self == GranuleSize::Small {
            return Ok(());
        }
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .map_err(|_| "this kernel has no transparent huge pages".to_owned())?;
        if enabled.contains("[never]") {
            return Err("transparent huge pages are switched off on this machine".to_owned());
        }
        Granule::with(self, 0, &[])
            .map(drop)
            .ok_or_else(|| "this kernel refuses huge pages".to_owned())
    }
}

/// Bytes in memory.
pub(super) enum Granule {
    Small(Box<[u8]>),
    Huge { map: MmapMut, start: usize },
}

impl Granule {
    /// A granule with `data` at `start`, and zeros around it; data that does not fit is cut off.
    /// `None` if memory is short.
    pub(super) fn with(size: GranuleSize, start: usize, data: &[u8]) -> Option<Granule> {
        let length = size.bytes() as usize;
        match size {
            GranuleSize::Small => {
                // Each byte is written once.
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).ok()?;
                bytes.resize(start.min(length), 0);
                bytes.extend_from_slice(data.get(..length - bytes.len()).unwrap_or(data));
                bytes.resize(length, 0);
                Some(Granule::Small(bytes.into_boxed_slice()))
            }
            GranuleSize::Huge => {
                let map = MmapMut::map_anon(2 * length).ok()?;
                map.advise(Advice::HugePage).ok()?;
                let aligned = map.as_ptr().align_offset(length);
                let mut granule =
                    (aligned <= length).then_some(Granule::Huge { map, start: aligned })?;
                granule.put(start, data);
                Some(granule)
            }
        }
    }

    /// As [`with`](Self::with), reusing this granule.
    pub(super) fn refill(&mut self, start: usize, data: &[u8]) {
        let length = self.len();
        let (start, end) = (start.min(length), start.saturating_add(data.len()).min(length));
        if !planted(Sabotage::ShowOldGranules) {
            self[..start].fill(0);
            self[end..].fill(0);
        }
        self.put(start, data);
    }

    fn put(&mut self, start: usize, data: &[u8]) {
        let target = self.get_mut(start..).unwrap_or_default();
        let count = target.len().min(data.len());
        target[..count].copy_from_slice(&data[..count]);
    }
}

impl Deref for Granule {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Granule::Small(bytes) => bytes,
            Granule::Huge { map, start } => {
                &map[*start..*start + GranuleSize::Huge.bytes() as usize]
            }
        }
    }
}

impl DerefMut for Granule {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Granule::Small(bytes) => bytes,
            Granule::Huge { map, start } => {
                &mut map[*start..*start + GranuleSize::Huge.bytes() as usize]
            }
        }
    }
}
