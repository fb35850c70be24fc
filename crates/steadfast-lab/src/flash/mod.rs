//! The whole file system on modelled NAND: figures and power cuts.
//!
//! docs/inside/FLASH.md says what the figures mean. Everything is counted in operations of the part
//! and priced in its modelled time, so no result depends on the machine.

mod account;
mod campaign;
mod contents;
mod figures;
mod tally;

pub use account::Account;
pub use campaign::cut_part;
pub use figures::{Figures, figures};
pub use tally::{CutTally, Struck};

use steadfast::{FormatOptions, TransactionMask};
use steadfast_flash::nand::NandGeometry;

/// Blocks of the intent log on flash: as many as a mount can read. A group of records takes two, of
/// which it reads one.
const LOG_BLOCKS: u64 = 40;

/// How a volume on flash is formatted: blocks and nodes of a page, so that nothing is written twice
/// that changes once; metadata once, because every page below is checked and corrected, and moved
/// before it goes bad.
#[must_use]
pub fn format_options(geometry: &NandGeometry) -> FormatOptions {
    FormatOptions {
        block_size: geometry.page_size,
        node_size: Some(geometry.page_size),
        metadata_copies: Some(1),
        log_size: Some(LOG_BLOCKS * u64::from(geometry.page_size)),
        uuid: *b"steadfast-flash!",
        label: "flash".to_owned(),
        mask: TransactionMask::DEFAULT,
        ..FormatOptions::default()
    }
}
