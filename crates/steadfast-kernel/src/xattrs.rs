//! Extended attributes; ACLs are attributes in the form of setxattr(2).

use core::ffi::{CStr, c_char, c_int};
use core::slice;

use steadfast::InodeNumber;
use steadfast::fs::SetXattrMode;

use crate::Core;
use crate::errno::{EINVAL, ERANGE, code, errno};

/// The name, which ends with a zero.
///
/// # Safety
/// `name` is valid for the time of the call.
unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: the kernel's side passes names that end with a zero.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Copies the value to `buffer` of `room` bytes and returns its length; `room` 0 only asks for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_xattr_get(
    volume: &Core,
    inode: u64,
    name: *const c_char,
    buffer: *mut u8,
    room: usize,
) -> isize {
    // SAFETY: the name is valid.
    let value = match volume.xattr(InodeNumber(inode), unsafe { bytes(name) }) {
        Ok(value) => value,
        Err(error) => return -(errno(&error) as isize),
    };
    if room > 0 {
        if value.len() > room {
            return -(ERANGE as isize);
        }
        // SAFETY: the buffer has room for the value.
        unsafe { buffer.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    }
    value.len() as isize
}

/// Sets an attribute; `flags` are those of setxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_xattr_set(
    volume: &Core,
    inode: u64,
    name: *const c_char,
    value: *const u8,
    length: usize,
    flags: c_int,
) -> c_int {
    let mode = match flags {
        0 => SetXattrMode::Any,
        1 => SetXattrMode::Create,
        2 => SetXattrMode::Replace,
        _ => return -EINVAL,
    };
    // An empty value may come without a pointer.
    let value = match length {
        0 => &[],
        // SAFETY: the caller passes a value of this length.
        _ => unsafe { slice::from_raw_parts(value, length) },
    };
    // SAFETY: the name is valid.
    code(volume.set_xattr(InodeNumber(inode), unsafe { bytes(name) }, value, mode))
}

/// Removes an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_xattr_remove(volume: &Core, inode: u64, name: *const c_char) -> c_int {
    // SAFETY: the name is valid.
    code(volume.remove_xattr(InodeNumber(inode), unsafe { bytes(name) }))
}

/// Copies the names, each with a zero after it, to `buffer` of `room` bytes. Returns their length;
/// `room` 0 only asks for it. `all`: names of `trusted.` too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_xattr_list(
    volume: &Core,
    inode: u64,
    buffer: *mut u8,
    room: usize,
    all: bool,
) -> isize {
    let names = match volume.list_xattrs(InodeNumber(inode)) {
        Ok(names) => names,
        Err(error) => return -(errno(&error) as isize),
    };
    let mut length = 0;
    for name in names.iter().filter(|name| all || !name.starts_with(b"trusted.")) {
        if room > 0 {
            if length + name.len() + 1 > room {
                return -(ERANGE as isize);
            }
            // SAFETY: the buffer has room for the name and its zero.
            unsafe {
                buffer.add(length).copy_from_nonoverlapping(name.as_ptr(), name.len());
                buffer.add(length + name.len()).write(0);
            }
        }
        length += name.len() + 1;
    }
    length as isize
}
