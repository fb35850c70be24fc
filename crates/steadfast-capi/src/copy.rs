//! Copying between open files, by sharing blocks where that is possible.

use engine::InodeNumber;

use crate::Core;
use crate::codes;
use crate::error::Failure;
use crate::file::{SF_READ, SF_WRITE, offset_of, on_file, sf_file};
use crate::guard::{Outcome, call};

/// Checks both files and runs work on their volume with the inodes.
///
/// # Safety
/// Both are NULL or came from `sf_file_open` and were not closed.
unsafe fn between<T>(
    from: *const sf_file,
    to: *const sf_file,
    work: impl FnOnce(&Core, InodeNumber, InodeNumber) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: as the caller says.
    unsafe {
        on_file(from, |from| {
            from.check_open_for(SF_READ)?;
            on_file(to, |to| {
                to.check_open_for(SF_WRITE)?;
                if !core::ptr::eq(from.volume(), to.volume()) {
                    return Err(Failure::new(
                        codes::SF_EXDEV,
                        "the files are on different volumes",
                    ));
                }
                work(&from.volume().core, from.inode(), to.inode())
            })
        })
    }
}

/// Copies up to `length` bytes from one file to another (or the same) of one volume. Returns how
/// many: fewer at the end of the source. Whole blocks at the same place within a block in both
/// files are shared instead of copied and take no space until one of the files changes them.
/// -SF_EINVAL: the ranges overlap in one file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_copy_range(
    from: *mut sf_file,
    from_offset: i64,
    to: *mut sf_file,
    to_offset: i64,
    length: u64,
) -> i64 {
    call("sf_copy_range", || {
        let (at, to_at) =
            (offset_of(from_offset, "from_offset")?, offset_of(to_offset, "to_offset")?);
        // SAFETY: the header asks for files that are open.
        unsafe {
            between(from, to, |core, from, to| Ok(core.copy_range(from, at, to, to_at, length)?))
        }
    })
}

/// Makes `length` bytes (0: up to the end of the source) of one file the same as those of another
/// one (or the same) of one volume by sharing their blocks, or fails. Returns how many bytes that
/// are. Offsets and length are multiples of the block size; only the end may be that of the source,
/// where it is not before that of the target. -SF_EINVAL: they are not, or the ranges overlap in
/// one file, or end behind the source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_clone_range(
    from: *mut sf_file,
    from_offset: i64,
    to: *mut sf_file,
    to_offset: i64,
    length: u64,
) -> i64 {
    call("sf_clone_range", || {
        let (at, to_at) =
            (offset_of(from_offset, "from_offset")?, offset_of(to_offset, "to_offset")?);
        // SAFETY: the header asks for files that are open.
        unsafe {
            between(from, to, |core, from, to| Ok(core.clone_range(from, at, to, to_at, length)?))
        }
    })
}
