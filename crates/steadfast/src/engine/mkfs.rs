//! Making a new volume.

use steadfast_media::{Medium, Temperature};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::inode::root_value;
use crate::format::key::Key;
use crate::format::{
    ERASED, FEATURES_COMPATIBLE, FEATURES_INCOMPATIBLE, LogPosition, Metaroot, Node, NodePointer,
    SnapshotCounts, Superblock, VERSION, blocks_min, cell_size, digest_of, reserve_blocks,
    value_len_max,
};
use crate::io::retry::Retry;
use crate::log::lsn_after_the_past;
use crate::memory;
use crate::options::FormatOptions;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::space::first_groups;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Lsn};

/// Below this size metadata is stored once unless two copies are requested.
const TWO_COPIES_FROM: u64 = 128 << 10;
/// Below this size there is no intent log unless one is requested.
const LOG_FROM: u64 = 1 << 20;
/// Tree node size of volumes that are not small, bytes. A file of 2 KiB fits into a leaf, so making
/// it durable writes only the log. Scattered changes still rewrite little at a checkpoint.
const NODE_SIZE: u32 = 8192;
/// Applies from these sizes of a volume and of its blocks on; below, memory and space matter more.
const NODE_SIZE_FROM: (u64, u32) = (16 << 20, 4096);
/// Largest default intent log, bytes.
const LOG_MAX: u64 = 4 << 20;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes an empty volume on `medium`; its previous content is lost.
    pub(crate) fn format(medium: &M, options: &FormatOptions, platform: &P) -> Result<()> {
        let superblock = superblock_for(medium, options, platform)?;
        let mut cell = memory::zeroed(superblock.cell_size() as usize)?;
        let superblocks = [0, superblock.second_offset()];
        for offset in superblocks {
            medium.write(offset, &cell)?;
        }
        Superblock::erase_earlier(medium, platform)?;
        // Flushed before anything else of an earlier volume is overwritten. Until here that volume
        // is whole; after here it is no volume.
        medium.flush()?;
        // With the same uuid, old metaroots would count as newer than the first one of this volume.
        // The same holds for old records where an image of this volume is copied over an earlier
        // volume, without the blocks that are zero. So what is erased here is not zero.
        cell.fill(ERASED);
        for slot in 0..2 {
            for offset in superblock.metaroot_offsets(slot) {
                medium.write(offset, &cell)?;
            }
        }
        let lsn = if planted(Sabotage::FormatKeepsRecords) {
            erase_first_record(medium, &superblock)?;
            Lsn::default()
        } else {
            let lsn = lsn_after_the_past(&Retry(medium), &superblock)?;
            // The first group has a record in one of these.
            for block in 0..superblock.log.count.min(2) {
                let offset = (superblock.log.start.0 + block) * u64::from(superblock.block_size);
                medium.write(offset, &cell[..superblock.block_size as usize])?;
            }
            lsn
        };
        medium.flush()?;

        write_first_state(medium, platform, &superblock, options, lsn)?;

        let cell = superblock.cell(platform)?;
        for offset in superblocks {
            medium.write(offset, &cell)?;
        }
        Ok(medium.flush()?)
    }
}

/// The planted bug: erases one record instead of examining the whole log.
fn erase_first_record(medium: &impl Medium, superblock: &Superblock) -> Result<()> {
    let first = superblock.log.start.0 * u64::from(superblock.block_size);
    Ok(medium.write(first, &memory::zeroed(superblock.block_size as usize)?)?)
}

/// Writes the checkpoint of an empty root directory; the log begins with `lsn`.
///
/// Its tree is one leaf, so it is written directly. An engine would be a second copy of most of the
/// core in a program. Its medium is of another type than that of the mounted volume.
fn write_first_state(
    medium: &impl Medium,
    platform: &impl Platform,
    superblock: &Superblock,
    options: &FormatOptions,
    lsn: Lsn,
) -> Result<()> {
    let medium = &Retry(medium);
    let generation = Generation(1);
    let first = BlockAddress(superblock.first_block());
    let mut addresses = [first, BlockAddress::NONE];
    if superblock.metadata_copies > 1 {
        addresses[1] = BlockAddress(superblock.first_block() + superblock.usable_blocks() / 2);
    }
    let mut root = NodePointer { addresses, generation, digest: Default::default() };

    let mut leaf =
        Node::new(superblock.node_size as usize, 0, generation, superblock.volume_id(), first.0)?;
    let inode = root_value(options.root_uid, options.root_gid, options.root_mode, platform.now())?;
    put(&mut leaf, &Key::inode(InodeNumber::ROOT), &inode)?;
    let runs = root.copies().map(|start| BlockRun { start, count: superblock.node_blocks() });
    for (group, value) in first_groups(superblock, &memory::collect(runs)?)? {
        put(&mut leaf, &Key::group(group), &value)?;
    }
    leaf.tidy();
    root.digest = digest_of(platform.crc32c(0, leaf.bytes()));
    for address in root.copies() {
        let offset = address.0 * u64::from(superblock.block_size);
        medium.write_hinted(offset, &[leaf.bytes()], Temperature::Hot)?;
    }
    medium.flush()?;

    let metaroot = Metaroot {
        generation,
        root,
        height: 1,
        next_inode: InodeNumber::FIRST_USER.0,
        inodes: 1,
        used_blocks: superblock.node_cost(),
        nodes: 1,
        // The first mount is a later epoch.
        log: LogPosition { lsn, epoch: 1, ..LogPosition::default() },
        mask: options.mask,
        timer_ms: options.timer_ms,
        data_cursor: 0,
        node_cursor: 0,
        snapshots: SnapshotCounts::default(),
    };
    metaroot.write(medium, superblock, platform, || Ok(medium.flush()?))
}

/// Puts an item of the first state into its only leaf.
fn put(leaf: &mut Node, key: &Key, value: &[u8]) -> Result<()> {
    match leaf.put_key(key, value) {
        (_, None) => Ok(()),
        (_, Some(_)) => Err(Error::InvalidArgument("node size: too small for the first state")),
    }
}

fn superblock_for(
    medium: &impl Medium,
    options: &FormatOptions,
    platform: &impl Platform,
) -> Result<Superblock> {
    let geometry = medium.geometry();
    let block_size = options.block_size;
    let in_range = block_size.is_power_of_two() && (128..=65536).contains(&block_size);
    if !in_range || block_size < geometry.atomic_unit {
        return Err(Error::BadBlockSize(block_size));
    }
    let small =
        options.size.unwrap_or(geometry.size) < NODE_SIZE_FROM.0 || block_size < NODE_SIZE_FROM.1;
    let node_size =
        options.node_size.unwrap_or(block_size.max(if small { 512 } else { NODE_SIZE }));
    if !node_size.is_power_of_two() || !(512..=65536).contains(&node_size) || node_size < block_size
    {
        return Err(Error::InvalidArgument(
            "node size: a power of two from 512 to 65536, at least the block size",
        ));
    }
    if !matches!(options.metadata_copies, None | Some(1 | 2)) {
        return Err(Error::InvalidArgument("metadata copies: 1 or 2"));
    }
    if options.label.len() > 32 {
        return Err(Error::InvalidArgument("label: at most 32 bytes"));
    }
    if options.timer_ms == 0 {
        return Err(Error::InvalidArgument("timer: at least one millisecond"));
    }
    let cell = cell_size(block_size);
    let wanted = options.size.unwrap_or(geometry.size);
    let size = wanted.min(i64::MAX as u64) / cell * cell;
    if size > geometry.size {
        return Err(Error::Truncated { expected: size, found: geometry.size });
    }
    let copies = options.metadata_copies.unwrap_or(if size < TWO_COPIES_FROM { 1 } else { 2 });
    let blocks = size / u64::from(block_size);
    let node_blocks = u64::from(node_size / block_size);
    let head = 3 * cell / u64::from(block_size);
    let log_bytes = match options.log_size {
        Some(bytes) => bytes,
        None if size < LOG_FROM => 0,
        None => (size / 64).min(LOG_MAX),
    };
    let log = (log_bytes / u64::from(block_size)).min((1 << 30) / u64::from(block_size));
    let mut label = [0; 32];
    label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let mut superblock = Superblock {
        version: VERSION,
        uuid: options.uuid,
        features_compatible: FEATURES_COMPATIBLE,
        features_read_only: 0,
        features_incompatible: FEATURES_INCOMPATIBLE,
        blocks,
        block_size,
        node_size,
        metadata_copies: copies,
        group_blocks: node_size.min(32768),
        log: BlockRun { start: BlockAddress(head), count: log },
        inline_max: (node_size / 4).min(value_len_max(node_size as usize) as u32),
        reserve_blocks: 0,
        hash_key: options.uuid,
        label,
        created: platform.now(),
        given_uuid: [0; 16],
    };
    let needed = blocks_min(&superblock);
    if blocks < needed {
        return Err(Error::VolumeTooSmall { size: wanted, needed: needed * u64::from(block_size) });
    }
    let node_cost = node_blocks * u64::from(copies);
    superblock.reserve_blocks = reserve_blocks(superblock.usable_blocks(), block_size, node_cost);
    superblock.validate()?;
    Ok(superblock)
}
