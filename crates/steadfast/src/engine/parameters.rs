//! The transaction mask and the interval of the transaction timer. A change holds at once, and is
//! stored by the next checkpoint.

use lock_api::RawMutex;
use steadfast_media::Medium;
use steadfast_media::sync::atomic::{AtomicU32, Ordering};

use crate::engine::Engine;
use crate::engine::lifecycle::LifecycleCell;
use crate::error::{Error, Result};
use crate::format::Metaroot;
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

/// The live mask and the live interval of the timer.
pub(crate) struct LiveParameters {
    mask: AtomicU32,
    timer_ms: AtomicU32,
}

impl LiveParameters {
    /// As a checkpoint has stored them.
    pub(super) fn of(metaroot: &Metaroot) -> LiveParameters {
        LiveParameters {
            mask: AtomicU32::new(metaroot.mask.0),
            timer_ms: AtomicU32::new(metaroot.timer_ms),
        }
    }

    /// The live transaction mask.
    pub fn mask(&self) -> TransactionMask {
        TransactionMask(self.mask.load(Ordering::Acquire))
    }

    /// The active mask: the live one, or none while the volume is held.
    pub fn active_mask<R: RawMutex>(&self, lifecycle: &LifecycleCell<R>) -> TransactionMask {
        let held = lifecycle.is_held() && !planted(Sabotage::IgnoreHold);
        if held { TransactionMask::MANUAL } else { self.mask() }
    }

    /// Interval of the transaction timer, milliseconds.
    pub fn timer_ms(&self) -> u32 {
        self.timer_ms.load(Ordering::Acquire)
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// The active mask: that of the volume, or none while it is held.
    pub(crate) fn active_mask(&self) -> TransactionMask {
        self.parameters.active_mask(&self.lifecycle)
    }

    /// Changes the live mask at once, and the stored mask at the next transaction point.
    pub(crate) fn set_mask(&self, mask: TransactionMask) -> Result<()> {
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        if !TransactionMask::ALL.contains(mask) {
            return Err(Error::InvalidArgument("transaction mask has unknown bits"));
        }
        self.parameters.mask.store(mask.0, Ordering::Release);
        self.working.lock().parameters_changed = true;
        Ok(())
    }

    /// Changes the interval of the transaction timer at once, and the stored interval at the next
    /// transaction point.
    pub(crate) fn set_timer_ms(&self, milliseconds: u32) -> Result<()> {
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        if milliseconds == 0 {
            return Err(Error::InvalidArgument("the timer needs at least one millisecond"));
        }
        self.parameters.timer_ms.store(milliseconds, Ordering::Release);
        self.working.lock().parameters_changed = true;
        Ok(())
    }
}
