//! What a server gives out.

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
    /// No room: the quota, or all that is lent, is used up.
    #[error("no space")]
    NoSpace,
    /// It is read-only.
    #[error("read-only")]
    ReadOnly,
    /// A request that is not aligned or not inside.
    #[error("request not aligned or outside")]
    Invalid,
    /// What is below has failed.
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

/// A stretch of an export that is either stored or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes, at least 1.
    pub length: u64,
    /// Nothing is stored, and it reads as zeros.
    pub hole: bool,
}

/// Something that can be served: an array of bytes.
///
/// Requests come from several threads at once, lie inside the export and are aligned to
/// [`block_min`](Self::block_min). Every connection sees what was answered on any other, and a
/// flush on one covers what was answered on all: that is what is told to clients as
/// "multi-connection".
pub trait Export: Send + Sync {
    /// Bytes.
    fn size(&self) -> u64;

    /// Smallest request and alignment, bytes; a power of two up to 64 KiB.
    fn block_min(&self) -> u32 {
        1
    }

    /// Whether writes are refused.
    fn read_only(&self) -> bool {
        false
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// What is below has failed.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError>;

    /// Writes.
    ///
    /// # Errors
    /// No room, read-only, or what is below has failed.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), ExportError>;

    /// Makes everything durable that was answered, to the degree that the export can.
    ///
    /// # Errors
    /// What is below has failed.
    fn flush(&self) -> Result<(), ExportError>;

    /// These bytes are not needed.
    ///
    /// # Errors
    /// Read-only, or what is below has failed.
    fn trim(&self, offset: u64, length: u64) -> Result<(), ExportError>;

    /// Sets bytes to zero; `keep` asks for their room to be kept.
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

    /// What is stored at `offset`; looks no further than `length`, which is not 0.
    fn stretch(&self, offset: u64, length: u64) -> Stretch {
        let _ = offset;
        Stretch { length, hole: false }
    }
}

/// Why a name cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such export.
    Unknown,
    /// It exists or could, but not for this client now.
    Policy,
    /// A client with a newer token has it.
    Fenced,
}

/// The exports of a server by name.
pub trait Catalogue: Send + Sync {
    /// Names of the exports that exist.
    fn names(&self) -> Vec<String>;

    /// Opens one; it is in use as long as the `Arc` lives.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, Refusal>;

    /// Called about once a second, to give back what nobody uses.
    fn tend(&self) {}
}
