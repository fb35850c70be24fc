//! The intent log after the newest metaroot.

use alloc::format;
use alloc::string::String;

use steadfast_media::Medium;

use super::{Lines, value};
use crate::error::{Error, Result};
use crate::format::Metaroot;
use crate::log::scan;
use crate::platform::Platform;
use crate::types::Lsn;
use crate::volume::Volume;

/// The records of the intent log, one line for each group, or the mutations of the record with
/// number `lsn`.
///
/// # Errors
/// `NotFound` if there is no such record; those of reading the log.
pub fn log<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    lsn: Option<Lsn>,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let store = volume.engine.store();
    let superblock = store.device.superblock_now();
    if superblock.log.count == 0 {
        lines("the volume has no intent log: every transaction point is a checkpoint".into());
        return Ok(());
    }
    let metaroot =
        Metaroot::read_newest(&store.device.medium, &superblock, &store.device.platform)?;
    let found = scan(store, metaroot.log, metaroot.generation)?;
    if lsn.is_none() {
        lines(format!(
            "{} records in {} of {} blocks after generation {}",
            found.len(),
            found.blocks,
            superblock.log.count,
            metaroot.generation.0,
        ));
    }
    let mut any = lsn.is_none();
    for (index, place) in found.places().enumerate() {
        let first = Lsn(place.lsn.0.saturating_sub(u64::from(place.index)));
        if lsn.is_some_and(|lsn| lsn < first || lsn > place.lsn) {
            continue;
        }
        any = true;
        let mutations = found.mutations(store, index)?;
        lines(format!(
            "record {}{}: log block {}, {} blocks, {} mutations, {} bytes",
            place.lsn.0,
            with_earlier(place.lsn, place.index),
            place.block,
            place.blocks,
            mutations.len(),
            place.payload,
        ));
        if lsn.is_none() {
            continue;
        }
        for mutation in mutations {
            match mutation.value {
                Some(value) => {
                    lines(format!(
                        "  put {:?}: {}",
                        mutation.key,
                        value::text(&superblock, &mutation.key, &value)
                    ));
                }
                None => lines(format!("  remove {:?}", mutation.key)),
            }
        }
    }
    if lsn.is_none() && found.unfinished {
        lines("after them: what a power cut has left of a record that does not count".into());
    }
    if any { Ok(()) } else { Err(Error::NotFound) }
}

/// Names the earlier records whose mutations a record includes.
fn with_earlier(lsn: Lsn, index: u32) -> String {
    match index {
        0 => String::new(),
        _ => format!(" (with those from {} on)", lsn.0.saturating_sub(u64::from(index))),
    }
}
