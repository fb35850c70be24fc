//! Superblock and metaroots: all copies, even of a volume that cannot be opened.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::{Metaroot, STRUCTURE_SIZE, Superblock};
use crate::platform::Platform;
use crate::tools::dump::{Lines, hex, pointer_text};
use crate::types::Timestamp;

/// Both copies of the superblock.
///
/// # Errors
/// If neither leads to a volume: as [`Volume::open`](crate::Volume::open).
pub fn superblocks(
    medium: &impl Medium,
    platform: &impl Platform,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let (good, damaged) = Superblock::read(&medium, platform)?;
    let state = if damaged { ", the other copy is damaged or missing" } else { ", both copies" };
    lines(format!("superblock: version {}{state}", good.version));
    let mut row = |name: &str, value: String| lines(format!("  {name:<24}{value}"));
    let label = good.label.split(|byte| *byte == 0).next().unwrap_or_default();
    row("uuid", hex(&good.uuid));
    if good.given_uuid != [0; 16] {
        row("given uuid", hex(&good.given_uuid));
    }
    row("label", String::from_utf8_lossy(label).into_owned());
    row("created", time_text(&good.created));
    row(
        "features",
        format!(
            "compatible {:#x}, read-only {:#x}, incompatible {:#x}",
            good.features_compatible, good.features_read_only, good.features_incompatible
        ),
    );
    row(
        "blocks",
        format!("{} of {} bytes = {} bytes", good.blocks, good.block_size, good.byte_size()),
    );
    row("node size", format!("{} bytes", good.node_size));
    row("metadata copies", format!("{}", good.metadata_copies));
    row("group", format!("{} blocks", good.group_blocks));
    row("intent log", format!("{} blocks from block {}", good.log.count, good.log.start.0));
    row("nodes and data", format!("blocks {} to {}", good.first_block(), good.end_block() - 1));
    row("inline", format!("files up to {} bytes", good.inline_max));
    row("reserve", format!("{} blocks", good.reserve_blocks));
    row("copies at bytes", format!("0 and {}", good.second_offset()));
    Ok(())
}

/// Both copies of both metaroots, the newest state marked.
///
/// # Errors
/// Those of reading the superblock. Errors of a metaroot are in the text.
pub fn metaroots(
    medium: &impl Medium,
    platform: &impl Platform,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let (superblock, _) = Superblock::read(&medium, platform)?;
    let newest = Metaroot::read_newest(medium, &superblock, platform);
    for slot in 0..2 {
        for (copy, offset) in ["A", "B"].into_iter().zip(superblock.metaroot_offsets(slot)) {
            let place = format!("metaroot slot {slot} copy {copy} at byte {offset}");
            let mut cell = vec![0; superblock.cell_size() as usize];
            if let Err(error) = medium.read(offset, &mut cell) {
                lines(format!("{place}: cannot be read: {error}"));
                continue;
            }
            match Metaroot::decode(&cell, &superblock, platform) {
                None if cell[..STRUCTURE_SIZE].iter().all(|byte| *byte == 0) => {
                    lines(format!("{place}: never written"));
                }
                None => lines(format!("{place}: not valid")),
                Some(found) => {
                    let mark = if newest.as_ref() == Ok(&found) {
                        " (the checkpointed state)"
                    } else {
                        ""
                    };
                    lines(format!("{place}: generation {}{mark}", found.generation.0));
                    show(&found, lines);
                }
            }
        }
    }
    if let Err(error) = newest {
        lines(format!("no state: {error}"));
    }
    Ok(())
}

fn show(metaroot: &Metaroot, lines: &mut Lines<'_>) {
    let mut row = |name: &str, value: String| lines(format!("  {name:<24}{value}"));
    row("root", format!("{}, height {}", pointer_text(&metaroot.root), metaroot.height));
    row("inodes", format!("{}, next number {}", metaroot.inodes, metaroot.next_inode));
    row("blocks in use", format!("{}, {} nodes", metaroot.used_blocks, metaroot.nodes));
    row(
        "log",
        format!(
            "record {} at log block {}, epoch {}, after digest {}",
            metaroot.log.lsn.0,
            metaroot.log.block,
            metaroot.log.epoch,
            hex(&metaroot.log.previous[..4])
        ),
    );
    row("transaction mask", format!("{:#x}, timer {} ms", metaroot.mask.0, metaroot.timer_ms));
    row("hints", format!("data {}, nodes {}", metaroot.data_cursor, metaroot.node_cursor));
}

pub(super) fn time_text(time: &Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}
