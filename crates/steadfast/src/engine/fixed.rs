//! What a scrub needs to know of the states: whether it may write, and the newest metaroot while no
//! checkpoint writes one.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::lifecycle::Lifecycle;
use crate::format::{Metaroot, SlotCopy, Superblock};
use crate::platform::Platform;
use crate::types::Generation;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Whether bad copies may be rewritten.
    pub(crate) fn may_heal(&self) -> bool {
        !self.read_only && !self.has_failed() && self.lifecycle.now() != Lifecycle::Closed
    }

    /// Runs `work` while the size of the volume cannot change, so the second copies keep their
    /// places.
    pub(crate) fn with_fixed_places<T>(&self, work: impl FnOnce(&Superblock) -> T) -> T {
        let _commit = self.commit.lock();
        work(&self.store.superblock_now())
    }

    /// Verifies both copies of the durable metaroot. Returns the bad ones by offset and generation,
    /// and whether they are good again. A slot holds the same metaroot until the checkpoint after
    /// the next.
    pub(crate) fn scrub_metaroot(
        &self,
        superblock: &Superblock,
        read: &mut u64,
    ) -> Vec<(u64, Generation, bool)> {
        let _no_checkpoint = self.checkpoint.lock();
        let durable = self.working.lock().durable;
        let store = &self.store;
        let mut bad = Vec::new();
        for offset in superblock.metaroot_offsets(durable.generation.0) {
            *read += superblock.cell_size();
            let good = || {
                Metaroot::read_copy(&store.medium, superblock, &store.platform, offset)
                    == SlotCopy::Valid(durable)
            };
            if !good() {
                let written = self.may_heal()
                    && durable
                        .write_copy(&store.medium, superblock, &store.platform, offset)
                        .is_ok();
                bad.push((offset, durable.generation, written && good()));
            }
        }
        bad
    }
}
