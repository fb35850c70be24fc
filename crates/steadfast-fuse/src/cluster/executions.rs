//! [`Executions`]: the requests of all nodes that an owner has executed, and whose answers the nodes
//! may not have; and [`Inherited`], what the next owner knows of them.
//!
//! Each delta ([`super::deltas`]) has with it the requests whose changes are in its state. A node
//! that survives brings them to the next owner with its delta. So that one knows of each request
//! without an answer whether its state has it. It executes those that it has not, and answers the
//! others as the owner before would have: every request is executed once.
//!
//! Invariants:
//! - A request is in the list before it changes anything, until its node has confirmed the answer.
//!   So if a request without an answer was sent to no owner before, and is not in the list of a
//!   delta, the state of that delta has nothing of it.
//! - Of requests that were sent to an owner before, the list has what is known. An owner that does
//!   not know of all of them tells the nodes ([`Inherited::reached`]), which fail them if that owner
//!   dies, too.
//! - The list of one node's delta has the requests of all nodes: any delta may become the state.
//! - Node and number name a request for as long as the node's mount lives, whatever owner it has.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast::volume::Reached;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::executing::{Ending, Execution};

/// Most requests in one list.
pub(super) const EXECUTED_MAX: usize = 1 << 14;

/// A request whose changes are in the state of a delta, or some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Executed {
    pub(super) node: u64,
    pub(super) number: u64,
    detail: u64,
    error: i32,
    /// 0: how it has ended is not known.
    is_known: u32,
}

impl Executed {
    pub(super) fn new((node, number): (u64, u64), ending: Option<Ending>) -> Executed {
        let Ending { error, detail } = ending.unwrap_or(Ending { error: 0, detail: 0 });
        Executed { node, number, detail, error, is_known: ending.is_some().into() }
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        (self.is_known != 0).then_some(Ending { error: self.error, detail: self.detail })
    }

    /// Reads a list with this many requests.
    ///
    /// # Errors
    /// The connection breaks, or there are too many.
    pub(super) fn read_list(reader: &mut dyn Read, count: usize) -> io::Result<Vec<Executed>> {
        if count > EXECUTED_MAX {
            let garbled = "more requests than nodes send at once";
            return Err(io::Error::new(io::ErrorKind::InvalidData, garbled));
        }
        let mut list = vec![Executed::new_zeroed(); count];
        reader.read_exact(list.as_mut_bytes())?;
        Ok(list)
    }
}

enum Entry {
    /// This owner executes it.
    Here(Arc<Execution>),
    /// An owner before has executed it.
    Before(Option<Ending>),
}

/// See the module.
#[derive(Default)]
pub(super) struct Executions(Mutex<HashMap<(u64, u64), Entry>>);

impl Executions {
    /// Those that a next owner has to know of, too.
    pub(super) fn inherited(executed: impl Iterator<Item = Executed>) -> Executions {
        let known = |executed: Executed| {
            ((executed.node, executed.number), Entry::Before(executed.ending()))
        };
        Executions(Mutex::new(executed.map(known).collect()))
    }

    /// A request is about to be executed here.
    pub(super) fn begin(&self, node: u64, number: u64) -> Arc<Execution> {
        let execution = Arc::new(Execution::default());
        self.known().insert((node, number), Entry::Here(Arc::clone(&execution)));
        execution
    }

    /// A node has the answers to these requests, or waits for none any more.
    pub(super) fn forget(&self, node: u64, numbers: impl Iterator<Item = u64>) {
        let mut known = self.known();
        numbers.for_each(|number| drop(known.remove(&(node, number))));
    }

    /// A node has the answers to all requests but these.
    pub(super) fn forget_others(&self, node: u64, pending: impl Fn(u64) -> bool) {
        self.known().retain(|(of, number), _| *of != node || pending(*number));
    }

    /// The requests whose changes a state with all batches up to `sequence` has. `None`: too many.
    pub(super) fn in_state(&self, sequence: u64) -> Option<Vec<Executed>> {
        let known = self.known();
        let executed = known.iter().filter_map(|(request, known)| {
            let ending = match known {
                Entry::Here(execution) => execution.in_state(sequence)?,
                Entry::Before(ending) => *ending,
            };
            Some(Executed::new(*request, ending))
        });
        let executed: Vec<_> = executed.collect();
        (executed.len() <= EXECUTED_MAX).then_some(executed)
    }

    /// All requests of a node that have changed something. `None`: too many.
    pub(super) fn of_node(&self, node: u64) -> Option<Vec<Executed>> {
        let mut executed = self.in_state(u64::MAX)?;
        executed.retain(|executed| executed.node == node);
        Some(executed)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(u64, u64), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a request that a node had sent to an owner before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The state has nothing of it.
    Execute,
    /// It is done.
    Ended(Ending),
    /// It may be done, or partly.
    Unknown,
}

/// What an owner knows of the requests that one node had sent to the owner before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inherited {
    executed: HashMap<u64, Option<Ending>>,
    /// The state has nothing of the others.
    is_all: bool,
}

impl Inherited {
    /// `executed`: of this node, or of all. `is_all`: the state has nothing of other requests.
    pub(super) fn of_node(node: u64, executed: &[Executed], is_all: bool) -> Inherited {
        let mut by_number = HashMap::new();
        for executed in executed.iter().filter(|executed| executed.node == node) {
            // One delta may have been given while the request was executed, and another one later.
            let ending = by_number.entry(executed.number).or_insert(None);
            *ending = ending.or(executed.ending());
        }
        Inherited { executed: by_number, is_all }
    }

    /// How the state compares with what nodes were told of.
    pub(super) fn reached(&self) -> Reached {
        if self.is_all { Reached::Same } else { Reached::All }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.executed.keys().copied()
    }

    /// For a list of the next owner.
    pub(super) fn executed(&self, node: u64) -> impl Iterator<Item = Executed> + '_ {
        self.executed.iter().map(move |(number, ending)| Executed::new((node, *number), *ending))
    }

    pub(super) fn verdict(&self, number: u64) -> Verdict {
        match self.executed.get(&number) {
            Some(Some(ending)) => Verdict::Ended(*ending),
            None if self.is_all => Verdict::Execute,
            Some(None) | None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executing::batch;

    const DONE: Ending = Ending { error: 0, detail: 0 };

    #[test]
    fn a_request_is_listed_from_its_first_batch_until_its_answer_is_confirmed() {
        let executions = Executions::default();
        let first = executions.begin(1, 5);
        executions.begin(2, 5);
        assert_eq!(executions.in_state(9).unwrap(), []);
        first.during(|| batch(4));
        assert_eq!(executions.in_state(3).unwrap(), []);
        assert_eq!(executions.in_state(4).unwrap(), [Executed::new((1, 5), None)]);
        executions.forget(2, [5].into_iter());
        assert_eq!(executions.in_state(4).unwrap().len(), 1, "another node has that answer");
        executions.forget_others(1, |number| number == 5);
        assert_eq!(executions.in_state(4).unwrap().len(), 1);
        executions.forget(1, [5].into_iter());
        assert_eq!(executions.in_state(4).unwrap(), []);
    }

    #[test]
    fn what_an_owner_before_has_executed_is_passed_on() {
        let list = [Executed::new((1, 5), Some(DONE)), Executed::new((1, 6), None)];
        let read = Executed::read_list(&mut list.as_bytes(), 2).unwrap();
        assert_eq!(read, list);
        assert!(Executed::read_list(&mut list.as_bytes(), EXECUTED_MAX + 1).is_err());
        let executions = Executions::inherited(list.into_iter());
        assert_eq!(executions.in_state(0).unwrap().len(), 2);
        let inherited = Inherited::of_node(1, &list, true);
        assert_eq!(inherited.verdict(5), Verdict::Ended(DONE));
        assert_eq!(
            (inherited.verdict(6), inherited.verdict(7)),
            (Verdict::Unknown, Verdict::Execute)
        );
        let unsure = Inherited::of_node(1, &list, false);
        assert_eq!(
            (unsure.verdict(5), unsure.verdict(7)),
            (Verdict::Ended(DONE), Verdict::Unknown)
        );
        assert_eq!(Inherited::of_node(2, &list, true).verdict(5), Verdict::Execute);
        assert_eq!(Inherited::default().verdict(5), Verdict::Unknown);
        let later = Executed::new((1, 6), Some(DONE));
        for lists in [[list[1], later], [later, list[1]]] {
            assert_eq!(Inherited::of_node(1, &lists, true).verdict(6), Verdict::Ended(DONE));
        }
    }
}
