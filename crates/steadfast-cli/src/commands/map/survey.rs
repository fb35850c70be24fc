//! Counting blocks: every block of the volume belongs to one cell and one use.

use std::collections::HashSet;

use steadfast::dump::Key;
use steadfast::map::{self, MapCell, MapGeometry};
use steadfast::{BlockAddress, BlockRun};
use steadfast_fuse::watch;

use crate::failure::{Failure, Outcome};
use crate::grid::{self, Grid, Kind};
use crate::live::Live;
use crate::medium::HostVolume;

/// Allocation groups and leaves per step on an image.
const STEP: usize = 4096;

/// The use of a block, in the order of the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Data of files.
    Data,
    /// Tree nodes.
    Metadata,
    /// Held by snapshots only.
    Snapshots,
    /// Freed, reusable after the next checkpoint.
    AlmostFree,
    /// Unpublished: allocated for operations in progress.
    Unpublished,
    /// Intent log.
    Log,
    /// Superblocks and metaroots.
    Fixed,
    /// Free.
    Free,
}

impl Use {
    /// Number of uses.
    pub const COUNT: usize = 8;

    /// All uses, in the order of the legend.
    pub const ALL: [Use; Use::COUNT] = [
        Use::Data,
        Use::Metadata,
        Use::Snapshots,
        Use::AlmostFree,
        Use::Unpublished,
        Use::Log,
        Use::Fixed,
        Use::Free,
    ];

    /// How each use is drawn, in the same order.
    const KINDS: [Kind; Use::COUNT] = [
        kind("live data", '█', 34, "d", "#2b6cb0", "#63a4e8"),
        kind("live metadata", '▓', 35, "m", "#8b3fa8", "#c58be0"),
        kind("snapshots only", '▒', 36, "s", "#0f8b8d", "#4fd1c5"),
        kind("almost free", '░', 33, "a", "#d99a00", "#f6c445"),
        kind("in flight", '▚', 31, "r", "#c53030", "#fc8181"),
        kind("intent log", '≡', 32, "l", "#2f855a", "#68d391"),
        kind("superblocks, metaroots", '■', 37, "x", "#2d3748", "#e2e8f0"),
        kind("free", '·', 90, "f", "#e8ebf0", "#2a303b"),
    ];
}

const fn kind(
    name: &'static str,
    mark: char,
    color: u8,
    class: &'static str,
    light: &'static str,
    dark: &'static str,
) -> Kind {
    Kind { name, mark, color, class, light, dark }
}

/// Blocks of a cell by use; their sum is the size of the cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellBlocks(pub [u64; Use::COUNT]);

impl CellBlocks {
    /// Blocks of one use.
    pub fn of(&self, what: Use) -> u64 {
        self.0[what as usize]
    }

    /// All blocks.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The use by which a cell is drawn: the one with the most blocks. Free counts only if there is
    /// nothing else, so a nearly empty cell still shows that it holds something.
    pub fn shows(&self) -> Use {
        let used = Use::ALL.into_iter().filter(|what| *what != Use::Free && self.of(*what) > 0);
        used.max_by_key(|what| (self.of(*what), std::cmp::Reverse(*what as usize)))
            .unwrap_or(Use::Free)
    }

    /// The share of the cell that is not free, 0 to 1.
    pub fn fill(&self) -> f64 {
        let total = self.total().max(1);
        (total - self.of(Use::Free)) as f64 / total as f64
    }
}

/// The cells of a whole volume.
#[derive(Debug, Clone)]
pub struct MapSurvey {
    /// Block size, bytes.
    pub block_size: u64,
    /// Blocks of a cell; the last one may be smaller.
    pub cell_blocks: u64,
    /// The cells in the order of the blocks.
    pub cells: Vec<CellBlocks>,
}

/// The source of the counts.
pub enum MapSource<'a> {
    /// A mount.
    Mounted(&'a Live),
    /// An image, and its name.
    Image(&'a HostVolume, &'a str),
}

impl MapSurvey {
    /// Counts into at most `cells` cells.
    ///
    /// # Errors
    /// Bitmaps or nodes that cannot be read; a daemon that has ended.
    pub fn make(source: &MapSource<'_>, cells: usize) -> Outcome<MapSurvey> {
        let geometry = source.geometry()?;
        let cell_blocks = geometry.blocks.div_ceil(cells.max(1) as u64).max(1);
        let count = usize::try_from(geometry.blocks.div_ceil(cell_blocks)).unwrap_or(cells);
        let mut found = vec![MapCell::default(); count];
        source.space(cell_blocks, &mut found)?;
        let mut held = vec![[0; 2]; count];
        let mut add = |index: usize, run: BlockRun| {
            spread(run, cell_blocks, count, |cell, blocks| held[cell][index] += blocks);
        };
        source.nodes(&mut |address| {
            add(0, BlockRun { start: address, count: geometry.node_blocks })
        })?;
        source.dead(&mut |run| add(1, run))?;
        let fixed = Fixed::of(&geometry, cell_blocks, count);
        let cells = found.iter().zip(&held).enumerate().map(|(index, (found, [nodes, dead]))| {
            let start = index as u64 * cell_blocks;
            let size = cell_blocks.min(geometry.blocks - start);
            classify(found, *nodes, *dead, fixed.cells[index], size)
        });
        Ok(MapSurvey {
            block_size: u64::from(geometry.block_size),
            cell_blocks,
            cells: cells.collect(),
        })
    }

    /// All cells together.
    pub fn total(&self) -> CellBlocks {
        let mut total = CellBlocks::default();
        for cell in &self.cells {
            for (sum, blocks) in total.0.iter_mut().zip(cell.0) {
                *sum += blocks;
            }
        }
        total
    }
}

impl From<&MapSurvey> for Grid {
    fn from(survey: &MapSurvey) -> Grid {
        let bytes = |blocks: u64| blocks.saturating_mul(survey.block_size);
        let total = survey.total();
        let cell =
            |cell: &CellBlocks| grid::Cell { kind: cell.shows() as usize, fill: cell.fill() };
        Grid {
            kinds: &Use::KINDS,
            ground: Use::Free as usize,
            cell_bytes: bytes(survey.cell_blocks),
            cell_blocks: survey.cell_blocks,
            cells: survey.cells.iter().map(cell).collect(),
            bytes: Use::ALL.into_iter().map(|what| bytes(total.of(what))).collect(),
        }
    }
}

/// The counts of a cell. They are made to add up, whatever changed between two passes over a
/// mounted volume.
fn classify(
    found: &MapCell,
    nodes: u64,
    dead: u64,
    (log, fixed): (u64, u64),
    size: u64,
) -> CellBlocks {
    let mut left = size;
    let mut take = |blocks: u64| {
        let taken = blocks.min(left);
        left -= taken;
        taken
    };
    let fixed = take(fixed);
    let log = take(log);
    let used = take(found.used);
    let snapshots = dead.min(used);
    let metadata = nodes.min(used - snapshots);
    let almost_free = take(found.almost_free);
    let unpublished = take(found.unpublished);
    CellBlocks([
        used - snapshots - metadata,
        metadata,
        snapshots,
        almost_free,
        unpublished,
        log,
        fixed,
        left,
    ])
}

/// Blocks of the log and of the fixed structures in each cell.
struct Fixed {
    cells: Vec<(u64, u64)>,
}

impl Fixed {
    fn of(geometry: &MapGeometry, cell_blocks: u64, count: usize) -> Fixed {
        let mut cells = vec![(0, 0); count];
        let run = |from: u64, to: u64| BlockRun {
            start: BlockAddress(from),
            count: to.saturating_sub(from),
        };
        let log = run(geometry.log_start, geometry.first_block);
        spread(log, cell_blocks, count, |cell, blocks| cells[cell].0 += blocks);
        for fixed in [run(0, geometry.log_start), run(geometry.end_block, geometry.blocks)] {
            spread(fixed, cell_blocks, count, |cell, blocks| cells[cell].1 += blocks);
        }
        Fixed { cells }
    }
}

/// The parts of a run that lie in each of `count` cells.
fn spread(run: BlockRun, cell_blocks: u64, count: usize, mut add: impl FnMut(usize, u64)) {
    let mut at = run.start.0;
    let end = at.saturating_add(run.count);
    while at < end {
        let index = at / cell_blocks;
        let stop = end.min((index + 1).saturating_mul(cell_blocks));
        match usize::try_from(index) {
            Ok(index) if index < count => add(index, stop - at),
            // The run is outside the volume, which does not occur in a good image.
            _ => return,
        }
        at = stop;
    }
}

impl MapSource<'_> {
    fn failure(&self, error: steadfast::Error) -> Failure {
        match self {
            MapSource::Image(_, place) => Failure::core(error, place),
            MapSource::Mounted(live) => Failure::core(error, live.directory().display()),
        }
    }

    fn geometry(&self) -> Outcome<MapGeometry> {
        match self {
            MapSource::Mounted(live) => live.watch(watch::map_geometry),
            MapSource::Image(volume, _) => Ok(map::geometry(volume)),
        }
    }

    fn space(&self, cell_blocks: u64, cells: &mut [MapCell]) -> Outcome {
        let step = match self {
            MapSource::Mounted(_) => watch::MAP_CELLS,
            MapSource::Image(..) => cells.len().max(1),
        };
        for (index, part) in cells.chunks_mut(step).enumerate() {
            let start = (index * step) as u64 * cell_blocks;
            let mut from = Some(start);
            while let Some(at) = from {
                from = match self {
                    MapSource::Mounted(live) => {
                        live.watch(|file| watch::map_space(file, at, start, cell_blocks, part))?
                    }
                    MapSource::Image(volume, _) => {
                        map::space(volume, at, start, cell_blocks, part, STEP as u32)
                            .map_err(|error| self.failure(error))?
                    }
                };
            }
        }
        Ok(())
    }

    /// Visits every block that begins a copy of a node, once.
    fn nodes(&self, visit: &mut dyn FnMut(BlockAddress)) -> Outcome {
        let mut branches = HashSet::new();
        let mut next = Some(Key::MIN);
        while let Some(key) = next {
            // Every step through a branch reports that branch again.
            let mut one = |level: u8, copies: [BlockAddress; 2]| {
                if level == 0 || branches.insert(copies) {
                    copies
                        .into_iter()
                        .filter(|address| *address != BlockAddress::NONE)
                        .for_each(&mut *visit);
                }
            };
            next = match self {
                MapSource::Mounted(live) => {
                    live.watch(|file| watch::map_nodes(file, &key, &mut one))?
                }
                MapSource::Image(volume, _) => {
                    map::nodes(volume, &key, STEP, &mut one).map_err(|error| self.failure(error))?
                }
            };
        }
        Ok(())
    }

    /// Visits every run of blocks that only snapshots hold.
    fn dead(&self, visit: &mut dyn FnMut(BlockRun)) -> Outcome {
        let mut next = Some(Key::MIN);
        while let Some(key) = next {
            next = match self {
                MapSource::Mounted(live) => {
                    live.watch(|file| watch::map_dead(file, &key, visit))?
                }
                MapSource::Image(volume, _) => {
                    map::dead(volume, &key, visit).map_err(|error| self.failure(error))?
                }
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_add_up_whatever_was_counted() {
        for used in [0, 5, 60, u64::MAX] {
            for other in [0, 7, 90, u64::MAX] {
                let found = MapCell { used, almost_free: other, unpublished: other / 2 };
                for (nodes, dead) in [(0, 0), (3, 4), (u64::MAX, 1), (2, u64::MAX)] {
                    let cell = classify(&found, nodes, dead, (3, 2), 64);
                    assert_eq!(cell.total(), 64, "{found:?} {nodes} {dead}");
                }
            }
        }
    }

    #[test]
    fn runs_are_spread_over_cells() {
        let mut parts = Vec::new();
        let run = BlockRun { start: BlockAddress(5), count: 20 };
        spread(run, 8, 3, |cell, blocks| parts.push((cell, blocks)));
        assert_eq!(parts, [(0, 3), (1, 8), (2, 8)], "what lies past the last cell is left out");
        spread(BlockRun { start: BlockAddress(u64::MAX), count: 9 }, 1, 3, |_, _| {
            panic!("past the end")
        });
    }

    #[test]
    fn a_little_is_seen_in_much_free_space() {
        let mut cell = CellBlocks::default();
        cell.0[Use::Free as usize] = 1000;
        assert_eq!((cell.shows(), cell.fill()), (Use::Free, 0.0));
        cell.0[Use::Metadata as usize] = 1;
        assert_eq!(cell.shows(), Use::Metadata);
        cell.0[Use::Data as usize] = 2;
        assert_eq!(cell.shows(), Use::Data);
    }
}
