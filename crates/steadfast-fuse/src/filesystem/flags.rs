//! The flags of files and directories (chattr).
//!
//! Since Linux 5.13 the kernel answers chattr(1) and lsattr(1) itself, with requests of its own. It
//! has checked the caller's rights then, and passes 32 bits. A request with 64 bits comes from an
//! older kernel, which has checked nothing.

use steadfast::fs::FileFlags;
use steadfast::{InodeNumber, Platform};
use steadfast_media::Medium;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::commands::{argument, give};
use super::{Filesystem, Outcome, ready};
use crate::abi::input::IoctlIn;
use crate::abi::output::IoctlOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::ioctl::{FLAGS_GET, FLAGS_SET, XFLAGS_GET, XFLAGS_SET};
use crate::request::{Arguments, Request};

/// `struct fsxattr`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct XflagsArgument {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// The flags and their numbers in [`XflagsArgument`].
const XFLAGS: [(FileFlags, u32); 4] = [
    (FileFlags::IMMUTABLE, 0x08),
    (FileFlags::APPEND_ONLY, 0x10),
    (FileFlags::NO_ACCESS_TIME, 0x40),
    (FileFlags::NO_DUMP, 0x80),
];

/// Whether the command sets flags.
pub(crate) fn sets_flags(command: u32) -> bool {
    matches!(command, FLAGS_SET | XFLAGS_SET)
}

impl XflagsArgument {
    fn new(flags: FileFlags) -> XflagsArgument {
        let set = XFLAGS.into_iter().filter(|(flag, _)| flags.intersects(*flag));
        XflagsArgument { xflags: set.map(|(_, number)| number).sum(), ..Default::default() }
    }

    fn flags(&self) -> Result<FileFlags, Errno> {
        let known: u32 = XFLAGS.into_iter().map(|(_, number)| number).sum();
        if self.xflags & !known != 0 || (self.extent_size, self.project) != (0, 0) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let set = XFLAGS.into_iter().filter(|(_, number)| self.xflags & number != 0);
        Ok(FileFlags(set.map(|(flag, _)| flag.0).sum()))
    }
}

/// Answers a command that reads flags.
pub(super) fn answer_flags(
    wanted: &IoctlIn,
    flags: impl FnOnce() -> Result<FileFlags, Errno>,
    out: &mut AnswerBuffer,
) -> Outcome {
    match wanted.cmd {
        FLAGS_GET => give(&flags()?.0, wanted, out),
        XFLAGS_GET => give(&XflagsArgument::new(flags()?), wanted, out),
        _ => Err(Errno(libc::ENOTTY)),
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn flags_command(
        &self,
        request: &Request<'_>,
        wanted: &IoctlIn,
        arguments: &mut Arguments<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let inode = self.node(request)?;
        let flags = match wanted.cmd {
            FLAGS_SET if wanted.in_size as usize != size_of::<u32>() => {
                return Err(Errno(libc::ENOTTY));
            }
            FLAGS_SET => FileFlags(argument::<u32>(arguments, wanted)?),
            XFLAGS_SET => argument::<XflagsArgument>(arguments, wanted)?.flags()?,
            _ => return answer_flags(wanted, || self.flags_of(inode), out),
        };
        self.volume.set_flags(inode, flags)?;
        // The change time.
        self.mode_changed(request.header.nodeid);
        ready(out.put(&IoctlOut::default()))
    }

    fn flags_of(&self, inode: InodeNumber) -> Result<FileFlags, Errno> {
        Ok(self.volume.attributes(inode)?.flags)
    }
}
