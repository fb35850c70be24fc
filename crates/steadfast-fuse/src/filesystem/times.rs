//! Modification and change times of files that are open for writing, with the write-back cache.
//!
//! The kernel owns these times then. It ignores the daemon's values, and sends its own (SETATTR)
//! when it writes back the inode. The volume gives a file the arrival time of a request, which is
//! seconds after the program's write. Usually the kernel's time follows and corrects this. In two
//! cases it does not, and the file would be younger after the next mount than before:
//! - The kernel sends nothing, because the inode already has exactly that time. It came from the
//!   daemon, when the file was created in the same tick.
//! - The kernel has already sent its time, and a write that was under way arrives afterwards.
//!
//! So the table of open files records which times both sides last agreed on, and whether a change
//! came later. When the kernel has nothing more to send, the volume gets the agreed times again.
//! This happens at FSYNC (the kernel has sent its times by then), at the close of a descriptor, and
//! at the end of the session.
//!
//! A `transact` does not restore times. It makes the kernel write pages but not inodes, so the
//! agreed time may be older than the data. Backups tolerate a time that is too late, but not one
//! that is too early.

use steadfast::fs::{Attributes, SetAttributes, SetTime};
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;

use super::Filesystem;
use crate::open::Times;

fn times(attributes: &Attributes) -> Times {
    Times { modified: attributes.modified, changed: attributes.changed }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// A file was opened for writing, and the kernel has these attributes or already had the same
    /// times.
    pub(super) fn times_shown(&self, nodeid: u64, inode: InodeNumber) {
        if self.agreement.write_back()
            && let Ok(attributes) = self.volume.attributes(inode)
        {
            self.files.times_shown(nodeid, times(&attributes));
        }
    }

    /// A request has changed a file, and thereby its times.
    pub(super) fn times_late(&self, nodeid: u64) {
        if self.agreement.write_back() {
            self.files.times_late(nodeid);
        }
    }

    /// Gives a file the times that the kernel shows. Errors are ignored: the data is not affected,
    /// and later calls report what is wrong with the volume.
    pub(super) fn settle_times(&self, nodeid: u64) {
        let _times = self.files.lock_times(nodeid);
        let Some(agreed) = self.files.take_late(nodeid) else { return };
        let Ok(inode) = self.nodes.resolve(nodeid) else { return };
        if self.volume.attributes(inode).is_ok_and(|now| times(&now) != agreed) {
            let set = SetAttributes {
                modified: Some(SetTime::At(agreed.modified)),
                changed: Some(agreed.changed),
                ..SetAttributes::default()
            };
            let _ = self.volume.set_attributes(inode, &set);
        }
    }

    /// At the end of the session: the kernel may not report the last closes before an unmount.
    pub(crate) fn settle_all_times(&self) {
        for nodeid in self.files.late() {
            self.settle_times(nodeid);
        }
    }
}
