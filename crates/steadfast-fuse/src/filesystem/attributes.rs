//! GETATTR, STATX, SETATTR, and the protocol form of attributes.
//!
//! With the write-back cache the kernel owns size, mtime and ctime of a regular file that it has in
//! memory. It ignores the daemon's values, and sends its own with SETATTR when it writes back the
//! inode.

use steadfast::fs::{Attributes, FileFlags, FileKind, SetAttributes, SetTime};
use steadfast::{InodeNumber, Platform, Timestamp};
use steadfast_media::Medium;

use super::{Filesystem, Outcome, VALID_SECONDS, ready};
use crate::abi::flags::{GETATTR_FH, setattr as valid};
use crate::abi::input::{GetattrIn, SetattrIn};
use crate::abi::output::{Attr, AttrOut, EntryOut, Statx, StatxOut, StatxTime};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::node;
use crate::open::Handle;
use crate::request::Request;
use crate::service::Later;

/// The basic attributes and the time of creation.
const STATX_MASK: u32 = 0x7ff | 0x800;
const SET_ID_BITS: u32 = 0o6000;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn getattr(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let attributes = self.volume.attributes(self.node(request)?)?;
        let wanted = request.arguments().take::<GetattrIn>()?;
        let handle = Handle(wanted.fh);
        if wanted.getattr_flags & GETATTR_FH != 0 && handle.is_writable() {
            return self.admit(later, request, handle, &attributes, out);
        }
        self.keep_asking(request.header.nodeid);
        ready(out.put(&attr_out(&attributes)))
    }

    pub(super) fn statx(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let attributes = self.volume.attributes(self.node(request)?)?;
        self.keep_asking(request.header.nodeid);
        ready(out.put(&StatxOut {
            attr_valid: validity(&attributes),
            stat: statx(&attributes),
            ..Default::default()
        }))
    }

    pub(super) fn setattr(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let change = request.arguments().take::<SetattrIn>()?;
        self.check_lost(request.header.nodeid, &change)?;
        match self.change_attributes(request, &change) {
            Ok(attributes) => {
                let mut answer = attr_out(&attributes);
                if self.must_ask(request.header.nodeid) {
                    answer.attr_valid = 0;
                }
                ready(out.put(&answer))
            }
            Err(errno) if is_gone(errno) && is_time_update(&change) => {
                self.acknowledge_times(request, out)
            }
            Err(errno) => Err(errno),
        }
    }

    /// The kernel may report the error of a lost write to a program only with the result of this
    /// call, see [`lost`](super::lost). Truncation to 0 bytes clears the error. Truncation to a
    /// smaller size always succeeds, because it helps a full volume.
    fn check_lost(&self, nodeid: u64, change: &SetattrIn) -> Result<(), Errno> {
        if change.valid & valid::SIZE != 0 && change.size == 0 {
            self.lost.end(nodeid);
        }
        if self.lost.peek(nodeid).is_some() && change.valid & valid::SIZE != 0 {
            let before = self.volume.attributes(self.nodes.resolve(nodeid)?)?;
            if change.size < before.size {
                return Ok(());
            }
        }
        let says_no = change.valid & (valid::MODE | valid::UID | valid::GID | valid::SIZE) != 0;
        let lost = match says_no {
            true => self.lost.tell(nodeid),
            // Programs ignore the result of setting times, so the next call has to report the
            // error, too.
            false => self.lost.peek(nodeid).filter(|_| !is_time_update(change)),
        };
        lost.map_or(Ok(()), Err)
    }

    /// The kernel also writes back the times of a cached inode that has just lost its last name or
    /// was rolled back. An error here would surface in an unrelated syncfs(2).
    pub(super) fn acknowledge_times(
        &self,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let attr = Attr {
            ino: node::inode(request.header.nodeid).0,
            mode: FileKind::Regular.mode_bits(),
            ..Attr::default()
        };
        ready(out.put(&AttrOut { attr, ..AttrOut::default() }))
    }

    fn change_attributes(
        &self,
        request: &Request<'_>,
        change: &SetattrIn,
    ) -> Result<Attributes, Errno> {
        let inode = self.node(request)?;
        let has = |bit: u32| change.valid & bit != 0;
        // The kernel sends its own value of "now", consistent with the times that it keeps itself.
        let time = |set: u32, seconds: u64, nanoseconds: u32| {
            has(set).then_some(SetTime::At(Timestamp { seconds: seconds as i64, nanoseconds }))
        };
        let mut set = SetAttributes {
            permissions: has(valid::MODE).then_some(change.mode & 0o7777),
            uid: has(valid::UID).then_some(change.uid),
            gid: has(valid::GID).then_some(change.gid),
            size: has(valid::SIZE).then_some(change.size),
            accessed: time(valid::ATIME, change.atime, change.atime_nsec),
            modified: time(valid::MTIME, change.mtime, change.mtime_nsec),
            changed: has(valid::CTIME).then_some(Timestamp {
                seconds: change.ctime as i64,
                nanoseconds: change.ctime_nsec,
            }),
            drop_privileges: has(valid::KILL_SUIDGID),
            unchecked: false,
        };
        self.check_times(request.header.nodeid, inode, change, &mut set)?;
        // A change of the owner clears the set-id bits of executables, for every caller.
        if has(valid::UID | valid::GID) && !has(valid::MODE) && !set.drop_privileges {
            let before = self.volume.attributes(inode)?;
            set.drop_privileges =
                before.kind != FileKind::Directory && before.permissions & SET_ID_BITS != 0;
        }
        if set.size == Some(0) {
            let nodeid = request.header.nodeid;
            self.emptied(nodeid, inode, self.files.is_written(nodeid));
        }
        let _times;
        if self.agreement.write_back() && (set.modified.is_some() || set.changed.is_some()) {
            _times = self.files.lock_times(request.header.nodeid);
            let modified = match set.modified {
                Some(SetTime::At(time)) => Some(time),
                _ => None,
            };
            self.files.times_told(request.header.nodeid, modified, set.changed);
        }
        Ok(self.volume.set_attributes(inode, &set)?)
    }

    /// Whether the inode's flags refuse times. The kernel stores the times that it keeps at any
    /// moment, and that must not fail. While no handle writes, it has the modification time of the
    /// volume, so another one comes from a program.
    fn check_times(
        &self,
        nodeid: u64,
        inode: InodeNumber,
        change: &SetattrIn,
        set: &mut SetAttributes,
    ) -> Result<(), Errno> {
        let touches = change.valid & valid::ATIME_NOW != 0;
        if !touches && !is_time_update(change) {
            return Ok(());
        }
        let before = self.volume.attributes(inode)?;
        set.unchecked = match touches {
            // touch(1) wants what a write does.
            true => !before.flags.intersects(FileFlags::IMMUTABLE),
            false => {
                self.files.is_written(nodeid)
                    || set.modified.is_none_or(|time| time == SetTime::At(before.modified))
            }
        };
        Ok(())
    }

    /// Clears the set-id bits of a file after a change by a caller that may not keep them.
    pub(super) fn drop_privileges(&self, nodeid: u64, inode: InodeNumber) -> Result<(), Errno> {
        if self.has_set_id(inode) {
            self.volume.set_attributes(
                inode,
                &SetAttributes { drop_privileges: true, ..Default::default() },
            )?;
            self.mode_changed(nodeid);
        }
        Ok(())
    }

    pub(super) fn has_set_id(&self, inode: InodeNumber) -> bool {
        self.volume.attributes(inode).is_ok_and(|found| found.permissions & SET_ID_BITS != 0)
    }

    /// Invalidates the attributes: the kernel does not expect such a request to change the mode.
    /// Only attributes, so this never waits for pages.
    pub(super) fn mode_changed(&self, nodeid: u64) {
        let _ = self.invalidate_inode(nodeid, -1);
    }

    /// Enters an inode into the table of nodes, for an answer to the kernel.
    pub(super) fn entry(&self, attributes: &Attributes) -> Result<EntryOut, Errno> {
        let nodeid = self.nodes.enter(attributes)?;
        self.keep_asking(nodeid);
        // The kernel may not have the inode at present, so there was nothing to invalidate.
        let attr_valid = if self.lost.peek(nodeid).is_some() { 0 } else { validity(attributes) };
        Ok(EntryOut {
            nodeid,
            generation: generation(attributes),
            entry_valid: self.name_validity(),
            attr_valid,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: attr(attributes),
        })
    }

    pub(super) fn put_entry(
        &self,
        attributes: &Attributes,
        out: &mut AnswerBuffer,
    ) -> Result<u64, Errno> {
        let entry = self.entry(attributes)?;
        out.put(&entry);
        Ok(entry.nodeid)
    }
}

/// Distinguishes inodes with the same number. Numbers are not reused, with one exception: numbers
/// that no transaction point contained when the power failed. A client may still have a handle of
/// such a file. The creation time is constant and unique.
pub(super) fn generation(attributes: &Attributes) -> u64 {
    if attributes.inode == InodeNumber::ROOT {
        // The kernel's root inode has no generation.
        return 0;
    }
    let created = attributes.created;
    let nanoseconds = (created.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(created.nanoseconds));
    // The kernel keeps 32 bits, in some places as a signed number.
    (nanoseconds ^ nanoseconds >> 32) & 0x7fff_ffff
}

fn is_gone(errno: Errno) -> bool {
    matches!(errno.0, libc::ESTALE | libc::ENOENT)
}

/// Whether this is the request by which the kernel writes back its times.
pub(super) fn is_time_update(change: &SetattrIn) -> bool {
    change.valid & valid::CTIME != 0
        && change.valid & !(valid::MTIME | valid::CTIME | valid::FH) == 0
}

/// How long the kernel may keep attributes, in seconds: 0 if the block count changes without a
/// request.
fn validity(attributes: &Attributes) -> u64 {
    if attributes.shrinking { 0 } else { VALID_SECONDS }
}

pub(super) fn attr_out(attributes: &Attributes) -> AttrOut {
    AttrOut {
        attr_valid: validity(attributes),
        attr_valid_nsec: 0,
        dummy: 0,
        attr: attr(attributes),
    }
}

pub(crate) fn attr(attributes: &Attributes) -> Attr {
    Attr {
        ino: attributes.inode.0,
        size: attributes.size,
        blocks: attributes.allocated.div_ceil(512),
        atime: attributes.accessed.seconds as u64,
        mtime: attributes.modified.seconds as u64,
        ctime: attributes.changed.seconds as u64,
        atime_nsec: attributes.accessed.nanoseconds,
        mtime_nsec: attributes.modified.nanoseconds,
        ctime_nsec: attributes.changed.nanoseconds,
        mode: attributes.mode(),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

pub(crate) fn statx(attributes: &Attributes) -> Statx {
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    };
    Statx {
        mask: STATX_MASK,
        blksize: attributes.block_size,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode() as u16,
        ino: attributes.inode.0,
        size: attributes.size,
        blocks: attributes.allocated.div_ceil(512),
        atime: time(attributes.accessed),
        btime: time(attributes.created),
        ctime: time(attributes.changed),
        mtime: time(attributes.modified),
        // The kernel's 32-bit encoding: minor in bits 0–7 and 20–31, major in bits 8–19.
        rdev_major: attributes.device >> 8 & 0xfff,
        rdev_minor: attributes.device & 0xff | attributes.device >> 12 & 0xf_ff00,
        ..Default::default()
    }
}
