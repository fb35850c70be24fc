//! The states that a power cut may leave.
//!
//! The contract: after a cut the volume is exactly at the last acknowledged transaction point, or
//! at a later one whose commit record was in flight. The ledger keeps every transaction point with
//! two positions on the tape: where its commit record may have begun, and where it was
//! acknowledged.

use std::sync::{Arc, OnceLock};

use crate::model::State;

/// A transaction point.
#[derive(Debug, Clone)]
pub struct Point {
    /// The file system at that point.
    pub state: Arc<State>,
    /// Its description.
    pub label: String,
    /// Number of events on the tape when the operation that set it began.
    pub begun: usize,
    /// Number of events on the tape when it was acknowledged.
    pub acknowledged: Option<usize>,
    /// Number of points before this one that are alternatives to it. The ledger does not know which
    /// of them was set.
    alternatives: usize,
    digest: OnceLock<u128>,
}

impl Point {
    /// A point whose commit record begins after `begun` events and is acknowledged after
    /// `acknowledged` events.
    pub fn new(
        state: Arc<State>,
        label: String,
        begun: usize,
        acknowledged: Option<usize>,
    ) -> Point {
        Point { state, label, begun, acknowledged, alternatives: 0, digest: OnceLock::new() }
    }

    /// The digest of the state.
    pub fn digest(&self) -> u128 {
        *self.digest.get_or_init(|| self.state.digest())
    }
}

/// All transaction points of a run, in order. The first one is the state at the start of the run.
#[derive(Debug, Clone)]
pub struct Ledger {
    points: Vec<Point>,
}

impl Ledger {
    /// Starts with a state that is durable.
    pub fn new(state: Arc<State>) -> Ledger {
        let label = "the state at the start".to_owned();
        Ledger { points: vec![Point::new(state, label, 0, Some(0))] }
    }

    /// Starts with an opening that was durable after `opened` events: at first one of these points
    /// was on the medium, then `state`.
    pub fn taken(before: &[Point], state: Arc<State>, opened: usize) -> Ledger {
        let before = before.iter().enumerate().map(|(alternatives, point)| {
            let point = Point { begun: 0, acknowledged: Some(0), ..point.clone() };
            Point { alternatives, ..point }
        });
        let taken = Point::new(state, "what nodes kept".to_owned(), 0, Some(opened));
        Ledger { points: before.chain([taken]).collect() }
    }

    /// Adds an acknowledged transaction point.
    pub fn add(&mut self, state: Arc<State>, label: String, begun: usize, acknowledged: usize) {
        self.points.push(Point::new(state, label, begun, Some(acknowledged)));
    }

    /// Adds an acknowledged transaction point with one of these states. It was set in the middle of
    /// a call that consists of steps.
    pub fn add_one_of(
        &mut self,
        states: Vec<State>,
        label: &str,
        begun: usize,
        acknowledged: usize,
    ) {
        for (alternatives, state) in states.into_iter().enumerate() {
            let point = Point::new(Arc::new(state), label.to_owned(), begun, Some(acknowledged));
            self.points.push(Point { alternatives, ..point });
        }
    }

    /// The points, one of which is the last acknowledged one.
    pub fn last_candidates(&self) -> &[Point] {
        &self.points[self.first_candidate(self.last_index())..]
    }

    /// The latest point whose state differs from that of the last point.
    pub fn before_last(&self) -> Option<&Point> {
        let last = self.last().digest();
        self.points.iter().rev().find(|point| point.digest() != last)
    }

    /// Records that this is the state at the last acknowledged point.
    pub fn settle(&mut self, state: &Arc<State>) {
        let first = self.first_candidate(self.last_index());
        let found = self.points[first..].iter().position(|point| Arc::ptr_eq(&point.state, state));
        if let Some(found) = found {
            let point = Point { alternatives: 0, ..self.points[first + found].clone() };
            self.points.truncate(first);
            self.points.push(point);
        }
    }

    fn first_candidate(&self, index: usize) -> usize {
        index.saturating_sub(self.points[index].alternatives)
    }

    /// The last acknowledged point.
    pub fn last(&self) -> &Point {
        // The list always holds the first point.
        &self.points[self.points.len() - 1]
    }

    /// Index of the last point.
    pub fn last_index(&self) -> usize {
        self.points.len() - 1
    }

    /// The point with this index.
    pub fn point(&self, index: usize) -> &Point {
        &self.points[index]
    }

    /// The points that a power cut at event `cut` may leave: first the last acknowledged one, then
    /// those in flight.
    pub fn allowed(&self, cut: usize) -> &[Point] {
        let acknowledged = self
            .points
            .iter()
            .rposition(|point| point.acknowledged.is_some_and(|at| at <= cut))
            .unwrap_or(0);
        let begun =
            self.points.iter().rposition(|point| point.begun <= cut).unwrap_or(acknowledged);
        &self.points[self.first_candidate(acknowledged)..=begun.max(acknowledged)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_the_middle_of_a_call_is_one_of_several() {
        let state = State::empty(Default::default());
        let mut ledger = Ledger::new(Arc::new(state.clone()));
        ledger.add_one_of(vec![state.clone(), state.clone(), state.clone()], "before", 3, 6);
        assert_eq!([2, 3, 6, 9].map(|cut| ledger.allowed(cut).len()), [1, 4, 3, 3]);
        assert_eq!(ledger.last_candidates().len(), 3);
        let second = ledger.last_candidates()[1].state.clone();
        let mut settled = ledger.clone();
        settled.settle(&second);
        assert_eq!([2, 3, 6, 9].map(|cut| settled.allowed(cut).len()), [1, 2, 1, 1]);
        assert!(Arc::ptr_eq(&settled.last().state, &second));
        ledger.add(Arc::new(state), "after".into(), 6, 9);
        assert_eq!([6, 8, 9].map(|cut| ledger.allowed(cut).len()), [4, 4, 1]);
        assert_eq!(ledger.last_candidates().len(), 1);
    }

    #[test]
    fn a_cut_leaves_the_last_acknowledged_point_or_one_in_flight() {
        let state = Arc::new(State::empty(Default::default()));
        let mut ledger = Ledger::new(state.clone());
        ledger.add(state.clone(), "one".into(), 3, 6);
        ledger.add(state, "two".into(), 8, 9);
        let labels =
            |cut| ledger.allowed(cut).iter().map(|point| point.label.as_str()).collect::<Vec<_>>();
        assert_eq!(labels(2), ["the state at the start"]);
        assert_eq!(labels(3), ["the state at the start", "one"]);
        assert_eq!(labels(5), ["the state at the start", "one"]);
        assert_eq!(labels(6), ["one"]);
        assert_eq!(labels(8), ["one", "two"]);
        assert_eq!(labels(9), ["two"]);
    }
}
