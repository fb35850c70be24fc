//! Requests about snapshots: the read-only directory `.snapshots` and everything below it.

use steadfast::fs::{Attributes, DirectoryEntry, FileFlags, FileKind, SeekTo};
use steadfast::{Error, InodeNumber, Platform};
use steadfast_media::Medium;

use super::attributes::{attr, statx};
use super::directories::list;
use super::flags::{answer_flags, sets_flags};
use super::xattrs::{give, known, visible};
use super::{Answer, Filesystem, Outcome, VALID_SECONDS, ready};
use crate::abi::ROOT_ID;
use crate::abi::flags::fopen;
use crate::abi::input::{GetxattrIn, IoctlIn, LseekIn, OpenIn, ReadIn};
use crate::abi::opcode;
use crate::abi::output::{AttrOut, EntryOut, LseekOut, OpenOut, StatxOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::request::Request;
use crate::snapshots::{self, DIRECTORY_ID, DIRECTORY_INODE, Place};

/// Cookies of `.` and `..`; the cookie of a snapshot is this plus its generation.
const DOTS: u64 = 2;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn in_snapshots(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        match request.header.opcode {
            opcode::STATFS => return self.statfs(out),
            opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::FLUSH
            | opcode::FSYNC
            | opcode::FSYNCDIR => {
                return Ok(Answer::Ready);
            }
            opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::SETATTR
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::WRITE
            | opcode::FALLOCATE => return Err(Errno(libc::EROFS)),
            // With EXDEV the kernel copies by itself.
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => return Err(Errno(libc::EXDEV)),
            _ => {}
        }
        if request.header.opcode == opcode::IOCTL {
            return self.command_in_snapshots(request, out);
        }
        if request.header.nodeid == DIRECTORY_ID {
            return self.in_directory_of_snapshots(request, out);
        }
        let place = self.kernels.snapshots.place(request.header.nodeid)?;
        match request.header.opcode {
            opcode::LOOKUP => self.lookup_in(&place, request.arguments().name()?, out),
            opcode::GETATTR => put_attributes(&shown(&place, place.inode)?, out),
            opcode::STATX => put_statx(&shown(&place, place.inode)?, out),
            opcode::READLINK => ready(out.append(&place.view.read_link(place.inode)?)),
            opcode::OPEN => open_read_only(request, out),
            opcode::READ => {
                let wanted = request.arguments().take::<ReadIn>()?;
                let length =
                    place.view.read(place.inode, wanted.offset, out.space(wanted.size as usize))?;
                out.advance(length);
                Ok(Answer::Ready)
            }
            opcode::READDIR => list(request, out, 0, entry_never, |cookie, count| {
                let entries = place.view.read_directory(place.inode, cookie, count)?;
                Ok(entries.into_iter().map(|entry| (show_entry(&place, entry), None)).collect())
            }),
            opcode::READDIRPLUS => list(
                request,
                out,
                size_of::<EntryOut>(),
                |attributes| entry(&place, attributes),
                |cookie, count| {
                    let entries = place.view.read_directory_plus(place.inode, cookie, count)?;
                    let show = |(entry, found)| (show_entry(&place, entry), Some(found));
                    Ok(entries.into_iter().map(show).collect())
                },
            ),
            opcode::GETXATTR => {
                let mut arguments = request.arguments();
                let size = arguments.take::<GetxattrIn>()?.size as usize;
                give(&place.view.xattr(place.inode, known(arguments.name()?)?)?, size, out)
            }
            opcode::LISTXATTR => {
                let size = request.arguments().take::<GetxattrIn>()?.size as usize;
                give(&visible(request, place.view.list_xattrs(place.inode)?), size, out)
            }
            opcode::LSEEK => {
                let wanted = request.arguments().take::<LseekIn>()?;
                let to = match wanted.whence as i32 {
                    libc::SEEK_DATA => SeekTo::Data,
                    libc::SEEK_HOLE => SeekTo::Hole,
                    _ => return Err(Errno(libc::EINVAL)),
                };
                ready(
                    out.put(&LseekOut { offset: place.view.seek(place.inode, wanted.offset, to)? }),
                )
            }
            _ => Err(Errno(libc::ENOSYS)),
        }
    }

    /// The flags of a file can be read, and nothing else.
    fn command_in_snapshots(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let wanted = request.arguments().take::<IoctlIn>()?;
        if sets_flags(wanted.cmd) {
            return Err(Errno(libc::EROFS));
        }
        let nodeid = request.header.nodeid;
        let flags = || match nodeid {
            DIRECTORY_ID => Ok(FileFlags::NONE),
            _ => {
                let place = self.kernels.snapshots.place(nodeid)?;
                Ok(place.view.attributes(place.inode)?.flags)
            }
        };
        answer_flags(&wanted, flags, out)
    }

    /// The answer to a lookup of `.snapshots` in the root directory.
    pub(super) fn directory_of_snapshots(&self, out: &mut AnswerBuffer) -> Outcome {
        let attributes = self.directory_attributes()?;
        ready(out.put(&EntryOut {
            nodeid: DIRECTORY_ID,
            attr: attr(&attributes),
            ..EntryOut::default()
        }))
    }

    /// This directory changes without the kernel, so the kernel caches nothing of it.
    fn in_directory_of_snapshots(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        match request.header.opcode {
            opcode::LOOKUP => match request.arguments().name()? {
                b"." => self.directory_of_snapshots(out),
                b".." => {
                    let attributes = self.volume.attributes(InodeNumber::ROOT)?;
                    self.put_entry(&attributes, out)?;
                    Ok(Answer::Ready)
                }
                name => {
                    let place = self.kernels.snapshots.root(name)?;
                    let attributes = place.view.attributes(place.inode)?;
                    ready(out.put(&EntryOut { entry_valid: 0, ..entry(&place, &attributes)? }))
                }
            },
            opcode::GETATTR => {
                let attr = attr(&self.directory_attributes()?);
                ready(out.put(&AttrOut { attr, ..AttrOut::default() }))
            }
            opcode::STATX => {
                let stat = statx(&self.directory_attributes()?);
                ready(out.put(&StatxOut { stat, ..StatxOut::default() }))
            }
            opcode::READDIR => list(request, out, 0, entry_never, |cookie, count| {
                self.names_of_snapshots(cookie, count)
            }),
            // Attributes would require opening each snapshot.
            opcode::READDIRPLUS => {
                let nothing = |_: &Attributes| Ok(EntryOut::default());
                list(request, out, size_of::<EntryOut>(), nothing, |cookie, count| {
                    self.names_of_snapshots(cookie, count)
                })
            }
            opcode::LISTXATTR => {
                let size = request.arguments().take::<GetxattrIn>()?.size as usize;
                give(&[], size, out)
            }
            opcode::GETXATTR => Err(Errno(libc::ENODATA)),
            _ => Err(Errno(libc::ENOSYS)),
        }
    }

    fn names_of_snapshots(
        &self,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(DirectoryEntry, Option<Attributes>)>, Errno> {
        let dots = [(&b"."[..], DIRECTORY_INODE), (b"..", ROOT_ID)];
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        for (at, (name, inode)) in dots.into_iter().enumerate() {
            entries.push(directory_entry(name, inode, at as u64 + 1));
        }
        for snapshot in self.volume.snapshots()? {
            let inode = snapshots::shown(snapshot.generation, InodeNumber::ROOT);
            entries.push(directory_entry(
                snapshot.name.as_bytes(),
                inode,
                snapshot.generation.0 + DOTS,
            ));
        }
        let after = entries.into_iter().filter(|entry| entry.cookie > cookie);
        Ok(after.take(count).map(|entry| (entry, None)).collect())
    }

    fn directory_attributes(&self) -> Result<Attributes, Errno> {
        let inode = InodeNumber(DIRECTORY_INODE);
        Ok(Attributes { inode, ..self.volume.snapshots_directory()? })
    }

    fn lookup_in(&self, place: &Place<P>, name: &[u8], out: &mut AnswerBuffer) -> Outcome {
        let found = match name {
            b"." => place.view.attributes(place.inode),
            b".." if place.inode == InodeNumber::ROOT => return self.directory_of_snapshots(out),
            b".." => {
                let entries = place.view.read_directory(place.inode, 0, 2)?;
                let parent =
                    entries.iter().find(|entry| entry.name == b"..").map(|entry| entry.inode);
                place.view.attributes(parent.ok_or(Errno(libc::ESTALE))?)
            }
            _ => place.view.lookup(place.inode, name),
        };
        match found {
            Ok(attributes) => ready(out.put(&entry(place, &attributes)?)),
            Err(Error::NotFound) => {
                ready(out.put(&EntryOut { entry_valid: VALID_SECONDS, ..EntryOut::default() }))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn entry_never(_: &Attributes) -> Result<EntryOut, Errno> {
    Ok(EntryOut::default())
}

/// Enters an inode of a snapshot into the table of nodes. The kernel may cache it, because a
/// snapshot never changes.
fn entry<P: Platform + Clone + 'static>(
    place: &Place<P>,
    attributes: &Attributes,
) -> Result<EntryOut, Errno> {
    let nodeid = place.id(attributes.inode)?;
    let attributes = Attributes {
        inode: InodeNumber(snapshots::shown(place.snapshot, attributes.inode)),
        ..*attributes
    };
    Ok(EntryOut {
        nodeid,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attr(&attributes),
        ..EntryOut::default()
    })
}

fn show_entry<P: Platform + Clone + 'static>(
    place: &Place<P>,
    entry: DirectoryEntry,
) -> DirectoryEntry {
    // The root of a snapshot is its own parent there.
    let shown = match place.inode == InodeNumber::ROOT && entry.name == b".." {
        true => DIRECTORY_INODE,
        false => snapshots::shown(place.snapshot, entry.inode),
    };
    DirectoryEntry { inode: InodeNumber(shown), ..entry }
}

fn shown<P: Platform + Clone + 'static>(
    place: &Place<P>,
    inode: InodeNumber,
) -> Result<Attributes, Errno> {
    let attributes = place.view.attributes(inode)?;
    Ok(Attributes { inode: InodeNumber(snapshots::shown(place.snapshot, inode)), ..attributes })
}

fn directory_entry(name: &[u8], inode: u64, cookie: u64) -> DirectoryEntry {
    DirectoryEntry {
        name: name.to_vec(),
        inode: InodeNumber(inode),
        kind: FileKind::Directory,
        cookie,
    }
}

fn put_attributes(attributes: &Attributes, out: &mut AnswerBuffer) -> Outcome {
    ready(out.put(&AttrOut {
        attr_valid: VALID_SECONDS,
        attr: attr(attributes),
        ..AttrOut::default()
    }))
}

fn put_statx(attributes: &Attributes, out: &mut AnswerBuffer) -> Outcome {
    ready(out.put(&StatxOut {
        attr_valid: VALID_SECONDS,
        stat: statx(attributes),
        ..StatxOut::default()
    }))
}

fn open_read_only(request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
    let flags = request.arguments().take::<OpenIn>()?.flags as i32;
    if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
        return Err(Errno(libc::EROFS));
    }
    ready(out.put(&OpenOut {
        fh: 0,
        open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH,
        backing_id: 0,
    }))
}
