//! Operations by path: names and attributes.

use core::ffi::{c_char, c_int, c_void};

use engine::fs::{Caller, FileKind, NewNode, RenameMode, SetAttributes};
use engine::{Error, InodeNumber};

use crate::Core;
use crate::error::Failure;
use crate::guard::{
    Outcome, call, call_int, check_flags, check_place, copy_out, reference, store, text,
};
use crate::types::{SF_NOFOLLOW, sf_attributes, sf_time};
use crate::volume::{sf_volume, with};

/// `sf_rename`: fail with -SF_EEXIST if the new name exists.
pub const SF_RENAME_NOREPLACE: u32 = 1;
/// `sf_rename`: both names exist and are exchanged.
pub const SF_RENAME_EXCHANGE: u32 = 2;

/// Splits a path into its parent directory and its last name, for functions that create or remove
/// that name.
fn parent<'p>(core: &Core, path: &'p [u8]) -> Outcome<(InodeNumber, &'p [u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at_checked(start).unwrap_or_default();
    if name.is_empty() {
        return Err(Failure::invalid("the path has no last name"));
    }
    // A trailing slash requires a directory. A path of slashes only is the root.
    let found = core.resolve(directory, true)?;
    if found.kind != FileKind::Directory {
        return Err(Error::NotADirectory.into());
    }
    Ok((found.inode, name))
}

/// Resolves a path to an inode.
pub fn find(core: &Core, path: &[u8], flags: u32) -> Outcome<InodeNumber> {
    Ok(core.resolve(path, flags & SF_NOFOLLOW == 0)?.inode)
}

/// Returns the attributes of the object at a path. `flags`: 0 or SF_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_stat(
    volume: *mut sf_volume,
    path: *const c_char,
    flags: u32,
    attributes: *mut sf_attributes,
) -> c_int {
    call_int("sf_stat", || {
        check_place(attributes, "attributes")?;
        check_flags(flags, SF_NOFOLLOW)?;
        // SAFETY: the header requires an open volume, a C string and room for the structure.
        unsafe {
            let path = text(path, "path")?;
            let found =
                with(volume, |volume| Ok(volume.core.resolve(path, flags & SF_NOFOLLOW == 0)?))?;
            store(attributes, sf_attributes::from(&found), "attributes")
        }
    })
}

/// Creates a node at a path.
///
/// # Safety
/// `volume` is NULL or open; `path` is NULL or a C string.
unsafe fn make(
    volume: *mut sf_volume,
    path: *const c_char,
    node: NewNode<'_>,
    mode: u32,
) -> Outcome {
    // SAFETY: the caller keeps the contract in `# Safety`.
    unsafe {
        let path = text(path, "path")?;
        with(volume, |volume| {
            let (directory, name) = parent(&volume.core, path)?;
            volume.core.create(directory, name, node, mode & 0o7777, &Caller::default())?;
            Ok(())
        })
    }
}

/// Creates a directory with permissions `mode`, such as 0755.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mkdir(volume: *mut sf_volume, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the header requires an open volume and a C string.
    call_int("sf_mkdir", || unsafe { make(volume, path, NewNode::Directory, mode) })
}

/// Creates a directory and its missing parents, with permissions 0755. An existing directory is no
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mkdir_all(volume: *mut sf_volume, path: *const c_char) -> c_int {
    call_int("sf_mkdir_all", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| Ok(volume.core.create_directory_all(path).map(drop)?))
        }
    })
}

/// Creates a file of the type in `mode` (the bits of `st_mode`: regular file, FIFO, socket,
/// character or block device). `device`: the device number, in Linux' 32-bit encoding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mknod(
    volume: *mut sf_volume,
    path: *const c_char,
    mode: u32,
    device: u32,
) -> c_int {
    call_int("sf_mknod", || {
        let node = match FileKind::from_mode(mode) {
            Some(FileKind::Regular) => NewNode::Regular,
            Some(FileKind::Fifo) => NewNode::Fifo,
            Some(FileKind::Socket) => NewNode::Socket,
            Some(FileKind::CharDevice) => NewNode::CharDevice(device),
            Some(FileKind::BlockDevice) => NewNode::BlockDevice(device),
            _ => return Err(Failure::invalid("mode has no type that sf_mknod makes")),
        };
        // SAFETY: the header requires an open volume and a C string.
        unsafe { make(volume, path, node, mode) }
    })
}

/// Creates a symbolic link at `path` that leads to `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_symlink(
    volume: *mut sf_volume,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    call_int("sf_symlink", || {
        // SAFETY: the header requires an open volume and C strings.
        unsafe {
            let target = text(target, "target")?;
            make(volume, path, NewNode::Symlink(target), 0o777)
        }
    })
}

/// Copies the target of a symbolic link, without a zero at its end. Returns its length. -SF_ERANGE:
/// the buffer is too small. With `size` 0 the function only returns the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_readlink(
    volume: *mut sf_volume,
    path: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    call("sf_readlink", || {
        // SAFETY: the header requires an open volume, a C string and a buffer of this size.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| {
                let inode = find(&volume.core, path, SF_NOFOLLOW)?;
                copy_out(&volume.core.read_link(inode)?, buffer, size)
            })
        }
    })
}

/// Adds the name `new_path` to the file at `path`. If the last name of `path` is a symbolic link,
/// the link itself gets the new name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_link(
    volume: *mut sf_volume,
    path: *const c_char,
    new_path: *const c_char,
) -> c_int {
    call_int("sf_link", || {
        // SAFETY: the header requires an open volume and C strings.
        unsafe {
            let (path, new_path) = (text(path, "path")?, text(new_path, "new_path")?);
            with(volume, |volume| {
                let inode = find(&volume.core, path, SF_NOFOLLOW)?;
                let (directory, name) = parent(&volume.core, new_path)?;
                volume.core.link(inode, directory, name)?;
                Ok(())
            })
        }
    })
}

/// Removes a name. The space of the file is freed after its last name is removed and its last open
/// handle is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_unlink(volume: *mut sf_volume, path: *const c_char) -> c_int {
    call_int("sf_unlink", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| {
                let (directory, name) = parent(&volume.core, path)?;
                if path.ends_with(b"/")
                    && volume.core.lookup(directory, name)?.kind != FileKind::Directory
                {
                    return Err(Error::NotADirectory.into());
                }
                Ok(volume.core.unlink(directory, name)?)
            })
        }
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_rmdir(volume: *mut sf_volume, path: *const c_char) -> c_int {
    call_int("sf_rmdir", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| {
                let (directory, name) = parent(&volume.core, path)?;
                Ok(volume.core.remove_directory(directory, name)?)
            })
        }
    })
}

/// Removes a file, or a directory with all its contents. After an error the part that was not
/// reached remains.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_remove_all(volume: *mut sf_volume, path: *const c_char) -> c_int {
    call_int("sf_remove_all", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let path = text(path, "path")?;
            with(volume, |volume| Ok(volume.core.remove_all(path)?))
        }
    })
}

/// Renames a file or directory. An object that has the new name is replaced. `flags`: 0,
/// SF_RENAME_NOREPLACE or SF_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_rename(
    volume: *mut sf_volume,
    path: *const c_char,
    new_path: *const c_char,
    flags: u32,
) -> c_int {
    call_int("sf_rename", || {
        let mode = match flags {
            0 => RenameMode::Replace,
            SF_RENAME_NOREPLACE => RenameMode::NoReplace,
            SF_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => {
                return Err(Failure::invalid(
                    "flags are not 0, SF_RENAME_NOREPLACE or SF_RENAME_EXCHANGE",
                ));
            }
        };
        // SAFETY: the header requires an open volume and C strings.
        unsafe {
            let (path, new_path) = (text(path, "path")?, text(new_path, "new_path")?);
            with(volume, |volume| Ok(volume.core.rename_path(path, new_path, mode)?))
        }
    })
}

/// Changes attributes of the object at a path.
///
/// # Safety
/// `volume` is NULL or open; `path` is NULL or a C string.
unsafe fn change(
    volume: *mut sf_volume,
    path: *const c_char,
    flags: u32,
    set: &SetAttributes,
) -> Outcome {
    check_flags(flags, SF_NOFOLLOW)?;
    // SAFETY: the caller keeps the contract in `# Safety`.
    unsafe {
        let path = text(path, "path")?;
        with(volume, |volume| {
            let inode = find(&volume.core, path, flags)?;
            Ok(volume.core.set_attributes(inode, set).map(drop)?)
        })
    }
}

/// Sets the permissions to the low 12 bits of `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_chmod(volume: *mut sf_volume, path: *const c_char, mode: u32) -> c_int {
    call_int("sf_chmod", || {
        let set = SetAttributes { permissions: Some(mode & 0o7777), ..SetAttributes::default() };
        // SAFETY: the header requires an open volume and a C string.
        unsafe { change(volume, path, 0, &set) }
    })
}

/// Sets owner and group; 0xffffffff keeps the present value. `flags`: 0 or SF_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_chown(
    volume: *mut sf_volume,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    call_int("sf_chown", || {
        let given = |id: u32| (id != u32::MAX).then_some(id);
        let set = SetAttributes { uid: given(uid), gid: given(gid), ..SetAttributes::default() };
        // SAFETY: the header requires an open volume and a C string.
        unsafe { change(volume, path, flags, &set) }
    })
}

/// Sets the times of the last access and of the last content change. NULL keeps a time. SF_TIME_NOW
/// in `nanoseconds` means the present time. `flags`: 0 or SF_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_utimens(
    volume: *mut sf_volume,
    path: *const c_char,
    accessed: *const sf_time,
    modified: *const sf_time,
    flags: u32,
) -> c_int {
    call_int("sf_utimens", || {
        let time = |pointer: *const sf_time, name: &str| -> Outcome<_> {
            if pointer.is_null() {
                return Ok(None);
            }
            // SAFETY: the header requires valid structures.
            let set = unsafe { reference(pointer, name) }?.to_set();
            set.map(Some)
                .ok_or_else(|| Failure::invalid(format_args!("{name} has more than 999999999 ns")))
        };
        let set = SetAttributes {
            accessed: time(accessed, "accessed")?,
            modified: time(modified, "modified")?,
            ..SetAttributes::default()
        };
        // SAFETY: the header requires an open volume and a C string.
        unsafe { change(volume, path, flags, &set) }
    })
}

/// Sets the size of a file. A smaller size cuts the file; a larger size adds a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_truncate(
    volume: *mut sf_volume,
    path: *const c_char,
    size: i64,
) -> c_int {
    call_int("sf_truncate", || {
        let size = u64::try_from(size).map_err(|_| Failure::invalid("size is negative"))?;
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        // SAFETY: the header requires an open volume and a C string.
        unsafe { change(volume, path, 0, &set) }
    })
}
