//! The value of a [`Kind::SharedExtent`](crate::format::key::Kind::SharedExtent) key: blocks that
//! several extents name.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::{FieldReader, FieldWriter};
use crate::memory;
use crate::types::{BlockAddress, BlockRun};

/// Blocks `start..end`, each named by `count` extents of the live tree. The key is the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    pub start: u64,
    pub end: u64,
    /// At least 2.
    pub count: u32,
}

impl Shared {
    /// Decodes a value. `contains` says whether a run can be allocated at all.
    ///
    /// # Errors
    /// `CorruptMetadata`.
    pub fn decode(start: u64, value: &[u8], contains: impl Fn(BlockRun) -> bool) -> Result<Shared> {
        let damaged =
            Error::CorruptMetadata { address: BlockAddress(start), reason: "shared extent" };
        let mut fields = FieldReader::new(value);
        let run = BlockRun { start: BlockAddress(start), count: u64::from(fields.u32()) };
        let count = fields.u32();
        if fields.overrun() || !fields.rest().is_empty() || count < 2 || !contains(run) {
            return Err(damaged);
        }
        Ok(Shared { start, end: run.end(), count })
    }

    /// The value.
    ///
    /// # Errors
    /// `Unsupported` if the run is too long for its field; writers make no such run. `OutOfMemory`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let length = u32::try_from(self.end.saturating_sub(self.start));
        let length = length.map_err(|_| Error::Unsupported("shared extent of so many blocks"))?;
        let mut bytes = memory::zeroed(8)?;
        FieldWriter::new(&mut bytes).u32(length).u32(self.count);
        Ok(bytes)
    }

    /// Whether `next` can be one key with this one.
    pub fn joins(&self, next: &Shared) -> bool {
        self.end == next.start
            && self.count == next.count
            && next.end.saturating_sub(self.start) <= u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let shared = Shared { start: 9, end: 12, count: 2 };
        let value = shared.encode().unwrap();
        assert_eq!(Shared::decode(9, &value, |_| true).unwrap(), shared);
        assert!(Shared::decode(9, &value, |_| false).is_err());
        assert!(Shared::decode(9, &value[..7], |_| true).is_err());
        let one = Shared { count: 1, ..shared }.encode().unwrap();
        assert!(Shared::decode(9, &one, |_| true).is_err());
    }
}
