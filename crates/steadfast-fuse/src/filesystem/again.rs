//! Answers to requests that an owner before has executed, and whose answer was lost with it.
//!
//! Their changes are in the volume already. Nothing in these answers may be kept: other nodes may
//! have changed it since.

use steadfast::Platform;
use steadfast::fs::Attributes;
use steadfast_media::Medium;
use zerocopy::IntoBytes;

use super::{Answer, Filesystem, Outcome, ready};
use crate::abi::input::{CreateIn, GetattrIn, InHeader, OpenIn};
use crate::abi::opcode;
use crate::abi::output::{CopyFileRangeOut, EntryOut, WriteOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::executing::Ending;
use crate::request::Request;
use crate::service::Later;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Answers a request that has ended so.
    pub(crate) fn answer_again(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        Ending { error, detail }: Ending,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        if error != 0 {
            return Err(Errno(error));
        }
        let nodeid = request.header.nodeid;
        match request.header.opcode {
            opcode::WRITE | opcode::COPY_FILE_RANGE => {
                ready(out.put(&WriteOut { size: detail as u32, padding: 0 }))
            }
            opcode::COPY_FILE_RANGE_64 => ready(out.put(&CopyFileRangeOut { length: detail })),
            opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR | opcode::LINK => {
                self.put_made_before(detail, out)
            }
            opcode::SETATTR => {
                let wanted = GetattrIn { getattr_flags: 0, dummy: 0, fh: 0 };
                self.instead(later, request, (opcode::GETATTR, nodeid, wanted.as_bytes()), out)
            }
            opcode::OPEN => {
                let OpenIn { flags, open_flags } = request.arguments().take()?;
                self.open_again(later, request, nodeid, (flags, open_flags), out)
            }
            opcode::CREATE => {
                let CreateIn { flags, open_flags, .. } = request.arguments().take()?;
                self.put_made_before(detail, out)?;
                self.open_again(later, request, detail, (flags, open_flags), out)
            }
            _ => Ok(Answer::Ready),
        }
    }

    fn put_made_before(&self, nodeid: u64, out: &mut AnswerBuffer) -> Outcome {
        let attributes: Attributes = self.volume.attributes(self.nodes.resolve(nodeid)?)?;
        let entry = EntryOut { entry_valid: 0, attr_valid: 0, ..self.entry(&attributes)? };
        ready(out.put(&entry))
    }

    /// Opens a file that is empty already, if it was to be.
    fn open_again(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        nodeid: u64,
        (flags, open_flags): (u32, u32),
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let flags = flags & !(libc::O_TRUNC as u32);
        let wanted = OpenIn { flags, open_flags };
        self.instead(later, request, (opcode::OPEN, nodeid, wanted.as_bytes()), out)
    }

    /// Executes another request, and adds its answer.
    fn instead(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        (opcode, nodeid, body): (u32, u64, &[u8]),
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let header = InHeader { len, opcode, nodeid, ..request.header };
        let bytes = [header.as_bytes(), body].concat();
        let other = Request::parse(&bytes).ok_or(Errno(libc::EINVAL))?;
        let mut memory = [0; 256];
        let mut answer = AnswerBuffer::new(&mut memory);
        match self.execute(later, &other, &mut answer)? {
            Answer::Ready => ready(out.append(answer.filled())),
            // It waits for an event, whose thread would give the other answer.
            Answer::Silent | Answer::Later => Err(Errno(libc::EIO)),
        }
    }
}

#[cfg(test)]
#[path = "again_tests.rs"]
mod tests;
