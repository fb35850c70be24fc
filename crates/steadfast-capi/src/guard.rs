//! The boundary that every function of the interface goes through.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;

use crate::codes;
use crate::error::{self, Failure};

pub use crate::error::Outcome;

/// The value that a function returns on success.
pub trait Answer {
    fn number(self) -> i64;
}

impl Answer for () {
    fn number(self) -> i64 {
        0
    }
}

impl Answer for bool {
    fn number(self) -> i64 {
        i64::from(self)
    }
}

impl Answer for usize {
    fn number(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

impl Answer for u64 {
    fn number(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

/// Runs the body of the function `name`. A failure or a panic is remembered and becomes a negative
/// number.
pub fn call<T: Answer>(name: &str, body: impl FnOnce() -> Outcome<T>) -> i64 {
    match caught(body) {
        Ok(answer) => answer.number(),
        Err(failure) => {
            error::remember(name, &failure);
            -i64::from(failure.code)
        }
    }
}

/// Like [`call`], for functions that return an `int`.
pub fn call_int<T: Answer>(name: &str, body: impl FnOnce() -> Outcome<T>) -> c_int {
    c_int::try_from(call(name, body)).unwrap_or(c_int::MAX)
}

#[cfg(feature = "std")]
fn caught<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // Later calls see no half-made change: `on` marks the volume as broken while the panic unwinds.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<std::string::String>().map(|text| text.as_str()));
        let failure = Failure::internal(text.unwrap_or("unknown"));
        // The payload may panic again when it is dropped.
        core::mem::forget(panic);
        Err(failure)
    })
}

/// Without an operating system a panic does not unwind; it ends in `sf_port.panic`.
#[cfg(not(feature = "std"))]
fn caught<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    crate::bare::inside(body)
}

/// Converts a pointer to a reference, after checking alignment and NULL.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that lives and is not written to during `'a`.
pub unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    if !pointer.is_aligned() {
        return Err(Failure::new(codes::SF_EFAULT, format_args!("{name} is not a valid pointer")));
    }
    // SAFETY: the pointer is aligned, and the caller guarantees a live `T` that is not written to
    // during `'a`.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// Writes `value` to the place that a pointer points to.
///
/// # Safety
/// `pointer` is NULL or has room for a `T`.
pub unsafe fn store<T>(pointer: *mut T, value: T, name: &str) -> Outcome {
    check_place(pointer, name)?;
    // SAFETY: not NULL, and the caller guarantees room for a `T`. The old bytes are not dropped:
    // they may be uninitialised.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Checks that a place for an answer exists, before the function does any work.
pub fn check_place<T>(pointer: *mut T, name: &str) -> Outcome {
    if pointer.is_null() { Err(Failure::null(name)) } else { Ok(()) }
}

/// The bytes of a C string.
///
/// # Safety
/// `text` is NULL or ends with a zero, and is not written to during `'a`.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Outcome<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: not NULL, and the caller guarantees the zero at the end.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The bytes of a buffer that the library reads. NULL is allowed for an empty buffer.
///
/// # Safety
/// `buffer` is NULL or has `length` bytes that are not written to during `'a`.
pub unsafe fn bytes<'a>(buffer: *const c_void, length: usize, name: &str) -> Outcome<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if buffer.is_null() {
        return Err(Failure::null(name));
    }
    check_length(length)?;
    // SAFETY: not NULL, no longer than an object can be, and the caller guarantees `length` bytes
    // that are not written to.
    Ok(unsafe { slice::from_raw_parts(buffer.cast(), length) })
}

/// The bytes of a buffer that the library writes, set to zero first. A caller in C may pass a
/// buffer that it has never written to, and Rust does not allow references to uninitialised bytes.
/// NULL is allowed for an empty buffer.
///
/// # Safety
/// `buffer` is NULL or has `length` bytes to which no other access happens during `'a`.
pub unsafe fn bytes_mut<'a>(
    buffer: *mut c_void,
    length: usize,
    name: &str,
) -> Outcome<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() {
        return Err(Failure::null(name));
    }
    check_length(length)?;
    // SAFETY: not NULL, no longer than an object can be, and the caller guarantees `length` bytes
    // for this use alone. The bytes are initialised before the slice is made.
    unsafe {
        buffer.cast::<u8>().write_bytes(0, length);
        Ok(slice::from_raw_parts_mut(buffer.cast(), length))
    }
}

/// Checks that a place for `count` values exists, before the function does any work.
pub fn check_length_of<T>(place: *mut T, count: usize, name: &str) -> Outcome {
    if count > 0 {
        check_place(place, name)?;
    }
    check_length(count.saturating_mul(size_of::<T>()))
}

fn check_length(length: usize) -> Outcome {
    if length > isize::MAX as usize {
        return Err(Failure::invalid(format_args!("a buffer cannot have {length} bytes")));
    }
    Ok(())
}

/// Copies a value to the caller, as `getxattr` and `readlink` do. Without a buffer it only returns
/// the length. Fails with -SF_ERANGE if the buffer is too small.
///
/// # Safety
/// As for [`bytes_mut`].
pub unsafe fn copy_out(value: &[u8], buffer: *mut c_void, size: usize) -> Outcome<usize> {
    if size > 0 {
        check_place(buffer, "buffer")?;
        if size < value.len() {
            return Err(Failure::new(
                codes::SF_ERANGE,
                format_args!("the value has {} bytes, the buffer {size}", value.len()),
            ));
        }
        // SAFETY: the caller guarantees `size` bytes, and `value.len()` is at most `size`. The rest
        // of the buffer stays untouched.
        let room = unsafe { bytes_mut(buffer, value.len(), "buffer") }?;
        room.copy_from_slice(value);
    }
    Ok(value.len())
}

/// Refuses flags that this version does not know, because a later version may define them.
pub fn check_flags(flags: u32, known: u32) -> Outcome {
    if flags & !known != 0 {
        return Err(Failure::invalid(format_args!("unknown flags {:#x}", flags & !known)));
    }
    Ok(())
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::image::{sf_format_image, sf_open_image};
    use crate::names::sf_mkdir;
    use crate::options::{sf_format_options, sf_format_options_init};
    use crate::volume::{sf_close, sf_volume, with};

    fn last_error() -> String {
        // SAFETY: the text belongs to this thread and is copied before the next call.
        unsafe { CStr::from_ptr(error::sf_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_stays_inside_and_the_volume_answers_nothing_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img").to_str().unwrap().to_owned();
        let path = std::ffi::CString::new(path).unwrap();
        let mut volume = core::ptr::null_mut();
        // SAFETY: all arguments fulfil the contract of the header.
        unsafe {
            let mut options = core::mem::MaybeUninit::<sf_format_options>::uninit();
            assert_eq!(
                sf_format_options_init(options.as_mut_ptr(), size_of::<sf_format_options>()),
                0
            );
            (*options.as_mut_ptr()).size = 4 << 20;
            assert_eq!(sf_format_image(path.as_ptr(), options.as_ptr()), 0);
            assert_eq!(sf_open_image(path.as_ptr(), core::ptr::null(), &raw mut volume), 0);
            assert_eq!(sf_mkdir(volume, c"before".as_ptr(), 0o755), 0);

            let panics = |_: &sf_volume| -> Outcome { panic!("planted\nhere") };
            assert_eq!(
                call("sf_test", || with(volume, panics)),
                -i64::from(codes::SF_ENOTRECOVERABLE)
            );
            assert_eq!(last_error(), "sf_test: internal error: planted here");
            assert!((*volume).core.info().poisoned.is_some());
            assert_eq!(sf_mkdir(volume, c"after".as_ptr(), 0o755), -codes::SF_ENOTRECOVERABLE);
            assert_eq!(sf_close(volume), -codes::SF_ENOTRECOVERABLE);

            // The image is unlocked again, in the state of the last transaction point.
            assert_eq!(sf_open_image(path.as_ptr(), core::ptr::null(), &raw mut volume), 0);
            assert_eq!(sf_mkdir(volume, c"before".as_ptr(), 0o755), 0);
            assert_eq!(sf_close(volume), 0);
        }
    }

    #[test]
    fn a_buffer_has_a_value_before_it_is_a_slice() {
        let mut memory = [0xaa_u8; 16];
        // SAFETY: the pointer and length name the first eight bytes of the array.
        let room =
            unsafe { bytes_mut(memory.as_mut_ptr().cast(), 8, "buffer") }.unwrap_or_default();
        assert_eq!(room, [0; 8]);
        assert_eq!(memory[8..], [0xaa; 8]);
        // A value that does not fit leaves the buffer unchanged, and so do the bytes after a value.
        let place = memory[8..].as_mut_ptr().cast();
        // SAFETY: the pointer and length name the last eight bytes of the array.
        unsafe {
            assert!(copy_out(&[1; 9], place, 8).is_err());
            assert_eq!(copy_out(&[1; 3], place, 8).unwrap_or_default(), 3);
        }
        assert_eq!(memory[8..], [1, 1, 1, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa]);
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        let long = "ö".repeat(300);
        assert_eq!(
            call("f", || -> Outcome { Err(Failure::invalid(&long)) }),
            -i64::from(codes::SF_EINVAL)
        );
        let text = last_error();
        assert!(text.starts_with("f: öö") && text.len() < 256 && text.ends_with('ö'), "{text}");
    }
}
