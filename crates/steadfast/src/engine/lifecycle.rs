//! What an open volume does for its callers, and what may follow.
//!
//! ```text
//!  Overlaid ◄──► Open ◄───► Held      any state ───► Closed
//!                │ ▲          │
//!                ▼ │          │       Overlaid, Open, Held ───► Failed
//!             RollingBack ◄───┘       RollingBack ◄───► Failed
//!                │ ▲
//!                ▼ │
//!                Lost
//! ```
//!
//! Invariants:
//! - all transitions go through [`LifecycleCell`], which refuses the others. Readers of the state
//!   take no lock;
//! - `Held` begins and ends under the commit lock, and `RollingBack` under the commit lock and the
//!   writer's lock;
//! - a failure during a rollback is noted and decides the state at the rollback's end, because
//!   readers must not see the tree in between.

use lock_api::{Mutex, RawMutex};
use steadfast_media::sync::atomic::{AtomicU8, Ordering};
use steadfast_media::{ErrorClass, MediumError};

use crate::error::{Error, Result, STORAGE_FULL};

/// The state of an open volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lifecycle {
    /// It takes changes.
    Open,
    /// As `Open`, but the log is beside the tree, not in it
    /// ([`overlay`](super::recovery::overlay)). A change replays it first.
    Overlaid,
    /// It takes changes, and one caller alone decides whether they become durable
    /// ([`transaction`](super::commit::transaction)).
    Held,
    /// The tree is returning to the committed state or to a snapshot; readers wait.
    RollingBack,
    /// It is read-only, because it cannot go on safely.
    Failed,
    /// A rollback could not read all of the state to return to. Nothing is shown or taken until
    /// another rollback succeeds.
    Lost,
    /// Nothing is shown or taken any more.
    Closed,
}

const ALL: [Lifecycle; 7] = [
    Lifecycle::Open,
    Lifecycle::Overlaid,
    Lifecycle::Held,
    Lifecycle::RollingBack,
    Lifecycle::Failed,
    Lifecycle::Lost,
    Lifecycle::Closed,
];

impl Lifecycle {
    /// Whether `next` may follow this state.
    fn may_become(self, next: Lifecycle) -> bool {
        use Lifecycle::{Closed, Failed, Held, Lost, Open, Overlaid, RollingBack};
        match self {
            // Only opening enters `Overlaid`.
            Open => matches!(next, Overlaid | Held | RollingBack | Failed | Closed),
            Overlaid => matches!(next, Open | Failed | Closed),
            Held => matches!(next, Open | RollingBack | Failed | Closed),
            RollingBack => matches!(next, Open | Failed | Lost | Closed),
            // A failure may come between the check of a rollback and its beginning.
            Failed => matches!(next, RollingBack | Closed),
            Lost => matches!(next, RollingBack | Closed),
            Closed => false,
        }
    }
}

/// Holds the state, and why the volume failed.
pub(crate) struct LifecycleCell<R> {
    state: AtomicU8,
    /// Its lock serialises the transitions; no other lock is taken under it.
    failure: Mutex<R, Option<&'static str>>,
}

impl<R: RawMutex> LifecycleCell<R> {
    /// An open volume.
    pub(super) fn new() -> Self {
        LifecycleCell { state: AtomicU8::new(Lifecycle::Open as u8), failure: Mutex::new(None) }
    }

    #[inline]
    pub fn now(&self) -> Lifecycle {
        *ALL.get(usize::from(self.state.load(Ordering::Acquire))).unwrap_or(&Lifecycle::Closed)
    }

    /// Whether the volume is held.
    pub fn is_held(&self) -> bool {
        self.now() == Lifecycle::Held
    }

    pub fn check_not_held(&self) -> Result<()> {
        if self.is_held() { Err(Error::Held) } else { Ok(()) }
    }

    pub fn check_not_closed(&self) -> Result<()> {
        match self.now() {
            Lifecycle::Closed => Err(Error::Poisoned("it has been closed")),
            _ => Ok(()),
        }
    }

    /// Whether there is a state to show.
    pub(super) fn check_shown(&self) -> Result<()> {
        if self.now() == Lifecycle::Lost { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Checks that the volume has not failed. What makes a state durable calls this under the
    /// writer's or the checkpoint lock: a failure may come while a caller waits for locks.
    pub fn check_not_failed(&self) -> Result<()> {
        if self.has_failed() { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Whether the volume made itself read-only, or shows nothing.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.now(), Lifecycle::Failed | Lifecycle::Lost)
    }

    pub(super) fn poisoned(&self) -> Error {
        Error::Poisoned(self.failure().unwrap_or("an earlier failure"))
    }

    /// Whether the log is still beside the tree: since open nothing has been changed, and no caller
    /// has needed facts that only the tree has. Background work replays it.
    pub fn replay_pending(&self) -> bool {
        self.now() == Lifecycle::Overlaid
    }

    #[cfg(test)]
    pub fn is_rolling_back(&self) -> bool {
        self.now() == Lifecycle::RollingBack
    }

    /// Enters `next` if it may follow the present state. Returns whether it did.
    pub(super) fn enter(&self, next: Lifecycle) -> bool {
        self.enter_under(&self.failure.lock(), next)
    }

    fn enter_under(&self, _failure: &Option<&'static str>, next: Lifecycle) -> bool {
        let may = self.now().may_become(next);
        if may {
            self.state.store(next as u8, Ordering::Release);
        }
        may
    }

    /// Notes why the volume cannot go on safely; the first reason stays. It becomes read-only, at
    /// the end of a rollback if one runs.
    fn fail(&self, why: &'static str) {
        let mut failure = self.failure.lock();
        failure.get_or_insert(why);
        if self.now() != Lifecycle::RollingBack {
            self.enter_under(&failure, Lifecycle::Failed);
        }
    }

    /// Makes the volume read-only, because it cannot go on safely. Returns `error`.
    pub(super) fn fail_with(&self, why: &'static str, error: Error) -> Error {
        let why = match error {
            Error::Medium(MediumError { class: ErrorClass::Full, .. }) => STORAGE_FULL,
            _ => why,
        };
        self.fail(why);
        error
    }

    /// Nothing can follow a transaction that could be neither committed nor rolled back.
    pub fn give_up_transaction(&self) {
        self.fail("a transaction could not be rolled back");
    }

    /// The state in memory is unknown.
    pub fn fail_after_panic(&self) {
        self.fail("an internal error happened");
    }

    /// As [`fail_after_panic`](Self::fail_after_panic), if the end of a transaction panicked.
    pub fn fail_transaction_after_panic(&self) {
        self.fail_after_panic();
        // Readers wait for the end of a rollback.
        if self.now() == Lifecycle::RollingBack {
            self.end_rollback(false);
        }
    }

    /// Why the volume accepts no more changes, if it made itself read-only.
    pub fn failure(&self) -> Option<&'static str> {
        *self.failure.lock()
    }

    /// Readers wait from now on. A rollback from [`Lost`](Lifecycle::Lost) may mend that state.
    pub(super) fn begin_rollback(&self) {
        let mut failure = self.failure.lock();
        let from = self.now();
        if self.enter_under(&failure, Lifecycle::RollingBack) && from == Lifecycle::Lost {
            *failure = None;
        }
    }

    /// The rollback has ended; `complete` says whether the whole state was read.
    pub(super) fn end_rollback(&self, complete: bool) {
        let failure = self.failure.lock();
        let next = match (complete, failure.is_some()) {
            (false, _) => Lifecycle::Lost,
            (true, true) => Lifecycle::Failed,
            (true, false) => Lifecycle::Open,
        };
        self.enter_under(&failure, next);
    }
}

#[cfg(test)]
mod tests {
    use super::Lifecycle::{Closed, Failed, Held, Lost, Open, Overlaid, RollingBack};
    use super::*;

    type Cell = LifecycleCell<parking_lot::RawMutex>;

    fn at(state: Lifecycle) -> Cell {
        let cell = Cell::new();
        let way: &[Lifecycle] = match state {
            Open => &[],
            Lost => &[RollingBack, Lost],
            _ => &[state],
        };
        assert!(way.iter().all(|next| cell.enter(*next)));
        assert_eq!(cell.now(), state);
        cell
    }

    /// Rows: from; columns: to, in the order of `ALL`.
    #[test]
    fn every_pair_of_states() {
        let table = [
            (Open, ".OHRF.C"),
            (Overlaid, "o...F.C"),
            (Held, "o..RF.C"),
            (RollingBack, "o...FLC"),
            (Failed, "...R..C"),
            (Lost, "...R..C"),
            (Closed, "......."),
        ];
        for (from, row) in table {
            for (to, right) in ALL.into_iter().zip(row.chars()) {
                let cell = at(from);
                let entered = cell.enter(to);
                assert_eq!(entered, right != '.', "{from:?} to {to:?}");
                assert_eq!(cell.now(), if entered { to } else { from });
            }
        }
    }

    #[test]
    fn the_number_of_a_state_is_its_place() {
        for (index, state) in ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index);
        }
    }

    #[test]
    fn a_failure_in_every_state() {
        for (from, right) in [
            (Open, Failed),
            (Overlaid, Failed),
            (Held, Failed),
            (RollingBack, RollingBack),
            (Failed, Failed),
            (Lost, Lost),
            (Closed, Closed),
        ] {
            let cell = at(from);
            cell.fail("first");
            cell.fail("second");
            assert_eq!((cell.now(), cell.failure()), (right, Some("first")));
        }
    }

    #[test]
    fn a_rollback_in_every_state() {
        for from in ALL {
            let begins = matches!(from, Open | Held | RollingBack | Failed | Lost);
            for complete in [true, false] {
                let cell = at(from);
                cell.begin_rollback();
                assert_eq!(cell.now(), if begins { RollingBack } else { from });
                if begins {
                    cell.end_rollback(complete);
                    assert_eq!(cell.now(), if complete { Open } else { Lost });
                }
            }
        }
    }

    #[test]
    fn a_failure_during_a_rollback_counts_at_its_end() {
        for (complete, right) in [(true, Failed), (false, Lost)] {
            for before in [true, false] {
                let cell = at(Open);
                if before {
                    cell.fail("another writer");
                }
                cell.begin_rollback();
                cell.fail("another writer");
                cell.end_rollback(complete);
                assert_eq!((cell.now(), cell.failure()), (right, Some("another writer")));
            }
        }
        let cell = at(Lost);
        cell.fail("unreadable");
        cell.begin_rollback();
        cell.end_rollback(true);
        assert_eq!((cell.now(), cell.failure()), (Open, None), "the rollback has mended it");
    }
}
