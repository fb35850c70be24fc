//! Data of regular files.

use core::ffi::c_int;
use core::slice;

use steadfast::fs::{AllocateMode, SeekTo};
use steadfast::{Error, InodeNumber};

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

/// `sfk_extent.flags`: allocated but never written.
pub const SFK_EXTENT_UNWRITTEN: u32 = 1;
/// `sfk_extent.flags`: a snapshot or another file has some of its blocks, too.
pub const SFK_EXTENT_SHARED: u32 = 2;
/// `sfk_extent.flags`: the data is kept with the attributes; `place` means nothing.
pub const SFK_EXTENT_INLINE: u32 = 4;

/// A range of a file with consecutive bytes of the device.
#[repr(C)]
pub struct sfk_extent {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its first byte on the device.
    pub place: u64,
    /// Its length in bytes.
    pub length: u64,
    /// SFK_EXTENT_...
    pub flags: u32,
}

/// The bytes of an inline file as its only extent; `None` if it has no data.
fn inline(volume: &Core, inode: InodeNumber) -> Result<Option<sfk_extent>, Error> {
    match volume.seek(inode, 0, SeekTo::Data) {
        Ok(0) => {}
        Ok(_) | Err(Error::NoSuchOffset) => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = volume.seek(inode, 0, SeekTo::Hole)?;
    Ok(Some(sfk_extent { offset: 0, place: 0, length, flags: SFK_EXTENT_INLINE }))
}

/// Up to `room` extents from the one on that holds byte `offset`, in order. Returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_extents(
    volume: &Core,
    inode: u64,
    offset: u64,
    out: *mut sfk_extent,
    room: usize,
) -> isize {
    let inode = InodeNumber(inode);
    let put = |index: usize, extent| {
        // SAFETY: the caller has room for so many, and `index` is below their number.
        unsafe { out.add(index).write(extent) }
    };
    let fill = || {
        let block = u64::from(volume.statistics()?.block_size);
        let found = volume.file_extents(inode, offset / block, room)?;
        // Past the last extent of a longer file there is no data, so its first data ends before.
        if found.is_empty()
            && let Some(extent) = inline(volume, inode)?
            && extent.length > offset
        {
            put(0, extent);
            return Ok(1);
        }
        for (index, extent) in found.iter().enumerate() {
            let bytes = |blocks: u64| {
                let (address, reason) = (extent.address, "extent: past the largest file");
                blocks.checked_mul(block).ok_or(Error::CorruptMetadata { address, reason })
            };
            let (offset, length) = (bytes(extent.index)?, bytes(extent.blocks)?);
            let place = bytes(extent.address.0)?;
            let unwritten = u32::from(extent.unwritten) * SFK_EXTENT_UNWRITTEN;
            let flags = unwritten + u32::from(extent.shared) * SFK_EXTENT_SHARED;
            put(index, sfk_extent { offset, place, length, flags });
        }
        Ok(found.len() as isize)
    };
    fill().unwrap_or_else(|error: Error| -(errno(&error) as isize))
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
