//! Attributes of inodes.

use core::ffi::c_int;

use steadfast::fs::{Attributes, FileFlags, SetAttributes, SetTime};
use steadfast::{InodeNumber, Timestamp};

use crate::Core;
use crate::errno::errno;

/// A time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sfk_time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Attributes of an inode.
#[repr(C)]
pub struct sfk_attributes {
    /// Number of the inode.
    pub inode: u64,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocated: u64,
    /// Last access.
    pub accessed: sfk_time,
    /// Last change of the content.
    pub modified: sfk_time,
    /// Last change of the attributes.
    pub changed: sfk_time,
    /// Creation.
    pub created: sfk_time,
    /// The whole st_mode.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, in the kernel's 32-bit encoding.
    pub device: u32,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Flags that users set, with the numbers of FS_IOC_GETFLAGS.
    pub flags: u32,
    /// `allocated` still falls without a call: background work frees the blocks.
    pub shrinking: bool,
}

/// `sfk_change.fields`: permission bits.
pub const SFK_SET_PERMISSIONS: u32 = 1;
/// `sfk_change.fields`: owner.
pub const SFK_SET_UID: u32 = 2;
/// `sfk_change.fields`: group.
pub const SFK_SET_GID: u32 = 4;
/// `sfk_change.fields`: size.
pub const SFK_SET_SIZE: u32 = 8;
/// `sfk_change.fields`: time of the last access.
pub const SFK_SET_ACCESSED: u32 = 16;
/// `sfk_change.fields`: time of the last change of the content.
pub const SFK_SET_MODIFIED: u32 = 32;
/// `sfk_change.fields`: time of the last change of the attributes.
pub const SFK_SET_CHANGED: u32 = 64;

/// Attributes to change.
#[repr(C)]
pub struct sfk_change {
    /// Which of the following count: SFK_SET_...
    pub fields: u32,
    /// The low 12 bits of st_mode.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of a regular file.
    pub size: u64,
    /// Last access.
    pub accessed: sfk_time,
    /// Last change of the content.
    pub modified: sfk_time,
    /// Last change of the attributes.
    pub changed: sfk_time,
}

impl From<Timestamp> for sfk_time {
    fn from(time: Timestamp) -> sfk_time {
        sfk_time { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

impl From<sfk_time> for Timestamp {
    fn from(time: sfk_time) -> Timestamp {
        Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

impl From<&Attributes> for sfk_attributes {
    fn from(found: &Attributes) -> sfk_attributes {
        sfk_attributes {
            inode: found.inode.0,
            size: found.size,
            allocated: found.allocated,
            accessed: found.accessed.into(),
            modified: found.modified.into(),
            changed: found.changed.into(),
            created: found.created.into(),
            mode: found.mode(),
            links: found.links,
            uid: found.uid,
            gid: found.gid,
            device: found.device,
            block_size: found.block_size,
            flags: found.flags.0,
            shrinking: found.shrinking,
        }
    }
}

/// Writes the attributes to `out`, or returns the error.
///
/// # Safety
/// `out` is valid.
pub(crate) unsafe fn give(
    result: Result<Attributes, steadfast::Error>,
    out: *mut sfk_attributes,
) -> c_int {
    match result {
        Ok(found) => {
            // SAFETY: the caller passes a valid pointer.
            unsafe { out.write((&found).into()) };
            0
        }
        Err(error) => -errno(&error),
    }
}

/// The attributes of an inode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_attributes_get(
    volume: &Core,
    inode: u64,
    out: *mut sfk_attributes,
) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { give(volume.attributes(InodeNumber(inode)), out) }
}

/// Changes attributes in one operation, and returns the new ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_attributes_set(
    volume: &Core,
    inode: u64,
    change: &sfk_change,
    out: *mut sfk_attributes,
) -> c_int {
    let wanted = |bit: u32| change.fields & bit != 0;
    let set = SetAttributes {
        permissions: wanted(SFK_SET_PERMISSIONS).then_some(change.permissions),
        uid: wanted(SFK_SET_UID).then_some(change.uid),
        gid: wanted(SFK_SET_GID).then_some(change.gid),
        size: wanted(SFK_SET_SIZE).then_some(change.size),
        accessed: wanted(SFK_SET_ACCESSED).then(|| SetTime::At(change.accessed.into())),
        modified: wanted(SFK_SET_MODIFIED).then(|| SetTime::At(change.modified.into())),
        changed: wanted(SFK_SET_CHANGED).then(|| change.changed.into()),
        drop_privileges: false,
        // The VFS has checked the flags, and stores times that it keeps.
        unchecked: true,
    };
    // SAFETY: `out` is valid.
    unsafe { give(volume.set_attributes(InodeNumber(inode), &set), out) }
}

/// Gives a file or directory these flags in place of those that it has, and returns its attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_flags_set(
    volume: &Core,
    inode: u64,
    flags: u32,
    out: *mut sfk_attributes,
) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { give(volume.set_flags(InodeNumber(inode), FileFlags(flags)), out) }
}
