//! What a campaign of power cuts has tried, by what was under way.

use steadfast_flash::ftl::{PageKind, page_kind};
use steadfast_flash::nand::NandOperation;

/// The operation of the part that a cut was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Struck {
    /// The program of a page of the host.
    HostPage,
    /// The program of a page that garbage collection moves.
    MovedPage,
    /// The program of a page of map, directory or block table, of their second copies, or of counts
    /// of reads.
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

    /// Its name, a word or two.
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

    /// What the model says that was struck. `moved`: in the block into which garbage collection
    /// moves.
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

/// What was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct CutTally {
    /// Power cuts, all of the following included.
    pub cuts: u64,
    /// By the operation that was interrupted, in the order of [`Struck::ALL`].
    pub struck: [u64; Struck::ALL.len()],
    /// Cuts in the recovery from a cut before.
    pub recovery_cuts: u64,
    /// Cuts in a step of a checkpoint of the file system, or in the discards behind it.
    pub checkpoint_cuts: u64,
    /// Cuts within a few operations after a block went bad.
    pub bad_block_cuts: u64,
    /// Blocks that the translation layer found bad.
    pub bad_blocks: u64,
    /// Cuts after which the point in flight was found.
    pub later_points: u64,
    /// Pages moved by garbage collection meanwhile.
    pub moved_pages: u64,
    /// Most page reads of a mount after a cut, that of the file system included.
    pub mount_page_reads_max: u64,
}

impl CutTally {
    pub(super) fn strike(&mut self, struck: Option<Struck>) {
        if let Some(count) = struck.and_then(|struck| self.struck.get_mut(struck as usize)) {
            *count += 1;
        }
    }
}
