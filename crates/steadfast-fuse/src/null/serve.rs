//! Executes the kernel's requests on the maps.

use steadfast::Timestamp;
use steadfast::fs::{Attributes, FileKind};

use super::NullFilesystem;
use super::tree::{Body, New, now};
use crate::abi::flags::{fopen, setattr as valid};
use crate::abi::input::{
    BatchForgetIn, CreateIn, ForgetIn, ForgetOne, LinkIn, MkdirIn, MknodIn, OpenIn, ReadIn,
    Rename2In, RenameIn, SetattrIn, WriteIn,
};
use crate::abi::opcode;
use crate::abi::output::{AttrOut, EntryOut, OpenOut, StatfsOut, StatxOut, WriteOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::filesystem::VALID_SECONDS;
use crate::filesystem::attributes::{attr, statx};
use crate::filesystem::directories;
use crate::request::Request;
use crate::service::{Answer, Later, Outcome, Service};

/// `renameat2`: fail if the new name exists.
const RENAME_NOREPLACE: u32 = 1;

impl Service for NullFilesystem {
    fn serve(&self, _later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        match request.header.opcode {
            // The kernel does not wait for these.
            opcode::FORGET => {
                if let Ok(forget) = request.arguments().take::<ForgetIn>() {
                    self.writing().forget(request.header.nodeid, forget.lookups);
                }
                Ok(Answer::Silent)
            }
            opcode::BATCH_FORGET => {
                self.batch_forget(request);
                Ok(Answer::Silent)
            }
            _ => self.dispatch(request, out).map(|()| Answer::Ready),
        }
    }
}

impl NullFilesystem {
    fn dispatch(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let id = request.header.nodeid;
        match request.header.opcode {
            opcode::LOOKUP => self.lookup(id, request.arguments().name()?, out),
            opcode::GETATTR => put_attributes(&self.reading().node(id)?.attributes, out),
            opcode::STATX => {
                let stat = statx(&self.reading().node(id)?.attributes);
                ready(out.put(&StatxOut { attr_valid: VALID_SECONDS, stat, ..Default::default() }))
            }
            opcode::SETATTR => self.setattr(request, out),
            opcode::READLINK => match &self.reading().node(id)?.body {
                Body::Target(target) => ready(out.append(target)),
                _ => Err(Errno(libc::EINVAL)),
            },
            opcode::MKDIR | opcode::MKNOD | opcode::SYMLINK | opcode::CREATE => {
                self.make(request, out)
            }
            opcode::UNLINK | opcode::RMDIR => {
                let rmdir = request.header.opcode == opcode::RMDIR;
                self.writing().remove(id, request.arguments().name()?, rmdir)
            }
            opcode::RENAME | opcode::RENAME2 => self.rename(request),
            opcode::LINK => {
                let mut arguments = request.arguments();
                let old = arguments.take::<LinkIn>()?.oldnodeid;
                let mut tree = self.writing();
                tree.link(old, id, arguments.name()?)?;
                put_entry(&tree.enter(old)?, out)
            }
            opcode::OPEN => self.open(request, out),
            opcode::READ => self.read(request, out),
            opcode::WRITE => {
                let mut arguments = request.arguments();
                let wanted = arguments.take::<WriteIn>()?;
                self.writing().write(id, wanted.offset, arguments.bytes(wanted.size as usize)?)?;
                ready(out.put(&WriteOut { size: wanted.size, padding: 0 }))
            }
            opcode::READDIR => {
                let entry = |_: &Attributes| Ok(EntryOut::default());
                let read = |cookie, count| self.reading().list(id, cookie, count);
                directories::list(request, out, 0, entry, read).map(|_| ())
            }
            opcode::READDIRPLUS => {
                let entry = |found: &Attributes| Ok(entry(&self.writing().enter(found.inode.0)?));
                let read = |cookie, count| self.reading().list(id, cookie, count);
                directories::list(request, out, size_of::<EntryOut>(), entry, read).map(|_| ())
            }
            opcode::STATFS => self.statfs(out),
            opcode::FSYNC | opcode::FSYNCDIR => {
                if !self.flush.is_zero() {
                    std::thread::sleep(self.flush);
                }
                Ok(())
            }
            // These need no work, but Steadfast gets the same requests.
            opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::SYNCFS
            | opcode::LISTXATTR
            | opcode::DESTROY => Ok(()),
            opcode::GETXATTR | opcode::REMOVEXATTR => Err(Errno(libc::ENODATA)),
            opcode::SETXATTR | opcode::FALLOCATE | opcode::TMPFILE | opcode::COPY_FILE_RANGE => {
                Err(Errno(libc::EOPNOTSUPP))
            }
            // The kernel never sends these requests again (FLUSH among others), as with Steadfast.
            _ => Err(Errno(libc::ENOSYS)),
        }
    }

    fn batch_forget(&self, request: &Request<'_>) {
        let mut arguments = request.arguments();
        let Ok(batch) = arguments.take::<BatchForgetIn>() else { return };
        let mut tree = self.writing();
        for _ in 0..batch.count {
            let Ok(one) = arguments.take::<ForgetOne>() else { break };
            tree.forget(one.nodeid, one.lookups);
        }
    }

    fn lookup(&self, directory: u64, name: &[u8], out: &mut AnswerBuffer) -> Result<(), Errno> {
        // Lookup and count use one lock, because a removal in between would leave no inode to count
        // on.
        let mut tree = self.writing();
        match tree.lookup(directory, name)? {
            Some(id) => put_entry(&tree.enter(id)?, out),
            None => ready(out.put(&EntryOut { entry_valid: VALID_SECONDS, ..Default::default() })),
        }
    }

    fn setattr(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let change = request.arguments().take::<SetattrIn>()?;
        let has = |bit: u32| change.valid & bit != 0;
        let mut tree = self.writing();
        let id = request.header.nodeid;
        if has(valid::SIZE) {
            tree.resize(id, change.size, true)?;
        }
        let attributes = &mut tree.node_mut(id)?.attributes;
        let time = |seconds: u64, nanoseconds| Timestamp { seconds: seconds as i64, nanoseconds };
        attributes.changed = now();
        if has(valid::MODE) {
            attributes.permissions = change.mode & 0o7777;
        }
        if has(valid::UID) {
            attributes.uid = change.uid;
        }
        if has(valid::GID) {
            attributes.gid = change.gid;
        }
        if has(valid::ATIME) {
            attributes.accessed = time(change.atime, change.atime_nsec);
        }
        if has(valid::MTIME) {
            attributes.modified = time(change.mtime, change.mtime_nsec);
        }
        if has(valid::CTIME) {
            attributes.changed = time(change.ctime, change.ctime_nsec);
        }
        put_attributes(attributes, out)
    }

    /// All requests that create an inode with a name.
    fn make(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let (mut kind, mut mode, mut umask, mut device, mut flags) =
            (FileKind::Regular, 0o777, 0, 0, None);
        match request.header.opcode {
            opcode::MKDIR => {
                let wanted = arguments.take::<MkdirIn>()?;
                (kind, mode, umask) = (FileKind::Directory, wanted.mode, wanted.umask);
            }
            opcode::MKNOD => {
                let wanted = arguments.take::<MknodIn>()?;
                kind = FileKind::from_mode(wanted.mode).ok_or(Errno(libc::EINVAL))?;
                (mode, umask, device) = (wanted.mode, wanted.umask, wanted.rdev);
            }
            opcode::CREATE => {
                let wanted = arguments.take::<CreateIn>()?;
                (mode, umask, flags) = (wanted.mode, wanted.umask, Some(wanted.flags));
            }
            _ => kind = FileKind::Symlink,
        }
        let name = arguments.name()?;
        let target = if kind == FileKind::Symlink { arguments.name()? } else { b"" };
        let owner = (request.header.uid, request.header.gid);
        let permissions = mode & 0o7777 & !(umask & 0o777);
        let new = New { kind, permissions, owner, device, target };
        let mut tree = self.writing();
        let directory = request.header.nodeid;
        let id = match (tree.make(directory, name, new), flags) {
            // The kernel did not know that the file exists.
            (Err(Errno(libc::EEXIST)), Some(flags)) if flags as i32 & libc::O_EXCL == 0 => {
                let id = tree.lookup(directory, name)?.ok_or(Errno(libc::ENOENT))?;
                if flags as i32 & libc::O_TRUNC != 0 {
                    tree.resize(id, 0, true)?;
                }
                id
            }
            (made, _) => made?,
        };
        put_entry(&tree.enter(id)?, out)?;
        if let Some(flags) = flags { opened(flags, out) } else { Ok(()) }
    }

    fn rename(&self, request: &Request<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let (to, flags) = match request.header.opcode {
            opcode::RENAME => (arguments.take::<RenameIn>()?.newdir, 0),
            _ => {
                let wanted = arguments.take::<Rename2In>()?;
                (wanted.newdir, wanted.flags)
            }
        };
        if flags & !RENAME_NOREPLACE != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let (from_name, to_name) = (arguments.name()?, arguments.name()?);
        let from = (request.header.nodeid, from_name);
        self.writing().rename(from, (to, to_name), flags & RENAME_NOREPLACE != 0)
    }

    fn open(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let flags = request.arguments().take::<OpenIn>()?.flags;
        if flags as i32 & libc::O_TRUNC != 0 {
            self.writing().resize(request.header.nodeid, 0, true)?;
        }
        opened(flags, out)
    }

    fn read(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let wanted = request.arguments().take::<ReadIn>()?;
        let tree = self.reading();
        let Body::Data(file) = &tree.node(request.header.nodeid)?.body else {
            return Err(Errno(libc::EINVAL));
        };
        let start = usize::try_from(wanted.offset).unwrap_or(usize::MAX).min(file.len());
        let end = start.saturating_add(wanted.size as usize).min(file.len());
        ready(out.append(file.get(start..end).unwrap_or_default()))
    }

    fn statfs(&self, out: &mut AnswerBuffer) -> Result<(), Errno> {
        let tree = self.reading();
        let free = tree.capacity.saturating_sub(tree.used) / 4096;
        ready(out.put(&StatfsOut {
            blocks: tree.capacity / 4096,
            bfree: free,
            bavail: free,
            files: u64::from(u32::MAX),
            ffree: u64::from(u32::MAX),
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
            ..Default::default()
        }))
    }
}

fn opened(flags: u32, out: &mut AnswerBuffer) -> Result<(), Errno> {
    let mut open_flags = fopen::KEEP_CACHE;
    if flags as i32 & libc::O_ACCMODE == libc::O_RDONLY {
        open_flags |= fopen::NOFLUSH;
    }
    ready(out.put(&OpenOut { fh: 0, open_flags, backing_id: 0 }))
}

fn entry(attributes: &Attributes) -> EntryOut {
    EntryOut {
        nodeid: attributes.inode.0,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attr(attributes),
        ..Default::default()
    }
}

fn put_entry(attributes: &Attributes, out: &mut AnswerBuffer) -> Result<(), Errno> {
    ready(out.put(&entry(attributes)))
}

fn put_attributes(attributes: &Attributes, out: &mut AnswerBuffer) -> Result<(), Errno> {
    ready(out.put(&AttrOut {
        attr_valid: VALID_SECONDS,
        attr: attr(attributes),
        ..Default::default()
    }))
}

fn ready(fitted: bool) -> Result<(), Errno> {
    if fitted { Ok(()) } else { Err(Errno(libc::EIO)) }
}
