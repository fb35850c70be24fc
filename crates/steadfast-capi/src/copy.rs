//! Copying between open files, with shared blocks where possible.

use engine::InodeNumber;

use crate::Core;
use crate::codes;
use crate::error::Failure;
use crate::file::{SF_READ, SF_WRITE, offset_of, on_file, sf_file};
use crate::guard::{Outcome, call};

/// Checks both files, then runs `work` on their volume with the two inode numbers.
///
/// # Safety
/// Each pointer is NULL, or came from `sf_file_open` and is not closed.
unsafe fn between<T>(
    from: *const sf_file,
    to: *const sf_file,
    work: impl FnOnce(&Core, InodeNumber, InodeNumber) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: the caller keeps the contract in `# Safety`, which is that of `on_file` for both
    // files.
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

/// Copies up to `length` bytes between two files of one volume, or within one file. Returns the
/// number of bytes: less than `length` only at the end of the source. Blocks that the range covers
/// completely at the same offset within a block in both files are shared, not copied. Shared blocks
/// take no extra space until one of the files changes them. -SF_EINVAL: the ranges overlap in one
/// file.
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
        // SAFETY: the header requires open files.
        unsafe {
            between(from, to, |core, from, to| Ok(core.copy_range(from, at, to, to_at, length)?))
        }
    })
}

/// Makes a range of one file equal to a range of another file of the same volume, or of the same
/// file, by sharing blocks. Fails if sharing is impossible. `length` 0 means up to the end of the
/// source. Returns the number of bytes. Offsets and length must be multiples of the block size. The
/// range may end off a block boundary only at the end of the source, if the target does not
/// continue after it. Fails with -SF_EINVAL if this rule is violated, if the ranges overlap in one
/// file, or if the range ends beyond the source.
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
        // SAFETY: the header requires open files.
        unsafe {
            between(from, to, |core, from, to| Ok(core.clone_range(from, at, to, to_at, length)?))
        }
    })
}
