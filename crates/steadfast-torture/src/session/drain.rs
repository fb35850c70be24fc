//! Empties a volume. The blocks still in use must then be exactly the nodes of an empty tree.

use steadfast::fs::FileKind;
use steadfast::{InodeNumber, TransactionMask};

use super::background::TURNS_MAX;
use super::{Session, Verdict};
use crate::model::Body;
use crate::operation::{ALL_SLOTS, Operation};
use crate::subject::{Call, Subject};
use crate::tape::Tape;

impl<S: Subject> Session<'_, S> {
    /// Deletes every snapshot, releases every held file, and removes every name and attribute. Then
    /// background work finishes, a checkpoint frees what the previous one had to keep, and the
    /// blocks in use are counted.
    ///
    /// Every used block must then belong to a node of the tree. The tree must be as small as that
    /// of a new volume (`nodes_when_new`). Nodes of the allocation bitmap are an exception, because
    /// their number depends on where the nodes are. Returns the number of nodes.
    ///
    /// # Errors
    /// Something could not be removed, or is still in use.
    pub fn drain(&mut self, nodes_when_new: Option<u64>) -> Result<u64, String> {
        // A full volume may have to commit the removals so far before it can remove more.
        let mask = self.subject.facts().mask;
        let freeing = mask.union(TransactionMask::VOLUME_FULL);
        self.step(&Operation::SetMask { mask: freeing.0 })?;
        let snapshots: Vec<String> =
            self.model.state.snapshots().iter().map(|kept| kept.name.clone()).collect();
        for name in &snapshots {
            let verdict = self.plain(&Call::SnapshotDelete { name }, "emptying")?;
            if verdict != Verdict::Done {
                return Err(format!("snapshot {name} is not deleted: {verdict:?}"));
            }
        }
        for slot in 0..ALL_SLOTS {
            self.step(&Operation::Release { slot: slot as u8 })?;
        }
        self.drain_directory(InodeNumber::ROOT)?;
        self.drain_attributes()?;
        self.step(&Operation::SetMask { mask: mask.0 })?;
        for _ in 0..2 {
            self.step(&Operation::Background { advance_ms: 0 })?;
            self.step(&Operation::Checkpoint)?;
        }
        self.background(0, TURNS_MAX, "background")?;
        self.compare()?;
        let inodes =
            self.subject.statistics().map_err(|error| format!("statistics: {error}"))?.inodes;
        if inodes != 1 {
            return Err(format!("the volume is empty but counts {inodes} inodes"));
        }
        let statistics =
            self.subject.statistics().map_err(|error| format!("statistics: {error}"))?;
        let tape = Tape::new(self.tape.image(), self.world.atomic_unit, self.world.lie);
        let Some(census) = S::census(self.world, &tape, &self.clock)? else { return Ok(0) };
        let used = statistics.blocks - statistics.blocks_free;
        let of_nodes = census.nodes * census.blocks_per_node;
        let most = nodes_when_new.unwrap_or(census.nodes) + census.bitmap_nodes;
        if census.data_blocks != 0
            || census.used_blocks != of_nodes
            || used != of_nodes
            || census.nodes > most
        {
            return Err(format!(
                "the volume is empty but uses {used} blocks; {of_nodes} of {} nodes are right, at most {most} nodes; {census:?}",
                census.nodes
            ));
        }
        Ok(census.nodes)
    }

    /// Removes everything below a directory, the deepest entries first.
    fn drain_directory(&mut self, directory: InodeNumber) -> Result<(), String> {
        let mut ahead = vec![(directory, None::<(InodeNumber, Vec<u8>)>)];
        while let Some((directory, name)) = ahead.last().cloned() {
            let entries = match self.model.state.node(directory).map(|node| &node.body) {
                Some(Body::Directory { entries, .. }) => entries.clone(),
                _ => return Err(format!("inode {} is no directory", directory.0)),
            };
            let below = entries.iter().find(|(_, inode)| {
                self.model.state.node(**inode).is_some_and(|node| node.kind == FileKind::Directory)
            });
            if let Some((name, inode)) = below {
                ahead.push((*inode, Some((directory, name.clone()))));
                continue;
            }
            for name in entries.keys() {
                self.plain(&Call::Unlink { directory, name }, "emptying")?;
            }
            ahead.pop();
            if let Some((parent, name)) = name {
                self.plain(&Call::RemoveDirectory { directory: parent, name: &name }, "emptying")?;
            }
        }
        Ok(())
    }

    /// Removes the attributes of the root, which stay when all names are removed.
    fn drain_attributes(&mut self) -> Result<(), String> {
        let names: Vec<Vec<u8>> = self
            .model
            .state
            .node(InodeNumber::ROOT)
            .map(|root| root.xattrs.keys().cloned().collect())
            .unwrap_or_default();
        for name in names {
            self.plain(&Call::RemoveXattr { inode: InodeNumber::ROOT, name: &name }, "emptying")?;
        }
        Ok(())
    }
}
