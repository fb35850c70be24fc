//! The layouts of a journal page and a spill page. All integers are little-endian.
//!
//! ```text
//! journal: magic "SFJR" | version u16 | flags u16 | volume u64 | previous u64 | born u64
//!          | next block u32 | user_pages u32 | second u32 | patrol u32 | chain n u16, blocks u32…
//!          | 5 frontiers (block u32, page u32) | kept n u16, blocks u32…
//!          | directory n u16, pages u32… | table n u16, pages u32… | spills n u16, pages u32…
//!          | written n u16, (map page u24, spills u8)…
//!          | fix-ups n u16, (block u32, entry u32)… | changes
//! spill:   magic "SFSP" | volume u64 | changes
//! second:  magic "SFSC" | volume u64 | directory n u16, pages u32… | table n u16, pages u32…
//!          | reads n u16, pages u32…
//! changes: n u16, (logical page u29, more u3, place u32)…
//!          | n u16, (logical page u32, length u16, bytes)…
//! ```
//! A place is a page address, or [`UNMAPPED`]; its top bit says that the replaced page was already
//! subtracted from its block's count. The top bit of a length says the same.
//!
//! `more` logical pages after the first are in the places after its place, or unmapped like it. In
//! version 3 `more` is always 0.

use alloc::vec::Vec;

use super::fields::Reader;
use crate::nand::NandGeometry;

/// Version of all written structures.
pub const VERSION: u16 = 4;
/// Oldest version that can be read.
pub const VERSION_LEAST: u16 = 3;
/// Number of program streams.
pub const STREAMS: usize = 5;
/// No page.
pub const UNMAPPED: u32 = 0x7fff_ffff;
/// The flag of a place and, as bit 15, of a length.
pub const RELEASED: u32 = 1 << 31;
/// Closed cleanly: nothing was written after this page.
pub const FLAG_CLEAN: u16 = 1;

const JOURNAL: [u8; 4] = *b"SFJR";
const SPILL: [u8; 4] = *b"SFSP";
const SECOND: [u8; 4] = *b"SFSC";

/// The next page of a program stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frontier {
    /// The block; [`UNMAPPED`] if none is open.
    pub block: u32,
    /// The next page in the block.
    pub page: u32,
    /// Pages before this one hold acknowledged data: no page that shares their cells may be
    /// programmed.
    pub synced: u32,
}

impl Frontier {
    /// No block is open.
    pub const CLOSED: Frontier = Frontier { block: UNMAPPED, page: 0, synced: 0 };
}

/// A change that is not in the map yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The new place, or none; and whether the page before was subtracted from its count.
    Moved(u32, bool),
    /// The contents without trailing zeros; and whether the page before was subtracted from its
    /// count.
    Short(Vec<u8>, bool),
}

/// The state in a journal page, without the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// [`FLAG_CLEAN`] or 0.
    pub flags: u16,
    /// Number of the volume.
    pub volume: u64,
    /// Sequence number of the first page in the previous block of the chain. So a page that an
    /// interrupted recovery left cannot be taken for the next block.
    pub previous: u64,
    /// Pages with a lower sequence number belong to an earlier volume.
    pub born: u64,
    /// The page with the places of the second copies.
    pub second: u32,
    /// The next block of the patrol.
    pub patrol: u32,
    /// The next block of the journal.
    pub next_block: u32,
    /// Number of logical pages.
    pub user_pages: u32,
    /// Journal blocks that may still be needed, oldest first, the current one last.
    pub chain: Vec<u32>,
    /// Frontiers of the streams: host, moved, structures, second copies, hot data of the host.
    pub frontiers: [Frontier; STREAMS],
    /// Free blocks kept for a recovery.
    pub kept: Vec<u32>,
    /// Pages of the directory.
    pub directory: Vec<u32>,
    /// Pages of the block table.
    pub table: Vec<u32>,
    /// Spill pages, oldest first.
    pub spills: Vec<u32>,
    /// Map pages written while there were spill pages, in the low 24 bits. The upper bits count the
    /// oldest spill pages, which are no longer valid for that map page.
    pub written: Vec<u32>,
    /// Entries of the block table that differ from its pages on the part.
    pub fixups: Vec<(u32, u32)>,
}

/// Appends a count and this many integers.
pub fn put_list(bytes: &mut Vec<u8>, list: &[u32]) {
    bytes.extend_from_slice(&(list.len() as u16).to_le_bytes());
    list.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

impl State {
    /// Encodes the page up to the changes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = JOURNAL.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&self.volume.to_le_bytes());
        bytes.extend_from_slice(&self.previous.to_le_bytes());
        bytes.extend_from_slice(&self.born.to_le_bytes());
        for word in [self.next_block, self.user_pages, self.second, self.patrol] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        put_list(&mut bytes, &self.chain);
        for frontier in &self.frontiers {
            for word in [frontier.block, frontier.page] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        for list in [&self.kept, &self.directory, &self.table, &self.spills, &self.written] {
            put_list(&mut bytes, list);
        }
        bytes.extend_from_slice(&(self.fixups.len() as u16).to_le_bytes());
        for (block, entry) in &self.fixups {
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&entry.to_le_bytes());
        }
        bytes
    }

    /// Decodes the state and the changes of a journal page; `None` if it is not one, or contradicts
    /// the geometry.
    #[must_use]
    pub fn decode(bytes: &[u8], geometry: &NandGeometry) -> Option<(State, Vec<(u32, Change)>)> {
        let mut reader = Reader(bytes);
        if reader.take(4)? != JOURNAL || !(VERSION_LEAST..=VERSION).contains(&reader.u16()?) {
            return None;
        }
        let (flags, volume) = (reader.u16()?, reader.u64()?);
        let (previous, born) = (reader.u64()?, reader.u64()?);
        let (next_block, user_pages) = (reader.u32()?, reader.u32()?);
        let (second, patrol) = (reader.u32()?, reader.u32()?);
        let chain = reader.list()?;
        let mut frontiers = [Frontier::CLOSED; STREAMS];
        for frontier in &mut frontiers {
            *frontier = Frontier { block: reader.u32()?, page: reader.u32()?, synced: 0 };
            frontier.synced = frontier.page;
        }
        let (kept, directory) = (reader.list()?, reader.list()?);
        let (table, spills) = (reader.list()?, reader.list()?);
        let written = reader.list()?;
        let count = reader.u16()?;
        let fixups =
            (0..count).map(|_| Some((reader.u32()?, reader.u32()?))).collect::<Option<Vec<_>>>()?;
        let changes = reader.changes(user_pages, geometry)?;
        let pages = || directory.iter().chain(&table).chain(&spills).chain([&second]);
        let blocks = || chain.iter().chain(&kept).chain(fixups.iter().map(|(block, _)| block));
        let sound = pages().all(|page| *page == UNMAPPED || *page < geometry.pages())
            && blocks().all(|block| *block < geometry.blocks)
            && next_block < geometry.blocks
            && frontiers.iter().all(|frontier| {
                frontier.block == UNMAPPED
                    || (frontier.block < geometry.blocks
                        && frontier.page <= geometry.pages_per_block)
            });
        let state = State {
            flags,
            volume,
            previous,
            born,
            second,
            patrol,
            next_block,
            user_pages,
            chain,
            frontiers,
            kept,
            directory,
            table,
            spills,
            written,
            fixups,
        };
        sound.then_some((state, changes))
    }
}

/// The first bytes of a page that holds only changes.
#[must_use]
pub fn spill_head(volume: u64) -> Vec<u8> {
    let mut bytes = SPILL.to_vec();
    bytes.extend_from_slice(&volume.to_le_bytes());
    bytes
}

/// Decodes the changes of a spill page; `None` if it is not one of this volume.
#[must_use]
pub fn decode_spill(
    bytes: &[u8],
    volume: u64,
    user_pages: u32,
    geometry: &NandGeometry,
) -> Option<Vec<(u32, Change)>> {
    let mut reader = Reader(bytes);
    if reader.take(4)? != SPILL || reader.u64()? != volume {
        return None;
    }
    reader.changes(user_pages, geometry)
}

/// Places of the second copies and of the read counts; [`UNMAPPED`] for none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Second {
    /// Second copies of the pages of the directory.
    pub directory: Vec<u32>,
    /// Second copies of the pages of the block table.
    pub table: Vec<u32>,
    /// Pages with the read counts.
    pub reads: Vec<u32>,
}

impl Second {
    /// Encodes the page.
    #[must_use]
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        let mut bytes = SECOND.to_vec();
        bytes.extend_from_slice(&volume.to_le_bytes());
        for list in [&self.directory, &self.table, &self.reads] {
            put_list(&mut bytes, list);
        }
        bytes
    }

    /// Decodes the page; `None` if it is not one of this volume.
    #[must_use]
    pub fn decode(bytes: &[u8], volume: u64, geometry: &NandGeometry) -> Option<Second> {
        let mut reader = Reader(bytes);
        if reader.take(4)? != SECOND || reader.u64()? != volume {
            return None;
        }
        let second =
            Second { directory: reader.list()?, table: reader.list()?, reads: reader.list()? };
        let mut pages = second.directory.iter().chain(&second.table).chain(&second.reads);
        pages.all(|page| *page == UNMAPPED || *page < geometry.pages()).then_some(second)
    }
}

/// Bytes of a list of changes besides the changes.
pub const CHANGES_HEAD: usize = 4;

/// Most changes that share an entry: consecutive pages that move to consecutive places. The number
/// uses the bits of the page number that no part needs.
const RUN_MAX: u32 = 8;
/// Position of the number of changes in a run, less one, in the word of the first page.
const RUN_SHIFT: u32 = 29;
/// A [`checked`](NandGeometry::checked) geometry has no page number that uses these bits or equals
/// [`UNMAPPED`].
const _: () = {
    let pages = NandGeometry::BLOCKS_MAX as u64 * NandGeometry::PAGES_PER_BLOCK_MAX as u64;
    assert!(pages < 1 << RUN_SHIFT && pages < UNMAPPED as u64);
};

/// The place of page `index` of a run.
fn place_in_run(first: u32, index: u32) -> u32 {
    if first == UNMAPPED { UNMAPPED } else { first + index }
}

/// The last run of the changes so far, which are added in order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Runs {
    page: u32,
    place: u32,
    released: bool,
    count: u32,
}

impl Runs {
    /// Adds a change of a place. Returns the bytes that it takes.
    pub fn add(&mut self, page: u32, place: u32, released: bool) -> usize {
        let joins = (1..RUN_MAX).contains(&self.count)
            && page == self.page + self.count
            && place == place_in_run(self.place, self.count)
            && released == self.released;
        if joins {
            self.count += 1;
            return 0;
        }
        *self = Runs { page, place, released, count: 1 };
        8
    }

    fn encode(&self) -> [u32; 2] {
        let released = if self.released { RELEASED } else { 0 };
        [self.page | (self.count - 1) << RUN_SHIFT, self.place | released]
    }

    /// Decodes the changes of an entry; `None` if they exceed the logical pages or the part.
    pub fn decode(
        [page, place]: [u32; 2],
        user_pages: u32,
        geometry: &NandGeometry,
    ) -> Option<impl Iterator<Item = (u32, Change)>> {
        let (first, count) = (page & ((1 << RUN_SHIFT) - 1), (page >> RUN_SHIFT) + 1);
        let (target, released) = (place & !RELEASED, place & RELEASED != 0);
        let fits = first + count <= user_pages
            && (target == UNMAPPED || target.saturating_add(count) <= geometry.pages());
        let change =
            move |index| (first + index, Change::Moved(place_in_run(target, index), released));
        fits.then(|| (0..count).map(change))
    }
}

/// Bytes of contents without a page of their own.
#[must_use]
pub fn short_len(contents: &[u8]) -> usize {
    6 + contents.len()
}

/// Appends changes, which are in order.
pub fn encode_changes(bytes: &mut Vec<u8>, changes: &[(u32, Change)]) {
    let mut entries: Vec<Runs> = Vec::new();
    let (mut runs, mut shorts) = (Runs::default(), 0_u16);
    for (page, change) in changes {
        let Change::Moved(place, released) = change else {
            shorts += 1;
            continue;
        };
        let length = runs.add(*page, *place, *released);
        match entries.last_mut().filter(|_| length == 0) {
            Some(last) => *last = runs,
            None => entries.push(runs),
        }
    }
    bytes.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    for word in entries.iter().flat_map(Runs::encode) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&shorts.to_le_bytes());
    for (page, change) in changes {
        if let Change::Short(contents, released) = change {
            bytes.extend_from_slice(&page.to_le_bytes());
            let flag = if *released { 1 << 15 } else { 0 };
            bytes.extend_from_slice(&(contents.len() as u16 | flag).to_le_bytes());
            bytes.extend_from_slice(contents);
        }
    }
}

impl Reader<'_> {
    fn changes(&mut self, user_pages: u32, geometry: &NandGeometry) -> Option<Vec<(u32, Change)>> {
        let mut changes = Vec::new();
        for _ in 0..self.u16()? {
            changes.extend(Runs::decode([self.u32()?, self.u32()?], user_pages, geometry)?);
        }
        for _ in 0..self.u16()? {
            let (page, length) = (self.u32()?, self.u16()?);
            let contents = self.take(usize::from(length & 0x7fff))?;
            if page >= user_pages || contents.len() > geometry.page_size as usize {
                return None;
            }
            changes.push((page, Change::Short(contents.to_vec(), length & 1 << 15 != 0)));
        }
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::part::Part;

    #[test]
    fn pages_round_trip_and_garbage_is_refused() {
        let geometry = Part::SLC_1GBIT.geometry;
        let state = State {
            flags: FLAG_CLEAN,
            volume: 9,
            previous: 8,
            born: 7,
            second: 81,
            patrol: 3,
            next_block: 5,
            user_pages: 1000,
            chain: vec![1, 2],
            frontiers: [
                Frontier::CLOSED,
                Frontier { block: 3, page: 4, synced: 4 },
                Frontier::CLOSED,
                Frontier::CLOSED,
                Frontier { block: 5, page: 6, synced: 6 },
            ],
            kept: vec![6],
            directory: vec![77],
            table: vec![78, 79],
            spills: vec![80],
            written: vec![7 | 1 << 24],
            fixups: vec![(3, 4)],
        };
        let mut changes = vec![
            (1, Change::Moved(500, true)),
            (2, Change::Moved(UNMAPPED, false)),
            (3, Change::Short(vec![1, 2, 3], true)),
            (4, Change::Moved(UNMAPPED, false)),
            (5, Change::Moved(UNMAPPED, false)),
            (6, Change::Moved(UNMAPPED, true)),
        ];
        changes.extend((0..19).map(|index| (20 + index, Change::Moved(300 + index, false))));
        let mut bytes = state.encode();
        let head = bytes.len();
        encode_changes(&mut bytes, &changes);
        // Four entries of one or two pages, three of 8, 8 and 3; the short contents come last.
        assert_eq!(bytes.len(), head + CHANGES_HEAD + 4 * 8 + 3 * 8 + 9);
        changes.sort_by_key(|(_, change)| matches!(change, Change::Short(..)));
        assert_eq!(State::decode(&bytes, &geometry), Some((state, changes)));
        for length in 0..bytes.len() {
            assert_eq!(State::decode(&bytes[..length], &geometry), None);
        }
        let second = Second { directory: vec![1], table: vec![2, UNMAPPED], reads: vec![] };
        assert_eq!(Second::decode(&second.encode(9), 9, &geometry), Some(second.clone()));
        assert_eq!(Second::decode(&second.encode(9), 8, &geometry), None);
    }

    #[test]
    fn the_last_pages_of_the_largest_part_round_trip() {
        let geometry =
            NandGeometry { blocks: 65_536, pages_per_block: 512, ..Part::SLC_1GBIT.geometry };
        let pages = geometry.checked().unwrap().pages();
        let changes: Vec<_> =
            (pages - 9..pages).map(|page| (page, Change::Moved(page, page % 2 == 0))).collect();
        let mut bytes = spill_head(9);
        encode_changes(&mut bytes, &changes);
        assert_eq!(decode_spill(&bytes, 9, pages, &geometry), Some(changes));
        assert_eq!(decode_spill(&bytes, 9, pages - 1, &geometry), None);
    }
}
