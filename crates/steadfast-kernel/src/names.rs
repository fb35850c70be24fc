//! Names: look up, list, create, link, remove, rename.

use core::ffi::{c_char, c_int, c_void};
use core::slice;

use steadfast::InodeNumber;
use steadfast::fs::{Caller, NewNode, RenameMode};

use crate::Core;
use crate::attributes::{give, sfk_attributes};
use crate::errno::{EINVAL, ENAMETOOLONG, code, errno};
use crate::shim;

/// `sfk_rename`: fails if the new name exists (RENAME_NOREPLACE).
pub const SFK_RENAME_NOREPLACE: u32 = 1;
/// `sfk_rename`: both exist and are swapped (RENAME_EXCHANGE).
pub const SFK_RENAME_EXCHANGE: u32 = 2;
/// `sfk_rename`: leaves a whiteout (RENAME_WHITEOUT).
pub const SFK_RENAME_WHITEOUT: u32 = 4;

/// Entries that one request to the core returns.
const ENTRIES: usize = 64;

/// A name.
#[repr(C)]
pub struct sfk_name {
    /// Its bytes.
    pub text: *const c_char,
    /// Their number.
    pub length: usize,
}

impl sfk_name {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the kernel's side passes names that are valid for the call.
        unsafe { slice::from_raw_parts(self.text.cast(), self.length) }
    }
}

/// The caller and the mode of a new inode.
#[repr(C)]
pub struct sfk_new {
    /// st_mode: the type and the permission bits before umask or default ACL.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory has set-group-id.
    pub gid: u32,
    /// File mode creation mask.
    pub umask: u32,
    /// Device number, in the kernel's 32-bit encoding.
    pub device: u32,
    /// Target of a symbolic link.
    pub target: sfk_name,
}

impl sfk_new {
    fn caller(&self) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask: self.umask }
    }
}

/// The inode that `name` in `directory` names; `..` works too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_lookup(
    volume: &Core,
    directory: u64,
    name: &sfk_name,
    out: *mut sfk_attributes,
) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { give(volume.lookup(InodeNumber(directory), name.bytes()), out) }
}

/// Passes entries after `cookie` to `sfk_shim_emit` until it refuses one. 1: the directory goes on;
/// 0: it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_list(
    volume: &Core,
    directory: u64,
    cookie: u64,
    context: *mut c_void,
) -> c_int {
    let entries = match volume.read_directory(InodeNumber(directory), cookie, ENTRIES) {
        Ok(entries) => entries,
        Err(error) => return -errno(&error),
    };
    for entry in &entries {
        let kind = entry.kind.mode_bits() >> 12;
        let (name, length) = (entry.name.as_ptr().cast(), entry.name.len());
        // SAFETY: the name is valid for the call, and the context is the caller's.
        if !unsafe { shim::sfk_shim_emit(context, name, length, entry.inode.0, kind, entry.cookie) }
        {
            return 1;
        }
    }
    c_int::from(entries.len() == ENTRIES)
}

/// Creates an inode of any type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_create(
    volume: &Core,
    directory: u64,
    name: &sfk_name,
    new: &sfk_new,
    out: *mut sfk_attributes,
) -> c_int {
    let node = match new.mode & 0o170000 {
        0o100000 => NewNode::Regular,
        0o040000 => NewNode::Directory,
        0o120000 => NewNode::Symlink(new.target.bytes()),
        0o010000 => NewNode::Fifo,
        0o140000 => NewNode::Socket,
        0o020000 => NewNode::CharDevice(new.device),
        0o060000 => NewNode::BlockDevice(new.device),
        _ => return -EINVAL,
    };
    let made =
        volume.create(InodeNumber(directory), name.bytes(), node, new.mode & 0o7777, &new.caller());
    if let (NewNode::Symlink(_), Err(steadfast::Error::ValueTooLong)) = (&node, &made) {
        return -ENAMETOOLONG;
    }
    // SAFETY: `out` is valid.
    unsafe { give(made, out) }
}

/// A regular file without a name (O_TMPFILE), acquired once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_create_unnamed(
    volume: &Core,
    directory: u64,
    new: &sfk_new,
    out: *mut sfk_attributes,
) -> c_int {
    let made = volume.create_unnamed(InodeNumber(directory), new.mode & 0o7777, &new.caller());
    // SAFETY: `out` is valid.
    unsafe { give(made, out) }
}

/// Gives an inode another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_link(
    volume: &Core,
    inode: u64,
    directory: u64,
    name: &sfk_name,
    out: *mut sfk_attributes,
) -> c_int {
    let linked = volume.link(InodeNumber(inode), InodeNumber(directory), name.bytes());
    // SAFETY: `out` is valid.
    unsafe { give(linked, out) }
}

/// Removes a name of anything but a directory.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_unlink(volume: &Core, directory: u64, name: &sfk_name) -> c_int {
    code(volume.unlink(InodeNumber(directory), name.bytes()))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_rmdir(volume: &Core, directory: u64, name: &sfk_name) -> c_int {
    code(volume.remove_directory(InodeNumber(directory), name.bytes()))
}

/// Renames; `flags` are SFK_RENAME_..., and `whiteout` has the owner of a whiteout.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_rename(
    volume: &Core,
    from: u64,
    from_name: &sfk_name,
    to: u64,
    to_name: &sfk_name,
    flags: u32,
    whiteout: &sfk_new,
) -> c_int {
    const WHITEOUT_NOREPLACE: u32 = SFK_RENAME_WHITEOUT | SFK_RENAME_NOREPLACE;
    let caller = whiteout.caller();
    let mode = match flags {
        0 => RenameMode::Replace,
        SFK_RENAME_NOREPLACE => RenameMode::NoReplace,
        SFK_RENAME_EXCHANGE => RenameMode::Exchange,
        SFK_RENAME_WHITEOUT => RenameMode::Whiteout { caller, replace: true },
        WHITEOUT_NOREPLACE => RenameMode::Whiteout { caller, replace: false },
        _ => return -EINVAL,
    };
    let (from, to) = (InodeNumber(from), InodeNumber(to));
    code(volume.rename(from, from_name.bytes(), to, to_name.bytes(), mode))
}

/// Copies the target of a symbolic link to `buffer` of `room` bytes. Returns its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_read_link(
    volume: &Core,
    inode: u64,
    buffer: *mut c_char,
    room: usize,
) -> isize {
    let target = match volume.read_link(InodeNumber(inode)) {
        Ok(target) if target.len() <= room => target,
        Ok(_) => return -(ENAMETOOLONG as isize),
        Err(error) => return -(errno(&error) as isize),
    };
    // SAFETY: the buffer has room for the target.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(target.as_ptr(), target.len()) };
    target.len() as isize
}
