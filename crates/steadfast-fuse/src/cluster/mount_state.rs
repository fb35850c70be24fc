//! [`MountState`]: what the threads of a node's mount share, whatever its role.
//!
//! Locks are taken in the order wish, kept, channel.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::channel::since_boot;
use super::deltas::KeptChanges;
use super::holdings::Holdings;
use super::link::Link;
use super::switch::Switch;
use crate::device::FuseDevice;
use crate::init::Agreement;
use crate::listeners::Listeners;
use crate::unmount::UnmountHandle;

/// The owner, as a peer finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its term.
    pub epoch: u64,
    /// Where it listens.
    pub address: String,
    /// It has not opened the volume yet: it collects what the other nodes keep.
    pub collects: bool,
}

/// Connects to an owner.
pub(super) type Dial = Box<dyn Fn(&Target) -> io::Result<Link> + Send>;

#[derive(Default)]
pub(super) struct Wish {
    pub(super) target: Option<Target>,
    /// The connection that serves the target.
    pub(super) close: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(super) over: bool,
}

/// See the module.
pub(super) struct MountState {
    pub(super) switch: Arc<Switch>,
    pub(super) device: FuseDevice,
    pub(super) agreement: Agreement,
    pub(super) user: u32,
    pub(super) delegations: bool,
    pub(super) end: UnmountHandle,
    pub(super) listeners: Option<Arc<Listeners>>,
    pub(super) wish: Mutex<Wish>,
    pub(super) wake: Condvar,
    /// What this node keeps for the next owner.
    pub(super) kept: Mutex<KeptChanges>,
    /// Distinguishes what it keeps from what others do.
    pub(super) id: u64,
    /// Of the owner; none yet. Run when the mount ends.
    pub(super) attendants: Mutex<Option<Attendants>>,
}

/// Ends the threads of an owner; whether open files were cut off.
pub(super) type Attendants = Box<dyn FnOnce(bool) + Send>;

impl MountState {
    pub(super) fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, KeptChanges> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attendants(&self) -> MutexGuard<'_, Option<Attendants>> {
        self.attendants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads of an owner. `cut`: open files were cut off.
    pub(super) fn finish(&self, cut: bool) {
        let attendants = self.attendants().take();
        if let Some(end) = attendants {
            end(cut);
        }
    }

    /// Where requests go from now on; `None`: they wait. `over`: the mount ends.
    pub(super) fn set_target(&self, target: Option<Target>, over: bool) {
        let mut wish = self.wish();
        wish.over |= over;
        if wish.target != target || over {
            if wish.target.as_ref().is_some_and(|before| before.epoch == self.kept().epoch) {
                self.switch.channel.owner_ends(since_boot());
            }
            wish.target = target;
            if let Some(close) = wish.close.take() {
                close();
            }
            self.wake.notify_all();
        }
    }

    /// What this node has of the owner, which is no more. No program gets an answer of it from now
    /// on, so that it stays all.
    pub(super) fn take_stock(&self) -> (KeptChanges, Holdings) {
        let holdings = self.switch.channel.end_session();
        (self.kept().clone(), holdings)
    }
}
