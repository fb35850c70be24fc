//! Faults that a test arms: the affected requests, the number of times, and the effect.

use core::ops::Range;

use crate::{ErrorClass, MediumOperation};

/// Effect of a fault on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The request fails with this class and has no effect.
    Fail(ErrorClass),
    /// The request fails with this class, but some units of a write or discard arrive (determined
    /// by the seed of the medium). Same as `Fail` for reads and flushes.
    FailTorn(ErrorClass),
    /// The request is acknowledged and not done: a lost write, a skipped flush. A read returns
    /// zeros.
    Lose,
    /// A write is acknowledged, but only some of its units arrive. Same as `Lose` for other
    /// requests.
    Tear,
    /// A write or read goes to this offset instead. It must be aligned, and the request must fit
    /// there. Flushes and discards are not affected.
    Misdirect(u64),
}

/// A fault, armed with [`SimMedium::arm`](crate::SimMedium::arm).
///
/// ```
/// # use steadfast_media::{ErrorClass, MediumOperation, sim::{Action, Fault}};
/// // The third write from now fails once:
/// let third_write =
///     Fault::new(Action::Fail(ErrorClass::Transient)).on(MediumOperation::Write).after(2);
/// // The medium is gone from the hundredth request on, whatever its kind:
/// let gone = Fault::new(Action::Fail(ErrorClass::Gone)).after(99).forever();
/// // A bad sector:
/// let bad = Fault::new(Action::Fail(ErrorClass::Permanent))
///     .on(MediumOperation::Read)
///     .within(8192..8704)
///     .forever();
/// # let _ = (third_write, gone, bad);
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    action: Action,
    operation: Option<MediumOperation>,
    range: Option<Range<u64>>,
    /// Matching requests that still pass.
    skip: u64,
    /// Matching requests that are still hit.
    left: u64,
}

impl Fault {
    /// Hits the next request, once.
    pub fn new(action: Action) -> Self {
        Fault { action, operation: None, range: None, skip: 0, left: 1 }
    }

    /// Restricts the fault to this operation.
    #[must_use]
    pub fn on(mut self, operation: MediumOperation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Restricts the fault to requests that touch these bytes; flushes touch none.
    #[must_use]
    pub fn within(mut self, bytes: Range<u64>) -> Self {
        self.range = Some(bytes);
        self
    }

    /// Lets `count` matching requests pass first.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Hits `count` matching requests in a row.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.left = count;
        self
    }

    /// Hits every matching request from the first on.
    #[must_use]
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }

    fn matches(&self, operation: MediumOperation, offset: u64, length: u64) -> bool {
        self.operation.is_none_or(|wanted| wanted == operation)
            && self.range.as_ref().is_none_or(|range| {
                operation != MediumOperation::Flush
                    && offset < range.end
                    && range.start < offset + length
            })
    }

    /// Counts a request. Returns whether it is hit.
    fn hits(&mut self, operation: MediumOperation, offset: u64, length: u64) -> bool {
        if self.left == 0 || !self.matches(operation, offset, length) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        true
    }

    /// Lets every fault count a request; of the matching ones, the one armed first applies.
    pub(super) fn choose(
        faults: &mut [Fault],
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Option<Action> {
        let mut chosen = None;
        for fault in faults {
            if fault.hits(operation, offset, length) {
                chosen = chosen.or(Some(fault.action));
            }
        }
        chosen
    }
}
