//! Background work and its transaction points.

use steadfast::TransactionMask;

use super::{Session, Verdict};
use crate::fault::Fault;
use crate::subject::{Call, Reply, Subject};

/// Number of turns after which background work must be finished.
pub(super) const TURNS_MAX: u64 = 10_000;

impl<S: Subject> Session<'_, S> {
    /// Runs background work until there is none, in at most `turns` turns. A single turn may leave
    /// work to do.
    pub(super) fn background(
        &mut self,
        advance_ms: u64,
        turns: u64,
        label: &str,
    ) -> Result<Verdict, String> {
        self.monotonic_ms += advance_ms;
        self.clock.advance_ms(advance_ms);
        let begun = self.tape.position();
        let facts = self.subject.facts();
        let mut more = true;
        for _ in 0..turns {
            match self.subject.call(&Call::Background) {
                Ok(Reply::More(true)) => {}
                Ok(_) => {
                    more = false;
                    break;
                }
                Err(error) if self.is_struck(&error) => {
                    self.judge_background_fault(error)?;
                    return Ok(Verdict::Refused(Fault::Broken));
                }
                Err(error) => return Err(format!("background work: {error}")),
            }
        }
        if more && turns > 1 {
            return Err("background work does not end".to_owned());
        }
        let timer = facts.mask.contains(TransactionMask::TIMER);
        let points = self.subject.facts().transaction_points.wrapping_sub(facts.transaction_points);
        if points > 0 {
            // Reclaiming a removed file may need space, which may need a transaction point. The
            // checkpoint after a deleted snapshot also counts as one, but commits nothing if all
            // changes are durable.
            let asked = timer || facts.mask.contains(TransactionMask::VOLUME_FULL);
            if !asked && self.dirty_since_ms.is_some() {
                return Err(
                    "background work set a transaction point that no caller asked for".to_owned()
                );
            }
            self.point(format!("in {label}"), begun);
        }
        let due = |since: u64| self.monotonic_ms - since >= u64::from(facts.timer_ms);
        if timer && self.subject.failure().is_none() && self.dirty_since_ms.is_some_and(due) {
            return Err("the timer has expired but no transaction point was set".to_owned());
        }
        Ok(Verdict::Done)
    }
}
