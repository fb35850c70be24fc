//! Structures with a fixed place: the copies of superblock and metaroot, and the intent log.

use alloc::format;

use steadfast_media::Medium;

use crate::format::{ERASED, Metaroot, STRUCTURE_SIZE, SlotCopy, Superblock};
use crate::log::{Stranded, scan, stranded};
use crate::newer::NewerState;
use crate::platform::Platform;
use crate::tools::check::reason;
use crate::tools::check::report::{At, Remedy, Reporter};
use crate::types::{BlockAddress, Lsn};
use crate::volume::Volume;

/// Reports each bad superblock copy.
pub(super) fn check_superblocks<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    superblock: &Superblock,
    reporter: &mut Reporter<'_>,
) {
    let places = [("first", 0), ("second", superblock.second_offset())];
    for (which, offset) in places {
        if let Err(error) = superblock.verify_copy(medium, platform, offset) {
            let at = At::block(block_of(superblock, offset)).remedy(Remedy::Copy);
            let what = reason(&error);
            reporter.degraded_at(
                at,
                format!(
                    "one superblock copy is damaged or missing: the {which} one, at byte {offset} ({what})"
                ),
            );
        }
    }
}

/// Reports bad copies of the newest metaroot and a slot without a valid metaroot.
pub(super) fn check_metaroots<M: Medium, P: Platform>(
    medium: &M,
    superblock: &Superblock,
    platform: &P,
    newest: &Metaroot,
    reporter: &mut Reporter<'_>,
) {
    let slot = newest.generation.0 % 2;
    for (index, offset) in superblock.metaroot_offsets(slot).into_iter().enumerate() {
        let copy = Metaroot::read_copy(medium, superblock, platform, offset);
        // A power cut between the two copies leaves the second one as it was: older, or erased by
        // format or a resize.
        let older = match copy {
            SlotCopy::Valid(found) => {
                found.generation.0 % 2 == slot && found.generation < newest.generation
            }
            SlotCopy::Blank(byte) => index > 0 && byte == ERASED,
            SlotCopy::Invalid => false,
        };
        if copy != SlotCopy::Valid(*newest) && !older {
            let generation = newest.generation.0;
            let text = format!(
                "one copy of metaroot generation {generation} is damaged, at byte {offset}"
            );
            reporter
                .degraded_at(At::block(block_of(superblock, offset)).remedy(Remedy::Copy), text);
        }
    }
    let other = 1 - slot;
    let offsets = superblock.metaroot_offsets(other);
    let copies = offsets.map(|offset| Metaroot::read_copy(medium, superblock, platform, offset));
    let valid =
        |copy: &SlotCopy| matches!(copy, SlotCopy::Valid(found) if found.generation.0 % 2 == other);
    let at = At::block(block_of(superblock, offsets[0]));
    let is_blank = |copy: &SlotCopy| matches!(copy, SlotCopy::Blank(_));
    if !copies.iter().any(valid) && !copies.iter().any(is_blank) {
        let text = format!(
            "metaroot slot {other} has no valid copy, at bytes {} and {}: a state newer than generation {} may be lost",
            offsets[0], offsets[1], newest.generation.0
        );
        reporter.damaged_at(at, text);
        return;
    }
    for (offset, copy) in offsets.into_iter().zip(&copies) {
        // A power cut leaves a copy that is older or still blank. Only with small units does it
        // leave a torn one.
        if *copy == SlotCopy::Invalid && medium.geometry().atomic_unit as usize >= STRUCTURE_SIZE {
            let text = format!("one copy of metaroot slot {other} is damaged, at byte {offset}");
            reporter
                .degraded_at(At::block(block_of(superblock, offset)).remedy(Remedy::Copy), text);
        }
    }
}

/// Reports a gap in the intent log: acknowledged records that can no longer be reached. Damage to
/// the very last record looks like a record that a power cut has torn, which is no damage.
pub(super) fn check_log<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    metaroot: &Metaroot,
    reporter: &mut Reporter<'_>,
) {
    let store = volume.engine.store();
    let region = store.device.superblock.log;
    if region.count == 0 {
        return;
    }
    let found = match scan(store, metaroot.log, metaroot.generation) {
        Ok(found) => found,
        Err(error) => {
            let text = format!("the intent log cannot be read: {}", reason(&error));
            reporter.damaged_at(At::block(region.start), text);
            return;
        }
    };
    if let Some(error) = found.unreadable {
        let block = BlockAddress(region.start.0 + found.end.block);
        let text = format!(
            "the intent log cannot be read after record {}: a transaction point that a power cut interrupted, or one that \
             is lost ({})",
            found.end.lsn.0,
            reason(&error)
        );
        reporter.degraded_at(At::block(block).remedy(Remedy::Data), text);
    }
    let first = found.end.lsn;
    let durable = found.damaged_points.checked_sub(1).map(|more| Lsn(first.0 + u64::from(more)));
    match stranded(store, &found, Stranded::Anywhere).map(|last| last.max(durable)) {
        Ok(Some(last)) => {
            let block = BlockAddress(region.start.0 + found.end.block);
            let text = format!("{}", NewerState::Records { block, first, last });
            reporter.damaged_at(At::block(block), text);
        }
        Ok(None) => {}
        Err(error) => {
            let text = format!("the intent log cannot be read: {}", reason(&error));
            reporter.damaged_at(At::block(region.start), text);
        }
    }
}

fn block_of(superblock: &Superblock, offset: u64) -> BlockAddress {
    BlockAddress(offset / u64::from(superblock.block_size))
}
