//! Short forms of operations, for sequences that are written by hand. Files are given by their
//! path.

use steadfast::fs::AllocateMode;

use crate::operation::{Change, Name, Operation, Place};

/// A path from the root.
pub fn path(names: &[u8]) -> Place {
    Place::Path(names.iter().map(|name| Name(*name)).collect())
}

/// Writes a pattern.
pub fn write(names: &[u8], offset: u64, length: u32, fill: u32) -> Operation {
    Operation::Write { place: path(names), offset, length, fill, sync: false }
}

/// Appends a pattern.
pub fn append(names: &[u8], length: u32, fill: u32) -> Operation {
    Operation::Append { place: path(names), length, fill, sync: false }
}

/// Sets the size.
pub fn size(names: &[u8], size: u64) -> Operation {
    Operation::Set { place: path(names), change: Change { size: Some(size), ..Change::default() } }
}

/// Allocates, zeroes or punches a range.
pub fn allocate(names: &[u8], offset: u64, length: u64, mode: AllocateMode) -> Operation {
    Operation::Allocate { place: path(names), offset, length, mode }
}
