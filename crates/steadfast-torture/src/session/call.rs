//! One call on volume and model: their answers are compared, and transaction points are recorded.

use steadfast::fs::NewNode;
use steadfast::{Error, TransactionMask};

use super::{Session, Verdict};
use crate::compare::compare_attributes;
use crate::fault::Fault;
use crate::model::State;
use crate::subject::{Call, Reply, Subject};
use crate::triggers::{is_commit, is_empty, is_freeing, triggers};

/// A call, and the facts known after it has returned.
pub(crate) struct Attempt<'c> {
    pub call: &'c Call<'c>,
    /// The operation as text.
    pub label: &'c str,
    /// Events on the tape when it began.
    pub begun: usize,
    /// The transaction mask at that time.
    pub mask: TransactionMask,
    /// Transaction points that the call has set.
    pub points: u64,
    /// The state before the call.
    pub before: State,
}

impl<S: Subject> Session<'_, S> {
    /// Does a call on both, compares the answers, and records transaction points.
    pub(super) fn call(
        &mut self,
        call: &Call<'_>,
        label: &str,
    ) -> Result<(Verdict, Option<Reply>), String> {
        let before = self.model.state.clone();
        let begun = self.tape.position();
        let facts = self.subject.facts();
        let result = self.subject.call(call);
        self.digest.shown(&result);
        let points = self.subject.facts().transaction_points.wrapping_sub(facts.transaction_points);
        // A rollback to a snapshot sets the last point again before its own, so the same state
        // occurs twice.
        let points =
            if matches!(call, Call::SnapshotRollback { .. }) { points.min(1) } else { points };
        let attempt = Attempt { call, label, begun, mask: facts.mask, points, before };
        match result {
            Ok(reply) => self.accept(&attempt, reply).map(|()| (Verdict::Done, Some(reply))),
            Err(error) if self.is_struck(&error) => {
                self.judge_fault(&attempt, error).map(|verdict| (verdict, None))
            }
            Err(error) => self.refuse(&attempt, error).map(|fault| (Verdict::Refused(fault), None)),
        }
    }

    /// Judges a call that succeeded on the volume.
    fn accept(&mut self, attempt: &Attempt<'_>, reply: Reply) -> Result<(), String> {
        let Attempt { call, mask, points, ref before, .. } = *attempt;
        self.check_fresh(call, &reply)?;
        match self.model.apply(call, Some(&reply)) {
            Ok(_) => {}
            // Without a working medium the volume cannot free a file: a file without names still
            // exists.
            Err(faults) if self.tape.all_strikes() > 0 && faults.allow(Fault::Stale) => {
                return Ok(());
            }
            Err(faults) => {
                return Err(format!("succeeded with {reply:?}, right is to refuse: {faults:?}"));
            }
        }
        self.check_reply(&reply)?;
        let changed = !matches!(call, Call::Acquire { .. } | Call::Release { .. })
            && !self.model.state.is_untouched(before);
        if changed && self.dirty_since_ms.is_none() {
            self.dirty_since_ms = Some(self.monotonic_ms);
        }
        let required = triggers(call, mask) && (points > 0 || !is_empty(call, &reply));
        self.settle(attempt, required)
    }

    /// Judges a call that the volume refused.
    fn refuse(&mut self, attempt: &Attempt<'_>, error: Error) -> Result<Fault, String> {
        let Attempt { call, points, .. } = *attempt;
        let fault = Fault::from(error);
        if fault == Fault::ValueTooLong && value_length(call) > VALUE_ALWAYS {
            self.compare()
                .map_err(|what| format!("value too long, but something has changed: {what}"))?;
            return Ok(fault);
        }
        if fault == Fault::NoSpace {
            self.check_no_space(attempt)?;
            return Ok(fault);
        }
        match self.model.clone().apply(call, None) {
            Ok(()) => return Err(format!("refused with '{error}', right is to do it")),
            Err(faults) if !faults.allow(fault) => {
                return Err(format!("refused with '{error}', right is {faults:?}"));
            }
            Err(_) => {}
        }
        if points != 0 {
            return Err(format!("refused with '{error}' but set {points} transaction points"));
        }
        Ok(fault)
    }

    /// Checks that a new inode has a number that was never used.
    pub(super) fn check_fresh(&mut self, call: &Call<'_>, reply: &Reply) -> Result<(), String> {
        if let (Call::Create { .. } | Call::CreateUnnamed { .. }, Reply::Attributes(attributes)) =
            (call, reply)
            && !self.numbers.insert(attributes.inode)
        {
            return Err(format!("inode number {} is given out twice", attributes.inode.0));
        }
        Ok(())
    }

    /// Checks that the attributes in a reply are those of the inode after the call.
    pub(super) fn check_reply(&self, reply: &Reply) -> Result<(), String> {
        if let Reply::Attributes(attributes) = reply {
            let node = self.model.state.node(attributes.inode).ok_or_else(|| {
                format!("the reply names inode {}, which is not there", attributes.inode.0)
            })?;
            compare_attributes(attributes.inode, node, attributes, "the reply")?;
        }
        Ok(())
    }

    /// Records the transaction points of a successful call. `required`: the mask demands one.
    fn settle(&mut self, attempt: &Attempt<'_>, required: bool) -> Result<(), String> {
        let Attempt { call, label, begun, mask, points, ref before } = *attempt;
        if required && points == 0 && self.dirty_since_ms.is_some() {
            return Err("no transaction point was set".to_owned());
        }
        let more = points.saturating_sub(u64::from(required));
        if more > 0 {
            // The volume was full, and committed the earlier changes to reuse freed blocks.
            if !mask.contains(TransactionMask::VOLUME_FULL) {
                return Err(format!(
                    "{points} transaction points were set, {} asked for",
                    u8::from(required)
                ));
            }
            self.points_before(call, label, begun, before);
        }
        if required {
            self.point(format!("after {label}"), begun);
        } else if more > 0 && self.dirty_since_ms.is_some() {
            self.dirty_since_ms = Some(self.monotonic_ms);
        }
        Ok(())
    }

    /// Records that the state before a call, or between its steps, may have become durable during
    /// the call.
    pub(crate) fn points_before(
        &mut self,
        call: &Call<'_>,
        label: &str,
        begun: usize,
        before: &State,
    ) {
        let end = self.tape.position();
        self.ledger.add_one_of(self.steps(call, before), &format!("before {label}"), begun, end);
    }

    fn check_no_space(&mut self, attempt: &Attempt<'_>) -> Result<(), String> {
        let Attempt { call, label, begun, mask, points, ref before } = *attempt;
        self.no_space += 1;
        self.check_nothing_unpublished()?;
        // If the mask forbids a commit on a full volume, "no space" tells the caller to commit or
        // roll back.
        let may_commit = mask.contains(TransactionMask::VOLUME_FULL);
        if is_freeing(call, &self.model) && (may_commit || is_commit(call)) {
            return Err("there is no space for an operation that always has to succeed".to_owned());
        }
        if points > 0 {
            if !mask.contains(TransactionMask::VOLUME_FULL) {
                return Err(format!("no space, but {points} transaction points were set"));
            }
            self.points_before(call, &format!("{label}, which found no space"), begun, before);
            self.dirty_since_ms = None;
        }
        self.compare_refused(call)
            .map_err(|what| format!("no space, but something has changed: {what}"))
    }
}

/// Attribute values and link targets up to this length fit any node size, bytes.
const VALUE_ALWAYS: usize = 3000;

/// Length of the value that a call stores under one name.
fn value_length(call: &Call<'_>) -> usize {
    match call {
        Call::SetXattr { name, value, .. } => name.len() + value.len(),
        Call::Create { node: NewNode::Symlink(target), .. } => target.len(),
        _ => 0,
    }
}
