//! Options of the commands that make a volume, for what stays with the volume.

use steadfast::{FormatOptions, TransactionMask};

use crate::{interval, mask_text, size};

/// Bytes of a block on media that are not NAND.
const BLOCK_SIZE_DEFAULT: u32 = 4096;
/// Pages of the intent log on flash: as many as a mount can read. A group of records takes two
/// pages, and the mount reads one of them.
const LOG_PAGES: u64 = 40;

/// The options.
#[derive(Debug, Clone, clap::Args)]
pub struct FormatArgs {
    /// Block size: a power of two from 128 to 64K; the default is 4K, on NAND a page
    #[arg(
        short,
        long,
        value_parser = size::parse_u32,
        allow_hyphen_values = true,
        value_name = "SIZE"
    )]
    pub block_size: Option<u32>,
    /// Tree node size: a power of two from 512 to 64K, at least the block size. By default 8K, or
    /// the block size on volumes below 16 MiB or with small blocks
    #[arg(long, value_parser = size::parse_u32, allow_hyphen_values = true, value_name = "SIZE")]
    node_size: Option<u32>,
    /// Copies of metadata
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), value_name = "1|2")]
    pub metadata_copies: Option<u8>,
    /// Size of the intent log; 0 makes every transaction point a checkpoint
    #[arg(long, value_parser = size::parse, allow_hyphen_values = true, value_name = "SIZE")]
    pub log_size: Option<u64>,
    /// Label, at most 32 bytes
    #[arg(short = 'L', long, default_value = "", hide_default_value = true)]
    label: String,
    /// Transaction mask, such as default,close (see 'steadfast mask set --help')
    #[arg(long, value_parser = parse_mask, value_name = "EVENTS")]
    mask: Option<TransactionMask>,
    /// Interval of the transaction timer
    #[arg(long, value_parser = interval::parse_ms, default_value = "5s", value_name = "INTERVAL")]
    timer: u32,
}

fn parse_mask(text: &str) -> Result<TransactionMask, String> {
    mask_text::parse(&[text], TransactionMask::DEFAULT)
}

impl FormatArgs {
    /// Bytes of a block, on media that are not NAND.
    pub fn block_size(&self) -> u32 {
        self.block_size.unwrap_or(BLOCK_SIZE_DEFAULT)
    }

    /// The options for the core. Size, uuid and root directory are the caller's.
    pub fn options(&self) -> FormatOptions {
        FormatOptions {
            block_size: self.block_size(),
            node_size: self.node_size,
            metadata_copies: self.metadata_copies,
            log_size: self.log_size,
            label: self.label.clone(),
            mask: self.mask.unwrap_or(TransactionMask::DEFAULT),
            timer_ms: self.timer,
            ..FormatOptions::default()
        }
    }

    /// Changes [`options`](Self::options) to those for flash with pages of this size.
    ///
    /// Blocks and nodes have the size of a page, so that one change does not write a page twice.
    /// Metadata has one copy, because the translation layer checks and corrects every page, and
    /// moves it before it goes bad. The log is short.
    pub fn adapt_to_flash(&self, page: u32, options: &mut FormatOptions) {
        options.block_size = self.block_size.unwrap_or(page);
        options.node_size = Some(self.node_size.unwrap_or(page.max(options.block_size)));
        options.metadata_copies = Some(self.metadata_copies.unwrap_or(1));
        options.log_size = Some(self.log_size.unwrap_or(LOG_PAGES * u64::from(page)));
    }
}
