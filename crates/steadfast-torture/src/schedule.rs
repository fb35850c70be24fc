//! The schedule: several clients of one volume and its background work, interleaved by seed.
//!
//! An operation of the core is atomic at its interface. So a scheduler decides the order of
//! operations, the turns of background work between them, and how far the clock advances. The tests
//! with threads cover races inside an operation.

use crate::generate::Generator;
use crate::model::Model;
use crate::operation::{CLIENTS, Operation};
use crate::random::Random;
use crate::world::World;

/// Draws the next operation of one of the clients.
#[derive(Debug, Clone)]
pub struct Scheduler {
    clients: Vec<Generator>,
    random: Random,
    /// The client whose turn it is.
    current: usize,
}

impl Scheduler {
    /// The clients of this world.
    pub fn new(world: &World) -> Scheduler {
        let clients = (0..world.clients.clamp(1, CLIENTS as u8))
            .map(|number| Generator::client(world, number));
        Scheduler {
            clients: clients.collect(),
            random: Random::new(world.seed).fork(5),
            current: 0,
        }
    }

    /// The next operation. It is drawn with the help of the model, so that most operations find a
    /// file.
    pub fn next(&mut self, model: &Model) -> Operation {
        // A client usually keeps its turn, like a program that holds the processor.
        if self.clients.len() > 1 {
            if self.random.chance(1, 16) {
                return Operation::Turn { advance_ms: self.random.pick(&[0, 0, 10, 500, 6000]) };
            }
            if self.random.chance(2, 5) {
                self.current = self.random.index(self.clients.len());
            }
        }
        self.clients[self.current].next(model)
    }

    /// The operations of the current client after one that found no space.
    pub fn refill(&mut self, model: &Model) -> [Operation; 2] {
        self.clients[self.current].refill(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Limits, State};
    use crate::operation::{Place, SLOTS};
    use crate::world::Profile;

    #[test]
    fn clients_take_turns_and_hold_files_of_their_own() {
        let world = World { clients: 3, ..World::new(11, Profile::Mixed) };
        let model =
            Model::open(State::empty(Default::default()), Limits::default(), Default::default());
        let draw = || {
            let mut scheduler = Scheduler::new(&world);
            (0..500).map(|_| scheduler.next(&model)).collect::<Vec<_>>()
        };
        let operations = draw();
        assert_eq!(operations, draw(), "the order depends on the seed only");
        let mut held = [0; CLIENTS];
        let mut turns = 0;
        for operation in &operations {
            match operation {
                Operation::Acquire { slot, .. }
                | Operation::Release { slot }
                | Operation::CreateUnnamed { slot, .. }
                | Operation::Closed { place: Place::Slot(slot) } => {
                    held[usize::from(*slot) / SLOTS] += 1
                }
                Operation::Turn { .. } => turns += 1,
                _ => {}
            }
        }
        assert!(held[..3].iter().all(|count| *count > 0) && held[3] == 0, "{held:?}");
        assert!(turns > 5);
    }
}
