//! Where sequences begin: a volume on an image and the state that it is in.

use std::sync::Arc;

use super::guard;
use crate::image::Image;
use crate::ledger::Point;
use crate::model::State;
use crate::operation::Operation;
use crate::platform::Clock;
use crate::session::Session;
use crate::subject::Subject;
use crate::tape::Tape;
use crate::world::World;

/// A closed volume and what is in it.
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

impl Start {
    /// A fresh volume; `None` where the medium is too small for one.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn format<S: Subject>(world: &World) -> Result<Option<Start>, String> {
        let clock = Clock::default();
        let tape = Tape::new(Image::new(world.size), world.atomic_unit, world.lie);
        match guard(|| S::format(world, &tape, &clock)) {
            Ok(Ok(())) => {}
            Ok(Err(steadfast::Error::VolumeTooSmall { .. })) => return Ok(None),
            Ok(Err(error)) => return Err(format!("format: {error}")),
            Err(panic) => return Err(format!("format panics: {panic}")),
        }
        let state = Arc::new(State::empty(clock.now()));
        let point = Point::new(state, "the empty volume".to_owned(), 0, Some(0));
        let image = tape.image();
        let nodes_when_new = guard(|| {
            let (mut session, _) = Session::<S>::open(world, &tape, &clock, 0, std::slice::from_ref(&point))?;
            session.drain(None)
        })
        .map_err(|panic| format!("the empty volume panics: {panic}"))??;
        Ok(Some(Start { image, point, tick: 0, nodes_when_new }))
    }

    /// The volume after these operations, closed in good order.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn after<S: Subject>(&self, world: &World, operations: &[Operation]) -> Result<Start, String> {
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
