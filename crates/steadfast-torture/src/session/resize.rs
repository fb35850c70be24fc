//! Changes of the volume's size: its contents stay the same, and a volume that was made smaller is
//! reopened.

use steadfast::Error;

use super::{Session, Verdict};
use crate::fault::Fault;
use crate::subject::{Call, Subject};

/// Length of the superblock, bytes. A medium with a smaller unit may tear it.
const SUPERBLOCK: u64 = 512;

impl<S: Subject> Session<'_, S> {
    /// Sets the size of the volume to this many eighths of the medium.
    pub(super) fn resize(&mut self, eighths: u8, label: &str) -> Result<Verdict, String> {
        if !S::EXTENDED {
            return Ok(Verdict::Skipped);
        }
        let cell = self.model.limits.block_size.max(SUPERBLOCK);
        let (old, longest) = (self.subject.facts().size, self.world.size / cell * cell);
        let mut new = self.world.size / 8 * u64::from(eighths) / cell * cell;
        if self.world.medium.is_rough() {
            // The contract requires whole units. If the medium leaves garbage, the other superblock
            // is found only at the end of the medium. So the larger of the two volumes must reach
            // that end.
            new = if new > old { longest } else { new };
            if old.max(new) != longest {
                return Ok(Verdict::Skipped);
            }
        }
        if new == old {
            return Ok(Verdict::Skipped);
        }
        let begun = self.tape.position();
        let call = if new > old { Call::Grow { size: new } } else { Call::Shrink { size: new } };
        let before = self.subject.facts().transaction_points;
        let error = match self.subject.call(&call) {
            Ok(_) if self.model.held => {
                return Err("the size has changed although the volume is held".to_owned());
            }
            Ok(_) => return self.resized(new, old, begun, label),
            Err(error) => error,
        };
        let points = self.subject.facts().transaction_points.wrapping_sub(before);
        if self.is_struck(&error) {
            if points > 0 {
                self.point(format!("in {label}"), begun);
            }
            return self.judge_resize_fault(error, [old, new]);
        }
        let torn = u64::from(self.world.atomic_unit) < SUPERBLOCK && old.max(new) != longest;
        let right = match error {
            Error::Held => self.model.held,
            Error::Unsupported(_) => torn,
            Error::Truncated { .. } => new > longest,
            Error::NoSpace | Error::VolumeTooSmall { .. } => new < old,
            Error::Busy => new < old && self.world.extras.snapshots,
            _ => false,
        };
        if !right {
            return Err(format!("refused with '{error}'"));
        }
        if points > 0 {
            // Data that must move has to be durable first.
            if matches!(error, Error::Held | Error::Unsupported(_) | Error::Truncated { .. }) {
                return Err(format!("refused with '{error}' but set {points} transaction points"));
            }
            self.point(format!("in {label}"), begun);
        }
        self.compare().map_err(|what| format!("refused with '{error}', but: {what}"))?;
        Ok(Verdict::Refused(Fault::Size))
    }

    fn resized(
        &mut self,
        new: u64,
        old: u64,
        begun: usize,
        label: &str,
    ) -> Result<Verdict, String> {
        self.point(format!("after {label}"), begun);
        if new < old {
            self.reopen()?;
        }
        let found = self.subject.facts().size;
        if found != new {
            return Err(format!("the volume has {found} bytes, right is {new}"));
        }
        self.compare()?;
        Ok(Verdict::Done)
    }
}
