//! Orphans: inodes without a name, or with extents past their end, whose space is still to be
//! freed.
//!
//! The key is (0, Orphan, inode number), the value one byte, 0. The batch that makes the inode an
//! orphan writes the record, and the batch that ends it removes the record. So orphans that a power
//! cut leaves are found without a search. Each step removes at most [`STEP_KEYS`] keys and leaves a
//! state from which the next step continues.

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::extent;
use crate::format::inode::{FLAG_INLINE, FLAG_RECLAIMING, FLAG_TAIL_STALE, FLAG_TRUNCATING, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map;
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;

/// Limit of the keys that one step removes.
pub(crate) const STEP_KEYS: usize = 56;

/// Limit of the keys that an operation deletes itself when it removes an inode's last name.
const BURY_KEYS: usize = 24;

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The inode is no orphan any more.
    Done,
    /// There is more to do.
    More,
    /// The inode is open: nothing can be done now.
    Open,
}

/// Writes the record.
pub(crate) fn record<K: Keyspace>(tx: &mut Tx<'_, K>, inode: InodeNumber) -> Result<()> {
    if planted(Sabotage::ForgetOrphan) {
        return Ok(());
    }
    let mut value = tx.blank();
    memory::push(&mut value, 0)?;
    tx.put(Key::orphan(inode), value)
}

/// The first orphan with a number above `after`.
pub(crate) fn following(view: &impl KeyspaceRead, after: u64) -> Result<Option<InodeNumber>> {
    let Some(from) = after.checked_add(1) else {
        return Ok(None);
    };
    let (_, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Orphan);
    let found = view.next(&Key::orphan(InodeNumber(from)), &last)?;
    Ok(found.map(|(key, _)| InodeNumber(key.suffix())))
}

/// The keys of an inode after its attributes.
fn body(inode: InodeNumber) -> (Key, Key) {
    let first = Key::inode(inode);
    let mut last = first;
    last.0[8..].fill(0xff);
    (first.successor().unwrap_or(last), last)
}

/// Up to `limit` keys of an inode with the blocks that they hold, and whether these are all keys.
fn keys<K: Keyspace>(
    tx: &Tx<'_, K>,
    inode: InodeNumber,
    limit: usize,
) -> Result<(Vec<(Key, u64)>, bool)> {
    let (from, last) = body(inode);
    let (mut found, mut all) = (Vec::new(), true);
    tx.scan(&from, &last, &mut |key, value| {
        all = found.len() < limit;
        if all {
            let run =
                if key.kind() == Some(Kind::Extent) { extent::decode_run(value) } else { None };
            memory::push(&mut found, (*key, run.map_or(0, |run| run.count)))?;
        }
        Ok(all)
    })?;
    Ok((found, all))
}

/// Ends an inode that has just lost its last name: deletes it if that is little work and it is not
/// open. Otherwise it stays as an orphan. Returns whether it is deleted. The caller stores its
/// attributes if not.
pub(crate) fn delete_or_record<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    attributes: &Inode,
    acquired: bool,
) -> Result<bool> {
    if !acquired {
        let limit = BURY_KEYS.min(tx.room().saturating_sub(8));
        let (keys, all) = keys(tx, inode, limit)?;
        if all {
            for (key, _) in keys {
                tx.remove(&key)?;
            }
            tx.remove(&Key::inode(inode))?;
            // An inode with a name was an orphan only while it was being truncated.
            if attributes.has(FLAG_TRUNCATING) {
                tx.delete(&Key::orphan(inode))?;
            }
            return Ok(true);
        }
    }
    record(tx, inode)?;
    Ok(false)
}

/// One step for one orphan.
pub(crate) fn delete_step<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    acquired: bool,
) -> Result<Progress> {
    let mut attributes = match Inode::load(tx, inode) {
        Err(Error::Stale(_)) => {
            tx.delete(&Key::orphan(inode))?;
            return Ok(Progress::Done);
        }
        other => other?,
    };
    if attributes.links > 0 || acquired {
        if attributes.has(FLAG_TRUNCATING) {
            return truncate_step(tx, parameters, inode, &mut attributes);
        }
        if attributes.links > 0 {
            tx.delete(&Key::orphan(inode))?;
            return Ok(Progress::Done);
        }
        return Ok(Progress::Open);
    }
    let (keys, all) = keys(tx, inode, STEP_KEYS)?;
    for (key, blocks) in keys {
        tx.delete(&key)?;
        attributes.blocks = attributes.blocks.saturating_sub(blocks);
    }
    if all {
        tx.delete(&Key::inode(inode))?;
        tx.delete(&Key::orphan(inode))?;
        return Ok(Progress::Done);
    }
    attributes.set(FLAG_RECLAIMING, true);
    attributes.store(tx, inode)?;
    Ok(Progress::More)
}

/// Removes some of the extents past the end of a file, and stores the inode.
pub(crate) fn truncate_step<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    attributes: &mut Inode,
) -> Result<Progress> {
    let keep = parameters.blocks_for(attributes.size);
    let budget = STEP_KEYS.min(tx.room().saturating_sub(4));
    let done =
        extent_map::clear(tx, parameters, (inode, attributes), keep, u64::MAX, budget)? == u64::MAX;
    let was_truncating = attributes.has(FLAG_TRUNCATING);
    attributes.set(FLAG_TRUNCATING, !done);
    if done && attributes.size == 0 {
        attributes.set(FLAG_INLINE, true);
        attributes.set(FLAG_TAIL_STALE, false);
    }
    if !done {
        record(tx, inode)?;
    } else if was_truncating && (attributes.links > 0 || planted(Sabotage::TruncationEndsOrphan)) {
        tx.delete(&Key::orphan(inode))?;
    }
    attributes.store(tx, inode)?;
    Ok(if done { Progress::Done } else { Progress::More })
}
