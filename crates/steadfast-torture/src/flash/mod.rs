//! The whole file system on modelled NAND: figures and power cuts.
//!
//! docs/inside/FLASH.md explains the figures. All costs are counted in operations of the part and
//! converted to its modelled time, so no result depends on the machine.

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

/// Blocks of the intent log on flash: as many as a mount can read. A group of records takes two
/// blocks, and the mount reads one of them.
const LOG_BLOCKS: u64 = 40;

/// The format of a volume on flash. Blocks and nodes have the size of a page, so that one change
/// does not write a page twice. Metadata has one copy, because the translation layer checks and
/// corrects every page, and moves it before it goes bad.
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
