//! Operations on names: LOOKUP, creation, link, rename and removal.

use steadfast::fs::{Attributes, FileKind, NewNode, RenameMode};
use steadfast::{Error, InodeNumber, Platform};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome, caller, ready};
use crate::abi::input::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use crate::abi::output::EntryOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::request::Request;
use crate::snapshots::DIRECTORY_NAME;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn lookup(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let directory = self.node(request)?;
        let name = request.arguments().name()?;
        match name {
            // Requested for handles that outlive the kernel's cache (NFS, open_by_handle_at).
            b"." => {
                let attributes = self.volume.attributes(directory)?;
                self.put_entry(&attributes, out)?;
                return Ok(Answer::Ready);
            }
            b".." => {
                let attributes = self.volume.attributes(self.parent(directory)?)?;
                self.put_entry(&attributes, out)?;
                return Ok(Answer::Ready);
            }
            _ => {}
        }
        match self.volume.lookup(directory, name) {
            Ok(attributes) => {
                self.put_entry(&attributes, out)?;
                Ok(Answer::Ready)
            }
            Err(Error::NotFound) => {
                if directory == InodeNumber::ROOT && name == DIRECTORY_NAME {
                    return self.directory_of_snapshots(out);
                }
                if directory == InodeNumber::ROOT
                    && let Some(nodeid) = self.pass().and_then(|pass| pass.node(name))
                {
                    return self.lookup_for_helper(nodeid, out);
                }
                if directory == InodeNumber::ROOT && name == crate::ioctl::CONTROL_FILE.as_bytes() {
                    return self.lookup_control_file(out);
                }
                // The kernel may cache that the name does not exist.
                ready(
                    out.put(&EntryOut { entry_valid: self.name_validity(), ..Default::default() }),
                )
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The helper process opens a file by its node id. The kernel must not cache the name.
    fn lookup_for_helper(&self, nodeid: u64, out: &mut AnswerBuffer) -> Outcome {
        let attributes = self.volume.attributes(self.nodes.resolve(nodeid)?)?;
        if attributes.kind != FileKind::Regular {
            return Err(Errno(libc::ENOENT));
        }
        let entry = EntryOut { entry_valid: 0, ..self.entry(&attributes)? };
        ready(out.put(&entry))
    }

    fn parent(&self, directory: InodeNumber) -> Result<InodeNumber, Errno> {
        let entries = self.volume.read_directory(directory, 0, 2)?;
        let found = entries.iter().find(|entry| entry.name == b"..").map(|entry| entry.inode);
        found.ok_or(Errno(libc::ESTALE))
    }

    pub(super) fn symlink(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let mut arguments = request.arguments();
        let (name, target) = (arguments.name()?, arguments.name()?);
        let made = self.make(request, name, NewNode::Symlink(target), 0o777, 0);
        let attributes = made.map_err(|error| match error {
            Errno(libc::E2BIG) => Errno(libc::ENAMETOOLONG),
            other => other,
        })?;
        self.put_entry(&attributes, out)?;
        Ok(Answer::Ready)
    }

    pub(super) fn mknod(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let mut arguments = request.arguments();
        let wanted = arguments.take::<MknodIn>()?;
        let node = match FileKind::from_mode(wanted.mode) {
            Some(FileKind::Regular) => NewNode::Regular,
            Some(FileKind::Fifo) => NewNode::Fifo,
            Some(FileKind::Socket) => NewNode::Socket,
            Some(FileKind::CharDevice) => NewNode::CharDevice(wanted.rdev),
            Some(FileKind::BlockDevice) => NewNode::BlockDevice(wanted.rdev),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let attributes = self.make(request, arguments.name()?, node, wanted.mode, wanted.umask)?;
        self.put_entry(&attributes, out)?;
        Ok(Answer::Ready)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let mut arguments = request.arguments();
        let wanted = arguments.take::<MkdirIn>()?;
        let attributes =
            self.make(request, arguments.name()?, NewNode::Directory, wanted.mode, wanted.umask)?;
        self.put_entry(&attributes, out)?;
        Ok(Answer::Ready)
    }

    /// Creates an inode with a name in the directory of the request.
    pub(super) fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        node: NewNode<'_>,
        mode: u32,
        umask: u32,
    ) -> Result<Attributes, Errno> {
        let directory = self.node(request)?;
        let caller = caller(request, umask & 0o777);
        Ok(self.volume.create(directory, name, node, mode & 0o7777, &caller)?)
    }

    pub(super) fn link(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let directory = self.node(request)?;
        let mut arguments = request.arguments();
        let inode = self.nodes.resolve(arguments.take::<LinkIn>()?.oldnodeid)?;
        let attributes = self.volume.link(inode, directory, arguments.name()?)?;
        let mut entry = self.entry(&attributes)?;
        if self.must_ask(entry.nodeid) {
            entry.attr_valid = 0;
        }
        out.put(&entry);
        Ok(Answer::Ready)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Outcome {
        let directory = self.node(request)?;
        let name = request.arguments().name()?;
        self.removing(directory, name, false, || self.volume.unlink(directory, name))?;
        Ok(Answer::Ready)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Outcome {
        let directory = self.node(request)?;
        let name = request.arguments().name()?;
        self.removing(directory, name, false, || self.volume.remove_directory(directory, name))?;
        Ok(Answer::Ready)
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Outcome {
        let mut arguments = request.arguments();
        let to = arguments.take::<RenameIn>()?.newdir;
        self.move_name(request, to, arguments.name()?, arguments.name()?, RenameMode::Replace)
    }

    pub(super) fn rename2(&self, request: &Request<'_>) -> Outcome {
        let mut arguments = request.arguments();
        let wanted = arguments.take::<Rename2In>()?;
        let mode = match wanted.flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags & !RENAME_NOREPLACE == RENAME_WHITEOUT => RenameMode::Whiteout {
                caller: caller(request, 0),
                replace: flags & RENAME_NOREPLACE == 0,
            },
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.move_name(request, wanted.newdir, arguments.name()?, arguments.name()?, mode)
    }

    fn move_name(
        &self,
        request: &Request<'_>,
        to: u64,
        from_name: &[u8],
        to_name: &[u8],
        mode: RenameMode,
    ) -> Outcome {
        let (from, to) = (self.node(request)?, self.nodes.resolve(to)?);
        let rename = || self.volume.rename(from, from_name, to, to_name, mode);
        // Only a replacing rename can remove an inode's name. A rename to another name of the same
        // inode does nothing.
        if mode.replaces() && !self.is_same(from, from_name, to, to_name) {
            self.removing(to, to_name, true, rename)?;
        } else {
            rename()?;
        }
        Ok(Answer::Ready)
    }

    fn is_same(
        &self,
        from: InodeNumber,
        from_name: &[u8],
        to: InodeNumber,
        to_name: &[u8],
    ) -> bool {
        let inode =
            |directory, name| self.volume.lookup(directory, name).map(|found| found.inode).ok();
        let target = inode(to, to_name);
        target.is_some() && target == inode(from, from_name)
    }

    pub(super) fn readlink(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let target = self.volume.read_link(self.node(request)?)?;
        ready(out.append(&target))
    }
}
