//! When what was accepted becomes durable: transaction points and the mask.

use steadfast_media::Medium;

use super::{Delta, Observer, Volume};
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
        self.engine.commit()
    }

    /// Sets a transaction point and empties the log.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// How many changes were accepted since the volume was opened, and how many of them are
    /// durable. A change is durable once the second number has reached the first one as it was
    /// after that change, or a rollback has dropped it.
    pub fn progress(&self) -> (u64, u64) {
        self.engine.progress()
    }

    /// What has changed since batch `seen`, for another node of a cluster that keeps it until it is
    /// durable. `None`: the volume gives no deltas now. It was not opened [for
    /// that](Volume::open_after), a transaction is open, or the mask has no timer. If too much has
    /// changed for a delta, this sets a transaction point.
    ///
    /// # Errors
    /// As [`transact`](Self::transact): too much has changed, and a transaction point failed.
    pub fn delta(&self, seen: u64) -> Result<Option<Delta>> {
        self.engine.delta(seen)
    }

    /// Has `observer` called with the number of each batch of changes from now on, in the thread
    /// that makes it, and before a [delta](Self::delta) has it. It must not use the volume.
    pub fn observe_batches(&mut self, observer: Observer) {
        self.engine.observer = Some(observer);
    }

    /// The live transaction mask.
    pub fn mask(&self) -> TransactionMask {
        self.engine.parameters.mask()
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
        self.engine.parameters.timer_ms()
    }

    /// Changes the interval of the transaction timer at once, and the stored interval at the next
    /// transaction point.
    ///
    /// # Errors
    /// `InvalidArgument` for 0; `Held`, `ReadOnly`, `Poisoned`.
    pub fn set_timer_ms(&self, milliseconds: u32) -> Result<()> {
        self.engine.set_timer_ms(milliseconds)
    }

    /// Changes mask and timer at once, and stores them by a checkpoint where that publishes no
    /// change. If the old or the new mask has `timer`, every user expects a transaction point at
    /// any moment. Otherwise other changes since the last point must wait, and the result is
    /// `false`: mask and timer are stored with the next point.
    ///
    /// # Errors
    /// `InvalidArgument` for unknown bits or 0 ms, and `Held`: nothing has changed. As
    /// [`transact`](Self::transact): mask and timer are in force.
    pub fn change_parameters(&self, mask: TransactionMask, timer_ms: u32) -> Result<bool> {
        self.engine.change_parameters(mask, timer_ms)
    }

    /// sync(2) and syncfs(2): a transaction point if the mask has `sync`.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn sync(&self) -> Result<()> {
        self.engine.event(TransactionMask::SYNC)
    }

    /// fsync and fdatasync, of any file: a transaction point if the mask has `fsync`. It makes
    /// everything accepted so far durable, whatever the file.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn fsync(&self) -> Result<()> {
        self.engine.event(TransactionMask::FSYNC)
    }

    /// A write to a file that is open with O_SYNC or O_DSYNC has arrived in parts: a transaction
    /// point if the mask has `sync-write`. [`write`](Self::write) itself does this for a whole one.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn synchronous_write(&self) -> Result<()> {
        self.engine.event(TransactionMask::SYNC_WRITE)
    }

    /// Call this when a descriptor that was open for writing is closed: a transaction point if the
    /// mask has `close`.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn closed(&self) -> Result<()> {
        self.engine.event(TransactionMask::CLOSE)
    }

    /// Announces a committer that the caller serves later: a point that is set meanwhile waits
    /// briefly for it. The caller takes this back with
    /// [`withdraw_committer`](Self::withdraw_committer) when that committer is served.
    pub fn announce_committer(&self) {
        self.engine.committers.announce()
    }

    /// Takes one [`announce_committer`](Self::announce_committer) back.
    pub fn withdraw_committer(&self) {
        self.engine.committers.withdraw()
    }
}
