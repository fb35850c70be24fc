//! Extended attributes.

use core::ffi::{c_char, c_int, c_void};

use engine::fs::SetXattrMode;

use crate::error::Failure;
use crate::guard::{bytes, call, call_int, check_flags, copy_out, text};
use crate::names::find;
use crate::types::SF_NOFOLLOW;
use crate::volume::{sf_volume, with};

/// `sf_xattr_set`: fail with -SF_EEXIST if the attribute exists.
pub const SF_XATTR_CREATE: u32 = 1;
/// `sf_xattr_set`: fail with -SF_ENODATA if the attribute does not exist.
pub const SF_XATTR_REPLACE: u32 = 2;

/// Copies the value of an attribute, such as "user.origin". Returns its length. -SF_ERANGE: the
/// buffer is too small. With `size` 0 the function only returns the length. `flags`: 0 or
/// SF_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_xattr_get(
    volume: *mut sf_volume,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
    flags: u32,
) -> i64 {
    call("sf_xattr_get", || {
        check_flags(flags, SF_NOFOLLOW)?;
        // SAFETY: the header requires an open volume, C strings and a buffer of this size.
        unsafe {
            let (path, name) = (text(path, "path")?, text(name, "name")?);
            with(volume, |volume| {
                let inode = find(&volume.core, path, flags)?;
                copy_out(&volume.core.xattr(inode, name)?, buffer, size)
            })
        }
    })
}

/// Sets an attribute. `flags`: SF_XATTR_CREATE, SF_XATTR_REPLACE, SF_NOFOLLOW. Names begin with
/// "user.", "trusted.", "security." or "system.", as on Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_xattr_set(
    volume: *mut sf_volume,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    flags: u32,
) -> c_int {
    call_int("sf_xattr_set", || {
        let mode = match flags & !SF_NOFOLLOW {
            0 => SetXattrMode::Any,
            SF_XATTR_CREATE => SetXattrMode::Create,
            SF_XATTR_REPLACE => SetXattrMode::Replace,
            _ => return Err(Failure::invalid("flags are not SF_XATTR_CREATE or SF_XATTR_REPLACE")),
        };
        // SAFETY: the header requires an open volume, C strings and a value of this length.
        unsafe {
            let (path, name) = (text(path, "path")?, text(name, "name")?);
            let value = bytes(value, length, "value")?;
            with(volume, |volume| {
                let inode = find(&volume.core, path, flags)?;
                Ok(volume.core.set_xattr(inode, name, value, mode)?)
            })
        }
    })
}

/// Removes an attribute. `flags`: 0 or SF_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_xattr_remove(
    volume: *mut sf_volume,
    path: *const c_char,
    name: *const c_char,
    flags: u32,
) -> c_int {
    call_int("sf_xattr_remove", || {
        check_flags(flags, SF_NOFOLLOW)?;
        // SAFETY: the header requires an open volume and C strings.
        unsafe {
            let (path, name) = (text(path, "path")?, text(name, "name")?);
            with(volume, |volume| {
                let inode = find(&volume.core, path, flags)?;
                Ok(volume.core.remove_xattr(inode, name)?)
            })
        }
    })
}

/// Copies the names of all attributes, each zero-terminated. Returns the total length in bytes.
/// Buffer and `flags` are as for `sf_xattr_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_xattr_list(
    volume: *mut sf_volume,
    path: *const c_char,
    buffer: *mut c_void,
    size: usize,
    flags: u32,
) -> i64 {
    call("sf_xattr_list", || {
        check_flags(flags, SF_NOFOLLOW)?;
        // SAFETY: the header requires an open volume, a C string and a buffer of this size.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| {
                let inode = find(&volume.core, path, flags)?;
                let mut names = volume.core.list_xattrs(inode)?.join(&0);
                if !names.is_empty() {
                    names.push(0);
                }
                copy_out(&names, buffer, size)
            })
        }
    })
}
