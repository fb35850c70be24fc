//! How an operation of the file system changes the volume: by one batch under the writer's lock. It
//! is tried again where space had to be brought back for it.

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::engine::{Shortage, Writer};
use crate::error::{Error, Result};
use crate::format::Snapshot;
use crate::fs::reclaim::RECLAIM_TRIES;
use crate::fs::tx::Tx;
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun};
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Runs one operation as a whole, and repeats it where necessary.
    ///
    /// # Errors
    /// Those of the operation; `NoSpace` where a checkpoint cannot help or the mask forbids one.
    pub(crate) fn update<T>(
        &self,
        class: SpaceClass,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        self.update_with_tries(0, class, operation)
    }

    /// As [`update`](Self::update), but not worth a checkpoint: without space the operation fails.
    pub(crate) fn update_if_room<T>(
        &self,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        self.update_with_tries(RECLAIM_TRIES, SpaceClass::Normal, operation)
    }

    /// `tries`: how many retries count as used already. When all are used, no space is reclaimed.
    fn update_with_tries<T>(
        &self,
        mut tries: u32,
        class: SpaceClass,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let writer = self.engine.writer()?;
            let mut tx = Tx::new(&writer, class);
            let result = operation(&mut tx).and_then(|value| tx.apply().map(|()| value));
            let wanted = Shortage::Change(class, writer.needs_later());
            drop(writer);
            match result {
                Err(Error::NoSpace) if tries < RECLAIM_TRIES && self.reclaim(wanted, tries)? => {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    /// Allocates blocks for data, of a request for `all` that are still missing: with a checkpoint
    /// where only that makes room for them.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`, `Poisoned`.
    pub(crate) fn allocate_blocks(
        &self,
        blocks: u64,
        all: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<BlockRun> {
        let mut tries = 0;
        loop {
            match self.engine.allocate_blocks(blocks, goal, class) {
                Err(Error::NoSpace)
                    if self.reclaim(Shortage::Data(class, all.max(1)), tries)? =>
                {
                    tries += 1
                }
                allocated => return allocated,
            }
        }
    }

    /// Takes a snapshot of everything accepted so far, which becomes durable with it: a transaction
    /// point. The work does not depend on the size of the volume. Apart from the search for a
    /// snapshot of this name it does not depend on the number of snapshots.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `NameTooLong`; as [`transact`](Self::transact). `NoSpace` if
    /// there is no room for removing files under the snapshot; nothing has changed then. After
    /// `OutOfMemory` the snapshot may exist and become durable with the next transaction point;
    /// [`snapshots`](Self::snapshots) tells.
    pub fn snapshot_create(&self, name: &str) -> Result<Snapshot> {
        let mut tries = 0;
        loop {
            match self.engine.snapshot_create(name) {
                Err(Error::NoSpace) if self.reclaim(Shortage::Snapshot, tries)? => {
                    tries += 1;
                }
                result => return result,
            }
        }
    }
}
