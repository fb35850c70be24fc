//! FITRIM: discards free space step by step on the control thread, so that other commands go on
//! between the steps.

use steadfast::{Platform, TransactionMask};
use steadfast_media::Medium;
use zerocopy::IntoBytes;

use crate::abi::output::IoctlOut;
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::ioctl::TrimArgument;
use crate::jobs::{Job, Ticket, Trim};

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Does a step of `trim`. Answers after the last one; otherwise returns the job for the next.
    pub(crate) fn execute_trim(&self, ticket: Ticket, mut trim: Trim) -> Option<Job> {
        match self.trim_step(&mut trim) {
            Ok(true) => return Some(Job::Trim { ticket, trim }),
            Ok(false) => {
                let answer = TrimArgument { length: trim.discarded, ..trim.range };
                let mut out = IoctlOut::default().as_bytes().to_vec();
                out.extend_from_slice(answer.as_bytes());
                ticket.answer(Ok(&out));
            }
            Err(errno) => ticket.answer(Err(errno)),
        }
        None
    }

    /// Returns whether more is left to do.
    fn trim_step(&self, trim: &mut Trim) -> Result<bool, Errno> {
        if self.volume.is_held() {
            return Err(Errno(libc::EALREADY));
        }
        let Some(from) = trim.next else {
            if trim.range.start >= self.volume.info().size {
                return Err(Errno(libc::EINVAL));
            }
            // A command of the system's timer must not publish half of a change. The first
            // checkpoint frees blocks, the second makes that the checkpointed state.
            if self.volume.mask().contains(TransactionMask::TIMER) {
                self.volume.checkpoint()?;
                self.volume.checkpoint()?;
            }
            trim.next = Some(trim.range.start);
            return Ok(true);
        };
        let to = trim.range.start.saturating_add(trim.range.length);
        let (discarded, next) = self.volume.trim_step(from, to, trim.range.least)?;
        trim.discarded += discarded;
        trim.next = next;
        Ok(next.is_some())
    }
}
