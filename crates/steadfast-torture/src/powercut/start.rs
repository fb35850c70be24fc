//! The start of sequences: a volume on an image, and its state.

use std::sync::Arc;

use super::guard;
use crate::image::Image;
use crate::ledger::Point;
use crate::model::State;
use crate::operation::Operation;
use crate::platform::Clock;
use crate::random::Random;
use crate::schedule::Scheduler;
use crate::session::Session;
use crate::subject::Subject;
use crate::tape::Tape;
use crate::world::{Extras, World};

/// A closed volume and its state.
#[derive(Debug, Clone)]
pub struct Start {
    /// The medium.
    pub image: Image,
    /// The only state that the volume may be in.
    pub point: Point,
    /// The time of the last operation.
    pub tick: u64,
    /// Nodes of the tree of an empty volume of this world.
    pub nodes_when_new: u64,
}

/// Maximum number of operations on an earlier volume of the medium.
const EARLIER_OPERATIONS: u64 = 60;

impl Start {
    /// A fresh volume; `None` if the medium is too small for one.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn format<S: Subject>(world: &World) -> Result<Option<Start>, String> {
        let clock = Clock::default();
        let Some(image) = Self::medium::<S>(world)? else { return Ok(None) };
        let tape = Tape::new(image, world.atomic_unit, world.lie);
        match guard(|| S::format(world, &tape, &clock)) {
            Ok(Ok(())) => {}
            Ok(Err(steadfast::Error::VolumeTooSmall { .. })) => return Ok(None),
            Ok(Err(error)) => return Err(format!("format: {error}")),
            Err(panic) => return Err(format!("format panics: {panic}")),
        }
        let mut state = State::empty(clock.now());
        (state.mask, state.timer_ms) = (Some(world.format.mask), Some(world.format.timer_ms));
        let state = Arc::new(state);
        let point = Point::new(state, "the empty volume".to_owned(), 0, Some(0));
        let image = tape.image();
        let nodes_when_new = guard(|| {
            let (mut session, _) =
                Session::<S>::open(world, &tape, &clock, 0, std::slice::from_ref(&point))?;
            session.drain(None)
        })
        .map_err(|panic| format!("the empty volume panics: {panic}"))??;
        Ok(Some(Start { image, point, tick: 0, nodes_when_new }))
    }

    /// The medium before the volume is made: blank, or with the remains of an earlier volume.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn medium<S: Subject>(world: &World) -> Result<Option<Image>, String> {
        let blank = Image::new(world.size);
        if !world.extras.used_medium {
            return Ok(Some(blank));
        }
        let blank_world =
            World { extras: Extras { used_medium: false, ..world.extras }, ..world.clone() };
        let Some(start) = Self::format::<S>(&blank_world)? else { return Ok(None) };
        let clock = Clock::default();
        let tape =
            Tape::new(start.image, world.atomic_unit, world.lie).wanting_discards(world.discards);
        let allowed = std::slice::from_ref(&start.point);
        let (mut session, _) =
            Session::<S>::open(&blank_world, &tape, &clock, start.tick, allowed)?;
        let mut scheduler = Scheduler::new(&blank_world);
        let mut random = Random::new(world.seed).fork(12);
        for _ in 0..random.below(EARLIER_OPERATIONS) {
            let operation = scheduler.next(&session.model);
            session.step(&operation).map_err(|what| format!("on the earlier volume: {what}"))?;
        }
        if random.chance(1, 2) { session.close() } else { Ok(session.abandon()) }
            .map_err(|what| format!("on the earlier volume: {what}"))?;
        Ok(Some(tape.image()))
    }

    /// The volume after these operations, closed properly.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn after<S: Subject>(
        &self,
        world: &World,
        operations: &[Operation],
    ) -> Result<Start, String> {
        let clock = Clock::default();
        let tape = Tape::new(self.image.clone(), world.atomic_unit, world.lie);
        let allowed = std::slice::from_ref(&self.point);
        let (mut session, _) = Session::<S>::open(world, &tape, &clock, self.tick, allowed)?;
        for operation in operations {
            session.step(operation)?;
        }
        session.step(&Operation::Checkpoint)?;
        let tick = session.tick();
        let ledger = session.close()?;
        let state = ledger.last().state.clone();
        let point = Point::new(state, "the state before the sequence".to_owned(), 0, Some(0));
        Ok(Start { image: tape.image(), point, tick, nodes_when_new: self.nodes_when_new })
    }
}
