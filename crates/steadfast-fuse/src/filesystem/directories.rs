//! READDIR and READDIRPLUS. Directories have no handles. The offset that the kernel passes is the
//! cookie of the entry after which the list continues. Cookies stay valid regardless of other
//! changes.

use steadfast::Platform;
use steadfast::fs::{Attributes, DirectoryEntry};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome};
use crate::abi::input::ReadIn;
use crate::abi::output::{Dirent, EntryOut};
use crate::buffer::{AnswerBuffer, DATA_MAX};
use crate::errno::Errno;
use crate::request::Request;

/// Entries that are read from the volume in one batch.
const BATCH_MAX: usize = 256;
/// Estimated length of a name, for the size of batches.
const NAME_LENGTH_USUAL: usize = 16;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn readdir(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let directory = self.node(request)?;
        let entry = |_: &Attributes| Ok(EntryOut::default());
        list(request, out, 0, entry, |cookie, count| {
            Ok(self
                .volume
                .read_directory(directory, cookie, count)?
                .into_iter()
                .map(|e| (e, None))
                .collect())
        })
    }

    pub(super) fn readdirplus(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let directory = self.node(request)?;
        let entry = |attributes: &Attributes| self.entry(attributes);
        list(request, out, size_of::<EntryOut>(), entry, |cookie, count| {
            let entries = self.volume.read_directory_plus(directory, cookie, count)?;
            Ok(entries.into_iter().map(|(entry, attributes)| (entry, Some(attributes))).collect())
        })
    }
}

/// Fills the buffer with entries. `read` returns the entries for a cookie and a count. Each entry
/// has `prefix` bytes before it, which `name` makes from its attributes; with `prefix` 0 there are
/// none.
pub(crate) fn list(
    request: &Request<'_>,
    out: &mut AnswerBuffer,
    prefix: usize,
    name: impl Fn(&Attributes) -> Result<EntryOut, Errno>,
    read: impl Fn(u64, usize) -> Result<Vec<(DirectoryEntry, Option<Attributes>)>, Errno>,
) -> Outcome {
    let wanted = request.arguments().take::<ReadIn>()?;
    let limit = (wanted.size as usize).min(DATA_MAX);
    let mut cookie = wanted.offset;
    loop {
        let left = limit.saturating_sub(out.len());
        let count = (left / (prefix + size_of::<Dirent>() + NAME_LENGTH_USUAL)).clamp(1, BATCH_MAX);
        let entries = match read(cookie, count) {
            Ok(entries) => entries,
            // The entries so far are delivered; the next request returns the error.
            Err(_) if out.len() > 0 => return Ok(Answer::Ready),
            Err(errno) => return Err(errno),
        };
        let last = entries.len() < count;
        for (entry, attributes) in &entries {
            let size = prefix + dirent_size(entry);
            if out.len() + size > limit {
                return Ok(Answer::Ready);
            }
            if prefix > 0 {
                // The kernel does not count lookups of these two entries, so they must not create a
                // node.
                let named =
                    attributes.as_ref().filter(|_| entry.name != b"." && entry.name != b"..");
                out.put(&named.map_or(Ok(EntryOut::default()), &name)?);
            }
            put_dirent(entry, out);
            cookie = entry.cookie;
        }
        if last {
            return Ok(Answer::Ready);
        }
    }
}

fn dirent_size(entry: &DirectoryEntry) -> usize {
    size_of::<Dirent>() + entry.name.len().next_multiple_of(8)
}

fn put_dirent(entry: &DirectoryEntry, out: &mut AnswerBuffer) {
    out.put(&Dirent {
        ino: entry.inode.0,
        offset: entry.cookie,
        name_len: entry.name.len() as u32,
        kind: u32::from(entry.kind as u8),
    });
    out.append(&entry.name);
    let padding = entry.name.len().next_multiple_of(8) - entry.name.len();
    out.append(&[0; 8][..padding]);
}
