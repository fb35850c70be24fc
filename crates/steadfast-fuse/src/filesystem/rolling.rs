//! Requests that arrive after the volume was rolled back, while the kernel still has the old state.
//!
//! The control thread waits for the kernel to drop its pages. The kernel may hold the lock of a
//! page, or delay the writes of a file, until a request of that file is answered. So every request
//! about a regular file is answered immediately. Writes of dirty pages are acknowledged and
//! dropped, because they belong to the discarded state; other requests get ESTALE. Requests about
//! directories hold nothing that the control thread needs; they are parked and executed afterwards.

use std::sync::{Arc, PoisonError};

use steadfast::Platform;
use steadfast_media::Medium;

use super::attributes::is_time_update;
use super::{Answer, Filesystem, Outcome, ready};
use crate::abi::flags::write as write_flag;
use crate::abi::input::{SetattrIn, WriteIn};
use crate::abi::opcode;
use crate::abi::output::WriteOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::executing::{self, Execution};
use crate::request::Request;
use crate::service::{Later, Return};
use crate::snapshots::is_snapshot;

/// A request to execute later.
pub(crate) struct Parked {
    pub(crate) back: Return,
    pub(crate) bytes: Vec<u8>,
    pub(crate) execution: Option<Arc<Execution>>,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn while_rolling_back(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        match request.header.opcode {
            opcode::WRITE => {
                let wanted = request.arguments().take::<WriteIn>()?;
                if wanted.write_flags & write_flag::CACHE == 0 {
                    return Err(Errno(libc::ESTALE));
                }
                ready(out.put(&WriteOut { size: wanted.size, padding: 0 }))
            }
            opcode::SETATTR
                if !self.nodes.is_known_directory(request.header.nodeid)
                    && is_time_update(&request.arguments().take::<SetattrIn>()?) =>
            {
                self.acknowledge_times(request, out)
            }
            // The kernel does not wait for RELEASE, and the tables that it needs are being changed.
            opcode::RELEASE => self.park(later, request),
            opcode::RELEASEDIR | opcode::DESTROY => Ok(Answer::Ready),
            _ if self.nodes.is_known_directory(request.header.nodeid) => self.park(later, request),
            // A snapshot has nothing to drop or to wait for.
            _ if is_snapshot(request.header.nodeid) => self.park(later, request),
            _ if request.header.nodeid == 0 => Err(Errno(libc::ENOSYS)),
            _ => Err(Errno(libc::ESTALE)),
        }
    }

    fn park(&self, later: Later<'_>, request: &Request<'_>) -> Outcome {
        let (bytes, execution) = (request.bytes.to_vec(), executing::current());
        let parked = Parked { back: later()?, bytes, execution };
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).push(parked);
        Ok(Answer::Later)
    }
}
