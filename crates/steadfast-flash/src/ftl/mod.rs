//! The flash translation layer: logical pages on NAND, each written whole or not at all.
//!
//! Invariants that recovery depends on:
//!
//! - No block that the newest journal page or the one before it refers to is erased. An unneeded
//!   block is *pending* until two more journal pages are written.
//! - A block is erased immediately before its use, so an interrupted erasure is always repeated. A
//!   journal page names each block for host data before it is programmed. So all valid pages
//!   written after the journal page are in the blocks that it names. They are at most
//!   [`JOURNAL_EVERY`] pages.
//! - A move by garbage collection is valid once a journal page records it, or a recovery finds it
//!   among the host's pages. The source stays until two journal pages are written.
//! - After an unclean stop no block that was open before is programmed. The last programmed page,
//!   the only one that can be unstable, is programmed again elsewhere before anything depends on
//!   it.
//! - The count of valid pages of a block is never too low.
//! - With paired pages, no program can damage acknowledged data.
//!
//! The journal page holds the whole state: the places of map, block table and spill pages, and
//! later changes. It also holds the contents of logical pages that are mostly zeros. The log
//! records of the file system are such pages. So one program makes a record durable and also writes
//! the journal.
//!
//! docs/inside/FLASH.md describes the format, docs/decisions/0007 the reasons.

mod account;
mod anchor;
mod cache;
mod changes;
mod codec;
mod error;
mod fields;
mod flush;
mod format;
mod frontier;
mod gc;
mod journal;
mod layout;
mod map;
mod medium;
mod mount;
mod placed;
mod read_counts;
mod reading;
mod reads;
mod rebuild;
mod recover;
mod report;
mod ring;
mod scan;
mod scrub;
mod second;
mod shifted;
mod state;
mod table;
mod tag;
mod write;

#[cfg(test)]
mod tests;

pub use anchor::{Shape, shape};
pub use error::{FlashError, Result};
pub use format::{format, format_image};
pub use layout::Layout;
pub use medium::FlashMedium;
pub use rebuild::{RebuildReport, rebuild};
pub use report::{BlockDetail, BlockUse, FlashReport};
pub use scrub::ScrubProgress;
pub use state::{Ftl, FtlInfo};
pub use table::{BlockInfo, BlockState};
pub use tag::{Kind as PageKind, page_kind};

/// Most host pages programmed without a journal page: a recovery searches for these.
pub const JOURNAL_EVERY: u32 = 12;
