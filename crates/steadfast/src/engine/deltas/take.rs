//! Opening a volume after its owner in a cluster has died, with the deltas of the nodes that
//! survive.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::kept::{KeptDeltas, Place, Reached};
use crate::engine::Engine;
use crate::engine::apply::check_recorded;
use crate::engine::recovery::open::{GENERATION_LIMIT, read_log};
use crate::error::{Error, Result};
use crate::format::{Mutation, Superblock};
use crate::io::retry::Retry;
use crate::log::{LogContent, data_is_there};
use crate::memory::{self, Boxed};
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::Generation;

/// The newest deltas that lead on from the state on the medium.
struct Taken {
    sequence: u64,
    mutations: Vec<Mutation>,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Opens a volume for writing, at the state that the newest deltas lead to, which becomes
    /// durable. Returns for each node how that state compares with what it was told of; what a
    /// rollback has dropped does not count. From now on the volume [gives deltas](Self::delta).
    ///
    /// Deltas that do not lead on from the state on the medium, or whose data is not there, are
    /// left out.
    pub(crate) fn open_after(
        medium: M,
        options: OpenOptions,
        platform: P,
        nodes: &[KeptDeltas],
    ) -> Result<(Boxed<Self>, Vec<Reached>)> {
        let superblock = Superblock::read(&Retry(&medium), &platform)?;
        let options = OpenOptions { read_only: false, ..options };
        let (mut engine, mut found) = Self::read_state(medium, &options, platform, superblock)?;
        let metaroot = engine.working.get_mut().checkpointed;
        let at = Place { generation: metaroot.generation, lsn: found.end.lsn };
        let possible = |kept: &&KeptDeltas| {
            kept.sealed.generation < GENERATION_LIMIT && !at.is_after(&kept.sealed)
        };
        // The next checkpoint is after all of them, whether they count now or not.
        let newest = nodes.iter().filter(possible).map(|kept| kept.sealed.generation).max();
        if let Some(Generation(newest)) = newest {
            engine.working.get_mut().raise_generation(Generation(newest + 1));
        }
        let mut reached = 0;
        if engine.newer_state.is_none()
            && let Some(taken) = engine.choose(nodes, at, &mut found)?
        {
            let applied = engine.or_stay(&mut engine.working.lock(), |working| {
                engine.replay_with(working, &found, taken.mutations)
            });
            match applied {
                Ok(()) => reached = taken.sequence,
                // They are no work of an owner: the volume opens without them.
                Err(Error::CorruptLog { .. } | Error::CorruptMetadata { .. }) => {
                    engine.lifecycle.check_not_failed()?;
                    found = read_log(&engine.store, &metaroot)?;
                }
                Err(error) => return Err(error),
            }
        }
        if reached == 0 {
            engine.finish_open(found, &options)?;
        }
        if newest.is_some() {
            engine.replay_overlay()?;
            engine.commit_by_checkpoint(&mut engine.commit.lock())?;
        }
        if !nodes.is_empty() {
            // What was found may have been written and not flushed. The nodes count on it.
            engine.store.device.flush()?;
        }
        engine.keeps_deltas = true;
        let working = engine.working.get_mut();
        working.begin_deltas_again(true);
        let (sequence, lsn) = (working.sequence, working.log.position().lsn);
        working.note_durable(sequence, lsn);
        let compare = |kept: &KeptDeltas| {
            let (is_here, is_same) = match (kept.payloads.is_empty(), reached) {
                (false, _) => (kept.sequence <= reached, kept.sequence == reached),
                // Nothing has changed since the medium was there.
                (true, 0) => (!kept.durable.is_after(&at), kept.sequence > 0 && kept.durable == at),
                (true, _) => (!kept.durable.is_after(&at), false),
            };
            match is_here || at.is_after(&kept.sealed) {
                _ if kept.lacks_changes => Reached::Less,
                false => Reached::Less,
                true if is_same => Reached::Same,
                true => Reached::All,
            }
        };
        let compared = memory::collect(nodes.iter().map(compare))?;
        Ok((engine, compared))
    }

    /// The newest deltas of `nodes` that count for what was found on the medium.
    fn choose(
        &self,
        nodes: &[KeptDeltas],
        at: Place,
        found: &mut LogContent,
    ) -> Result<Option<Taken>> {
        let mut order: Vec<&KeptDeltas> = memory::collect(nodes.iter().filter(|kept| {
            let leads_on = !at.is_after(&kept.sealed) || planted(Sabotage::TakeOldDeltas);
            leads_on && !kept.durable.is_after(&at) && !kept.payloads.is_empty()
        }))?;
        crate::sort::sort_by_key(&mut order, |kept| core::cmp::Reverse(kept.sequence));
        for kept in order {
            let Some(mutations) = kept.mutations()? else { continue };
            let recorded = |mutation: &Mutation| {
                let length = mutation.value.as_ref().map(Vec::len);
                check_recorded(&self.store, &mutation.key, length).is_ok()
            };
            if !mutations.iter().all(recorded) {
                continue;
            }
            // Whatever the birth: data that is written into place has an old one.
            let there = match data_is_there(&self.store, &mutations, Generation(0), &mut None) {
                Err(Error::CorruptLog { .. }) => false,
                there => there?,
            };
            if there {
                if !planted(Sabotage::ReplayOverDeltas) {
                    found.keep_blocks_of(&self.store, &mutations)?;
                }
                return Ok(Some(Taken { sequence: kept.sequence, mutations }));
            }
        }
        Ok(None)
    }
}
