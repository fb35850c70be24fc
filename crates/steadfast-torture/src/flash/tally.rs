//! The counts of a campaign of power cuts, by the interrupted operation.

use steadfast_flash::ftl::{PageKind, page_kind};
use steadfast_flash::nand::NandOperation;

/// The operation of the part that a cut interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Struck {
    /// The program of a page of the host.
    HostPage,
    /// The program of a page moved by garbage collection.
    MovedPage,
    /// The program of a page of map, directory or block table, of their second copies, or of read
    /// counts.
    MapPage,
    /// The program of a spill page.
    SpillPage,
    /// The program of a journal page.
    JournalPage,
    /// The program of an anchor.
    Anchor,
    /// An erasure.
    Erasure,
    /// The marking of a bad block.
    BadMark,
}

impl Struck {
    /// Every operation.
    pub const ALL: [Struck; 8] = [
        Struck::HostPage,
        Struck::MovedPage,
        Struck::MapPage,
        Struck::SpillPage,
        Struck::JournalPage,
        Struck::Anchor,
        Struck::Erasure,
        Struck::BadMark,
    ];

    /// Its name, one or two words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Struck::HostPage => "host_page",
            Struck::MovedPage => "moved_page",
            Struck::MapPage => "map_page",
            Struck::SpillPage => "spill_page",
            Struck::JournalPage => "journal_page",
            Struck::Anchor => "anchor",
            Struck::Erasure => "erasure",
            Struck::BadMark => "bad_mark",
        }
    }

    /// The operation that the model reports as interrupted. `moved`: it was in the block that
    /// garbage collection fills.
    pub(super) fn of(
        struck: Option<&steadfast_flash::model::Struck>,
        moved: bool,
    ) -> Option<Struck> {
        let struck = struck?;
        Some(match (struck.operation, page_kind(&struck.oob)) {
            (NandOperation::Erase, _) => Struck::Erasure,
            (NandOperation::MarkBad, _) => Struck::BadMark,
            (_, Some(PageKind::Data | PageKind::Lost)) if moved => Struck::MovedPage,
            (_, Some(PageKind::Data | PageKind::Lost)) => Struck::HostPage,
            (_, Some(PageKind::Spill)) => Struck::SpillPage,
            (_, Some(PageKind::Journal)) => Struck::JournalPage,
            (_, Some(PageKind::Anchor)) => Struck::Anchor,
            _ => Struck::MapPage,
        })
    }
}

/// Counts of the tries.
#[derive(Debug, Clone, Copy, Default)]
pub struct CutTally {
    /// All power cuts, including those counted below.
    pub cuts: u64,
    /// Cuts by interrupted operation, in the order of [`Struck::ALL`].
    pub struck: [u64; Struck::ALL.len()],
    /// Cuts during the recovery from an earlier cut.
    pub recovery_cuts: u64,
    /// Cuts in a step of a checkpoint of the file system, or in the discards after it.
    pub checkpoint_cuts: u64,
    /// Cuts within a few operations after a block went bad.
    pub bad_block_cuts: u64,
    /// Blocks that the translation layer found bad.
    pub bad_blocks: u64,
    /// Cuts after which the volume was at the point in flight.
    pub later_points: u64,
    /// Pages that garbage collection moved during the campaign.
    pub moved_pages: u64,
    /// Most page reads of a mount after a cut, including those of the file system.
    pub mount_page_reads_max: u64,
}

impl CutTally {
    pub(super) fn strike(&mut self, struck: Option<Struck>) {
        if let Some(count) = struck.and_then(|struck| self.struck.get_mut(struck as usize)) {
            *count += 1;
        }
    }
}
