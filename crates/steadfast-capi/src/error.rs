//! A failure on its way to the caller, and the text of the last failure.

use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};

use engine::Error;

use crate::codes;

/// Longest text in bytes, including the zero at its end.
const TEXT_MAX: usize = 256;

/// An error: a positive number and a line of text. Owns no heap memory.
#[derive(Clone, Copy)]
pub struct Failure {
    pub code: c_int,
    text: [u8; TEXT_MAX],
    length: usize,
}

/// Result of everything beneath the interface.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(code: c_int, text: impl fmt::Display) -> Failure {
        let mut failure = Failure { code, text: [0; TEXT_MAX], length: 0 };
        let _ = write!(failure, "{text}");
        failure
    }

    /// The failure for an argument that must not be NULL.
    pub fn null(name: &str) -> Failure {
        Failure::new(codes::SF_EFAULT, format_args!("{name} is NULL"))
    }

    pub fn invalid(text: impl fmt::Display) -> Failure {
        Failure::new(codes::SF_EINVAL, text)
    }

    pub fn internal(text: impl fmt::Display) -> Failure {
        Failure::new(codes::SF_ENOTRECOVERABLE, format_args!("internal error: {text}"))
    }
}

/// Truncates at a character boundary.
impl Write for Failure {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_MAX - 1 - self.length;
        let end = text.floor_char_boundary(room);
        for (to, from) in
            self.text.iter_mut().skip(self.length).zip(text.as_bytes().iter().take(end))
        {
            // The text stays one line, and a zero byte must not end it early.
            *to = if from.is_ascii_control() { b' ' } else { *from };
        }
        self.length += end;
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(codes::of(&error), error)
    }
}

#[cfg(feature = "std")]
mod last {
    use core::cell::UnsafeCell;
    use core::ffi::c_char;

    use super::TEXT_MAX;

    std::thread_local! {
        static LAST: UnsafeCell<[u8; TEXT_MAX]> = const { UnsafeCell::new([0; TEXT_MAX]) };
    }

    pub fn set(text: &[u8; TEXT_MAX]) {
        // SAFETY: the cell belongs to this thread, Rust code holds no reference to it, and the
        // assignment calls nothing. While a thread ends the cell may be gone; then no call can read
        // the text either.
        let _ = LAST.try_with(|last| unsafe { *last.get() = *text });
    }

    pub fn get() -> *const c_char {
        LAST.try_with(|last| last.get().cast::<c_char>().cast_const()).unwrap_or(c"".as_ptr())
    }
}

#[cfg(not(feature = "std"))]
mod last {
    use core::ffi::c_char;
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::TEXT_MAX;

    /// One line for all tasks. The last byte always stays zero, so a reader always finds an end.
    static LAST: [AtomicU8; TEXT_MAX] = [const { AtomicU8::new(0) }; TEXT_MAX];

    pub fn set(text: &[u8; TEXT_MAX]) {
        for (to, from) in LAST.iter().zip(text).take(TEXT_MAX - 1) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    pub fn get() -> *const c_char {
        LAST.as_ptr().cast()
    }
}

/// Stores the text of a failure of the function `name` for [`sf_last_error`].
pub fn remember(name: &str, failure: &Failure) {
    let mut line = Failure { code: 0, text: [0; TEXT_MAX], length: 0 };
    let text = failure.text.get(..failure.length).unwrap_or_default();
    let _ = write!(line, "{name}: {}", core::str::from_utf8(text).unwrap_or("(no text)"));
    last::set(&line.text);
}

/// Returns a line about the last failure of this thread: the function, the cause, the place and the
/// remedy, as far as they are known. Empty if nothing has failed. Valid until the next call of this
/// library on this thread. In a library without an operating system all tasks share one line.
#[unsafe(no_mangle)]
pub extern "C" fn sf_last_error() -> *const c_char {
    last::get()
}
