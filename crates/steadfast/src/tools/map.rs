//! A map of the volume: what each part of it is used for. It is made in bounded steps, so a mounted
//! volume stays usable meanwhile. Each step sees one state; different steps may see different
//! states.
//!
//! Allocation bitmaps tell which blocks are in use and which wait for a checkpoint, but not for
//! what. So a second pass walks the branches of the tree, without its leaves, and finds the nodes.
//! The remaining blocks in use are data.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::key::{Key, Kind};
use crate::format::{NodePointer, decode_dead_list};
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, InodeNumber};
use crate::volume::Volume;

/// Limit of runs freed since the last checkpoint that a map reports. Runs beyond it count as live
/// until the next checkpoint.
const PENDING_DEAD_MAX: usize = 100;

/// Where the fixed parts of a volume are, in blocks. The order is: superblock and metaroots, intent
/// log, allocatable blocks, metaroots and superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapGeometry {
    /// Block size, bytes.
    pub block_size: u32,
    /// Blocks of a tree node.
    pub node_blocks: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// First block of the intent log.
    pub log_start: u64,
    /// First block that can be allocated: the end of the log.
    pub first_block: u64,
    /// One past the last block that can be allocated.
    pub end_block: u64,
}

/// Block counts of one cell of a map. The rest of the cell's size is free or fixed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MapCell {
    /// In use by the working state.
    pub used: u64,
    /// Almost free: not in use, and not reusable before the next durable checkpoint.
    pub almost_free: u64,
    /// Unpublished: allocated for operations in progress.
    pub unpublished: u64,
}

/// Where the fixed parts of the volume are.
pub fn geometry<M: Medium, P: Platform>(volume: &Volume<M, P>) -> MapGeometry {
    let superblock = volume.engine.store().device.superblock_now();
    MapGeometry {
        block_size: superblock.block_size,
        node_blocks: superblock.node_blocks(),
        blocks: superblock.blocks,
        log_start: superblock.log.start.0,
        first_block: superblock.first_block(),
        end_block: superblock.end_block(),
    }
}

/// Counts the blocks of at most `groups_max` allocation groups, starting with the group of
/// block `from`. `cells[i]` stands for the `cell_blocks` blocks from `start + i * cell_blocks`
/// on. Returns the block to continue at; `None` at the end of the cells or of the volume.
///
/// # Errors
/// `InvalidArgument` for empty cells or a start past `from`; `Poisoned` after close;
/// `CorruptMetadata`, and the medium's error.
pub fn space<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    from: u64,
    start: u64,
    cell_blocks: u64,
    cells: &mut [MapCell],
    groups_max: u32,
) -> Result<Option<u64>> {
    volume.engine.lifecycle.check_not_closed()?;
    volume.engine.replay_overlay()?;
    if cell_blocks == 0 || start > from {
        return Err(Error::InvalidArgument("a map needs cells of at least one block"));
    }
    let covered = cell_blocks.saturating_mul(cells.len() as u64);
    let end = start
        .saturating_add(covered)
        .min(volume.engine.store().device.superblock_now().end_block());
    let mut from = from;
    for _ in 0..groups_max {
        if from >= end {
            return Ok(None);
        }
        let Some(found) = volume.engine.with_survey(from, Ok)? else { return Ok(None) };
        let (low, high) = (from.max(found.start), end.min(found.end()));
        let mut at = low;
        while at < high {
            let index = (at - start) / cell_blocks;
            let stop = high.min(start.saturating_add((index + 1).saturating_mul(cell_blocks)));
            if let Some(cell) = cells.get_mut(index as usize) {
                let (used, busy, unpublished) = found.count(at, stop);
                cell.used += used;
                cell.unpublished += unpublished;
                cell.almost_free += busy - used - unpublished;
            }
            at = stop;
        }
        from = found.end();
    }
    Ok((from < end).then_some(from))
}

/// Reports the nodes of one branch above the leaves, from the leaf for key `from` on, at most
/// `leaves_max` leaves. The branches on the path are reported too, so later steps report them
/// again. `visit` gets the level (0 for a leaf) and the copies of each node. Returns the key to
/// continue with; `None` at the end.
///
/// # Errors
/// `Poisoned` after close; `CorruptMetadata`, and the medium's error.
pub fn nodes<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    from: &Key,
    leaves_max: usize,
    visit: &mut dyn FnMut(u8, [BlockAddress; 2]),
) -> Result<Option<Key>> {
    volume.engine.replay_overlay()?;
    let reader = volume.engine.reader()?;
    let root = reader.root();
    let mut pointer: NodePointer = root.pointer;
    let mut level = root.level();
    // The lowest key to the right of the present position.
    let mut bound = None;
    loop {
        visit(level, pointer.addresses);
        if level == 0 {
            return Ok(bound);
        }
        let node = volume.engine.store().node(&pointer, level)?;
        let index = node.child_index(from);
        if level > 1 {
            if index + 1 < node.count() {
                bound = Some(node.key(index + 1));
            }
            pointer = node.child(index);
            level -= 1;
            continue;
        }
        let end = node.count().min(index.saturating_add(leaves_max.max(1)));
        for leaf in index..end {
            visit(0, node.child(leaf).addresses);
        }
        let next = if end < node.count() { Some(node.key(end)) } else { bound };
        // A damaged tree must not cause an endless loop.
        return Ok(next.filter(|next| next > from));
    }
}

/// Reports runs of blocks that only snapshots hold: the first value of a dead list at or after
/// key `from`. The first step also reports the runs released since the last checkpoint. Returns
/// the key to continue with; `None` at the end.
///
/// # Errors
/// `Poisoned` after close; `CorruptMetadata`, `OutOfMemory`, and the medium's error.
pub fn dead<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    from: &Key,
    visit: &mut dyn FnMut(BlockRun),
) -> Result<Option<Key>> {
    volume.engine.lifecycle.check_not_closed()?;
    volume.engine.replay_overlay()?;
    if *from == Key::MIN {
        let pending_dead = volume.engine.pending_dead(PENDING_DEAD_MAX)?;
        pending_dead.iter().for_each(|entry| visit(entry.run));
    }
    let reader = volume.engine.reader()?;
    let (first, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::DeadList);
    let from = (*from).max(first);
    let Some((key, value)) = volume.engine.store().next(reader.root(), &from, &last)? else {
        return Ok(None);
    };
    let store = volume.engine.store();
    for entry in decode_dead_list(&value, |run| store.device.contains(run))? {
        visit(entry.run);
    }
    Ok(key.successor().filter(|next| *next <= last))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::vec;

    use steadfast_media::MemoryMedium;

    use super::*;
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;

    type TestVolume = Volume<MemoryMedium, TestPlatform>;

    fn volume(size: u64, block_size: u32, node_size: u32, copies: u8) -> TestVolume {
        let medium = MemoryMedium::new(size, 128).unwrap();
        let options = FormatOptions {
            block_size,
            node_size: Some(node_size),
            metadata_copies: Some(copies),
            mask: TransactionMask::MANUAL,
            ..FormatOptions::default()
        };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        Volume::open(medium, OpenOptions::default(), TestPlatform::new()).unwrap()
    }

    /// Compares the map, made in steps of one group and `leaves` leaves, with the counts of the
    /// volume.
    fn verify(volume: &TestVolume, cell_blocks: u64, leaves: usize) {
        let activity = volume.activity().unwrap();
        let space = activity.space;
        let geometry = super::geometry(volume);
        assert_eq!(space.total(), geometry.blocks);
        let mut cells = vec![MapCell::default(); geometry.blocks.div_ceil(cell_blocks) as usize];
        let mut from = Some(0);
        while let Some(at) = from {
            from = super::space(volume, at, 0, cell_blocks, &mut cells, 1).unwrap();
            assert!(from.is_none_or(|next| next > at));
        }
        let sum = |field: fn(&MapCell) -> u64| cells.iter().map(field).sum::<u64>();
        assert_eq!(sum(|cell| cell.used), space.metadata + space.data + space.snapshots);
        assert_eq!(sum(|cell| cell.almost_free), space.almost_free);
        assert_eq!(sum(|cell| cell.unpublished), space.unpublished);
        assert!(
            cells.iter().all(|cell| cell.used + cell.almost_free + cell.unpublished <= cell_blocks)
        );
        let mut dead = 0;
        let mut next = Some(Key::MIN);
        while let Some(key) = next {
            next = super::dead(volume, &key, &mut |run| dead += run.count).unwrap();
        }
        assert!(dead <= space.snapshots);
        if space.almost_free == 0 {
            assert_eq!(dead, space.snapshots, "after a checkpoint nothing is missing");
        }
        let mut nodes = BTreeSet::new();
        let mut leaf_copies = 0;
        let mut next = Some(Key::MIN);
        while let Some(key) = next {
            next = super::nodes(volume, &key, leaves, &mut |level, copies| {
                let copies = copies.into_iter().filter(|address| *address != BlockAddress::NONE);
                for address in copies {
                    leaf_copies += usize::from(level == 0);
                    nodes.insert((level, address));
                }
            })
            .unwrap();
        }
        assert_eq!(
            nodes.iter().filter(|(level, _)| *level == 0).count(),
            leaf_copies,
            "no leaf twice"
        );
        assert_eq!(nodes.len() as u64 * geometry.node_blocks, space.metadata);
        for (_, address) in nodes {
            let cell = cells[(address.0 / cell_blocks) as usize];
            assert!(cell.used > 0, "a node is in use");
        }
    }

    #[test]
    fn the_map_adds_up_at_every_moment() {
        for (block_size, node_size, copies) in [(512, 512, 2), (128, 1024, 1), (4096, 4096, 2)] {
            let volume = volume(8 << 20, block_size, node_size, copies);
            verify(&volume, 7, 1);
            for round in 0..6 {
                for file in 0..40 {
                    let data = vec![round as u8; (file * 997 * (round + 1)) % 40_000];
                    volume.file_write_all(format!("/{file}"), &data).unwrap();
                }
                verify(&volume, 1, 3);
                volume.transact().unwrap();
                for file in (round..40).step_by(3) {
                    volume.remove_all(format!("/{file}")).unwrap();
                }
                while volume.background().unwrap() {}
                verify(&volume, 5000, 1000);
                match round % 3 {
                    0 => volume.checkpoint().unwrap(),
                    1 => volume.rollback().unwrap(),
                    _ => volume.transact().unwrap(),
                }
                verify(&volume, 64, 2);
            }
            let (before, rollbacks) = (volume.activity().unwrap(), 2);
            assert_eq!(before.rollbacks, rollbacks);
            assert!(before.checkpoints >= 2 && before.transaction_points >= 6, "{before:?}");
            assert!(before.cache.hits > before.cache.misses);
            volume.checkpoint().unwrap();
            volume.checkpoint().unwrap();
            let after = volume.activity().unwrap();
            assert_eq!(
                (after.space.almost_free, after.dirty_bytes(), after.pending_keys),
                (0, 0, 0)
            );
            assert!(after.checkpoints > before.checkpoints);
        }
    }

    #[test]
    fn what_only_snapshots_hold_is_told_apart() {
        let volume = volume(8 << 20, 512, 1024, 2);
        for file in 0..50 {
            volume.file_write_all(format!("/{file}"), &vec![1; 20_000]).unwrap();
        }
        volume.snapshot_create("before").unwrap();
        for file in 0..40 {
            volume.remove_all(format!("/{file}")).unwrap();
        }
        while volume.background().unwrap() {}
        verify(&volume, 10, 5);
        volume.checkpoint().unwrap();
        volume.checkpoint().unwrap();
        verify(&volume, 10, 5);
        assert!(volume.activity().unwrap().space.snapshots >= 40 * 40);
    }

    #[test]
    fn a_map_of_a_huge_empty_volume_is_quick() {
        let volume = volume(1 << 50, 65536, 65536, 2);
        verify(&volume, super::geometry(&volume).blocks / 1000, 10);
    }

    #[test]
    fn senseless_cells_are_refused() {
        let volume = volume(1 << 20, 512, 512, 2);
        assert!(super::space(&volume, 0, 0, 0, &mut [MapCell::default()], 1).is_err());
        assert!(super::space(&volume, 0, 1, 1, &mut [MapCell::default()], 1).is_err());
        assert_eq!(super::space(&volume, u64::MAX, 0, u64::MAX, &mut [], 1), Ok(None));
        assert_eq!(super::nodes(&volume, &Key::MAX, 0, &mut |_, _| {}), Ok(None));
    }
}
