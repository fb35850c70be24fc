//! Data of regular files.

use core::ffi::c_int;
use core::slice;

use steadfast::InodeNumber;
use steadfast::fs::{AllocateMode, SeekTo};

use crate::Core;
use crate::errno::{EINVAL, code, errno};

/// `sfk_allocate`: allocates holes.
pub const SFK_ALLOCATE: u32 = 0;
/// `sfk_allocate`: makes a hole.
pub const SFK_PUNCH_HOLE: u32 = 1;
/// `sfk_allocate`: makes zeros.
pub const SFK_ZERO_RANGE: u32 = 2;

/// Fills `buffer` from `offset`. Returns the number of bytes, smaller at the end of the file only.
/// The access time is the kernel's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_read(
    volume: &Core,
    inode: u64,
    offset: u64,
    buffer: *mut u8,
    length: usize,
) -> isize {
    // SAFETY: the caller passes a valid buffer, which no other thread uses during the call.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer, length) };
    match volume.read_unnoticed(InodeNumber(inode), offset, buffer) {
        Ok(count) => count as isize,
        Err(error) => -(errno(&error) as isize),
    }
}

/// Writes all of `data` at `offset` or fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_write(
    volume: &Core,
    inode: u64,
    offset: u64,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes valid data, which no thread changes during the call.
    let data = unsafe { slice::from_raw_parts(data, length) };
    code(volume.write(InodeNumber(inode), offset, data, false))
}

/// fallocate(2); `mode` is one of SFK_ALLOCATE, SFK_PUNCH_HOLE and SFK_ZERO_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_allocate(
    volume: &Core,
    inode: u64,
    offset: u64,
    length: u64,
    mode: u32,
    keep_size: bool,
) -> c_int {
    let mode = match mode {
        SFK_PUNCH_HOLE => AllocateMode::PunchHole,
        SFK_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
        SFK_ALLOCATE => AllocateMode::Allocate { keep_size },
        _ => return -EINVAL,
    };
    code(volume.allocate(InodeNumber(inode), offset, length, mode))
}

/// The first byte of data (or of a hole) at or after `offset`.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_seek(volume: &Core, inode: u64, offset: u64, hole: bool) -> i64 {
    let to = if hole { SeekTo::Hole } else { SeekTo::Data };
    match volume.seek(InodeNumber(inode), offset, to) {
        Ok(found) => found as i64,
        Err(error) => -i64::from(errno(&error)),
    }
}

/// copy_file_range(2): shares whole blocks where it can. Returns the number of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_copy(
    volume: &Core,
    from: u64,
    from_offset: u64,
    to: u64,
    to_offset: u64,
    length: u64,
) -> i64 {
    let (from, to) = (InodeNumber(from), InodeNumber(to));
    match volume.copy_range(from, from_offset, to, to_offset, length) {
        Ok(count) => count as i64,
        Err(error) => -i64::from(errno(&error)),
    }
}

/// FICLONERANGE: shares blocks or fails. Returns the number of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_clone(
    volume: &Core,
    from: u64,
    from_offset: u64,
    to: u64,
    to_offset: u64,
    length: u64,
) -> i64 {
    let (from, to) = (InodeNumber(from), InodeNumber(to));
    match volume.clone_range(from, from_offset, to, to_offset, length) {
        Ok(count) => count as i64,
        Err(error) => -i64::from(errno(&error)),
    }
}

/// Keeps an inode without a name alive until `sfk_release`.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_acquire(volume: &Core, inode: u64) -> c_int {
    code(volume.acquire(InodeNumber(inode)))
}

/// Undoes one `sfk_acquire`.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_release(volume: &Core, inode: u64) {
    volume.release(InodeNumber(inode));
}
