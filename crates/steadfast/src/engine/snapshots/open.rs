//! Opening a snapshot: a read-only volume whose view is the snapshot's tree.
//!
//! It shares only the medium with a live volume, and writes nothing. While it is open the snapshot
//! must not be deleted. Its blocks would be reused, which a reader sees as damage (never as wrong
//! bytes).
//!
//! A program without the live volume finds the snapshot by name on the medium. With the live volume
//! the snapshot's record is at hand, so opening reads nothing else.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::{LogPosition, Metaroot, SnapshotRecord, Superblock, check_name};
use crate::io::retry::Retry;
use crate::memory::Boxed;
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::types::Generation;

/// How often the directory of snapshots is looked up again after a live volume has changed it.
const TRIES: u32 = 8;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Opens a snapshot, always read-only, whatever `options` say. The volume itself may be open on
    /// the same medium.
    pub(crate) fn open_snapshot(
        medium: M,
        platform: P,
        options: OpenOptions,
        name: &str,
    ) -> Result<Boxed<Self>> {
        check_name(name).map_err(|_| Error::NotFound)?;
        let options = OpenOptions { read_only: true, access_times: false, ..options };
        let (superblock, damaged) = Superblock::read(&Retry(&medium), &platform)?;
        let mut tries = 0;
        let metaroot = loop {
            let metaroot = Metaroot::read_newest(&Retry(&medium), &superblock, &platform)?;
            let found = find(&medium, &platform, &superblock, &metaroot, &options, name);
            tries += 1;
            match found {
                Ok(Some(record)) => break state_of(&metaroot, &record),
                Ok(None) => return Err(Error::NotFound),
                Err(error) => {
                    // A live volume reuses the nodes of the state before the last one.
                    let now = Metaroot::read_newest(&Retry(&medium), &superblock, &platform)?;
                    if now.generation == metaroot.generation || tries == TRIES {
                        return Err(error);
                    }
                }
            }
        };
        let mut volume = Self::with_state(medium, platform, superblock, &metaroot, &options)?;
        volume.superblock_damaged = damaged;
        Ok(volume)
    }

    /// Opens a snapshot of this volume. `medium` is the volume's own.
    pub(crate) fn open_view<N: Medium>(
        &self,
        medium: N,
        platform: P,
        generation: Generation,
        cache_size: usize,
    ) -> Result<Boxed<Engine<N, P>>> {
        let record = self.snapshot_records(self.reader()?.root()).of(generation)?;
        let checkpointed = self.working.lock().checkpointed;
        // The nodes of a snapshot that is being taken are not on the medium yet.
        let record = record
            .filter(|record| !record.deleting && record.generation <= checkpointed.generation)
            .ok_or(Error::NotFound)?;
        let superblock = self.store.device.superblock_now();
        let state = state_of(&checkpointed, &record);
        let options = OpenOptions {
            read_only: true,
            access_times: false,
            cache_size,
            ..OpenOptions::default()
        };
        Engine::with_state(medium, platform, superblock, &state, &options)
    }
}

/// Looks up a snapshot in the directory of a checkpointed state. Snapshots are added and removed
/// only by checkpoints, so the log does not matter.
fn find<M: Medium, P: Platform>(
    medium: &M,
    platform: &P,
    superblock: &Superblock,
    metaroot: &Metaroot,
    options: &OpenOptions,
    name: &str,
) -> Result<Option<SnapshotRecord>> {
    let volume = Engine::with_state(medium, platform, superblock.clone(), metaroot, options)?;
    volume.snapshot_records(&metaroot.root()).find(name)
}

/// A metaroot whose tree is the snapshot's.
fn state_of(metaroot: &Metaroot, record: &SnapshotRecord) -> Metaroot {
    Metaroot {
        generation: record.generation,
        root: record.root.pointer,
        height: record.root.height,
        next_inode: record.next_inode,
        inodes: record.inodes,
        used_blocks: record.used_blocks,
        nodes: record.nodes,
        log: LogPosition::default(),
        snapshots: record.snapshots,
        ..*metaroot
    }
}
