//! The flash translation layer: logical pages on NAND, each written whole or not at all.
//!
//! Invariants, each of which recovery rests on:
//!
//! - Nothing that the newest journal page or the one before it refers to is erased. A block that is
//!   needed no more is *pending* until two more journal pages are there.
//! - A block is erased right before it is used, so an erasure that was interrupted is always done
//!   again. A block for what the host writes is in a journal page before anything is programmed in
//!   it: what lies behind the journal and counts is in the blocks that it names, at most
//!   [`JOURNAL_EVERY`] pages.
//! - What garbage collection moves counts once a journal page says so, or a recovery finds it among
//!   the host's; until two journal pages are there its source stays.
//! - After a start that was not clean nothing is programmed into a block that was open before, and
//!   the page programmed last (the only one that can be unstable) is programmed again elsewhere
//!   before anything is relied on.
//! - The count of valid pages of a block is never below the truth.
//! - Where cells are shared no page is programmed that can damage what was acknowledged.
//!
//! The journal page holds the whole state: where map, block table and spill pages are, what they do
//! not say yet, and the contents of logical pages that are mostly zeros. The file system's log
//! records are such pages: so one program makes a record durable and is the journal as well.
//!
//! docs/inside/FLASH.md describes the bits, docs/decisions/0007 the reasons.

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

/// Pages of the host that may be programmed without a journal page: what recovery has to look for.
pub const JOURNAL_EVERY: u32 = 12;
