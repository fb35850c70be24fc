//! What the tools need to know of the states. That is the use of each allocation group, whether a
//! scrub may write, and the newest metaroot while no checkpoint writes one.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::lifecycle::Lifecycle;
use crate::error::Result;
use crate::format::{DeadEntry, Metaroot, SlotCopy, Superblock};
use crate::platform::Platform;
use crate::space::Survey;
use crate::types::Generation;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// The first allocation group at or after block `from` in which something may be in use. `work`
    /// gets it while no other caller allocates or frees.
    pub(crate) fn with_survey<T>(
        &self,
        from: u64,
        work: impl FnOnce(Option<Survey>) -> Result<T>,
    ) -> Result<T> {
        let working = self.working.lock();
        work(working.space.survey(&self.store, &self.roots(&working), from)?)
    }

    /// The first `limit` runs that only snapshots hold and that no dead list has yet.
    pub(crate) fn pending_dead(&self, limit: usize) -> Result<Vec<DeadEntry>> {
        self.working.lock().pending_dead.first(limit)
    }

    /// Whether bad copies may be rewritten.
    pub(crate) fn may_repair(&self) -> bool {
        !self.read_only && !self.lifecycle.has_failed() && self.lifecycle.now() != Lifecycle::Closed
    }

    /// Runs `work` while the size of the volume cannot change, so the second copies keep their
    /// places.
    pub(crate) fn with_fixed_places<T>(&self, work: impl FnOnce(&Superblock) -> T) -> T {
        let _commit = self.commit.lock();
        work(&self.store.device.superblock_now())
    }

    /// Verifies both copies of the newest metaroot. Returns the bad ones by offset and generation,
    /// and whether they are good again. A slot holds the same metaroot until the checkpoint after
    /// the next.
    pub(crate) fn scrub_metaroot(
        &self,
        superblock: &Superblock,
        read: &mut u64,
    ) -> Vec<(u64, Generation, bool)> {
        let _no_checkpoint = self.checkpoint.lock();
        let durable = self.working.lock().checkpointed;
        let store = &self.store;
        let mut bad = Vec::new();
        for offset in superblock.metaroot_offsets(durable.generation.0) {
            *read += superblock.cell_size();
            let good = || {
                Metaroot::read_copy(
                    &store.device.medium,
                    superblock,
                    &store.device.platform,
                    offset,
                ) == SlotCopy::Valid(durable)
            };
            if !good() {
                let written = self.may_repair()
                    && durable
                        .write_copy(
                            &store.device.medium,
                            superblock,
                            &store.device.platform,
                            offset,
                        )
                        .is_ok();
                bad.push((offset, durable.generation, written && good()));
            }
        }
        bad
    }
}
