//! What has changed between two states: two snapshots, or a snapshot and the live volume.
//!
//! The work grows with what has changed: subtrees that both states share are skipped. It is done in
//! bounded calls, each of which continues where the previous call ended. Per inode it stops at the
//! first difference of each sort. So a file with a million changed extents costs no more than a
//! file with one.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::Root;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::fs::FileKind;
use crate::memory;
use crate::platform::Platform;
use crate::tree::{Difference, NextDifference};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Leaves of each state that one call examines.
const LEAVES_PER_CALL: usize = 512;

/// How an inode differs between two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeChange {
    /// The inode. Numbers are never reused, so it is the same file in both states.
    pub inode: InodeNumber,
    /// Its file type.
    pub kind: FileKind,
    /// Only the second state has it.
    pub created: bool,
    /// Only the first state has it.
    pub removed: bool,
    /// Data or size differ (files), or the target differs (symbolic links). Data that was rewritten
    /// may be the same.
    pub content: bool,
    /// Owner, group, permissions, number of links, device number or extended attributes differ.
    pub attributes: bool,
    /// Entries differ (directories): names were added, removed, or refer to another inode.
    pub entries: bool,
    /// The times of modification or attribute change differ.
    pub times: bool,
}

impl InodeChange {
    /// What differs as bits, in the order of the fields and from the lowest on. The homes of the
    /// core that talk to other programs pass it on in this form.
    pub fn bits(&self) -> u32 {
        let InodeChange { created, removed, content, attributes, entries, times, .. } = *self;
        let bits = [created, removed, content, attributes, entries, times];
        bits.iter().enumerate().map(|(bit, set)| u32::from(*set) << bit).sum()
    }
}

/// A part of the differences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDiff {
    /// In the order of inode numbers; no inode occurs twice, also not in later parts.
    pub changes: Vec<InodeChange>,
    /// Where the next call continues; `None`: this was the last part.
    pub next: Option<InodeNumber>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Which inodes differ between the snapshot `before` and the snapshot `after` (`None`: the live
    /// volume). The search starts at inode number `from` (0 at first). Returns up to `limit`
    /// changes, or fewer if the search is long. The live volume may change between two calls; each
    /// call sees one state of it.
    ///
    /// The names of changed inodes are in the directories whose `entries` differ. Files whose
    /// content alone differs have their names in other directories. List them in the states, see
    /// [`open_snapshot`](Self::open_snapshot).
    ///
    /// # Errors
    /// `NotFound` if a snapshot does not exist (any more); `CorruptMetadata`, `OutOfMemory`,
    /// `Medium`.
    pub fn snapshot_diff(
        &self,
        before: &str,
        after: Option<&str>,
        from: InodeNumber,
        limit: usize,
    ) -> Result<SnapshotDiff> {
        self.engine.replay_overlay()?;
        // While it is held, the live tree does not change.
        let reader = self.engine.reader()?;
        let root_of = |name: &str| {
            self.engine.snapshot_records(reader.root()).find(name)?.ok_or(Error::NotFound)
        };
        let old = root_of(before)?.root;
        let new = match after {
            Some(name) => root_of(name)?.root,
            None => *reader.root(),
        };
        let mut diff = SnapshotDiff::default();
        let mut from = InodeNumber(from.0.max(InodeNumber::ROOT.0));
        let mut leaves = LEAVES_PER_CALL;
        loop {
            if leaves == 0 || diff.changes.len() >= limit.max(1) {
                diff.next = Some(from);
                return Ok(diff);
            }
            match self.next_change(&old, &new, from, &mut leaves)? {
                DiffStep::End => return Ok(diff),
                DiffStep::Nothing(next) => from = next,
                DiffStep::Change(change) => {
                    memory::push(&mut diff.changes, change)?;
                    let Some(next) = change.inode.0.checked_add(1) else { return Ok(diff) };
                    from = InodeNumber(next);
                }
            }
        }
    }

    /// The first inode at or after `from` that differs.
    fn next_change(
        &self,
        old: &Root,
        new: &Root,
        from: InodeNumber,
        leaves: &mut usize,
    ) -> Result<DiffStep> {
        let first = match self.engine.store().difference(
            old,
            new,
            &Key::inode(from),
            &Key::MAX,
            *leaves,
        )? {
            NextDifference::End => return Ok(DiffStep::End),
            NextDifference::NotBefore(key) => {
                *leaves = 0;
                return Ok(DiffStep::Nothing(key.inode_number().max(from)));
            }
            NextDifference::Difference(first) => first,
        };
        *leaves = leaves.saturating_sub(1);
        let inode = first.key.inode_number();
        let following = DiffStep::Nothing(InodeNumber(inode.0.saturating_add(1)));
        let load = |root: &Root| match self.engine.store().get_with(
            root,
            &Key::inode(inode),
            Inode::decode,
        )? {
            // Removed, and kept while it is open or until its blocks are free.
            Some(found) => found.map(|found| Some(found).filter(|found| found.links > 0)),
            None => Ok(None),
        };
        let (before, after) = (load(old)?, load(new)?);
        let Some(any) = after.or(before) else { return Ok(following) };
        let mut change = InodeChange {
            inode,
            kind: any.kind,
            created: before.is_none(),
            removed: after.is_none(),
            content: false,
            attributes: false,
            entries: false,
            times: false,
        };
        if let (Some(before), Some(after)) = (before, after) {
            change.compare_attributes(&before, &after);
            self.compare_keys(old, new, first, &mut change)?;
        }
        Ok(if change.is_any() { DiffStep::Change(change) } else { following })
    }

    /// Looks for a difference in the keys of each kind after the attributes.
    fn compare_keys(
        &self,
        old: &Root,
        new: &Root,
        first: Difference,
        change: &mut InodeChange,
    ) -> Result<()> {
        let (mut from, mut last) = (first.key, first.key);
        last.0[8..].fill(0xff);
        loop {
            // Within one inode there is no budget: shared subtrees are skipped, and each kind ends
            // at its first difference.
            match self.engine.store().difference(old, new, &from, &last, LEAVES_PER_CALL)? {
                NextDifference::End => return Ok(()),
                NextDifference::NotBefore(key) => from = key,
                NextDifference::Difference(found) => {
                    match found.key.kind() {
                        Some(Kind::Dirent) => change.entries = true,
                        Some(Kind::Xattr) => change.attributes = true,
                        Some(Kind::Inode) => {}
                        _ => change.content = true,
                    }
                    let kind = found.key.0[8];
                    let Some(next) = kind.checked_add(1) else { return Ok(()) };
                    from = found.key;
                    from.0[8] = next;
                    from.0[9..].fill(0);
                }
            }
        }
    }
}

/// Result of one search.
enum DiffStep {
    Change(InodeChange),
    /// No difference before this inode.
    Nothing(InodeNumber),
    End,
}

impl InodeChange {
    fn compare_attributes(&mut self, before: &Inode, after: &Inode) {
        let facts =
            |inode: &Inode| (inode.permissions, inode.uid, inode.gid, inode.links, inode.device);
        self.attributes = facts(before) != facts(after);
        self.content = self.kind == FileKind::Regular && before.size != after.size;
        self.times = (before.modified, before.changed) != (after.modified, after.changed);
    }

    fn is_any(&self) -> bool {
        self.created
            || self.removed
            || self.content
            || self.attributes
            || self.entries
            || self.times
    }
}
