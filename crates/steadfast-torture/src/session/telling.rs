//! Another node of a cluster, which is told of changes before they are durable.
//!
//! After some operations the node takes a delta. The data that a delta names is on the medium by
//! then, as a cluster's medium promises. So from that moment on the owner may die: the volume that
//! is opened with what the node keeps is in the state of that moment, or in a later one.

use std::sync::Arc;

use steadfast::volume::KeptDeltas;
use steadfast_media::Medium;

use super::Session;
use crate::ledger::Point;
use crate::operation::Operation;
use crate::random::Random;
use crate::subject::Subject;

/// One in so many operations is followed by a delta.
const ONE_IN: u64 = 3;

/// What the node keeps from some moment on.
#[derive(Debug, Clone)]
pub struct Told {
    /// Number of events on the tape when what the node was told before began to count no more.
    begun: usize,
    /// Number of events on the tape from which on this counts.
    at: usize,
    kept: KeptDeltas,
    /// The state that it was told of; `None`: nothing is promised.
    point: Option<Point>,
}

/// All that the node was told of in a run.
#[derive(Debug, Clone, Default)]
pub struct Tellings(Vec<Told>);

/// What the node keeps when the power is cut.
pub struct Survivor<'a> {
    /// Its deltas, and what it kept earlier.
    pub kept: Vec<KeptDeltas>,
    /// The state that it was told of last.
    pub point: Option<&'a Point>,
    /// A rollback that drops this state may have ended.
    pub ending: bool,
}

/// What nodes bring to an opening.
#[derive(Debug, Clone, Copy)]
pub struct Brought<'a> {
    /// Their deltas.
    pub deltas: &'a [KeptDeltas],
    /// The states that the volume may be in without them.
    pub without: &'a [Point],
    /// The state that the node of the last ones was told of. The volume must have all of it.
    pub told: Option<&'a Point>,
}

impl Tellings {
    /// What the node keeps at a power cut at event `cut`.
    pub fn at(&self, cut: usize) -> Option<Survivor<'_>> {
        let last = self.0.partition_point(|told| told.at <= cut).checked_sub(1)?;
        let Told { kept, point, .. } = &self.0[last];
        let next = self.0.get(last + 1);
        let ending = next.is_some_and(|next| next.point.is_none() && next.begun <= cut);
        // Nothing of an earlier term is passed on.
        let earlier = last.checked_sub(1).filter(|_| *kept != KeptDeltas::default());
        let earlier = earlier.map(|earlier| self.0[earlier].kept.clone());
        let kept = earlier.into_iter().chain([kept.clone()]).collect();
        Some(Survivor { kept, point: point.as_ref(), ending })
    }
}

impl<S: Subject> Session<'_, S> {
    /// The volume is about to be opened again. In the term of another owner nothing counts that was
    /// kept before.
    pub(super) fn begin_term(&mut self) {
        self.kept = KeptDeltas::default();
        let at = self.tape.position();
        self.tellings.0.push(Told { begun: at, at, kept: self.kept.clone(), point: None });
    }

    /// After an operation that began at event `begun`, and was done or refused.
    pub(super) fn tell(
        &mut self,
        operation: &Operation,
        begun: usize,
        done: bool,
    ) -> Result<(), String> {
        if !self.world.extras.deltas {
            return Ok(());
        }
        let drops = matches!(
            operation,
            Operation::Rollback | Operation::Abort | Operation::SnapshotRollback { .. }
        );
        if drops && done {
            let at = self.tape.position();
            self.tellings.0.push(Told { begun, at, kept: self.kept.clone(), point: None });
        }
        if self.subject.failure().is_some()
            || !Random::new(self.world.seed ^ self.tick).fork(13).chance(1, ONE_IN)
        {
            return Ok(());
        }
        let points = self.subject.facts().transaction_points;
        let begun = self.tape.position();
        let delta = self.subject.delta(self.kept.sequence);
        let delta = delta.map_err(|error| format!("no delta: {error}"))?;
        if self.subject.facts().transaction_points > points {
            self.point("a delta".to_owned(), begun);
        }
        let Some(delta) = delta else { return Ok(()) };
        self.kept.keep(delta).map_err(|error| format!("a delta does not fit: {error}"))?;
        self.tape.flush().map_err(|error| format!("flush: {error}"))?;
        let at = self.tape.position();
        let mut state = self.model.state.clone();
        // Mask and timer become durable in their own way.
        (state.mask, state.timer_ms) = (None, None);
        let point = Point::new(Arc::new(state), "what a node was told".to_owned(), at, None);
        self.tellings.0.push(Told { begun, at, kept: self.kept.clone(), point: Some(point) });
        Ok(())
    }
}
