//! The state of an open translation layer, and what every part of it needs.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::cache::MapCache;
use super::codec::{Frontier, RELEASED, STREAMS, Second, UNMAPPED};
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::placed::Placed;
use super::reads::ReadCounts;
use super::scrub::Patrol;
use super::table::{BlockInfo, BlockState, Table};
use super::tag::Kind;
use crate::nand::{BlockNumber, Nand, NandGeometry, PageAddress};

/// Streams of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// What the host writes.
    Host = 0,
    /// What garbage collection moves, but for what is hot: cold.
    Moved = 1,
    /// Map, directory, table, spills.
    Structure = 2,
    /// Second copies, counts of reads: in other blocks than the first copies.
    Copy = 3,
    /// What the host writes and says that it will write again soon: by itself, so that such blocks
    /// empty themselves. What garbage collection moves out of them goes there, too.
    Hot = 4,
}

impl Stream {
    /// Streams of what the host writes: a journal page names their blocks before anything is
    /// programmed there.
    pub const OF_HOST: [Stream; 2] = [Stream::Host, Stream::Hot];

    /// Whether what is programmed comes from the host.
    pub fn is_of_host(self) -> bool {
        Stream::OF_HOST.contains(&self)
    }

    /// Whether what is programmed is logical pages, not structures.
    pub fn holds_data(self) -> bool {
        self.is_of_host() || self == Stream::Moved
    }
}

/// Where a logical page is that changed since the map was written. Two words: how many of them
/// there is memory for decides how many changes a page of the map gathers before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    /// Its page, or [`UNMAPPED`], and [`RELEASED`].
    place: u32,
    /// The spill page that says so; [`UNMAPPED`]: none does.
    pub spill: u32,
}

impl Delta {
    pub fn new(place: u32, released: bool, spill: u32) -> Delta {
        Delta { place: place | if released { RELEASED } else { 0 }, spill }
    }

    /// Its page, or [`UNMAPPED`].
    pub fn place(self) -> u32 {
        self.place & !RELEASED
    }

    /// Whether the page that the map names for it was already counted off.
    pub fn released(self) -> bool {
        self.place & RELEASED != 0
    }
}

/// The journal: where its next page goes.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub block: u32,
    pub page: u32,
    pub next_block: u32,
    /// Blocks that may still be needed, the present one last.
    pub chain: Vec<u32>,
    /// Place of the present block in the chain of all.
    pub chain_number: u32,
    /// Address of the page that the mount went by.
    pub found: u32,
    /// Whether that page is the same at every reading, once that was tried.
    pub found_holds: Option<bool>,
    /// Sequence number of the first page of the present block, and of the block before.
    pub first: u64,
    pub previous: u64,
    /// Blocks of the journal since the last anchor; at least
    /// [`BLOCKS_PER_ANCHOR`](super::layout::BLOCKS_PER_ANCHOR) makes the next one due.
    pub since_anchor: u32,
    /// The block of the session before has been left.
    pub left: bool,
    /// Journal pages since the mount.
    pub written: u64,
    /// Pages of the host since the last one.
    pub host_since: u32,
    /// Bits flip in the pages in use: they are to be written elsewhere.
    pub renew: bool,
    /// Block and page of the ring for the next anchor.
    pub ring: (u32, u32),
}

/// Garbage collection.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The block that is being emptied, and the next page in it.
    pub victim: Option<(u32, u32)>,
    /// Emptied but for pages that only the map still names.
    pub emptied: BTreeSet<u32>,
    /// Blocks to be emptied for their own sake: a failed program, flipped bits, cold data on young
    /// blocks.
    pub queue: VecDeque<u32>,
    /// Emptied, and yet something in them is valid: their tags cannot be read.
    pub stuck: BTreeSet<u32>,
    /// How far the map was looked through for these.
    pub rescue_at: u32,
    /// Blocks of structures whose pages are to be written elsewhere: flipped bits or many reads.
    pub renew: BTreeSet<u32>,
    /// Blocks of what the host writes again soon, as far as this session wrote them: they empty
    /// themselves.
    pub hot: BTreeSet<u32>,
    /// Blocks that are not to be used again.
    pub retire: BTreeSet<u32>,
}

impl Collector {
    /// Whether a data block is emptied, or waits to be.
    pub(super) fn knows(&self, block: u32) -> bool {
        self.victim.is_some_and(|(victim, _)| victim == block)
            || self.emptied.contains(&block)
            || self.stuck.contains(&block)
            || self.queue.contains(&block)
    }
}

/// Counts since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FtlInfo {
    /// Logical pages that the host wrote.
    pub host_pages: u64,
    /// Of these, pages kept in the journal.
    pub short_pages: u64,
    /// Pages of the host that were programmed.
    pub cold_pages: u64,
    /// The same, where it says that it will write them again soon.
    pub hot_pages: u64,
    /// Pages moved by garbage collection.
    pub moved_pages: u64,
    /// Of these, pages that stay among those that the host writes again soon.
    pub moved_hot_pages: u64,
    /// Journal pages.
    pub journal_pages: u64,
    /// Spill pages.
    pub spill_pages: u64,
    /// Pages of map, directory and block table.
    pub map_pages: u64,
    /// Anchors.
    pub anchors: u64,
    /// Erasures.
    pub erases: u64,
    /// Of these, erasures that levelling the wear caused.
    pub level_erases: u64,
    /// Blocks that went bad.
    pub grown_bad: u64,
    /// Reads of pages in which flipped bits were corrected.
    pub corrected_pages: u64,
    /// Flipped bits that were corrected, those of the worst codeword of each such page.
    pub corrected_bits: u64,
    /// The most of them in one codeword.
    pub corrected_bits_max: u16,
    /// Pages of directory and block table that were read from their second copy.
    pub copies_used: u64,
    /// Pages read by the patrol.
    pub patrol_pages: u64,
    /// Blocks moved because of flipped bits or many reads.
    pub refreshed_blocks: u64,
    /// Data pages lost to flipped bits.
    pub lost_pages: u64,
    /// Pages read, the mount included.
    pub page_reads: u64,
    /// Whether the mount found that the last session was not closed.
    pub recovered: bool,
}

/// The translation layer over a part.
#[derive(Debug)]
pub struct Ftl<N> {
    pub(super) nand: Placed<N>,
    /// Anchors say that block numbers count good blocks by their marks: an image that is being
    /// made, or mounted first.
    pub(super) in_good_blocks: bool,
    pub(super) geometry: NandGeometry,
    pub(super) layout: Layout,
    pub(super) volume: u64,
    pub(super) sequence: u64,
    pub(super) table: Table,
    /// Free blocks that are known, those erased least often first.
    pub(super) free: BTreeSet<(u32, u32)>,
    /// Free blocks that the journal names for a recovery and nothing else uses: a journal page that
    /// cannot be read at one time and can at another must find everything that it names, although a
    /// recovery has begun without it.
    pub(super) kept: Vec<u32>,
    /// Those of the state that was found, while this session has no journal page.
    pub(super) kept_before: Vec<u32>,
    /// Blocks that become free, with the number of journal pages of this session that must be there
    /// first.
    pub(super) pending: VecDeque<(u32, u64)>,
    pub(super) directory: Vec<u32>,
    pub(super) cache: MapCache,
    pub(super) delta: BTreeMap<u32, Delta>,
    /// Contents of changed logical pages that have no page, without the zeros at the end.
    pub(super) shorts: BTreeMap<u32, Vec<u8>>,
    /// Logical pages whose delta no spill page has.
    pub(super) unspilled: BTreeSet<u32>,
    pub(super) spills: Vec<u32>,
    /// Pages of the map that were written while there were spill pages: so many of these, the
    /// oldest, say nothing of them any more.
    pub(super) written: BTreeMap<u32, usize>,
    pub(super) short_bytes: usize,
    /// Something was acknowledged as written that only the next journal page makes durable.
    pub(super) volatile: bool,
    pub(super) frontiers: [Frontier; STREAMS],
    pub(super) journal: Journal,
    pub(super) collector: Collector,
    pub(super) reads: ReadCounts,
    /// Pages below this sequence number are of an earlier volume.
    pub(super) born: u64,
    /// The page that says where the second copies are.
    pub(super) second_page: u32,
    /// What it says, once it was read.
    pub(super) second: Option<Second>,
    pub(super) patrol: Patrol,
    /// How far erasures may lie apart, if that was said.
    pub(super) spread_max: Option<u32>,
    /// The journal has a page of this session.
    pub(super) begun: bool,
    pub(super) failed: Option<FlashError>,
    pub(super) info: FtlInfo,
    /// Data pages read last: the file system reads a log record in pieces.
    pub(super) recent: VecDeque<(u32, Vec<u8>)>,
}

/// Pages that are programmed in about the time of an erasure.
const ERASE_PAGES: u64 = 8;

/// Most pages in [`Ftl::recent`].
pub(super) const RECENT_MAX: usize = 8;

/// Page reads of a block after which its contents are moved.
fn reads_bound(geometry: &NandGeometry) -> u32 {
    if geometry.cycles > 20_000 { 200_000 } else { 20_000 }
}

impl<N: Nand> Ftl<N> {
    pub(super) fn empty(nand: N, layout: Layout, volume: u64) -> Ftl<N> {
        let geometry = nand.geometry();
        // A ninth of the map.
        let cache = (layout.map_pages / 9).clamp(8, 2048) as usize
            + layout.directory_pages.min(16) as usize;
        Ftl {
            geometry,
            layout,
            volume,
            sequence: 1,
            table: Table::new(
                geometry.blocks,
                layout.words,
                vec![UNMAPPED; layout.table_pages as usize],
            ),
            free: BTreeSet::new(),
            kept: Vec::new(),
            kept_before: Vec::new(),
            pending: VecDeque::new(),
            directory: vec![UNMAPPED; layout.directory_pages as usize],
            cache: MapCache::new(cache),
            delta: BTreeMap::new(),
            shorts: BTreeMap::new(),
            unspilled: BTreeSet::new(),
            spills: Vec::new(),
            written: BTreeMap::new(),
            short_bytes: 0,
            volatile: false,
            frontiers: [Frontier::CLOSED; STREAMS],
            journal: Journal::default(),
            collector: Collector::default(),
            reads: ReadCounts::new(geometry.blocks, geometry.page_size, reads_bound(&geometry)),
            born: 1,
            second_page: UNMAPPED,
            second: None,
            patrol: Patrol::default(),
            spread_max: None,
            begun: false,
            failed: None,
            info: FtlInfo::default(),
            recent: VecDeque::new(),
            nand: Placed::new(nand),
            in_good_blocks: false,
        }
    }

    /// Takes over how many logical pages the volume has that was found, if that is possible.
    pub(super) fn take_user_pages(&mut self, user_pages: u32) -> bool {
        let Some(layout) = self.layout.with_user_pages(user_pages) else { return false };
        self.layout = layout;
        self.directory.resize(layout.directory_pages as usize, UNMAPPED);
        true
    }

    /// Counts since the mount.
    #[must_use]
    pub fn info(&self) -> FtlInfo {
        self.info
    }

    /// What was done since the mount that nobody asked for, in bytes that could have been
    /// programmed meanwhile.
    pub(super) fn upkeep_bytes(&self) -> u64 {
        let info = &self.info;
        let pages =
            info.moved_pages + info.map_pages + info.spill_pages + ERASE_PAGES * info.erases;
        pages * u64::from(self.geometry.page_size)
    }

    /// How the part is shared out.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Sizes of the part.
    #[must_use]
    pub fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    /// Why nothing can be written any more, if so.
    #[must_use]
    pub fn failure(&self) -> Option<FlashError> {
        self.failed
    }

    /// The part below. What is written there directly is lost on the translation layer.
    pub fn nand(&mut self) -> &mut N {
        self.nand.inner()
    }

    /// Gives the part back.
    #[must_use]
    pub fn into_nand(self) -> N {
        self.nand.into_inner()
    }

    /// Bytes of memory in use beside the part's own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists = 24 * (self.free.len() + self.pending.len() + self.unspilled.len());
        let shorts = self.shorts.len() * (8 + core::mem::size_of::<Vec<u8>>()) + self.short_bytes;
        let delta = self.delta.len() * (8 + core::mem::size_of::<Delta>()) + shorts;
        self.table.memory_bytes()
            + self.cache.memory_bytes()
            + lists
            + delta
            + 4 * self.directory.capacity()
            + self.reads.memory_bytes()
            + self.recent.iter().map(|(_, data)| data.capacity()).sum::<usize>()
    }

    pub(super) fn page(&self, block: u32, page: u32) -> PageAddress {
        self.geometry.page(BlockNumber(block), page)
    }

    pub(super) fn block_of(&self, page: u32) -> u32 {
        page / self.geometry.pages_per_block
    }

    pub(super) fn is_open(&self, block: u32) -> bool {
        self.frontiers.iter().any(|frontier| frontier.block == block)
    }

    /// The entry of a block, loaded where it is not known.
    pub(super) fn block(&mut self, block: u32) -> Result<BlockInfo> {
        if let Some(info) = self.table.get(block) {
            return Ok(info);
        }
        self.load_table(block / self.layout.words)?;
        self.table
            .get(block)
            .ok_or(FlashError::Damaged { page: block, what: "entry of the block table" })
    }

    /// Loads a page of the block table.
    pub(super) fn load_table(&mut self, page: u32) -> Result<()> {
        let address = self.table.pages.get(page as usize).copied().unwrap_or(UNMAPPED);
        let words = self.read_twice(address, Kind::Table, page)?;
        for (block, info) in self.table.fill(page, &words) {
            self.note_loaded(block, info);
        }
        Ok(())
    }

    /// Enters a block whose entry has just become known into the lists.
    pub(super) fn note_loaded(&mut self, block: u32, info: BlockInfo) {
        match info.state {
            BlockState::Free if self.kept.contains(&block) || self.kept_before.contains(&block) => {
            }
            BlockState::Free => drop(self.free.insert((info.erases, block))),
            // The state that was found does not need it: once the first page of this session holds,
            // nothing does.
            BlockState::Pending => self.pending.push_front((block, 1)),
            _ => {}
        }
    }

    /// Reads a page of words that must be what it is said to be.
    pub(super) fn read_words(&mut self, address: u32, kind: Kind, id: u32) -> Result<Vec<u32>> {
        let damaged =
            FlashError::Damaged { page: address, what: "page of map, directory or block table" };
        if address >= self.geometry.pages() {
            return Err(damaged);
        }
        let mut data = vec![0; self.geometry.page_size as usize];
        let tag = self.read_tagged(address, &mut data)?;
        if tag.is_none_or(|tag| tag.kind != kind || tag.id != id) {
            return Err(damaged);
        }
        let word = |bytes: &[u8]| bytes.try_into().map_or(UNMAPPED, u32::from_le_bytes);
        Ok(data.chunks_exact(4).map(word).collect())
    }

    /// Runs what changes the state; a failure in the middle leaves the part readable and everything
    /// else refused.
    pub(super) fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        match self.failed {
            None => {}
            Some(FlashError::WornOut) => return Err(FlashError::WornOut),
            Some(_) => return Err(FlashError::ReadOnly),
        }
        work(self).inspect_err(|error| self.failed = Some(*error))
    }
}
