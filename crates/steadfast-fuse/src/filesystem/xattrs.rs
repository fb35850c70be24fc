//! Extended attributes. ACL values pass through in the kernel's form; the volume keeps the mode
//! consistent with them.

use steadfast::Platform;
use steadfast::fs::{SetAttributes, SetXattrMode};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome, ready};
use crate::abi::flags::SETXATTR_ACL_KILL_SGID;
use crate::abi::input::{GetxattrIn, SetxattrCompatIn, SetxattrExtension};
use crate::abi::output::GetxattrOut;
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::request::Request;

const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const SYSTEM: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const SET_GROUP_ID: u32 = 0o2000;

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn setxattr(&self, request: &Request<'_>) -> Outcome {
        let inode = self.node(request)?;
        let mut arguments = request.arguments();
        let wanted = arguments.take::<SetxattrCompatIn>()?;
        let mut flags = 0;
        if self.agreement.setxattr_extended() {
            flags = arguments.take::<SetxattrExtension>()?.setxattr_flags;
        }
        let name = known(arguments.name()?)?;
        let value = arguments.bytes(wanted.size as usize)?;
        let mode = match wanted.flags as i32 {
            0 => SetXattrMode::Any,
            libc::XATTR_CREATE => SetXattrMode::Create,
            libc::XATTR_REPLACE => SetXattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.volume.set_xattr(inode, name, value, mode)?;
        if flags & SETXATTR_ACL_KILL_SGID != 0 {
            let permissions = self.volume.attributes(inode)?.permissions;
            if permissions & SET_GROUP_ID != 0 {
                let permissions = Some(permissions & !SET_GROUP_ID);
                self.volume
                    .set_attributes(inode, &SetAttributes { permissions, ..Default::default() })?;
            }
        }
        Ok(Answer::Ready)
    }

    pub(super) fn getxattr(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let inode = self.node(request)?;
        let mut arguments = request.arguments();
        let size = arguments.take::<GetxattrIn>()?.size as usize;
        let value = self.volume.xattr(inode, known(arguments.name()?)?)?;
        give(&value, size, out)
    }

    pub(super) fn listxattr(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        let inode = self.node(request)?;
        let size = request.arguments().take::<GetxattrIn>()?.size as usize;
        give(&visible(request, self.volume.list_xattrs(inode)?), size, out)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Outcome {
        let inode = self.node(request)?;
        self.volume.remove_xattr(inode, known(request.arguments().name()?)?)?;
        Ok(Answer::Ready)
    }
}

/// The names that the caller may see.
pub(super) fn visible(request: &Request<'_>, names: Vec<Vec<u8>>) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        // Only root may see these names; the kernel leaves this decision to the daemon.
        if request.header.uid != 0 && name.starts_with(b"trusted.") {
            continue;
        }
        list.extend_from_slice(&name);
        list.push(0);
    }
    list
}

/// Refuses names outside the existing namespaces, as other file systems do.
pub(super) fn known(name: &[u8]) -> Result<&[u8], Errno> {
    let named =
        NAMESPACES.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix));
    if named || SYSTEM.contains(&name) { Ok(name) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

/// Returns the value, or its size if the request has size 0.
pub(super) fn give(value: &[u8], size: usize, out: &mut AnswerBuffer) -> Outcome {
    if size == 0 {
        return ready(out.put(&GetxattrOut { size: value.len() as u32, padding: 0 }));
    }
    if value.len() > size {
        return Err(Errno(libc::ERANGE));
    }
    ready(out.append(value))
}
