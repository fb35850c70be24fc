//! Connects [`Admission`](crate::admission::Admission) to the kernel's requests, its notifications
//! and the volume.

use steadfast::fs::Attributes;
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;
use zerocopy::IntoBytes;

use super::attributes::attr_out;
use super::{Filesystem, Outcome, ready};
use crate::admission::Surroundings;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::jobs::{Job, Ticket};
use crate::mount::CacheLimits;
use crate::open::Handle;
use crate::request::Request;
use crate::service::Later;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Surroundings for Filesystem<M, P> {
    fn room(&self) -> u64 {
        // If the volume cannot report its room, each write detects the error itself.
        self.volume.available_bytes().unwrap_or(u64::MAX)
    }

    fn make_room(&self, bytes: u64) {
        // If this fails, the write fails too.
        let _ = self.volume.make_room(bytes);
    }

    fn size(&self, nodeid: u64) -> Result<u64, Errno> {
        Ok(self.volume.attributes(self.nodes.resolve(nodeid)?)?.size)
    }

    fn brings_back(&self) -> bool {
        self.volume.may_reclaim()
    }

    fn shares_blocks(&self, nodeid: u64) -> Result<bool, Errno> {
        Ok(self.volume.shares_blocks(self.nodes.resolve(nodeid)?)?)
    }

    fn written(&self) -> Vec<u64> {
        self.files.written()
    }

    fn have_ask(&self, nodeid: u64) {
        // Only attributes: this never waits for pages.
        let _ = self.invalidate_inode(nodeid, -1);
    }

    fn pull(&self, nodeid: u64) {
        let _ = self.pull_file(nodeid);
    }

    fn lost(&self, nodeid: u64) -> Option<Errno> {
        self.lost.tell(nodeid)
    }

    fn limit_dirty(&self, bytes: Option<u64>) -> bool {
        match (self.cache_limits.get(), bytes) {
            (Some(limits), Some(bytes)) => limits.set_dirty_max(bytes),
            (Some(limits), None) => limits.lift_dirty_max(),
            (None, _) => false,
        }
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Starts to bound dirty pages, before the first request is served. `limits`: the location of
    /// the kernel's limits, if known.
    pub(crate) fn begin_admission(&self, limits: Option<CacheLimits>) {
        let dirty_max = limits.as_ref().and_then(CacheLimits::dirty_max);
        if let Some(limits) = limits {
            // Only this function sets it, so it cannot fail.
            let _ = self.cache_limits.set(limits);
        }
        if self.admission.begin(dirty_max) && !self.volume.info().read_only {
            self.admission.look(self);
        }
    }

    /// The room may have changed: makes the control thread look, if that matters.
    pub(super) fn room_changed(&self) {
        if self.admission.is_due(|| self.room()) {
            self.send(Job::Room);
        }
    }

    /// Called before an answer that contains attributes of the file.
    pub(super) fn keep_asking(&self, nodeid: u64) {
        if self.must_ask(nodeid) {
            self.have_ask(nodeid);
        }
    }

    /// Whether an answer whose attributes the kernel always keeps has to mark them as invalid.
    pub(super) fn must_ask(&self, nodeid: u64) -> bool {
        self.admission.asks() && self.files.is_written(nodeid) || self.lost.peek(nodeid).is_some()
    }

    /// Called before a file is emptied. `is_written`: it is or will be open for writing.
    pub(super) fn emptied(&self, nodeid: u64, inode: InodeNumber, is_written: bool) {
        if is_written && self.admission.asks() {
            let before = self.volume.attributes(inode).map_or(0, |before| before.size);
            self.admission.emptied(nodeid, before);
        }
    }

    /// GETATTR with a handle that may write.
    pub(super) fn admit(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        handle: Handle,
        attributes: &Attributes,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let nodeid = request.header.nodeid;
        if let Some(errno) = self.lost.tell(nodeid) {
            return Err(errno);
        }
        if !self.admission.admit(self, nodeid) {
            return self.defer(Job::Admit { ticket: self.ticket(later, request)?, nodeid, handle });
        }
        self.admitted(nodeid);
        ready(out.put(&attr_out(attributes)))
    }

    /// On the control thread: an admission that first has to pull files.
    pub(crate) fn execute_admission(&self, ticket: Ticket, nodeid: u64, handle: Handle) {
        let result = self.admission.find_unit(self, nodeid, handle).and_then(|()| {
            self.admitted(nodeid);
            Ok(attr_out(&self.volume.attributes(self.nodes.resolve(nodeid)?)?))
        });
        if let Err(errno) = result {
            self.kernels.lease.note_no_space(errno);
        }
        ticket.answer(result.as_ref().map(|out| out.as_bytes()).map_err(|errno| *errno));
    }

    /// Makes the next write ask, too.
    fn admitted(&self, nodeid: u64) {
        if self.admission.asks() {
            self.have_ask(nodeid);
        }
    }
}
