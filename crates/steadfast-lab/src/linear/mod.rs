//! Is what several callers saw the same as if one had come after the other?
//!
//! A history says for each operation when it was invoked, what it answered and when it returned. It
//! is *linearisable* when there is an order of the operations that keeps what really was before
//! what (an operation that returned before another one was invoked comes before it) and in which
//! every answer is right for a sequential object. Operations that never returned (the process was
//! killed) may have had their effect at any time after their invocation, or none.
//!
//! The search is that of Wing and Gong: of the operations that may come next, try each; with Lowe's
//! memory of the situations (which operations are in, what state they left) that are known to lead
//! nowhere. Few callers keep it small: whatever has returned before the oldest open operation was
//! invoked is in.

pub mod namespace;

use std::collections::HashSet;
use std::hash::Hash;

/// A sequential object.
pub trait Object {
    /// What it is like; equal states behave the same for ever.
    type State: Clone + Eq + Hash;
    /// What callers ask for.
    type Operation;
    /// What they are told.
    type Answer;

    /// The state after the operation, if this answer is right in this state; `None` stands for an
    /// answer that nobody got, and any is right.
    fn step(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}

/// One operation of a history.
#[derive(Debug, Clone)]
pub struct Call<O, A> {
    /// What was asked for.
    pub operation: O,
    /// When, in any unit that only grows.
    pub invoked: u64,
    /// What was answered and when; `None`: nothing was.
    pub returned: Option<(A, u64)>,
}

/// Why a history is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The longest order that could be found, as places in the history; what spoils it is among the
    /// calls after it.
    pub longest: Vec<usize>,
}

/// Looks for an order in which every answer is right and whose last state satisfies `end`; returns
/// the places of the calls in the history in that order. Calls without an answer may be left out of
/// it.
///
/// # Errors
/// When there is none.
pub fn check<T: Object>(
    object: &T,
    start: T::State,
    history: &[Call<T::Operation, T::Answer>],
    end: impl Fn(&T::State) -> bool,
) -> Result<Vec<usize>, Refused> {
    let answered = history.iter().filter(|call| call.returned.is_some()).count();
    let mut by_invocation: Vec<usize> = (0..history.len()).collect();
    by_invocation.sort_by_key(|index| history[*index].invoked);
    let mut longest = Vec::new();
    let mut seen = HashSet::new();
    let mut order: Vec<usize> = Vec::new();
    // Depth first with a stack of its own: an order so far on each level, and what is still to be
    // tried after it.
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
    /// One bit a call.
    placed: Vec<u64>,
    state: S,
    /// How many of those placed were answered.
    answered: usize,
    /// Calls to try, the last one first.
    next: Vec<usize>,
}

/// The calls that may come next: those invoked before anything else that is still to be placed has
/// returned.
fn candidates<O, A>(history: &[Call<O, A>], by_invocation: &[usize], placed: &[u64]) -> Vec<usize> {
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
    // Taken from the end: what returned first was most likely first; what nobody heard of comes
    // last.
    next.sort_by_key(|index| std::cmp::Reverse(returned(*index)));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register that can be written and read.
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

    fn call(operation: Do, invoked: u64, answer: u32, returned: u64) -> Call<Do, u32> {
        Call { operation, invoked, returned: Some((answer, returned)) }
    }

    fn accepts(history: &[Call<Do, u32>], last: u32) -> bool {
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
        // The value comes and goes again, with nobody who wrote it back.
        let history =
            [call(Do::Write(1), 0, 0, 10), call(Do::Read, 1, 1, 2), call(Do::Read, 3, 0, 4)];
        assert!(!accepts(&history, 1));
        // A stale read.
        let history = [call(Do::Write(1), 0, 0, 1), call(Do::Read, 2, 0, 3)];
        let refused = check(&Register, 0, &history, |_| true).unwrap_err();
        assert_eq!(refused.longest, [0]);
        // A value that nobody wrote.
        assert!(!accepts(&[call(Do::Read, 0, 7, 1)], 0));
        assert!(!accepts(&[call(Do::Write(1), 0, 0, 1)], 0), "the last state counts");
    }

    #[test]
    fn a_call_that_never_returned_has_happened_or_not() {
        let lost = Call { operation: Do::Write(5), invoked: 3, returned: None };
        for (answer, last, right) in [(0, 5, true), (0, 0, true), (5, 5, true), (5, 0, false)] {
            let history = [lost.clone(), call(Do::Read, 4, answer, 6)];
            assert_eq!(accepts(&history, last), right, "{answer}, {last}");
        }
        let before = [call(Do::Read, 0, 5, 1), lost];
        assert!(!accepts(&before, 5), "an effect before its cause");
    }

    #[test]
    fn long_histories_of_few_callers_are_quick() {
        // Four callers, always overlapping.
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
