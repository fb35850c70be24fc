//! The state of an open translation layer, and functions that all modules use.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::cache::MapCache;
use super::codec::{Frontier, RELEASED, STREAMS, Second, UNMAPPED};
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::placed::Placed;
use super::read_counts::ReadCounts;
use super::table::{BlockInfo, BlockState, Table};
use super::tag::Kind;
use crate::nand::{BlockNumber, Nand, NandGeometry, PageAddress};

/// Position of the patrol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Patrol {
    pub block: u32,
    pub page: u32,
}

/// Streams of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Host writes.
    Host = 0,
    /// Cold pages that garbage collection moves.
    Moved = 1,
    /// Map, directory, table, spill pages.
    Structure = 2,
    /// Second copies and read counts: in other blocks than the first copies.
    Copy = 3,
    /// Host writes with a hint that they will soon be written again. They are separate, so that
    /// their blocks empty themselves. Garbage collection moves pages of these blocks into this
    /// stream too.
    Hot = 4,
}

impl Stream {
    /// Streams of host writes: a journal page names their blocks before they are programmed.
    pub const OF_HOST: [Stream; 2] = [Stream::Host, Stream::Hot];

    /// Whether the stream holds host writes.
    pub fn is_of_host(self) -> bool {
        Stream::OF_HOST.contains(&self)
    }

    /// Whether the stream holds logical pages and not structures.
    pub fn holds_data(self) -> bool {
        self.is_of_host() || self == Stream::Moved
    }
}

/// Place of a logical page that changed since the map was written. Its size, two words, determines
/// how many fit into memory, and so how many changes a map page gathers before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    /// The page or [`UNMAPPED`], with the flag [`RELEASED`].
    place: u32,
    /// The spill page with this change; [`UNMAPPED`] if there is none.
    pub spill: u32,
}

impl Delta {
    pub fn new(place: u32, released: bool, spill: u32) -> Delta {
        Delta { place: place | if released { RELEASED } else { 0 }, spill }
    }

    /// The page, or [`UNMAPPED`].
    pub fn place(self) -> u32 {
        self.place & !RELEASED
    }

    /// Whether the page that the map names was already subtracted from its block's count.
    pub fn released(self) -> bool {
        self.place & RELEASED != 0
    }
}

/// The position of the journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub block: u32,
    pub page: u32,
    pub next_block: u32,
    /// Blocks that may still be needed, the current one last.
    pub chain: Vec<u32>,
    /// Number of the current block in the whole chain.
    pub chain_number: u32,
    /// Address of the page that the mount used.
    pub found: u32,
    /// Whether that page reads the same every time, once tested.
    pub found_holds: Option<bool>,
    /// Sequence numbers of the first pages of the current block and of the one before.
    pub first: u64,
    pub previous: u64,
    /// Journal blocks since the last anchor; at
    /// [`BLOCKS_PER_ANCHOR`](super::layout::BLOCKS_PER_ANCHOR) the next anchor is due.
    pub since_anchor: u32,
    /// The journal has left the block of the previous session.
    pub left: bool,
    /// Journal pages since the mount.
    pub written: u64,
    /// Host pages since the last journal page.
    pub host_since: u32,
    /// The pages in use have flipped bits and must be written elsewhere.
    pub renew: bool,
    /// Block and page of the ring for the next anchor.
    pub ring: (u32, u32),
}

/// State of garbage collection.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The block that is being emptied, and its next page.
    pub victim: Option<(u32, u32)>,
    /// Blocks that are empty except for pages that only the map still names.
    pub emptied: BTreeSet<u32>,
    /// Blocks to empty for their own sake: a failed program, flipped bits, cold data on blocks with
    /// little wear.
    pub queue: VecDeque<u32>,
    /// Emptied blocks that still have valid pages, because the tags of these pages are unreadable.
    pub stuck: BTreeSet<u32>,
    /// How far the map was searched for these pages.
    pub rescue_at: u32,
    /// Structure blocks whose pages must be written elsewhere: flipped bits or many reads.
    pub renew: BTreeSet<u32>,
    /// Hot blocks written in this session: they empty themselves.
    pub hot: BTreeSet<u32>,
    /// Blocks that must not be used again.
    pub retire: BTreeSet<u32>,
}

impl Collector {
    /// Whether a data block is being emptied, or waits for it.
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
    /// Logical pages written by the host.
    pub host_pages: u64,
    /// Pages among them kept in the journal.
    pub short_pages: u64,
    /// Host pages programmed as cold.
    pub cold_pages: u64,
    /// Host pages programmed as hot: the host will soon write them again.
    pub hot_pages: u64,
    /// Pages moved by garbage collection.
    pub moved_pages: u64,
    /// Pages among them that stay hot.
    pub moved_hot_pages: u64,
    /// Journal pages written.
    pub journal_pages: u64,
    /// Spill pages written.
    pub spill_pages: u64,
    /// Pages of map, directory and block table written.
    pub map_pages: u64,
    /// Anchors written.
    pub anchors: u64,
    /// Erasures.
    pub erases: u64,
    /// Erasures among them for wear levelling.
    pub level_erases: u64,
    /// Blocks that went bad.
    pub grown_bad: u64,
    /// Page reads with corrected bits.
    pub corrected_pages: u64,
    /// Corrected bits: those of the worst codeword of each such page.
    pub corrected_bits: u64,
    /// Most corrected bits of one codeword.
    pub corrected_bits_max: u16,
    /// Directory and block table pages read from their second copy.
    pub copies_used: u64,
    /// Pages read by the patrol.
    pub patrol_pages: u64,
    /// Blocks moved because of flipped bits or many reads.
    pub refreshed_blocks: u64,
    /// Data pages lost to flipped bits.
    pub lost_pages: u64,
    /// Pages read, the mount included.
    pub page_reads: u64,
    /// Whether the mount found an unclean stop.
    pub recovered: bool,
}

/// The translation layer over a part.
#[derive(Debug)]
pub struct Ftl<N> {
    pub(super) nand: Placed<N>,
    /// Anchors state that block numbers count good blocks by their marks. So the volume is an image
    /// that is being made, or that is mounted for the first time.
    pub(super) in_good_blocks: bool,
    pub(super) geometry: NandGeometry,
    pub(super) layout: Layout,
    pub(super) volume: u64,
    pub(super) sequence: u64,
    pub(super) table: Table,
    /// Known free blocks, the least worn first.
    pub(super) free: BTreeSet<(u32, u32)>,
    /// Free blocks that the journal names for a recovery and that are not used otherwise. A journal
    /// page may be readable only sometimes. All blocks that it names must keep their contents, even
    /// if a recovery has begun without it.
    pub(super) kept: Vec<u32>,
    /// The kept blocks of the found state, until this session has a journal page.
    pub(super) kept_before: Vec<u32>,
    /// Blocks that become free, each with the number of journal pages of this session that must be
    /// written first.
    pub(super) pending: VecDeque<(u32, u64)>,
    pub(super) directory: Vec<u32>,
    pub(super) cache: MapCache,
    pub(super) delta: BTreeMap<u32, Delta>,
    /// Contents of changed logical pages without a page of their own, without trailing zeros.
    pub(super) shorts: BTreeMap<u32, Vec<u8>>,
    /// Logical pages whose change is not in a spill page.
    pub(super) unspilled: BTreeSet<u32>,
    pub(super) spills: Vec<u32>,
    /// Map pages written while there were spill pages. The number counts the oldest spill pages,
    /// which are no longer valid for that map page.
    pub(super) written: BTreeMap<u32, usize>,
    pub(super) short_bytes: usize,
    /// Some acknowledged writes become durable only with the next journal page.
    pub(super) volatile: bool,
    pub(super) frontiers: [Frontier; STREAMS],
    pub(super) journal: Journal,
    pub(super) collector: Collector,
    pub(super) reads: ReadCounts,
    /// Pages with a lower sequence number belong to an earlier volume.
    pub(super) born: u64,
    /// The page with the places of the second copies.
    pub(super) second_page: u32,
    /// Its contents, once read.
    pub(super) second: Option<Second>,
    pub(super) patrol: Patrol,
    /// The largest difference in erasures, if set.
    pub(super) spread_max: Option<u32>,
    /// The journal has a page of this session.
    pub(super) begun: bool,
    pub(super) failed: Option<FlashError>,
    pub(super) info: FtlInfo,
    /// The last data pages read: the file system reads a log record in pieces.
    pub(super) recent: VecDeque<(u32, Vec<u8>)>,
}

/// Pages that can be programmed in about the time of an erasure.
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

    /// Sets the number of logical pages of the found volume, if that is possible.
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

    /// Unrequested work since the mount, as the bytes that could have been programmed in the same
    /// time.
    pub(super) fn upkeep_bytes(&self) -> u64 {
        let info = &self.info;
        let pages =
            info.moved_pages + info.map_pages + info.spill_pages + ERASE_PAGES * info.erases;
        pages * u64::from(self.geometry.page_size)
    }

    /// Allocation of the blocks.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Sizes of the part.
    #[must_use]
    pub fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    /// Why writes are impossible, if they are.
    #[must_use]
    pub fn failure(&self) -> Option<FlashError> {
        self.failed
    }

    /// The part. Direct writes to it bypass the translation layer.
    pub fn nand(&mut self) -> &mut N {
        self.nand.inner()
    }

    /// Returns the part.
    #[must_use]
    pub fn into_nand(self) -> N {
        self.nand.into_inner()
    }

    /// Bytes of memory in use, without those of the part.
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

    /// The entry of a block; loads it if it is unknown.
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

    /// Adds a block whose entry was just loaded to the lists.
    pub(super) fn note_loaded(&mut self, block: u32, info: BlockInfo) {
        match info.state {
            BlockState::Free if self.kept.contains(&block) || self.kept_before.contains(&block) => {
            }
            BlockState::Free => drop(self.free.insert((info.erases, block))),
            // The found state does not need it. Once the first page of this session is durable, no
            // state does.
            BlockState::Pending => self.pending.push_front((block, 1)),
            _ => {}
        }
    }

    /// Reads a page of words and verifies its kind and number.
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

    /// Runs an operation that changes the state. After a failure in it, the part is readable and
    /// all other operations are refused.
    pub(super) fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        match self.failed {
            None => {}
            Some(FlashError::WornOut) => return Err(FlashError::WornOut),
            Some(_) => return Err(FlashError::ReadOnly),
        }
        work(self).inspect_err(|error| self.failed = Some(*error))
    }
}
