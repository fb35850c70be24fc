//! Watching a mounted volume: its counters, and a map of its space. These calls change nothing and
//! do not wait for flushes of the medium. So every user that can open the mount may use them at any
//! rate.
//!
//! [`Readings::take`] reads the numbers within the daemon, and [`readings`] from another process.

use std::fs::File;
use std::io;
use std::time::Duration;

use steadfast::dump::Key;
use steadfast::map::{self, MapCell, MapGeometry};
use steadfast::volume::{Activity, CacheUse, SpaceUse};
use steadfast::{BlockAddress, BlockRun, Platform, Volume};
use steadfast_media::{Medium, MediumCounters};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::ioctl::call::{READ, WRITE, call, number};
use crate::metrics::{BUCKETS, Histogram, Kind, Metrics, Operations, Sharing};

/// `_IOR(TYPE, 0x40, StatusArgument)`: returns the activity of the volume.
pub const STATUS: u32 = number(READ, 0x40, size_of::<StatusArgument>());
/// `_IOWR(TYPE, 0x41, OperationsArgument)`: returns the operations of one kind.
pub const OPERATIONS: u32 = number(READ | WRITE, 0x41, size_of::<OperationsArgument>());
/// [`OperationsArgument::kind`] of the requests that this node has forwarded to the owner of a
/// volume that nodes share. Their latency is from the request of the kernel until its answer is
/// there. Locks that programs wait for do not count.
pub const ROUND_TRIPS: u64 = u64::MAX;
/// `_IOR(TYPE, 0x42, GeometryArgument)`: returns the locations of the fixed parts of the volume.
pub const MAP_GEOMETRY: u32 = number(READ, 0x42, size_of::<GeometryArgument>());
/// `_IOWR(TYPE, 0x43, MapSpaceArgument)`: one step of counting blocks, see [`map::space`].
pub const MAP_SPACE: u32 = number(READ | WRITE, 0x43, size_of::<MapSpaceArgument>());
/// `_IOWR(TYPE, 0x44, MapNodesArgument)`: one step of finding nodes, see [`map::nodes`].
pub const MAP_NODES: u32 = number(READ | WRITE, 0x44, size_of::<MapNodesArgument>());

/// `_IOWR(TYPE, 0x45, MapDeadArgument)`: one step of finding blocks that only snapshots hold, see
/// [`map::dead`].
pub const MAP_DEAD: u32 = number(READ | WRITE, 0x45, size_of::<MapDeadArgument>());

/// Cells of one step of a map.
pub const MAP_CELLS: usize = 256;
/// Leaves of one step of a map.
pub const MAP_LEAVES: usize = 900;
/// Runs of one step of [`MAP_DEAD`]: more than a quarter of the largest node holds.
pub const MAP_RUNS: usize = 1000;
/// Branches on the path to the leaves: no tree is higher.
const MAP_BRANCHES: usize = 64;
/// Allocation groups that one step examines.
const MAP_GROUPS: u32 = 64;
/// [`MapSpaceArgument::next`] at the end.
const END: u64 = u64::MAX;

/// Activity of a volume and its mount. Counts start at the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Time since the mount.
    pub uptime: Duration,
    /// Bytes read through the mount.
    pub read_bytes: u64,
    /// Bytes written through the mount.
    pub written_bytes: u64,
    /// The volume.
    pub activity: Activity,
    /// The medium; `None` if it does not count.
    pub medium: Option<MediumCounters>,
    /// `None` if one machine has the volume.
    pub sharing: Option<Sharing>,
}

/// [`Status`] with the operations of every kind, by number.
#[derive(Debug, Clone)]
pub struct Readings {
    /// All values except operations.
    pub status: Status,
    /// Operations by kind: index with `Kind as usize`.
    pub operations: Vec<Operations>,
    /// See [`ROUND_TRIPS`]. Empty from within the daemon.
    pub round_trips: Histogram,
}

impl Readings {
    /// Reads all counters at this moment.
    ///
    /// # Errors
    /// `Poisoned` once the volume is closed.
    pub fn take<M: Medium + 'static, P: Platform + Clone + 'static>(
        volume: &Volume<M, P>,
        metrics: &Metrics,
    ) -> steadfast::Result<Readings> {
        Ok(Readings {
            status: Status::take(volume, metrics)?,
            operations: Kind::ALL.into_iter().map(|kind| metrics.operations(kind)).collect(),
            round_trips: Histogram::default(),
        })
    }
}

impl Status {
    /// Reads all counters at this moment.
    ///
    /// # Errors
    /// `Poisoned` once the volume is closed.
    pub fn take<M: Medium + 'static, P: Platform + Clone + 'static>(
        volume: &Volume<M, P>,
        metrics: &Metrics,
    ) -> steadfast::Result<Status> {
        let (read_bytes, written_bytes) = metrics.bytes();
        Ok(Status {
            uptime: metrics.uptime(),
            read_bytes,
            written_bytes,
            activity: volume.activity()?,
            medium: volume.medium().counters(),
            sharing: metrics.sharing(),
        })
    }
}

/// Returns the [`Readings`] of the mount of `file`.
///
/// # Errors
/// ENOTTY if `file` is not on a Steadfast mount, or on a mount of another version.
pub fn readings(file: &File) -> io::Result<Readings> {
    let mut argument = StatusArgument::new_zeroed();
    call(file, STATUS, &mut argument)?;
    let status = Status::from(&argument);
    let of = |kind: u64| {
        let mut argument = OperationsArgument::new_zeroed();
        argument.kind = kind;
        call(file, OPERATIONS, &mut argument)?;
        Ok::<_, io::Error>(Operations::from(&argument))
    };
    let operations = Kind::ALL.into_iter().map(|kind| of(kind as u64)).collect::<Result<_, _>>()?;
    let round_trips = match status.sharing {
        Some(_) => of(ROUND_TRIPS)?.latency,
        None => Histogram::default(),
    };
    Ok(Readings { status, operations, round_trips })
}

/// Returns the locations of the fixed parts of the volume of `file`.
///
/// # Errors
/// ENOTTY.
pub fn map_geometry(file: &File) -> io::Result<MapGeometry> {
    let mut argument = GeometryArgument::new_zeroed();
    call(file, MAP_GEOMETRY, &mut argument)?;
    Ok(MapGeometry {
        block_size: u32::try_from(argument.block_size).unwrap_or(u32::MAX),
        node_blocks: argument.node_blocks,
        blocks: argument.blocks,
        log_start: argument.log_start,
        first_block: argument.first_block,
        end_block: argument.end_block,
    })
}

/// Does one step of [`map::space`], for at most [`MAP_CELLS`] cells.
///
/// # Errors
/// EINVAL for invalid cells; EIO if bitmaps cannot be read.
pub fn map_space(
    file: &File,
    from: u64,
    start: u64,
    cell_blocks: u64,
    cells: &mut [MapCell],
) -> io::Result<Option<u64>> {
    let mut argument = MapSpaceArgument::new_zeroed();
    argument.from = from;
    argument.start = start;
    argument.cell_blocks = cell_blocks;
    argument.count = cells.len().min(MAP_CELLS) as u64;
    call(file, MAP_SPACE, &mut argument)?;
    for (cell, more) in cells.iter_mut().zip(&argument.cells) {
        cell.used += more[0];
        cell.almost_free += more[1];
        cell.unpublished += more[2];
    }
    Ok((argument.next != END).then_some(argument.next))
}

/// Does one step of [`map::nodes`].
///
/// # Errors
/// EIO if the tree cannot be read.
pub fn map_nodes(
    file: &File,
    from: &Key,
    visit: &mut dyn FnMut(u8, [BlockAddress; 2]),
) -> io::Result<Option<Key>> {
    let mut argument = MapNodesArgument::new_zeroed();
    argument.key = from.0;
    call(file, MAP_NODES, &mut argument)?;
    let pair = |pair: &[u64; 2]| pair.map(BlockAddress);
    for (index, branch) in
        argument.branches.iter().take(usize::from(argument.branch_count)).enumerate()
    {
        // The argument does not contain levels. The caller only distinguishes branches from leaves
        // (level 0).
        visit((MAP_BRANCHES - index) as u8, pair(branch));
    }
    for leaf in argument.leaves.iter().take(usize::from(argument.leaf_count)) {
        visit(0, pair(leaf));
    }
    Ok((argument.more != 0).then_some(Key(argument.key)))
}

/// Does one step of [`map::dead`].
///
/// # Errors
/// EIO if a dead list cannot be read.
pub fn map_dead(
    file: &File,
    from: &Key,
    visit: &mut dyn FnMut(BlockRun),
) -> io::Result<Option<Key>> {
    let mut argument = MapDeadArgument::new_zeroed();
    argument.key = from.0;
    call(file, MAP_DEAD, &mut argument)?;
    for [start, count] in argument.runs.iter().take(usize::from(argument.count)) {
        visit(BlockRun { start: BlockAddress(*start), count: *count });
    }
    Ok((argument.more != 0).then_some(Key(argument.key)))
}

/// Argument of [`STATUS`]. [`Status`] and its fields have the meaning of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct StatusArgument {
    pub uptime_ms: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub transaction_points: u64,
    pub checkpoints: u64,
    pub rollbacks: u64,
    pub log_size: u64,
    pub log_used: u64,
    pub pending_keys: u64,
    pub pending_bytes: u64,
    pub unflushed_bytes: u64,
    pub repaired_reads: u64,
    pub inodes: u64,
    pub reserve_blocks: u64,
    pub blocks_fixed: u64,
    pub blocks_log: u64,
    pub blocks_metadata: u64,
    pub blocks_data: u64,
    pub blocks_snapshots: u64,
    pub blocks_almost_free: u64,
    pub blocks_unpublished: u64,
    pub blocks_free: u64,
    pub cache_nodes: u64,
    pub cache_pinned: u64,
    pub cache_capacity: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub medium_reads: u64,
    pub medium_read_bytes: u64,
    pub medium_writes: u64,
    pub medium_written_bytes: u64,
    pub medium_flushes: u64,
    pub medium_discards: u64,
    pub medium_failures: u64,
    pub block_size: u32,
    pub node_size: u32,
    /// Bits of [`status_flag`].
    pub flags: u64,
    pub sharing_epoch: u64,
    pub sharing_peers: u64,
    pub sharing_forwarded: u64,
    pub sharing_delegated: u64,
    pub sharing_recalls: u64,
    pub sharing_silent: u64,
    pub sharing_direct_bytes: u64,
    /// Zero, reserved for further counts.
    pub reserved: [u64; 5],
}

/// Bits of [`StatusArgument::flags`].
pub mod status_flag {
    /// The medium counts its requests.
    pub const MEDIUM_COUNTS: u64 = 1;
    /// The changes since the last transaction point do not fit in a record of the log.
    pub const PENDING_OVERFLOW: u64 = 2;
    /// The volume became read-only by itself.
    pub const POISONED: u64 = 4;
    /// Several nodes share the volume.
    pub const SHARED: u64 = 8;
}

/// Argument of [`OPERATIONS`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OperationsArgument {
    /// In: number of the [`Kind`], or [`ROUND_TRIPS`].
    pub kind: u64,
    /// Number of answers with an error of the volume or the medium.
    pub errors: u64,
    /// Sum of all latencies, in nanoseconds.
    pub nanoseconds: u64,
    /// The longest latency, in nanoseconds.
    pub longest: u64,
    /// Number of latencies in each bucket; [`crate::metrics::bucket_limit`] returns the limits.
    pub buckets: [u64; BUCKETS],
}

/// Argument of [`MAP_GEOMETRY`]; see [`MapGeometry`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct GeometryArgument {
    pub block_size: u64,
    pub node_blocks: u64,
    pub blocks: u64,
    pub log_start: u64,
    pub first_block: u64,
    pub end_block: u64,
}

/// Argument of [`MAP_SPACE`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapSpaceArgument {
    /// In: the block to continue from.
    pub from: u64,
    /// In: the first block of the first cell.
    pub start: u64,
    /// In: blocks of a cell.
    pub cell_blocks: u64,
    /// In: number of cells, at most [`MAP_CELLS`].
    pub count: u64,
    /// Out: the block to continue from; `u64::MAX` at the end.
    pub next: u64,
    /// Out: used, almost free and unpublished blocks of each cell, to be added to those of earlier
    /// steps.
    pub cells: [[u64; 3]; MAP_CELLS],
}

/// Argument of [`MAP_NODES`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapNodesArgument {
    /// In: the key to continue from. Out: the next key.
    pub key: [u8; Key::LEN],
    /// Out: not zero if there is a next step.
    pub more: u8,
    /// Out: number of branches.
    pub branch_count: u16,
    /// Out: number of leaves.
    pub leaf_count: u16,
    /// Zero.
    pub reserved: [u8; 2],
    /// Out: the copies of the branches on the path, from the root.
    pub branches: [[u64; 2]; MAP_BRANCHES],
    /// Out: the copies of the leaves.
    pub leaves: [[u64; 2]; MAP_LEAVES],
}

/// Argument of [`MAP_DEAD`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapDeadArgument {
    /// In: the key to continue from. Out: the next key.
    pub key: [u8; Key::LEN],
    /// Out: not zero if there is a next step.
    pub more: u8,
    /// Out: number of runs.
    pub count: u16,
    /// Zero.
    pub reserved: [u8; 4],
    /// Out: first block and number of blocks of each run.
    pub runs: [[u64; 2]; MAP_RUNS],
}

impl From<&Status> for StatusArgument {
    fn from(status: &Status) -> StatusArgument {
        let (activity, space, cache) =
            (&status.activity, &status.activity.space, &status.activity.cache);
        let medium = status.medium.unwrap_or_default();
        let sharing = status.sharing.unwrap_or_default();
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        StatusArgument {
            uptime_ms: u64::try_from(status.uptime.as_millis()).unwrap_or(u64::MAX),
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
            transaction_points: activity.transaction_points,
            checkpoints: activity.checkpoints,
            rollbacks: activity.rollbacks,
            log_size: activity.log_size,
            log_used: activity.log_used,
            pending_keys: activity.pending_keys,
            pending_bytes: activity.pending_bytes,
            unflushed_bytes: activity.unflushed_bytes,
            repaired_reads: activity.repaired_reads,
            inodes: activity.inodes,
            reserve_blocks: activity.reserve_blocks,
            blocks_fixed: space.fixed,
            blocks_log: space.log,
            blocks_metadata: space.metadata,
            blocks_data: space.data,
            blocks_snapshots: space.snapshots,
            blocks_almost_free: space.almost_free,
            blocks_unpublished: space.unpublished,
            blocks_free: space.free,
            cache_nodes: cache.nodes as u64,
            cache_pinned: cache.dirty as u64,
            cache_capacity: cache.capacity as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            medium_reads: medium.reads,
            medium_read_bytes: medium.read_bytes,
            medium_writes: medium.writes,
            medium_written_bytes: medium.written_bytes,
            medium_flushes: medium.flushes,
            medium_discards: medium.discards,
            medium_failures: medium.failures,
            block_size: activity.block_size,
            node_size: activity.node_size,
            flags: flag(status.medium.is_some(), status_flag::MEDIUM_COUNTS)
                | flag(activity.pending_overflow, status_flag::PENDING_OVERFLOW)
                | flag(activity.poisoned, status_flag::POISONED)
                | flag(status.sharing.is_some(), status_flag::SHARED),
            sharing_epoch: sharing.epoch,
            sharing_peers: sharing.peers,
            sharing_forwarded: sharing.forwarded,
            sharing_delegated: sharing.delegated,
            sharing_recalls: sharing.recalls,
            sharing_silent: sharing.silent,
            sharing_direct_bytes: sharing.direct_bytes,
            reserved: [0; 5],
        }
    }
}

impl From<&StatusArgument> for Status {
    fn from(argument: &StatusArgument) -> Status {
        let has = |bit: u64| argument.flags & bit != 0;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Status {
            uptime: Duration::from_millis(argument.uptime_ms),
            read_bytes: argument.read_bytes,
            written_bytes: argument.written_bytes,
            activity: Activity {
                block_size: argument.block_size,
                node_size: argument.node_size,
                transaction_points: argument.transaction_points,
                checkpoints: argument.checkpoints,
                log_size: argument.log_size,
                log_used: argument.log_used,
                pending_keys: argument.pending_keys,
                pending_bytes: argument.pending_bytes,
                pending_overflow: has(status_flag::PENDING_OVERFLOW),
                unflushed_bytes: argument.unflushed_bytes,
                cache: CacheUse {
                    nodes: count(argument.cache_nodes),
                    dirty: count(argument.cache_pinned),
                    capacity: count(argument.cache_capacity),
                    hits: argument.cache_hits,
                    misses: argument.cache_misses,
                },
                inodes: argument.inodes,
                space: SpaceUse {
                    fixed: argument.blocks_fixed,
                    log: argument.blocks_log,
                    metadata: argument.blocks_metadata,
                    data: argument.blocks_data,
                    snapshots: argument.blocks_snapshots,
                    almost_free: argument.blocks_almost_free,
                    unpublished: argument.blocks_unpublished,
                    free: argument.blocks_free,
                },
                reserve_blocks: argument.reserve_blocks,
                repaired_reads: argument.repaired_reads,
                rollbacks: argument.rollbacks,
                poisoned: has(status_flag::POISONED),
            },
            medium: has(status_flag::MEDIUM_COUNTS).then_some(MediumCounters {
                reads: argument.medium_reads,
                read_bytes: argument.medium_read_bytes,
                writes: argument.medium_writes,
                written_bytes: argument.medium_written_bytes,
                flushes: argument.medium_flushes,
                discards: argument.medium_discards,
                failures: argument.medium_failures,
            }),
            sharing: has(status_flag::SHARED).then_some(Sharing {
                epoch: argument.sharing_epoch,
                peers: argument.sharing_peers,
                forwarded: argument.sharing_forwarded,
                delegated: argument.sharing_delegated,
                recalls: argument.sharing_recalls,
                silent: argument.sharing_silent,
                direct_bytes: argument.sharing_direct_bytes,
            }),
        }
    }
}

impl OperationsArgument {
    pub(crate) fn new(kind: u64, operations: Operations) -> OperationsArgument {
        let Operations { latency: Histogram { buckets, nanoseconds, longest }, errors } =
            operations;
        OperationsArgument { kind, errors, nanoseconds, longest, buckets }
    }
}

impl From<&OperationsArgument> for Operations {
    fn from(argument: &OperationsArgument) -> Operations {
        Operations {
            latency: Histogram {
                buckets: argument.buckets,
                nanoseconds: argument.nanoseconds,
                longest: argument.longest,
            },
            errors: argument.errors,
        }
    }
}

/// The daemon's side of [`OPERATIONS`]; `None` for a kind that does not exist.
pub(crate) fn answer_operations(
    metrics: &Metrics,
    wanted: &OperationsArgument,
) -> Option<OperationsArgument> {
    let kind = Kind::ALL.get(usize::try_from(wanted.kind).ok()?)?;
    Some(OperationsArgument::new(wanted.kind, metrics.operations(*kind)))
}

/// The daemon's side of [`MAP_GEOMETRY`].
pub(crate) fn answer_geometry(geometry: &MapGeometry) -> GeometryArgument {
    GeometryArgument {
        block_size: u64::from(geometry.block_size),
        node_blocks: geometry.node_blocks,
        blocks: geometry.blocks,
        log_start: geometry.log_start,
        first_block: geometry.first_block,
        end_block: geometry.end_block,
    }
}

/// The daemon's side of [`MAP_SPACE`].
pub(crate) fn answer_space<M: Medium + 'static, P: Platform + Clone + 'static>(
    volume: &Volume<M, P>,
    wanted: &MapSpaceArgument,
) -> steadfast::Result<MapSpaceArgument> {
    let mut cells = [MapCell::default(); MAP_CELLS];
    let count = usize::try_from(wanted.count).unwrap_or(MAP_CELLS).min(MAP_CELLS);
    let (from, start) = (wanted.from, wanted.start);
    let next =
        map::space(volume, from, start, wanted.cell_blocks, &mut cells[..count], MAP_GROUPS)?;
    Ok(MapSpaceArgument {
        next: next.unwrap_or(END),
        cells: cells.map(|cell| [cell.used, cell.almost_free, cell.unpublished]),
        ..*wanted
    })
}

/// The daemon's side of [`MAP_NODES`].
pub(crate) fn answer_nodes<M: Medium + 'static, P: Platform + Clone + 'static>(
    volume: &Volume<M, P>,
    wanted: &MapNodesArgument,
) -> steadfast::Result<MapNodesArgument> {
    let mut answer = MapNodesArgument::new_zeroed();
    let next = map::nodes(volume, &Key(wanted.key), MAP_LEAVES, &mut |level, copies| {
        let (list, count): (&mut [[u64; 2]], _) = match level {
            0 => (&mut answer.leaves, &mut answer.leaf_count),
            _ => (&mut answer.branches, &mut answer.branch_count),
        };
        if let Some(place) = list.get_mut(usize::from(*count)) {
            *place = copies.map(|address| address.0);
            *count += 1;
        }
    })?;
    answer.more = u8::from(next.is_some());
    answer.key = next.unwrap_or(Key::MAX).0;
    Ok(answer)
}

/// The daemon's side of [`MAP_DEAD`].
pub(crate) fn answer_dead<M: Medium + 'static, P: Platform + Clone + 'static>(
    volume: &Volume<M, P>,
    wanted: &MapDeadArgument,
) -> steadfast::Result<MapDeadArgument> {
    let mut answer = MapDeadArgument::new_zeroed();
    let next = map::dead(volume, &Key(wanted.key), &mut |run| {
        if let Some(place) = answer.runs.get_mut(usize::from(answer.count)) {
            *place = [run.start.0, run.count];
            answer.count += 1;
        }
    })?;
    answer.more = u8::from(next.is_some());
    answer.key = next.unwrap_or(Key::MAX).0;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable() {
        assert_eq!(STATUS, 0x8180_d540);
        assert_eq!(OPERATIONS, 0xc770_d541);
        assert_eq!(MAP_GEOMETRY, 0x8030_d542);
        assert_eq!(MAP_SPACE, 0xd828_d543);
        assert_eq!(MAP_NODES, 0xfc58_d544);
        assert_eq!(MAP_DEAD, 0xfe98_d545);
    }

    #[test]
    fn a_status_survives_the_way() {
        let mut argument = StatusArgument::new_zeroed();
        // Every field gets a different number.
        for (index, byte) in argument.as_mut_bytes().chunks_mut(4).enumerate() {
            byte[0] = index as u8 + 1;
            byte[1..].fill(0);
        }
        argument.flags = status_flag::MEDIUM_COUNTS | status_flag::POISONED | status_flag::SHARED;
        argument.reserved = [0; 5];
        assert_eq!(StatusArgument::from(&Status::from(&argument)), argument);
    }
}
