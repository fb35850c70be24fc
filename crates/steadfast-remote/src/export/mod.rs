//! What a server serves.

mod fence;
mod granule;
mod medium;
mod memory;
mod pool;
mod stock;

use std::sync::Arc;

pub use granule::GranuleSize;
pub use medium::{MediumExport, Single};
pub use memory::LentMemory;
pub use pool::{MemoryPool, PoolOptions};

use crate::protocol::wire;

/// Why an export refuses a request; becomes an error number of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The quota, or all lent memory, is used up.
    #[error("no space")]
    NoSpace,
    /// The export is read-only.
    #[error("read-only")]
    ReadOnly,
    /// The request is not aligned, or outside the export.
    #[error("request not aligned or outside")]
    Invalid,
    /// The underlying medium has failed.
    #[error("input/output error")]
    Failed,
    /// A client with a newer token has this name.
    #[error("another client has taken over")]
    Fenced,
}

impl ExportError {
    /// Its number in the protocol.
    pub fn number(self) -> u32 {
        match self {
            ExportError::NoSpace => wire::ENOSPC,
            ExportError::ReadOnly => wire::EPERM,
            ExportError::Invalid => wire::EINVAL,
            ExportError::Failed => wire::EIO,
            ExportError::Fenced => wire::ESHUTDOWN,
        }
    }
}

/// A contiguous range of an export that is either stored or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes, at least 1.
    pub length: u64,
    /// Nothing is stored here; it reads as zeros.
    pub hole: bool,
}

/// An export: an array of bytes that can be served.
///
/// Requests come from several threads at once, lie inside the export and are aligned to
/// [`block_min`](Self::block_min). Every connection sees everything that was answered on any other.
/// A flush on one covers what was answered on all. Clients are told this as "multi-connection".
pub trait Export: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Smallest request and alignment, bytes; a power of two up to 64 KiB.
    fn block_min(&self) -> u32 {
        1
    }

    /// Whether the export refuses writes.
    fn read_only(&self) -> bool {
        false
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// The underlying medium has failed.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError>;

    /// Writes.
    ///
    /// # Errors
    /// No room, read-only, or the underlying medium has failed.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), ExportError>;

    /// Makes everything durable that was answered, as far as the export can.
    ///
    /// # Errors
    /// The underlying medium has failed.
    fn flush(&self) -> Result<(), ExportError>;

    /// Discards bytes.
    ///
    /// # Errors
    /// Read-only, or the underlying medium has failed.
    fn trim(&self, offset: u64, length: u64) -> Result<(), ExportError>;

    /// Sets bytes to zero; `keep` asks to keep their space allocated.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_zeroes(&self, offset: u64, length: u64, keep: bool) -> Result<(), ExportError> {
        let _ = keep;
        let zeros = [0; 16 << 10];
        let mut at = 0;
        while at < length {
            let piece = (length - at).min(zeros.len() as u64);
            self.write(offset + at, &zeros[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }

    /// The range at `offset`, of at most `length` bytes; `length` is not 0.
    fn stretch(&self, offset: u64, length: u64) -> Stretch {
        let _ = offset;
        Stretch { length, hole: false }
    }
}

/// Why an export cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The export does not exist.
    Unknown,
    /// The export exists or could be made, but this client may not open it now.
    Policy,
    /// A client with a newer token has opened it.
    Fenced,
}

/// The exports of a server, by name.
pub trait Catalogue: Send + Sync {
    /// Names of the exports that exist.
    fn names(&self) -> Vec<String>;

    /// Opens an export; it is in use as long as the `Arc` lives.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, Refusal>;

    /// Called about once a second, to free unused memory.
    fn tend(&self) {}
}
