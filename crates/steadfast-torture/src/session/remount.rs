//! Closing a volume, or just dropping it, and reopening it.

use std::sync::Arc;

use steadfast_media::MediumOperation;

use super::{Session, Verdict, limits};
use crate::compare::compare_parameters;
use crate::ledger::Ledger;
use crate::model::{Model, State};
use crate::operation::ALL_SLOTS;
use crate::subject::Subject;

impl<S: Subject> Session<'_, S> {
    /// Reopens the volume. After faults it may be in one of several states.
    pub(crate) fn remount(&mut self, clean: bool) -> Result<Verdict, String> {
        if clean && self.subject.failure().is_none() {
            self.close_for_remount()?;
        }
        self.reopen()
    }

    /// Opens the closed volume, and determines its state.
    pub(super) fn reopen(&mut self) -> Result<Verdict, String> {
        self.begin_term();
        let strikes = self.tape.strikes(MediumOperation::Read);
        self.subject = self.open_subject()?;
        let limits = limits(&self.subject);
        let mut differences = String::new();
        let last: Vec<Arc<State>> =
            self.ledger.last_candidates().iter().map(|point| point.state.clone()).collect();
        let in_flight = std::mem::take(&mut self.in_flight);
        // The log has only one copy: a last record that stays unreadable looks like an interrupted
        // one.
        let unread = self.tape.strikes(MediumOperation::Read) > strikes;
        let before = self.ledger.before_last().filter(|_| unread).map(|point| point.state.clone());
        for state in in_flight.iter().rev().chain(last.iter().rev()).chain(&before) {
            self.model = Model::open(state.as_ref().clone(), limits, self.model.now);
            let opened = compare_parameters(&self.subject, &self.model.state);
            match opened.and_then(|()| self.compare()) {
                Ok(()) => {
                    if last.iter().any(|last| Arc::ptr_eq(state, last)) {
                        self.ledger.settle(state);
                    } else if before.as_ref().is_some_and(|before| Arc::ptr_eq(state, before)) {
                        self.ledger = Ledger::new(state.clone());
                    } else {
                        let end = self.tape.position();
                        self.ledger.add(state.clone(), "what was in flight".to_owned(), end, end);
                    }
                    self.numbers = self.model.state.nodes().map(|(inode, _)| inode).collect();
                    self.slots = [None; ALL_SLOTS];
                    self.dirty_since_ms = None;
                    return Ok(Verdict::Done);
                }
                Err(what) => differences += &format!("; {what}"),
            }
        }
        Err(format!("after opening it again it is in no state that is allowed{differences}"))
    }

    pub(super) fn close_for_remount(&mut self) -> Result<(), String> {
        let strikes = self.tape.all_strikes();
        match self.close_subject() {
            Err(_) if self.tape.all_strikes() > strikes => {
                self.in_flight.push(Arc::new(self.model.state.clone()));
                Ok(())
            }
            other => other,
        }
    }

    /// Opens the volume. A fault may prevent that with an error that names it, but not for longer
    /// than the fault lasts.
    pub(super) fn open_subject(&self) -> Result<S, String> {
        let open = || S::open(self.world, &self.tape, &self.clock);
        let strikes = self.tape.all_strikes();
        let opened = match open() {
            // A block of the log that cannot be read is a durable point that is lost.
            Err(steadfast::Error::Medium(_) | steadfast::Error::NewerStateLost(_))
                if self.tape.all_strikes() > strikes =>
            {
                self.tape.undisturbed(open)
            }
            other => other,
        };
        opened.map_err(|error| format!("the volume does not open again: {error}"))
    }
}
