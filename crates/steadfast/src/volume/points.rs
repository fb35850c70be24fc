//! When what was accepted becomes durable: transaction points, the mask, and holding a volume.

use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes everything accepted so far durable: a transaction point.
    ///
    /// Several callers at once share one flush.
    ///
    /// # Errors
    /// `Held`, `ReadOnly`, `Poisoned`, or the medium's error; after a failed write or flush the
    /// volume is read-only, and what was acknowledged before stays.
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

    /// Changes the live mask at once, and the volume's at the next transaction point.
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

    /// Changes the interval of the transaction timer at once, and the volume's at the next
    /// transaction point.
    ///
    /// # Errors
    /// `InvalidArgument` for 0; `Held`, `ReadOnly`, `Poisoned`.
    pub fn set_timer_ms(&self, milliseconds: u32) -> Result<()> {
        self.engine.set_timer_ms(milliseconds)
    }

    /// Makes a changed mask and timer durable, by a checkpoint. What else has changed since the
    /// last transaction point becomes durable with them where it may (`with_changes`); where it may
    /// not, and there is something, they have to wait: `false`.
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

    /// Somebody is about to ask for a transaction point, whom the caller will serve after others: a
    /// point that is set meanwhile waits a moment for such company. To be taken back by
    /// [`withdraw`](Self::withdraw) when he has been served.
    pub fn announce(&self) {
        self.engine.announce()
    }

    /// Takes one [`announce`](Self::announce) back.
    pub fn withdraw(&self) {
        self.engine.withdraw()
    }

    /// Sets a transaction point and holds the volume from there on, until
    /// [`commit_held`](Self::commit_held) or [`roll_back_held`](Self::roll_back_held).
    ///
    /// # Errors
    /// `Held` where it is held already; as [`transact`](Self::transact), and the volume is not held
    /// then.
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
    /// As [`transact`](Self::transact). Where the volume is read-only then, the hold has ended;
    /// otherwise nothing has been decided ([`is_held`](Self::is_held)), and the holder tries again
    /// or rolls back.
    pub fn commit_held(&self) -> Result<()> {
        self.engine.commit_held()
    }

    /// Returns the volume to where it was when [`hold`](Self::hold) returned, and ends the hold.
    ///
    /// # Errors
    /// As [`rollback`](Self::rollback). Where nothing has changed the hold goes on
    /// ([`is_held`](Self::is_held)), so that what is not rolled back is not committed by anybody
    /// else: it can be tried again. Where the volume takes no changes any more the hold has ended.
    pub fn roll_back_held(&self) -> Result<()> {
        self.engine.check_rollback()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.roll_back_held()
    }
}
