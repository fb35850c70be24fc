//! Bugs planted on purpose, to check that the tests of this crate find them.
//!
//! Each is one condition at the place of the mistake. Outside the tests [`planted`] is a constant
//! `false`, and the bugs are not compiled.

#[cfg(test)]
pub(crate) use switch::{fails_with, planted};

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Sabotage {
    /// A flush ignores written pages of zeros, which have no page of their own.
    ForgetZeros,
    /// A NOR sector that looks erased is not erased, although its erasure may have been
    /// interrupted.
    TrustErased,
}

#[cfg(not(test))]
pub(crate) const fn planted(_: Sabotage) -> bool {
    false
}

#[cfg(test)]
mod switch {
    extern crate std;

    use core::cell::Cell;

    use super::Sabotage;

    std::thread_local! {
        static PLANTED: Cell<Option<Sabotage>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug on this thread. Returns whether it panics.
    pub(crate) fn fails_with(bug: Sabotage, work: impl FnOnce()) -> bool {
        PLANTED.set(Some(bug));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        PLANTED.set(None);
        result.is_err()
    }

    pub(crate) fn planted(bug: Sabotage) -> bool {
        PLANTED.get() == Some(bug)
    }
}
