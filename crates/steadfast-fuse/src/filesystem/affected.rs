//! Which inodes a request changes: their attributes, or the names in them.
//!
//! Access times do not count: they change with reading, and other kernels may see them
//! [`VALID`](super::delegations) later.

use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;

use super::Filesystem;
use super::flags::sets_flags;
use crate::abi::input::{CopyFileRangeIn, CreateIn, IoctlIn, LinkIn, OpenIn, Rename2In, RenameIn};
use crate::abi::opcode;
use crate::errno::Errno;
use crate::ioctl;
use crate::node;
use crate::request::{Arguments, Request};
use crate::snapshots::is_snapshot;

/// Stands for the closes of all files among the inodes: whether the node of a kernel may answer
/// them itself. No file has this number.
pub(crate) const CLOSES: InodeNumber = InodeNumber(3);

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affected {
    pub(super) inodes: Vec<InodeNumber>,
    /// It changes names in directories, too.
    pub(super) names: bool,
    /// The kernel that sends the request must drop what it keeps, too. A moved name would take its
    /// time along to a directory that is not delegated, and an ACL changes the mode. A mask counts
    /// for all closes.
    pub(super) own: bool,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// What a request changes if it succeeds. It may name an inode by its directory and name. By
    /// the time the request is executed, the name may stand for another inode.
    ///
    /// # Errors
    /// The request makes no sense.
    pub(super) fn affected(&self, request: &Request<'_>) -> Result<Affected, Errno> {
        let here = request.header.nodeid;
        let mut arguments = request.arguments();
        let mut found = Affected::default();
        match request.header.opcode {
            opcode::SETATTR | opcode::WRITE | opcode::FALLOCATE => found.add(here),
            opcode::SETXATTR | opcode::REMOVEXATTR => {
                found.add(here);
                found.own = true;
            }
            opcode::OPEN if arguments.take::<OpenIn>()?.flags as i32 & libc::O_TRUNC != 0 => {
                found.add(here);
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                found.add(arguments.take::<CopyFileRangeIn>()?.nodeid_out);
            }
            opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK => {
                found.add(here);
                found.names = true;
            }
            opcode::CREATE => {
                found.add(here);
                // The file may be there, and is truncated.
                arguments.take::<CreateIn>()?;
                self.add_named(&mut found, here, &mut arguments)?;
            }
            opcode::LINK => {
                found.add(here);
                found.add(arguments.take::<LinkIn>()?.oldnodeid);
                found.names = true;
            }
            opcode::UNLINK | opcode::RMDIR => {
                found.add(here);
                self.add_named(&mut found, here, &mut arguments)?;
            }
            opcode::RENAME | opcode::RENAME2 => {
                let to = match request.header.opcode {
                    opcode::RENAME => arguments.take::<RenameIn>()?.newdir,
                    _ => arguments.take::<Rename2In>()?.newdir,
                };
                found.add(here);
                found.add(to);
                self.add_named(&mut found, here, &mut arguments)?;
                self.add_named(&mut found, to, &mut arguments)?;
                // Within a directory a name has the delegation that it had.
                found.own = here != to;
            }
            opcode::IOCTL => match arguments.take::<IoctlIn>()?.cmd {
                ioctl::MASK_SET => {
                    found.inodes.push(CLOSES);
                    found.own = true;
                }
                // The change time.
                command if sets_flags(command) => {
                    found.add(here);
                    found.own = true;
                }
                _ => {}
            },
            _ => {}
        }
        Ok(found)
    }

    fn add_named(
        &self,
        found: &mut Affected,
        directory: u64,
        arguments: &mut Arguments<'_>,
    ) -> Result<(), Errno> {
        found.names = true;
        let name = arguments.name()?;
        if !is_snapshot(directory)
            && let Ok(named) = self.volume.lookup(node::inode(directory), name)
        {
            found.inodes.push(named.inode);
        }
        Ok(())
    }
}

/// Whether a request changes names in the directory of its node.
pub(crate) fn changes_names(opcode: u32) -> bool {
    matches!(
        opcode,
        opcode::CREATE
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
    )
}

impl Affected {
    fn add(&mut self, nodeid: u64) {
        if !is_snapshot(nodeid) {
            self.inodes.push(node::inode(nodeid));
        }
    }
}
