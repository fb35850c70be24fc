//! The states allowed after an operation that a fault has stopped. The rules are those of
//! [`faults`](super).

use std::sync::Arc;

use steadfast::{Error, InodeNumber, TransactionMask};
use steadfast_media::MediumOperation;

use crate::fault::Fault;
use crate::model::State;
use crate::operation::Operation;
use crate::session::{Attempt, Session, Verdict};
use crate::subject::{Call, Reply, Subject};
use crate::triggers::{is_commit, triggers};

/// Whether the call gives up changes that are not durable.
const fn is_rollback(call: &Call<'_>) -> bool {
    matches!(call, Call::Rollback | Call::Abort | Call::SnapshotRollback { .. })
}

impl<S: Subject> Session<'_, S> {
    /// The reason why the volume became read-only, if it did.
    pub fn failure(&self) -> Option<&'static str> {
        self.subject.failure()
    }

    /// Does one operation while the medium may fail. Returns 1 if the fault refused it.
    pub(super) fn step_in_trouble(&mut self, operation: &Operation) -> Result<u64, String> {
        if *operation == Operation::Compare {
            let strikes = self.tape.all_strikes();
            let seen = self.compare_with(&self.model.state, 5);
            return match seen {
                Ok(()) => Ok(0),
                Err(_) if self.tape.all_strikes() > strikes => {
                    self.compare().map_err(|what| format!("after a failed read: {what}"))?;
                    Ok(1)
                }
                Err(what) => Err(what),
            };
        }
        match self.step(operation)? {
            Verdict::Refused(Fault::Broken) => {
                let rollback = matches!(
                    operation,
                    Operation::Rollback | Operation::Abort | Operation::SnapshotRollback { .. }
                );
                if rollback && self.failure().is_some() {
                    self.roll_back_again(operation)?;
                }
                Ok(1)
            }
            _ => Ok(0),
        }
    }

    /// Repeats a rollback that could not read everything. The volume shows nothing until a rollback
    /// has succeeded.
    fn roll_back_again(&mut self, operation: &Operation) -> Result<(), String> {
        if self.tape.strikes(MediumOperation::Read) == 0 {
            // A write failed, so the volume stays read-only.
            return Ok(());
        }
        let tape = self.tape.clone();
        tape.undisturbed(|| self.step(&Operation::Rollback))?;
        if matches!(operation, Operation::SnapshotRollback { .. }) {
            // It may have made the last point durable once more, with the mask in force.
            self.in_flight.push(Arc::new(self.model.state.clone()));
        }
        Ok(())
    }

    /// Whether an error may come from a fault of the medium.
    pub(crate) fn is_struck(&self, error: &Error) -> bool {
        self.tape.all_strikes() > 0 && matches!(error, Error::Medium(_) | Error::Poisoned(_))
    }

    /// Judges a call that a fault has stopped.
    pub(crate) fn judge_fault(
        &mut self,
        attempt: &Attempt<'_>,
        error: Error,
    ) -> Result<Verdict, String> {
        let Attempt { call, label, begun, points, ref before, .. } = *attempt;
        let refused = Ok(Verdict::Refused(Fault::Broken));
        self.check_failure(is_rollback(call))?;
        self.check_held(call)?;
        // A rollback to a snapshot sets the last point again, whatever happens afterwards.
        if points > 0 && !matches!(call, Call::SnapshotRollback { .. }) {
            // The volume was full and committed the earlier changes.
            self.points_before(call, label, begun, before);
        }
        if matches!(call, Call::Rollback | Call::Abort) {
            if self.subject.failure().is_none() {
                self.compare().map_err(|what| format!("refused with '{error}', but: {what}"))?;
            }
            return refused;
        }
        if matches!(call, Call::SnapshotRollback { .. }) {
            self.judge_snapshot_rollback(call, error)?;
            return refused;
        }
        if matches!(error, Error::Poisoned(_)) && self.in_flight.len() > 2 {
            // This state was compared often enough.
            return refused;
        }
        self.in_flight.push(Arc::new(self.model.state.clone()));
        let mask = self.subject.facts().mask;
        let sets_point =
            triggers(call, mask) || is_commit(call) || mask.contains(TransactionMask::VOLUME_FULL);
        let after = self.after(call);
        if let Err(what) = self.compare_refused(call) {
            // The change was made, and then its transaction point failed.
            let Some(made) = after.clone().filter(|_| triggers(call, mask)) else {
                return Err(format!("refused with '{error}', but something has changed: {what}"));
            };
            if matches!(call, Call::SnapshotCreate { .. }) && self.failure().is_none() {
                // A snapshot can be opened only once it is durable.
                self.model.state = made.clone();
                let tape = self.tape.clone();
                tape.undisturbed(|| self.step(&Operation::Checkpoint))?;
            }
            self.tape.undisturbed(|| self.compare_with(&made, 9)).map_err(|other| {
                format!("refused with '{error}', but neither undone ({what}) nor done ({other})")
            })?;
            self.model.state = made;
        }
        if sets_point {
            let between = self.steps(call, before).into_iter().skip(1);
            self.in_flight.extend(between.chain(after).map(Arc::new));
        }
        refused
    }

    /// Judges a rollback to a snapshot, which begins with an ordinary rollback. So it has done only
    /// that, or nothing, or everything except making it durable. Or the volume shows nothing until
    /// another rollback.
    fn judge_snapshot_rollback(&mut self, call: &Call<'_>, error: Error) -> Result<(), String> {
        let mut last = self.model.clone();
        last.roll_back(&self.ledger.last().state);
        let shown = [Some(last.state), Some(self.model.state.clone()), self.after(call)];
        self.in_flight.extend(shown.iter().flatten().cloned().map(Arc::new));
        let root = self.tape.undisturbed(|| self.subject.attributes(InodeNumber::ROOT));
        if self.tape.strikes(MediumOperation::Read) > 0 && matches!(root, Err(Error::Poisoned(_))) {
            return Ok(());
        }
        let mut differences = Vec::new();
        for (step, state) in shown.into_iter().flatten().enumerate() {
            match self.tape.undisturbed(|| self.compare_with(&state, 9)) {
                Ok(()) => {
                    self.model.state = state;
                    if step == 0 {
                        // No change is left that is not durable.
                        self.dirty_since_ms = None;
                    }
                    return Ok(());
                }
                Err(what) => differences.push(what),
            }
        }
        Err(format!(
            "refused with '{error}', but in none of the states that may be there: {differences:?}"
        ))
    }

    /// Judges background work that a fault has stopped.
    pub(crate) fn judge_background_fault(&mut self, error: Error) -> Result<(), String> {
        self.check_failure(false)?;
        self.in_flight.push(Arc::new(self.model.state.clone()));
        self.compare().map_err(|what| format!("background work met '{error}', but: {what}"))
    }

    /// Checks the hold. If a hold cannot be ended, it continues, so that no other caller commits
    /// half of it. If the volume became read-only, the hold has ended. A hold that could not begin
    /// does not exist.
    fn check_held(&mut self, call: &Call<'_>) -> Result<(), String> {
        let right = match call {
            Call::Begin => false,
            Call::Commit | Call::Abort => self.failure().is_none(),
            _ => return Ok(()),
        };
        let held = self.subject.is_held();
        self.model.held = held;
        if held == right {
            Ok(())
        } else {
            Err(format!("refused, and held is {held}, right is {right}"))
        }
    }

    /// Judges a resize that a fault has stopped: nothing is lost, and the volume has one of the two
    /// sizes. If shrinking failed at the last moment, the volume is opened again.
    pub(crate) fn judge_resize_fault(
        &mut self,
        error: Error,
        sizes: [u64; 2],
    ) -> Result<Verdict, String> {
        self.check_failure(false)?;
        self.in_flight.push(Arc::new(self.model.state.clone()));
        let root = self.tape.undisturbed(|| self.subject.attributes(InodeNumber::ROOT));
        if self.failure().is_some() && matches!(root, Err(Error::Poisoned(_))) {
            self.remount(false)?;
        }
        self.compare().map_err(|what| format!("refused with '{error}', but: {what}"))?;
        let size = self.subject.facts().size;
        if !sizes.contains(&size) {
            return Err(format!(
                "refused with '{error}', and has {size} bytes, right is one of {sizes:?}"
            ));
        }
        Ok(Verdict::Refused(Fault::Broken))
    }

    /// Checks that a read-only volume gives a reason, and that the fault justified it.
    pub(crate) fn check_failure(&self, rollback: bool) -> Result<(), String> {
        let Some(why) = self.subject.failure() else { return Ok(()) };
        let written = self.tape.strikes(MediumOperation::Write)
            + self.tape.strikes(MediumOperation::Flush)
            > 0;
        if !written && !rollback {
            return Err(format!("a failed read made the volume read-only: {why}"));
        }
        if why.is_empty() {
            return Err("the volume is read-only and does not say why".to_owned());
        }
        Ok(())
    }

    /// The state that the call would have made. The inode of a new file is looked up on the volume.
    fn after(&self, call: &Call<'_>) -> Option<State> {
        let made = match call {
            Call::Create { directory, name, .. } => {
                let found = self.tape.undisturbed(|| self.subject.lookup(*directory, name)).ok()?;
                Some(Reply::Attributes(found))
            }
            _ => None,
        };
        let mut model = self.model.clone();
        model.apply(call, made.as_ref()).ok()?;
        Some(model.state)
    }
}
