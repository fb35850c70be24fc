//! GETATTR, STATX, SETATTR, and the shape in which attributes travel.
//!
//! With the write-back cache the kernel owns size, mtime and ctime of a regular file that it has in
//! memory: it ignores ours and sends its own with SETATTR when it writes the inode back.

use steadfast::fs::{Attributes, FileKind, SetAttributes, SetTime};
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

impl<M: Medium, P: Platform> Filesystem<M, P> {
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

    /// The kernel may give a program the error of a lost write with the result of this call alone,
    /// see [`lost`](super::lost). Making the file empty is an end to what was lost. Making it
    /// shorter is done in any case, for that helps a full volume.
    fn check_lost(&self, nodeid: u64, change: &SetattrIn) -> Result<(), Errno> {
        if change.valid & valid::SIZE != 0 && change.size == 0 {
            self.lost.tell(nodeid);
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
            // Programs ignore what setting times answers: the next call has to tell it, too.
            false => self.lost.peek(nodeid).filter(|_| !is_time_update(change)),
        };
        lost.map_or(Ok(()), Err)
    }

    /// The kernel writes the times of an inode that it has in memory back also when the inode has
    /// just lost its last name, or was rolled back. An error here would come out of somebody's
    /// syncfs(2).
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
        // "Now" comes with the kernel's idea of it, which is also that of the times that it keeps
        // itself.
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
        };
        // A change of the owner takes the set-id bits from whatever is executed, whoever makes it.
        if has(valid::UID | valid::GID) && !has(valid::MODE) && !set.drop_privileges {
            let before = self.volume.attributes(inode)?;
            set.drop_privileges =
                before.kind != FileKind::Directory && before.permissions & SET_ID_BITS != 0;
        }
        if self.agreement.write_back() {
            let modified = match set.modified {
                Some(SetTime::At(time)) => Some(time),
                _ => None,
            };
            self.files.times_told(request.header.nodeid, modified, set.changed);
        }
        Ok(self.volume.set_attributes(inode, &set)?)
    }

    /// Clears the set-id bits of a file that somebody without the right to keep them has changed.
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

    /// The kernel does not expect the mode to change with such a request. Attributes alone: never
    /// waits for pages.
    pub(super) fn mode_changed(&self, nodeid: u64) {
        let _ = self.device.invalidate_inode(nodeid, -1);
    }

    /// Names an inode to the kernel.
    pub(super) fn entry(&self, attributes: &Attributes) -> Result<EntryOut, Errno> {
        let nodeid = self.nodes.enter(attributes)?;
        self.keep_asking(nodeid);
        Ok(EntryOut {
            nodeid,
            generation: generation(attributes),
            entry_valid: self.name_validity(),
            attr_valid: validity(attributes),
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

/// Tells inodes of one number apart. Numbers are not used again, but for those that no transaction
/// point held when the power failed: somebody may still have a handle of such a file. When it was
/// made never changes and never comes again.
fn generation(attributes: &Attributes) -> u64 {
    if attributes.inode == InodeNumber::ROOT {
        // The kernel's root inode has none.
        return 0;
    }
    let created = attributes.created;
    let nanoseconds = (created.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(created.nanoseconds));
    // The kernel keeps 32 bits, with a sign in places.
    (nanoseconds ^ nanoseconds >> 32) & 0x7fff_ffff
}

fn is_gone(errno: Errno) -> bool {
    matches!(errno.0, libc::ESTALE | libc::ENOENT)
}

/// What the kernel sends when it writes back the times that it keeps.
pub(super) fn is_time_update(change: &SetattrIn) -> bool {
    change.valid & valid::CTIME != 0
        && change.valid & !(valid::MTIME | valid::CTIME | valid::FH) == 0
}

/// How long the kernel may keep attributes, seconds: not at all where the block count changes by
/// itself.
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
