//! Checks whether several concurrent callers saw results that some sequential order explains.
//!
//! A history holds, for each operation, when it was invoked, what it answered, and when it
//! returned. A history is *linearisable* if its operations have an order with two properties. It
//! keeps real precedence: an operation that returned before another was invoked comes first. And
//! every answer is right for a sequential object in this order. An operation that never returned,
//! because the process was killed, may have taken effect at any time after its invocation, or not
//! at all.
//!
//! The search is that of Wing and Gong: it tries each of the operations that may come next. It adds
//! Lowe's memory of failed situations, that is, the operations placed so far and the resulting
//! state. The search stays small with few callers: every operation that returned before the oldest
//! open one was invoked is already placed.

pub mod namespace;

use std::collections::HashSet;
use std::hash::Hash;

/// A sequential object.
pub trait Object {
    /// Its state; equal states behave the same forever.
    type State: Clone + Eq + Hash;
    /// The operations of callers.
    type Operation;
    /// The answers to callers.
    type Answer;

    /// The state after the operation, if this answer is right in this state. `None` stands for an
    /// answer that no caller received; then any answer is right.
    fn step(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}

/// One operation of a history.
#[derive(Debug, Clone)]
pub struct Invocation<O, A> {
    /// The operation.
    pub operation: O,
    /// Time of the invocation, in any unit that only grows.
    pub invoked: u64,
    /// The answer and its time; `None` if there was none.
    pub returned: Option<(A, u64)>,
}

/// The reason for refusing a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The longest valid order, as positions in the history. The offending call is among those
    /// after it.
    pub longest: Vec<usize>,
}

/// Searches for an order in which every answer is right and whose last state satisfies `end`.
/// Returns the positions of the calls in that order. Calls without an answer may be missing from
/// it.
///
/// # Errors
/// There is no such order.
pub fn check<T: Object>(
    object: &T,
    start: T::State,
    history: &[Invocation<T::Operation, T::Answer>],
    end: impl Fn(&T::State) -> bool,
) -> Result<Vec<usize>, Refused> {
    let answered = history.iter().filter(|call| call.returned.is_some()).count();
    let mut by_invocation: Vec<usize> = (0..history.len()).collect();
    by_invocation.sort_by_key(|index| history[*index].invoked);
    let mut longest = Vec::new();
    let mut seen = HashSet::new();
    let mut order: Vec<usize> = Vec::new();
    // Depth first with an explicit stack: each level holds an order so far, and the calls still to
    // try after it.
    let placed = vec![0u64; history.len().div_ceil(64)];
    let next = candidates(history, &by_invocation, &placed);
    let mut levels = vec![Level { placed, state: start, answered: 0, next }];
    loop {
        let Some(level) = levels.last_mut() else { return Err(Refused { longest }) };
        if level.answered == answered && end(&level.state) {
            return Ok(order);
        }
        let Some(index) = level.next.pop() else {
            levels.pop();
            order.pop();
            continue;
        };
        let call = &history[index];
        let answer = call.returned.as_ref().map(|(answer, _)| answer);
        let Some(state) = object.step(&level.state, &call.operation, answer) else { continue };
        let mut placed = level.placed.clone();
        placed[index / 64] |= 1 << (index % 64);
        if !seen.insert((placed.clone(), state.clone())) {
            continue;
        }
        let answered = level.answered + usize::from(answer.is_some());
        let next = candidates(history, &by_invocation, &placed);
        order.push(index);
        if order.len() > longest.len() {
            longest.clone_from(&order);
        }
        levels.push(Level { placed, state, answered, next });
    }
}

struct Level<S> {
    /// One bit per call.
    placed: Vec<u64>,
    state: S,
    /// Number of placed calls that have an answer.
    answered: usize,
    /// Calls to try; the last one is tried first.
    next: Vec<usize>,
}

/// The calls that may come next: those invoked before any other unplaced call has returned.
fn candidates<O, A>(
    history: &[Invocation<O, A>],
    by_invocation: &[usize],
    placed: &[u64],
) -> Vec<usize> {
    let open = || {
        by_invocation.iter().copied().filter(|index| placed[index / 64] & (1 << (index % 64)) == 0)
    };
    let returned = |index: usize| history[index].returned.as_ref().map_or(u64::MAX, |(_, at)| *at);
    let mut first_return = u64::MAX;
    for index in open() {
        if history[index].invoked > first_return {
            break;
        }
        first_return = first_return.min(returned(index));
    }
    let mut next: Vec<usize> =
        open().take_while(|index| history[*index].invoked <= first_return).collect();
    // The search takes calls from the end. The call that returned first was most likely the first;
    // calls without an answer come last.
    next.sort_by_key(|index| std::cmp::Reverse(returned(*index)));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register with a write and a read operation.
    struct Register;

    #[derive(Debug, Clone)]
    enum Do {
        Write(u32),
        Read,
    }

    impl Object for Register {
        type State = u32;
        type Operation = Do;
        type Answer = u32;

        fn step(&self, state: &u32, operation: &Do, answer: Option<&u32>) -> Option<u32> {
            match operation {
                Do::Write(value) => Some(*value),
                Do::Read => answer.is_none_or(|answer| answer == state).then_some(*state),
            }
        }
    }

    fn call(operation: Do, invoked: u64, answer: u32, returned: u64) -> Invocation<Do, u32> {
        Invocation { operation, invoked, returned: Some((answer, returned)) }
    }

    fn accepts(history: &[Invocation<Do, u32>], last: u32) -> bool {
        check(&Register, 0, history, |state| *state == last).is_ok()
    }

    #[test]
    fn overlapping_calls_may_come_in_any_order() {
        let history =
            [call(Do::Write(1), 0, 0, 10), call(Do::Read, 1, 1, 2), call(Do::Read, 3, 1, 4)];
        assert!(accepts(&history, 1));
        let history =
            [call(Do::Write(1), 0, 0, 10), call(Do::Read, 1, 0, 2), call(Do::Read, 3, 1, 4)];
        assert!(accepts(&history, 1));
    }

    #[test]
    fn what_was_before_stays_before() {
        // The value appears and disappears, and no call wrote the old value again.
        let history =
            [call(Do::Write(1), 0, 0, 10), call(Do::Read, 1, 1, 2), call(Do::Read, 3, 0, 4)];
        assert!(!accepts(&history, 1));
        // A stale read.
        let history = [call(Do::Write(1), 0, 0, 1), call(Do::Read, 2, 0, 3)];
        let refused = check(&Register, 0, &history, |_| true).unwrap_err();
        assert_eq!(refused.longest, [0]);
        // A value that no call wrote.
        assert!(!accepts(&[call(Do::Read, 0, 7, 1)], 0));
        assert!(!accepts(&[call(Do::Write(1), 0, 0, 1)], 0), "the last state counts");
    }

    #[test]
    fn a_call_that_never_returned_has_happened_or_not() {
        let lost = Invocation { operation: Do::Write(5), invoked: 3, returned: None };
        for (answer, last, right) in [(0, 5, true), (0, 0, true), (5, 5, true), (5, 0, false)] {
            let history = [lost.clone(), call(Do::Read, 4, answer, 6)];
            assert_eq!(accepts(&history, last), right, "{answer}, {last}");
        }
        let before = [call(Do::Read, 0, 5, 1), lost];
        assert!(!accepts(&before, 5), "an effect before its cause");
    }

    #[test]
    fn long_histories_of_few_callers_are_quick() {
        // Four callers, whose calls always overlap.
        let mut history = Vec::new();
        for round in 0..500u64 {
            for caller in 0..4 {
                let at = round * 10;
                history.push(call(Do::Write((round * 4 + caller) as u32), at + caller, 0, at + 8));
            }
            history.push(call(Do::Read, round * 10 + 9, (round * 4) as u32, round * 10 + 9));
        }
        assert!(accepts(&history, 499 * 4));
        let last = history.len() - 1;
        history[last].returned = Some((12, 4_999));
        assert!(!accepts(&history, 12));
    }
}
