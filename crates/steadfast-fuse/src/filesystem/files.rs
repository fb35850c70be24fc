//! Regular files: opening, data, allocation.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use steadfast::fs::{
    AllocateMode, Attributes, FileFlags, FileKind, NewNode, SeekTo, SetAttributes,
};
use steadfast::{Error, InodeNumber, Platform};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome, caller, ready};
use crate::abi::flags::{OPEN_KILL_SUIDGID, fopen, read as read_flag, write as write_flag};
use crate::abi::input::{
    CopyFileRangeIn, CreateIn, FallocateIn, LseekIn, OpenIn, ReadIn, ReleaseIn, WriteIn,
};
use crate::abi::opcode;
use crate::abi::output::{CopyFileRangeOut, LseekOut, OpenOut, WriteOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::jobs::Job;
use crate::open::Handle;
use crate::planned;
use crate::request::Request;
use crate::service::Later;

/// Any read renews an access time older than this.
const RELATIME_SECONDS: i64 = 24 * 3600;
/// Rights that a program gets from its file; any change of the file takes them away.
const CAPABILITIES: &[u8] = b"security.capability";
const SEEK_DATA: u32 = libc::SEEK_DATA as u32;
const SEEK_HOLE: u32 = libc::SEEK_HOLE as u32;
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn open(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let inode = self.node(request)?;
        let wanted = request.arguments().take::<OpenIn>()?;
        self.volume.acquire(inode)?;
        let outcome =
            self.opened(request.header.nodeid, inode, wanted.flags, wanted.open_flags, out);
        if outcome.is_ok()
            && wanted.flags as i32 & (libc::O_ACCMODE | libc::O_NOATIME) == libc::O_RDONLY
        {
            self.accessed(request.header.nodeid, inode);
        }
        outcome
    }

    /// The kernel answers cached reads without a request to the daemon. So opening a file for
    /// reading counts as the first read, if that read would change the access time (see relatime in
    /// mount(8)). The volume applies its own rule. Errors are ignored, because the file is already
    /// open.
    fn accessed(&self, nodeid: u64, inode: InodeNumber) {
        if !self.access_times.load(Ordering::Relaxed) {
            return;
        }
        let Ok(before) = self.volume.attributes(inode) else { return };
        if before.flags.intersects(FileFlags::NO_ACCESS_TIME) {
            return;
        }
        let now = self.volume.platform().now().seconds;
        let due = before.accessed <= before.modified
            || before.accessed <= before.changed
            || now.saturating_sub(before.accessed.seconds) >= RELATIME_SECONDS;
        if !due || self.volume.read(inode, 0, &mut [0]).is_err() {
            return;
        }
        match self.volume.attributes(inode) {
            Ok(after) if after.accessed != before.accessed => {
                // Only attributes: this never waits for pages.
                let _ = self.invalidate_inode(nodeid, -1);
            }
            // The volume keeps no access times (noatime, read-only), so later attempts are
            // pointless.
            Ok(_) if now > before.accessed.seconds.saturating_add(1) && before.size > 0 => {
                self.access_times.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    pub(super) fn create(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let mut arguments = request.arguments();
        let wanted = arguments.take::<CreateIn>()?;
        let name = arguments.name()?;
        let directory = self.node(request)?;
        let caller = caller(request, wanted.umask & 0o777);
        let made =
            self.volume.create(directory, name, NewNode::Regular, wanted.mode & 0o7777, &caller);
        let (attributes, flags) = match made {
            Ok(attributes) => (attributes, wanted.flags & !(libc::O_TRUNC as u32)),
            // The kernel did not know that the file exists; without O_EXCL an existing file is
            // accepted.
            Err(Error::AlreadyExists) if wanted.flags as i32 & libc::O_EXCL == 0 => {
                let attributes = self.volume.lookup(directory, name)?;
                if attributes.kind != FileKind::Regular {
                    return Err(Errno(libc::EEXIST));
                }
                (attributes, wanted.flags)
            }
            Err(error) => return Err(error.into()),
        };
        self.volume.acquire(attributes.inode)?;
        let nodeid = self.put_made(&attributes, flags, out)?;
        self.opened(nodeid, attributes.inode, flags, wanted.open_flags, out)
    }

    pub(super) fn tmpfile(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let directory = self.node(request)?;
        let wanted = request.arguments().take::<CreateIn>()?;
        let caller = caller(request, wanted.umask & 0o777);
        let attributes = self.volume.create_unnamed(directory, wanted.mode & 0o7777, &caller)?;
        let nodeid = self.put_made(&attributes, wanted.flags, out)?;
        self.opened(nodeid, attributes.inode, wanted.flags, 0, out)
    }

    /// Enters an acquired inode that is about to be opened into the table of nodes, or releases it.
    fn put_made(
        &self,
        attributes: &Attributes,
        flags: u32,
        out: &mut AnswerBuffer,
    ) -> Result<u64, Errno> {
        let mut entry =
            self.entry(attributes).inspect_err(|_| self.volume.release(attributes.inode))?;
        let truncates = flags as i32 & libc::O_TRUNC != 0;
        if truncates || Handle::new(flags).is_writable() && self.admission.asks() {
            entry.attr_valid = 0;
        }
        out.put(&entry);
        Ok(entry.nodeid)
    }

    /// Creates the handle of an acquired inode, or releases the inode.
    pub(super) fn opened(
        &self,
        nodeid: u64,
        inode: InodeNumber,
        flags: u32,
        open_flags: u32,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        if let Err(errno) = self.check_open(inode, flags as i32) {
            self.volume.release(inode);
            return Err(errno);
        }
        if flags as i32 & libc::O_TRUNC != 0 {
            let drop_privileges = open_flags & OPEN_KILL_SUIDGID != 0;
            let cut = SetAttributes { size: Some(0), drop_privileges, ..Default::default() };
            let had_set_id = drop_privileges && self.has_set_id(inode);
            self.emptied(nodeid, inode, Handle::new(flags).is_writable());
            if let Err(error) = self.volume.set_attributes(inode, &cut) {
                self.volume.release(inode);
                return Err(error.into());
            }
            self.lost.end(nodeid);
            if had_set_id {
                self.mode_changed(nodeid);
            }
        }
        let handle = Handle::new(flags).numbered(self.kernels.handle());
        self.files.opened(nodeid, handle);
        if handle.is_writable() {
            self.times_shown(nodeid, inode);
            self.keep_asking(nodeid);
            self.room_changed();
        }
        let mut open_flags = fopen::KEEP_CACHE;
        if !handle.is_writable() {
            open_flags |= fopen::NOFLUSH;
        }
        ready(out.put(&OpenOut { fh: handle.0, open_flags, backing_id: 0 }))
    }

    /// The kernel does not know the flags of the inode, so they are checked here.
    fn check_open(&self, inode: InodeNumber, flags: i32) -> Result<(), Errno> {
        let (appends, truncates) = (flags & libc::O_APPEND != 0, flags & libc::O_TRUNC != 0);
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes || truncates {
            self.volume.attributes(inode)?.flags.check_open(writes, appends, truncates)?;
        }
        Ok(())
    }

    pub(super) fn release(&self, request: &Request<'_>) -> Outcome {
        let released = request.arguments().take::<ReleaseIn>()?;
        let nodeid = request.header.nodeid;
        let handle = Handle(released.fh);
        self.released(request);
        // Another writer may have times that the kernel has not sent yet.
        if handle.is_writable() && self.files.has_one_writer(nodeid) {
            self.settle_times(nodeid);
        }
        if self.files.closed(nodeid, handle) {
            if !self.files.is_written(nodeid) {
                self.admission.closed(nodeid);
                self.lost.closed(nodeid);
            }
            self.volume.release(self.node(request)?);
        }
        Ok(Answer::Ready)
    }

    pub(super) fn read(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let inode = self.node(request)?;
        let wanted = request.arguments().take::<ReadIn>()?;
        let notes = wanted.flags as i32 & libc::O_NOATIME == 0;
        let length = wanted.size as usize;
        if wanted.read_flags & read_flag::PLAN != 0
            && let Some(plan) = self.volume.plan_read(inode, wanted.offset, length, notes)?
        {
            self.metrics.share(|sharing| &sharing.direct_bytes, length as u64);
            return ready(out.put_plan(&planned::encode(&plan), length));
        }
        let space = out.space(length);
        let length = match notes {
            true => self.volume.read(inode, wanted.offset, space)?,
            false => self.volume.read_unnoticed(inode, wanted.offset, space)?,
        };
        out.advance(length);
        Ok(Answer::Ready)
    }

    pub(super) fn write(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let inode = self.node(request)?;
        let mut arguments = request.arguments();
        let wanted = arguments.take::<WriteIn>()?;
        let data = arguments.bytes(wanted.size as usize)?;
        // Written-back pages belong to no particular handle. For an O_SYNC handle an fsync follows.
        let cached = wanted.write_flags & write_flag::CACHE != 0;
        let sync = !cached && Handle(wanted.fh).is_sync();
        // Clears the bits before the data is written. Otherwise a transaction point could contain
        // another user's data in a file that runs with its owner's rights.
        if wanted.write_flags & write_flag::KILL_SUIDGID != 0 {
            self.drop_privileges(request.header.nodeid, inode)?;
        }
        if self.is_shared() {
            self.write_among_others(inode, &wanted, data, sync)?;
        } else {
            self.volume.write(inode, wanted.offset, data, sync)?;
        }
        self.times_late(request.header.nodeid);
        self.room_changed();
        ready(out.put(&WriteOut { size: wanted.size, padding: 0 }))
    }

    /// A write to a file that other kernels may extend meanwhile. The kernel does not know where
    /// such a file ends, so an appending write finds that here.
    fn write_among_others(
        &self,
        inode: InodeNumber,
        wanted: &WriteIn,
        data: &[u8],
        sync: bool,
    ) -> Result<(), Errno> {
        let appends = &self.kernels.appends;
        let cached = wanted.write_flags & write_flag::CACHE != 0;
        if !cached {
            // For writes that bypass its cache the kernel leaves this to the daemon.
            match self.volume.remove_xattr(inode, CAPABILITIES) {
                Ok(()) | Err(Error::NoAttribute) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if cached || wanted.flags as i32 & libc::O_APPEND == 0 {
            let _others = appends.read().unwrap_or_else(PoisonError::into_inner);
            return Ok(self.volume.write(inode, wanted.offset, data, sync)?);
        }
        let _alone = appends.write().unwrap_or_else(PoisonError::into_inner);
        Ok(self.volume.write(inode, self.end_of(inode)?, data, sync)?)
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Outcome {
        let inode = self.node(request)?;
        let wanted = request.arguments().take::<FallocateIn>()?;
        let keep_size = wanted.mode & KEEP_SIZE != 0;
        let mode = match wanted.mode & !KEEP_SIZE {
            0 => AllocateMode::Allocate { keep_size },
            PUNCH_HOLE if keep_size => AllocateMode::PunchHole,
            ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        self.changed_by_stranger(request, request.header.nodeid, inode)?;
        self.volume.allocate(inode, wanted.offset, wanted.length, mode)?;
        self.times_late(request.header.nodeid);
        Ok(Answer::Ready)
    }

    pub(super) fn copy_file_range(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let from = self.node(request)?;
        let wanted = request.arguments().take::<CopyFileRangeIn>()?;
        let to = self.nodes.resolve(wanted.nodeid_out)?;
        if wanted.flags != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // The old request returns the length in 32 bits.
        let wide = request.header.opcode == opcode::COPY_FILE_RANGE_64;
        let length = if wide { wanted.length } else { wanted.length.min(u64::from(!0xfff_u32)) };
        self.changed_by_stranger(request, wanted.nodeid_out, to)?;
        let copied = self.volume.copy_range(from, wanted.offset_in, to, wanted.offset_out, length);
        self.admission.shared();
        let copied = copied?;
        self.times_late(wanted.nodeid_out);
        if wide {
            ready(out.put(&CopyFileRangeOut { length: copied }))
        } else {
            ready(out.put(&WriteOut { size: copied as u32, padding: 0 }))
        }
    }

    /// These requests do not state whether the caller may keep the set-id bits; root may. The bits
    /// are cleared before the change, as for a write.
    fn changed_by_stranger(
        &self,
        request: &Request<'_>,
        nodeid: u64,
        inode: InodeNumber,
    ) -> Result<(), Errno> {
        if request.header.uid != 0 { self.drop_privileges(nodeid, inode) } else { Ok(()) }
    }

    /// SEEK_DATA and SEEK_HOLE. The kernel does not write back dirty pages first, so a file that
    /// may have dirty pages has to be pulled. A worker must not wait for that.
    pub(super) fn lseek(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let inode = self.node(request)?;
        let wanted = request.arguments().take::<LseekIn>()?;
        let to = match wanted.whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let nodeid = request.header.nodeid;
        if self.files.is_written(nodeid) && !self.is_shared() {
            return self.defer(Job::Seek {
                ticket: self.ticket(later, request)?,
                nodeid,
                offset: wanted.offset,
                to,
            });
        }
        let offset = self.volume.seek(inode, wanted.offset, to)?;
        ready(out.put(&LseekOut { offset }))
    }
}
