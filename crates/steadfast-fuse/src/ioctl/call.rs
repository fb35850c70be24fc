//! Numbers of commands, and the call of one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

/// Type byte of all commands.
pub const TYPE: u8 = 0xd5;

pub(crate) const NONE: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const READ: u32 = 2;

pub(crate) const fn number(direction: u32, command: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (TYPE as u32) << 8 | command
}

/// A daemon that serves requests over io_uring returns EAGAIN if too many callers wait on one
/// processor.
const RETRIES: u32 = 10_000;

pub(crate) fn call<T: IntoBytes + FromBytes>(
    file: &File,
    command: u32,
    argument: &mut T,
) -> io::Result<()> {
    let mut retries = RETRIES;
    loop {
        // SAFETY: the command encodes the size of the argument (0 for none), and the kernel reads
        // or writes only that many bytes at the pointer. Every bit pattern is a valid T.
        #[allow(unsafe_code)]
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), command as _, std::ptr::from_mut(argument)) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EAGAIN) || retries == 0 {
            return Err(error);
        }
        retries -= 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}
