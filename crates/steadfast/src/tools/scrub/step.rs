//! One step of a scrub.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;

use steadfast_media::sync::Arc;
use steadfast_media::{ErrorClass, Medium};

use crate::engine::Reader;
use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::extent::Extent;
use crate::format::key::{Key, Kind};
use crate::format::{Node, NodePointer, Root, SnapshotRecord, digest_of};
use crate::memory::Short;
use crate::platform::Platform;
use crate::tools::scrub::{Phase, STEP_BYTES, Scrub, ScrubFinding};
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber};
use crate::volume::Volume;

/// A piece of an extent to be compared with its checksums.
struct Piece {
    key: Key,
    /// Blocks of the extent before the piece.
    from: u64,
    extent: Extent,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// One bounded step of a scrub; call it until [`finished`](super::ScrubReport::finished).
    /// Returns the bytes that it has read from the medium, for a caller that limits the rate.
    ///
    /// # Errors
    /// `Poisoned` after close; the medium's error if the whole medium has failed. Any other read
    /// error is a finding.
    pub fn scrub_step(&self, scrub: &mut Scrub) -> Result<u64> {
        self.engine.lifecycle.check_not_closed()?;
        self.engine.replay_overlay()?;
        let read = match scrub.phase {
            Phase::Fixed => {
                let space = self.statistics()?;
                let used = space
                    .blocks
                    .saturating_sub(space.blocks_free)
                    .saturating_add(space.blocks_snapshots);
                scrub.report.bytes_total = used.saturating_mul(space.block_size.into());
                let read = self.scrub_fixed(scrub);
                scrub.enter(Phase::Choose);
                read
            }
            Phase::Choose => {
                // If the directory of snapshots is unreadable, the pass over the live tree reports
                // it.
                let next = unless_damaged(self.oldest_snapshot_above(scrub.bound))?.flatten();
                scrub.enter(next.map_or(Phase::Live, Phase::Snapshot));
                0
            }
            Phase::Snapshot(_) | Phase::Live => self.scrub_tree(scrub)?,
            Phase::Locate => {
                if self.locate_step(&mut scrub.locate, &mut scrub.report.findings)? {
                    0
                } else {
                    scrub.phase = Phase::Done;
                    scrub.report.finished = true;
                    0
                }
            }
            Phase::Done => 0,
        };
        scrub.report.bytes += read;
        Ok(read)
    }

    /// The oldest snapshot younger than `bound` that is not being deleted.
    fn oldest_snapshot_above(&self, bound: Generation) -> Result<Option<Generation>> {
        let reader = self.engine.reader()?;
        let (_, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Snapshot);
        let mut from = Key::snapshot(Generation(bound.0.saturating_add(1)));
        while let Some((key, found)) = reader.next(&from, &last)? {
            let generation = Generation(key.suffix());
            if !SnapshotRecord::decode(generation, &found)?.deleting {
                return Ok(Some(generation));
            }
            let Some(next) = key.successor() else { break };
            from = next;
        }
        Ok(None)
    }

    /// The tree of the phase while it exists, and the prefix of its findings.
    pub(super) fn tree_of(
        &self,
        reader: &Reader<'_, M, P>,
        phase: Phase,
    ) -> Result<Option<(Root, String)>> {
        let Phase::Snapshot(generation) = phase else {
            return Ok(Some((*reader.root(), String::new())));
        };
        let found = self.engine.snapshot_records(reader.root()).of(generation)?;
        let live = found.filter(|record| !record.deleting);
        Ok(live.map(|record| (record.root, format!("snapshot {:?}: ", record.name))))
    }

    fn scrub_tree(&self, scrub: &mut Scrub) -> Result<u64> {
        let reader = self.engine.reader()?;
        let Some((root, prefix)) = unless_damaged(self.tree_of(&reader, scrub.phase))?.flatten()
        else {
            scrub.go_on(None);
            return Ok(0);
        };
        let mut read = 0;
        let (leaf, after) = self.visit(&root, &prefix, scrub, &mut read)?;
        let piece = leaf.and_then(|leaf| self.next_piece(&leaf, scrub));
        let Some(piece) = piece else {
            scrub.go_on(after);
            return Ok(read);
        };
        // From here on the volume may change; the blocks keep their content.
        let block_size = u64::from(self.engine.superblock().block_size);
        let left = u64::from(piece.extent.length) - piece.from;
        let count = left.min((STEP_BYTES as u64 / block_size).max(1));
        let run = BlockRun { start: BlockAddress(piece.extent.address.0 + piece.from), count };
        let pin = self.engine.pin(Short::of(&[run])?);
        drop(reader);
        read += count * block_size;
        self.scrub_data(scrub, &piece, run, &prefix)?;
        drop(pin);
        scrub.report.data_blocks += count;
        scrub.key = piece.key;
        scrub.offset = piece.from + count;
        if count == left {
            scrub.go_on(piece.key.successor());
        }
        Ok(read)
    }

    /// Verifies the nodes on the path to the cursor. Returns the leaf, if it is to be scrubbed, and
    /// the key after it.
    fn visit(
        &self,
        root: &Root,
        prefix: &str,
        scrub: &mut Scrub,
        read: &mut u64,
    ) -> Result<(Option<Arc<Node>>, Option<Key>)> {
        let (mut pointer, mut level, mut after) = (root.pointer, root.level(), None);
        loop {
            if pointer.generation <= scrub.bound {
                return Ok((None, after));
            }
            let Some(node) = self.scrub_node(&pointer, level, prefix, scrub, read)? else {
                return Ok((None, after));
            };
            if level == 0 {
                return Ok((Some(node), after));
            }
            let index = node.child_index(&scrub.key);
            if index + 1 < node.count() {
                after = Some(node.key(index + 1));
            }
            pointer = node.child(index);
            level -= 1;
        }
    }

    /// Verifies every copy of a node and repairs bad ones, unless the cursor passed the node
    /// before.
    fn scrub_node(
        &self,
        pointer: &NodePointer,
        level: u8,
        prefix: &str,
        scrub: &mut Scrub,
        read: &mut u64,
    ) -> Result<Option<Arc<Node>>> {
        let store = self.engine.store();
        let address = pointer.addresses[0];
        let slot = usize::from(level);
        if scrub.verified.len() <= slot {
            scrub.verified.resize(slot + 1, None);
        }
        let seen = scrub.verified.get(slot) == Some(&Some(address));
        if seen || !store.is_on_medium(address) {
            return Ok(store.node(pointer, level).ok());
        }
        if let Some(entry) = scrub.verified.get_mut(slot) {
            *entry = Some(address);
        }
        scrub.report.nodes += 1;
        let mut good: Option<Arc<Node>> = None;
        let mut bad = vec![];
        for copy in pointer.copies() {
            *read += u64::from(store.device.superblock.node_size);
            match store.read_node_copy(pointer, copy) {
                Ok(node) => good = Some(Arc::new(node)),
                Err(error) => bad.push((copy, error)),
            }
        }
        if bad.is_empty() {
            return Ok(good);
        }
        gone(bad.iter().map(|(_, error)| error))?;
        // A node in memory passed its checksum when it was read or written.
        let matches =
            |node: &Arc<Node>| digest_of(store.device.crc(node.bytes())) == pointer.digest;
        let good = good.or_else(|| store.node(pointer, level).ok().filter(matches));
        for (copy, error) in bad {
            let healed = good.as_ref().is_some_and(|node| self.heal(pointer, copy, node));
            let what = match error {
                Error::CorruptMetadata { reason, .. } => reason.into(),
                other => format!("{other}"),
            };
            let end = match (healed, good.is_some()) {
                (true, _) => ", written again from a good copy",
                (false, true) => ", a good copy is left",
                (false, false) => ": what is below it is lost",
            };
            let text = format!("{prefix}copy of a node at block {}: {what}{end}", copy.0);
            scrub.find(ScrubFinding {
                text,
                healed,
                block: copy,
                inode: None,
                bytes: None,
                snapshot: None,
                path: None,
            });
        }
        Ok(good)
    }

    /// Rewrites a bad copy of a node. The caller holds the view, so the node stays part of the
    /// tree.
    fn heal(&self, pointer: &NodePointer, copy: BlockAddress, node: &Node) -> bool {
        let run = BlockRun { start: copy, count: self.engine.superblock().node_blocks() };
        self.engine.may_repair()
            && self.engine.store().device.contains(run)
            && self.engine.store().device.write_blocks(copy, &[node.bytes()]).is_ok()
            && self.engine.store().read_node_copy(pointer, copy).is_ok()
    }

    /// The next piece of data in a leaf from the cursor on.
    fn next_piece(&self, leaf: &Node, scrub: &Scrub) -> Option<Piece> {
        let granules = self.parameters().granules_per_block();
        let first = leaf.search(&scrub.key).unwrap_or_else(|index| index);
        for index in first..leaf.count() {
            let key = leaf.key(index);
            if key.kind() != Some(Kind::Extent) {
                continue;
            }
            // A value that does not decode is left to the check, which needs the whole volume to
            // find the cause.
            let Ok(extent) = Extent::decode(leaf.value(index), granules) else { continue };
            if extent.unwritten
                || extent.birth <= scrub.bound
                || !self.engine.store().device.contains(extent.run())
            {
                continue;
            }
            let from = if key == scrub.key { scrub.offset } else { 0 };
            if from < u64::from(extent.length) {
                return Some(Piece { key, from, extent });
            }
        }
        None
    }

    fn scrub_data(
        &self,
        scrub: &mut Scrub,
        piece: &Piece,
        run: BlockRun,
        prefix: &str,
    ) -> Result<()> {
        let block_size = self.engine.superblock().block_size as usize;
        let granule = self.engine.superblock().checksum_granule() as usize;
        let per_block = block_size / granule;
        let mut buffer = vec![0; run.count as usize * block_size];
        let inode = piece.key.inode_number();
        let mut bad: Option<(usize, usize)> = None;
        let mut found = vec![];
        match self.engine.device().read_blocks(run.start, &mut buffer) {
            Ok(()) => {
                let checksums = piece.extent.checksums.iter().skip(piece.from as usize * per_block);
                for (index, (bytes, expected)) in
                    buffer.chunks_exact(granule).zip(checksums).enumerate()
                {
                    if self.engine.device().crc(bytes) == *expected {
                        continue;
                    }
                    match &mut bad {
                        Some((_, end)) if *end == index => *end += 1,
                        _ => found.extend(bad.replace((index, index + 1))),
                    }
                }
                found.extend(bad);
            }
            Err(error) => {
                gone([&error].into_iter())?;
                found.push((0, run.count as usize * per_block));
            }
        }
        if found.is_empty() || !self.is_still_there(scrub.phase, piece)? {
            return Ok(());
        }
        for (from, to) in found {
            let block = BlockAddress(run.start.0 + (from / per_block) as u64);
            let start =
                piece.key.suffix().saturating_add(piece.from).saturating_mul(block_size as u64);
            let bytes = start.saturating_add((from * granule) as u64)
                ..start.saturating_add((to * granule) as u64);
            let index = bytes.start / block_size as u64;
            let (snapshot, place) = match scrub.phase {
                Phase::Snapshot(_) if self.is_in_live_tree(inode, index, block)? => {
                    // The pass over the live tree skips what a snapshot has too.
                    (None, format!("{} and the live volume: ", prefix.trim_end_matches(": ")))
                }
                Phase::Snapshot(generation) => (Some(generation), prefix.to_owned()),
                _ => (None, prefix.to_owned()),
            };
            let text = format!(
                "{place}inode {}: data at block {} does not match its checksum",
                inode.0, block.0
            );
            let finding = ScrubFinding {
                text,
                healed: false,
                block,
                inode: Some(inode),
                bytes: Some(bytes),
                snapshot,
                path: None,
            };
            scrub.find(finding);
        }
        Ok(())
    }

    /// Whether the live file of this inode has `block` as its block number `index`.
    fn is_in_live_tree(&self, inode: InodeNumber, index: u64, block: BlockAddress) -> Result<bool> {
        let reader = self.engine.reader()?;
        let (first, last) = (Key::extent(inode, 0), Key::extent(inode, index));
        let Some((key, value)) = unless_damaged(reader.previous(&first, &last))?.flatten() else {
            return Ok(false);
        };
        let granules = self.parameters().granules_per_block();
        Ok(Extent::decode(&value, granules).is_ok_and(|extent| {
            let offset = index - key.suffix();
            offset < extent.length.into() && extent.address.0 + offset == block.0
        }))
    }

    /// Whether the extent is unchanged. If not, its blocks may have been reused meanwhile.
    fn is_still_there(&self, phase: Phase, piece: &Piece) -> Result<bool> {
        let reader = self.engine.reader()?;
        let Some((root, _)) = unless_damaged(self.tree_of(&reader, phase))?.flatten() else {
            return Ok(false);
        };
        let granules = self.parameters().granules_per_block();
        let Some(now) = unless_damaged(self.engine.store().get(&root, &piece.key))? else {
            return Ok(true);
        };
        Ok(now.and_then(|value| Extent::decode(&value, granules).ok()).as_ref()
            == Some(&piece.extent))
    }
}

/// `None` for an error caused by damage: a pass continues after it.
fn unless_damaged<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ Error::Medium(_)) => gone([&error].into_iter()).map(|()| None),
        Err(Error::CorruptMetadata { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error that says that the medium has failed ends the scrub. Otherwise everything would be a
/// finding.
fn gone<'e>(mut errors: impl Iterator<Item = &'e Error>) -> Result<()> {
    let gone =
        |error: &&Error| matches!(error, Error::Medium(error) if error.class == ErrorClass::Gone);
    errors.find(gone).map_or(Ok(()), |error| Err(*error))
}
