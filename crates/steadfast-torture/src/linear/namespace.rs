//! Directories as a sequential object: names, the inodes they refer to, and the state that a power
//! cut would leave.
//!
//! An operation on one path is one step here. A link is made from an inode that the caller holds. A
//! link by path consists of two steps on every system, and other operations may come between them.

use std::collections::BTreeMap;

use super::Object;

/// A name: its directory and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Which directory.
    pub directory: u8,
    /// Which name.
    pub name: u8,
}

/// An inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// Its number.
    Number(u64),
    /// The inode made by the creation with this tag, whose answer no caller received.
    Unknown(u32),
}

/// The names of all directories.
pub type Names = BTreeMap<Path, Id>;

/// The visible state, and the state after a power cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NamespaceState {
    /// What callers see.
    pub live: Names,
    /// The state at the last transaction point.
    pub durable: Names,
}

/// The operations of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceOperation {
    /// Makes a new file, only if the name is free. The caller chooses the tag, different for each
    /// creation.
    Create(Path, u32),
    /// Adds a name for an inode that the caller has seen.
    Link(u64, Path),
    /// Replaces the old name by the new one, and removes whatever has the new name.
    Rename(Path, Path),
    /// Removes a name.
    Unlink(Path),
    /// Asks which inode has this name.
    Lookup(Path),
    /// Sets a transaction point.
    Commit,
    /// Returns to the last transaction point.
    Rollback,
}

/// The answers to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The operation is done.
    Done,
    /// The inode that was created or found.
    Found(u64),
    /// The name is taken.
    Exists,
    /// The name does not exist, or the inode to link has no name any more.
    Missing,
}

/// The object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Namespace;

impl Object for Namespace {
    type State = NamespaceState;
    type Operation = NamespaceOperation;
    type Answer = Answer;

    fn step(
        &self,
        state: &NamespaceState,
        operation: &NamespaceOperation,
        answer: Option<&Answer>,
    ) -> Option<NamespaceState> {
        let mut next = state.clone();
        let right = next.apply(*operation, answer.copied());
        // No caller received the answer, so any answer is right.
        answer.is_none_or(|answer| right.contains(answer)).then_some(next)
    }
}

impl NamespaceState {
    /// The state in which everything is durable.
    pub fn settled(names: Names) -> NamespaceState {
        NamespaceState { live: names.clone(), durable: names }
    }

    /// Whether a power cut in this state can leave these names. An inode number that no caller
    /// received may be any number that is otherwise unused.
    pub fn may_leave(&self, found: &BTreeMap<Path, u64>) -> bool {
        if self.durable.len() != found.len() {
            return false;
        }
        let mut meaning = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        self.durable.iter().zip(found).all(|((path, id), (found_path, number))| {
            let same = match id {
                Id::Number(expected) => expected == number,
                Id::Unknown(_) => true,
            };
            // The mapping is one to one: two names of one inode stay so, and two inodes stay two.
            path == found_path
                && same
                && meaning.insert(*id, *number).is_none_or(|before| before == *number)
                && numbers.insert(*number, *id).is_none_or(|before| before == *id)
        })
    }

    /// Makes the change and returns the right answers.
    fn apply(&mut self, operation: NamespaceOperation, answer: Option<Answer>) -> Vec<Answer> {
        match operation {
            NamespaceOperation::Create(path, tag) => self.create(path, tag, answer),
            NamespaceOperation::Link(number, path) => {
                let mut refusals = Vec::new();
                if self.live.contains_key(&path) {
                    refusals.push(Answer::Exists);
                }
                if !self.live.values().any(|id| *id == Id::Number(number)) {
                    refusals.push(Answer::Missing);
                }
                if !refusals.is_empty() {
                    return refusals;
                }
                self.live.insert(path, Id::Number(number));
                vec![Answer::Done]
            }
            NamespaceOperation::Rename(from, to) => {
                let Some(id) = self.live.get(&from).copied() else { return vec![Answer::Missing] };
                // For two names of one inode, POSIX requires that nothing happens.
                if self.live.get(&to) != Some(&id) {
                    self.live.remove(&from);
                    self.live.insert(to, id);
                }
                vec![Answer::Done]
            }
            NamespaceOperation::Unlink(path) => match self.live.remove(&path) {
                Some(_) => vec![Answer::Done],
                None => vec![Answer::Missing],
            },
            NamespaceOperation::Lookup(path) => match (self.live.get(&path).copied(), answer) {
                (None, _) => vec![Answer::Missing],
                (Some(Id::Number(number)), _) => vec![Answer::Found(number)],
                (Some(unknown), Some(Answer::Found(number))) if !self.uses(number) => {
                    self.learn(unknown, number);
                    vec![Answer::Found(number)]
                }
                (Some(Id::Unknown(_)), _) => Vec::new(),
            },
            NamespaceOperation::Commit => {
                self.durable.clone_from(&self.live);
                vec![Answer::Done]
            }
            NamespaceOperation::Rollback => {
                self.live.clone_from(&self.durable);
                vec![Answer::Done]
            }
        }
    }

    fn create(&mut self, path: Path, tag: u32, answer: Option<Answer>) -> Vec<Answer> {
        if self.live.contains_key(&path) {
            return vec![Answer::Exists];
        }
        let id = match answer {
            // A number in use cannot be that of a new inode.
            Some(Answer::Found(number)) if self.uses(number) => return Vec::new(),
            Some(Answer::Found(number)) => Id::Number(number),
            _ => Id::Unknown(tag),
        };
        self.live.insert(path, id);
        match id {
            Id::Number(number) => vec![Answer::Found(number)],
            Id::Unknown(_) => Vec::new(),
        }
    }

    fn uses(&self, number: u64) -> bool {
        self.live.values().chain(self.durable.values()).any(|id| *id == Id::Number(number))
    }

    /// A caller has seen the inode whose creation got no answer.
    fn learn(&mut self, unknown: Id, number: u64) {
        for id in self.live.values_mut().chain(self.durable.values_mut()) {
            if *id == unknown {
                *id = Id::Number(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Invocation, check};

    const A: Path = Path { directory: 0, name: 0 };
    const B: Path = Path { directory: 1, name: 0 };

    type Line = (NamespaceOperation, u64, Option<(Answer, u64)>);

    fn history(calls: &[Line]) -> Vec<Invocation<NamespaceOperation, Answer>> {
        let calls = calls.iter().copied();
        calls
            .map(|(operation, invoked, returned)| Invocation { operation, invoked, returned })
            .collect()
    }

    fn accepts(calls: &[Line], found: &[(Path, u64)]) -> bool {
        let found = found.iter().copied().collect();
        check(&Namespace, NamespaceState::default(), &history(calls), |state| {
            state.may_leave(&found)
        })
        .is_ok()
    }

    use Answer::*;
    use NamespaceOperation::*;

    /// Two callers that create and rename, with a commit between.
    fn good() -> Vec<Line> {
        vec![
            (Create(A, 0), 0, Some((Found(10), 5))),
            (Create(A, 1), 1, Some((Exists, 6))),
            (Commit, 7, Some((Done, 9))),
            (Rename(A, B), 8, Some((Done, 12))),
            (Lookup(A), 10, Some((Found(10), 11))),
            (Lookup(B), 13, Some((Found(10), 14))),
            (Unlink(B), 15, None),
        ]
    }

    #[test]
    fn a_true_history_is_accepted_with_either_state_that_the_commit_may_have_caught() {
        assert!(accepts(&good(), &[(A, 10)]));
        // The lookup of A after the commit had returned still found the file.
        assert!(!accepts(&good(), &[(B, 10)]));
        assert!(!accepts(&good(), &[]), "what was committed is there");
    }

    #[test]
    fn corrupted_histories_are_refused() {
        let with = |index: usize, answer: Answer| {
            let mut calls = good();
            if let Some((_, at)) = calls[index].2 {
                calls[index].2 = Some((answer, at));
            }
            accepts(&calls, &[(A, 10)])
        };
        assert!(with(0, Found(10)), "nothing corrupted");
        assert!(!with(0, Exists), "there was nothing");
        assert!(!with(0, Found(11)), "everybody else saw another inode");
        assert!(!with(1, Found(12)), "two creators of one name");
        assert!(!with(3, Missing), "the name was there");
        assert!(!with(4, Found(9)), "an inode that no call made");
        assert!(!with(5, Missing), "the renamed name has to be there");
        // A name that reappears: a lookup finds it after its removal has returned.
        let ghost = [
            (Create(A, 0), 0, Some((Found(10), 1))),
            (Unlink(A), 2, Some((Done, 3))),
            (Lookup(A), 4, Some((Found(10), 5))),
        ];
        assert!(!accepts(&ghost, &[]));
        // One caller sees the two halves of a rename apart: first one name is missing, then the
        // other.
        let halves = [
            (Create(A, 0), 0, Some((Found(10), 1))),
            (Rename(A, B), 2, Some((Done, 9))),
            (Lookup(A), 3, Some((Missing, 4))),
            (Lookup(B), 5, Some((Missing, 6))),
        ];
        assert!(!accepts(&halves, &[]));
        let both = [
            halves[0],
            halves[1],
            (Lookup(B), 3, Some((Found(10), 4))),
            (Lookup(A), 5, Some((Found(10), 6))),
        ];
        assert!(!accepts(&both, &[]));
    }

    #[test]
    fn a_cut_leaves_a_commit_and_nothing_between() {
        let calls = [
            (Create(A, 0), 0, Some((Found(10), 1))),
            (Commit, 2, Some((Done, 3))),
            (Create(B, 1), 4, Some((Found(11), 5))),
            (Commit, 6, None),
            (Rename(A, B), 7, None),
        ];
        assert!(accepts(&calls, &[(A, 10)]));
        assert!(accepts(&calls, &[(A, 10), (B, 11)]), "the last commit was in flight");
        assert!(accepts(&calls, &[(B, 10)]), "the rename too, and before it");
        assert!(!accepts(&calls, &[(B, 11)]));
        assert!(!accepts(&calls, &[]));
        assert!(!accepts(&calls[..3], &[(A, 10), (B, 11)]), "no call asked for a commit of B");
    }

    #[test]
    fn inodes_that_nobody_was_told_of_are_still_one_each() {
        let calls = [(Create(A, 0), 0, None), (Create(B, 1), 1, None), (Commit, 2, None)];
        assert!(accepts(&calls, &[(A, 5), (B, 6)]));
        assert!(!accepts(&calls, &[(A, 5), (B, 5)]));
        let seen = [
            calls[0],
            (Lookup(A), 3, Some((Found(7), 4))),
            (Link(7, B), 5, Some((Done, 6))),
            (Commit, 7, None),
        ];
        assert!(accepts(&seen, &[(A, 7), (B, 7)]));
        assert!(!accepts(&seen, &[(A, 7), (B, 8)]));
    }

    #[test]
    fn rollback_and_links() {
        let calls = [
            (Create(A, 0), 0, Some((Found(10), 1))),
            (Rollback, 2, Some((Done, 3))),
            (Link(10, B), 4, Some((Missing, 5))),
            (Create(A, 1), 6, Some((Found(11), 7))),
            (Commit, 8, Some((Done, 9))),
        ];
        assert!(accepts(&calls, &[(A, 11)]));
        let mut without = calls;
        without[1].2 = None;
        assert!(accepts(&without, &[(A, 11)]), "the rollback whose answer got lost");
        let mut kept = calls;
        kept[2].2 = Some((Done, 5));
        assert!(!accepts(&kept, &[(A, 11)]));
    }
}
