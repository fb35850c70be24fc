//! GETLK, SETLK, SETLKW and INTERRUPT: locks of files that several kernels see. With one kernel
//! that kernel keeps its locks itself, and sends none of these.

use steadfast::Platform;
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome, ready};
use crate::abi::flags::LK_FLOCK;
use crate::abi::input::{InterruptIn, LkIn, ReleaseIn};
use crate::abi::opcode;
use crate::abi::output::LkOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::locks::{Lock, Owner, Taken};
use crate::request::Request;
use crate::service::Later;
use crate::snapshots::is_snapshot;

const READ_LOCK: u32 = libc::F_RDLCK as u32;
const WRITE_LOCK: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

/// The lock that a request is about.
pub(crate) fn lock_of(owner: Owner, wanted: &LkIn) -> Lock {
    Lock {
        owner,
        flock: wanted.lk_flags & LK_FLOCK != 0,
        exclusive: wanted.kind == WRITE_LOCK,
        start: wanted.start,
        end: wanted.end,
        process: wanted.pid,
        handle: wanted.fh,
    }
}

/// Whether SETLK or SETLKW gives a lock up.
pub(crate) fn is_unlock(wanted: &LkIn) -> bool {
    wanted.kind == UNLOCK
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn lock(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        if !self.is_shared() {
            return Err(Errno(libc::ENOSYS));
        }
        let file = self.locked_file(request)?;
        let wanted = request.arguments().take::<LkIn>()?;
        let lock = lock_of(self.lock_owner(wanted.owner), &wanted);
        if lock.start > lock.end || !matches!(wanted.kind, READ_LOCK | WRITE_LOCK | UNLOCK) {
            return Err(Errno(libc::EINVAL));
        }
        let locks = &self.kernels.locks;
        match request.header.opcode {
            opcode::GETLK => {
                let found = locks.conflict(file, &lock).map_or(
                    LkOut { start: lock.start, end: lock.end, kind: UNLOCK, pid: 0 },
                    |held| LkOut {
                        start: held.start,
                        end: held.end,
                        kind: if held.exclusive { WRITE_LOCK } else { READ_LOCK },
                        // A process of another machine has no number here.
                        pid: if held.owner.kernel == self.id { held.process } else { 0 },
                    },
                );
                ready(out.put(&found))
            }
            _ if is_unlock(&wanted) => {
                locks.give_up(file, &lock);
                Ok(Answer::Ready)
            }
            opcode::SETLK => locks.take(file, lock, None).map(|_| Answer::Ready),
            _ => {
                let ticket = || self.ticket(later, request).map(Some);
                let taken = locks.take(file, lock, Some((request.header.unique, &ticket)))?;
                Ok(match taken {
                    Taken::Now => Answer::Ready,
                    Taken::Later => Answer::Later,
                })
            }
        }
    }

    /// RELEASE: the locks that were taken through the open file end.
    pub(crate) fn released(&self, request: &Request<'_>) {
        if let (true, Ok(file), Ok(released)) =
            (self.is_shared(), self.locked_file(request), request.arguments().take::<ReleaseIn>())
        {
            self.kernels.locks.released(file, self.id, released.fh);
        }
    }

    /// A signal for a waiting process. Only a request for a lock waits long.
    pub(super) fn interrupt(&self, request: &Request<'_>) -> Outcome {
        if !self.is_shared() {
            return Err(Errno(libc::ENOSYS));
        }
        let unique = request.arguments().take::<InterruptIn>()?.unique;
        self.kernels.locks.interrupt(self.id, unique);
        Ok(Answer::Silent)
    }

    pub(super) fn lock_owner(&self, number: u64) -> Owner {
        Owner { kernel: self.id, number }
    }

    /// The number by which locks know the file of a request.
    ///
    /// # Errors
    /// ESTALE for a node id that is stale.
    pub(super) fn locked_file(&self, request: &Request<'_>) -> Result<u64, Errno> {
        let nodeid = request.header.nodeid;
        if is_snapshot(nodeid) { Ok(nodeid) } else { Ok(self.node(request)?.0) }
    }
}
