//! Modification and change times of files that are open for writing, with the write-back cache.
//!
//! The kernel owns these times then: it ignores ours, and sends its own (SETATTR) when it writes
//! the inode back. The volume gives a file the time at which a request arrives, seconds after the
//! store that it belongs to. Usually the kernel's time follows and is right. Two ways lead past
//! that, and the file would be younger after the next mount than it was before:
//! - the kernel sends nothing, because the inode has that very time already: from us, when the file
//!   was made in the same tick;
//! - it has sent its time before, and a write that was on its way arrives behind it.
//!
//! So the table of open files remembers which times the two sides have agreed on last, and that
//! something came later. When the kernel has nothing more to say, the volume gets those times
//! again: at FSYNC (the kernel has sent what it had), when a descriptor is closed, and at the end
//! of the session. A `transact` does not: it has the kernel write pages and not inodes, so the time
//! agreed on may be older than the data, and a time that is too late is the one that backups
//! forgive.

use steadfast::fs::{Attributes, SetAttributes, SetTime};
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;

use super::Filesystem;
use crate::open::Times;

fn times(attributes: &Attributes) -> Times {
    Times { modified: attributes.modified, changed: attributes.changed }
}

impl<M: Medium, P: Platform> Filesystem<M, P> {
    /// A file was opened for writing, and the kernel has got these attributes or has had the same
    /// times before.
    pub(super) fn times_shown(&self, nodeid: u64, inode: InodeNumber) {
        if self.agreement.write_back()
            && let Ok(attributes) = self.volume.attributes(inode)
        {
            self.files.times_shown(nodeid, times(&attributes));
        }
    }

    /// A request has changed a file, and its times with it.
    pub(super) fn times_late(&self, nodeid: u64) {
        if self.agreement.write_back() {
            self.files.times_late(nodeid);
        }
    }

    /// Gives a file the times that the kernel shows. No error: the data is what it is, and what is
    /// wrong with the volume the caller will find out.
    pub(super) fn settle_times(&self, nodeid: u64) {
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

    /// At the end of the session: the kernel need not tell of the last closes before an unmount.
    pub(crate) fn settle_all_times(&self) {
        for nodeid in self.files.late() {
            self.settle_times(nodeid);
        }
    }
}
