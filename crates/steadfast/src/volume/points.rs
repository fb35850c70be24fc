//! When what was accepted becomes durable: transaction points, the mask, and holding a volume.

use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes everything accepted so far durable: a transaction point.
    ///
    /// Concurrent callers share one flush.
    ///
    /// # Errors
    /// `Held`, `ReadOnly`, `Poisoned`, or the medium's error. After a failed write or flush the
    /// volume is read-only; acknowledged changes stay.
    pub fn transact(&self) -> Result<()> {
        self.engine.transact()
    }

    /// Sets a transaction point and empties the log.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// The live transaction mask.
    pub fn mask(&self) -> TransactionMask {
        self.engine.mask()
    }

    /// Changes the live mask at once, and the stored mask at the next transaction point.
    ///
    /// # Errors
    /// `InvalidArgument` for unknown bits; `Held`, `ReadOnly`, `Poisoned`.
    pub fn set_mask(&self, mask: TransactionMask) -> Result<()> {
        self.engine.set_mask(mask)
    }

    /// Interval of the transaction timer, milliseconds.
    pub fn timer_ms(&self) -> u32 {
        self.engine.timer_ms()
    }

    /// Changes the interval of the transaction timer at once, and the stored interval at the next
    /// transaction point.
    ///
    /// # Errors
    /// `InvalidArgument` for 0; `Held`, `ReadOnly`, `Poisoned`.
    pub fn set_timer_ms(&self, milliseconds: u32) -> Result<()> {
        self.engine.set_timer_ms(milliseconds)
    }

    /// Makes a changed mask and timer durable by a checkpoint. With `with_changes`, other changes
    /// since the last transaction point become durable too. Without it, and with such changes
    /// present, nothing is done and the result is `false`.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn keep_parameters(&self, with_changes: bool) -> Result<bool> {
        self.engine.keep_parameters(with_changes)
    }

    /// sync(2) and syncfs(2): a transaction point if the mask has `sync`.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Announces a committer that the caller serves later: a point that is set meanwhile waits
    /// briefly for it. The caller takes this back with [`withdraw`](Self::withdraw) when that
    /// committer is served.
    pub fn announce(&self) {
        self.engine.announce()
    }

    /// Takes one [`announce`](Self::announce) back.
    pub fn withdraw(&self) {
        self.engine.withdraw()
    }

    /// Sets a transaction point and holds the volume until [`commit_held`](Self::commit_held) or
    /// [`roll_back_held`](Self::roll_back_held).
    ///
    /// # Errors
    /// `Held` if it is held already, and those of [`transact`](Self::transact); the volume is then
    /// not held by this call.
    pub fn hold(&self) -> Result<()> {
        self.engine.hold()
    }

    /// Whether the volume is held.
    pub fn is_held(&self) -> bool {
        self.engine.is_held()
    }

    /// Ends the hold and sets a transaction point: everything accepted since [`hold`](Self::hold)
    /// becomes durable, all of it or nothing.
    ///
    /// # Errors
    /// As [`transact`](Self::transact). If the volume is read-only then, the hold has ended.
    /// Otherwise the hold continues ([`is_held`](Self::is_held)), and the holder retries or rolls
    /// back.
    pub fn commit_held(&self) -> Result<()> {
        self.engine.commit_held()
    }

    /// Returns the volume to its state at the return of [`hold`](Self::hold), and ends the hold.
    ///
    /// # Errors
    /// As [`rollback`](Self::rollback). If nothing has changed, the hold continues
    /// ([`is_held`](Self::is_held)), so no other caller commits those changes; the holder can
    /// retry. If the volume accepts no more changes, the hold has ended.
    pub fn roll_back_held(&self) -> Result<()> {
        self.engine.check_rollback()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.roll_back_held()
    }
}
