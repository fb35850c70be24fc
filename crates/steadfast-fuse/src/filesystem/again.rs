//! Answers to requests that an owner before has executed, and whose answer was lost with it.
//!
//! Their changes are in the volume already. Nothing in these answers may be kept: other nodes may
//! have changed it since. What is not there any more gives EIO, because the request itself has not
//! failed.

use std::sync::PoisonError;
use std::time::Instant;

use steadfast::Platform;
use steadfast::fs::Attributes;
use steadfast_media::Medium;

use super::attributes::attr_out;
use super::{Answer, Filesystem, Outcome, Phase, ready};
use crate::abi::input::{CreateIn, OpenIn};
use crate::abi::opcode;
use crate::abi::output::{AttrOut, CopyFileRangeOut, EntryOut, WriteOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::executing::Ending;
use crate::request::Request;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Answers a request that has ended so.
    pub(crate) fn answer_again(
        &self,
        request: &Request<'_>,
        Ending { error, detail }: Ending,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        if error != 0 {
            return Err(Errno(error));
        }
        let nodeid = request.header.nodeid;
        let asked = Instant::now();
        self.guarded(request.header.opcode, || match request.header.opcode {
            opcode::WRITE | opcode::COPY_FILE_RANGE => {
                ready(out.put(&WriteOut { size: detail as u32, padding: 0 }))
            }
            opcode::COPY_FILE_RANGE_64 => ready(out.put(&CopyFileRangeOut { length: detail })),
            opcode::SETATTR => self.with_node(nodeid, |attributes| {
                ready(out.put(&AttrOut { attr_valid: 0, ..attr_out(attributes) }))
            }),
            opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR | opcode::LINK => {
                self.with_node(detail, |attributes| self.put_made_before(attributes, out))
            }
            opcode::OPEN => {
                let OpenIn { flags, .. } = request.arguments().take()?;
                self.with_node(nodeid, |found| self.open_again(nodeid, found, flags, out))
            }
            opcode::CREATE => {
                let CreateIn { flags, .. } = request.arguments().take()?;
                self.with_node(detail, |found| {
                    self.put_made_before(found, out)?;
                    self.open_again(detail, found, flags, out)
                })
            }
            _ => Ok(Answer::Ready),
        })?;
        self.delegate(request, asked, out.filled_mut());
        Ok(Answer::Ready)
    }

    /// Runs `answer` with the attributes of a node, if no rollback is dropping what the request has
    /// changed.
    fn with_node(&self, nodeid: u64, answer: impl FnOnce(&Attributes) -> Outcome) -> Outcome {
        let gate = self.kernels.gate.read().unwrap_or_else(PoisonError::into_inner);
        if *gate == Phase::RollingBack {
            return Err(Errno(libc::ESTALE));
        }
        let found =
            self.nodes.resolve(nodeid).and_then(|inode| Ok(self.volume.attributes(inode)?));
        answer(&found.map_err(|_| Errno(libc::EIO))?)
    }

    fn put_made_before(&self, attributes: &Attributes, out: &mut AnswerBuffer) -> Outcome {
        let entry = EntryOut { entry_valid: 0, attr_valid: 0, ..self.entry(attributes)? };
        ready(out.put(&entry))
    }

    /// Opens a file that is empty already, if it was to be.
    fn open_again(
        &self,
        nodeid: u64,
        attributes: &Attributes,
        flags: u32,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        self.volume.acquire(attributes.inode).map_err(|_| Errno(libc::EIO))?;
        self.opened(nodeid, attributes.inode, flags & !(libc::O_TRUNC as u32), 0, out)
    }
}

#[cfg(test)]
#[path = "again_tests.rs"]
mod tests;
