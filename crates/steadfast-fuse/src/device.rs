//! `/dev/fuse`: one read receives a request; one gathered write sends an answer or a notification.
//!
//! Each worker has a clone of the device, with its own queue of the requests that it has taken. An
//! answer must go to the device that the request came from. So an answer that another thread gives
//! later carries its device.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::notify;
use crate::abi::output::{NotifyInvalInode, OutHeader};
use crate::errno::Errno;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, u32)`.
const IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// A connection to the kernel (or a clone of one).
#[derive(Debug, Clone)]
pub(crate) struct FuseDevice(Arc<File>);

/// Result of [`FuseDevice::receive`].
pub(crate) enum Received {
    /// A request of this many bytes.
    Request(usize),
    /// The file system was unmounted or the connection aborted.
    Unmounted,
}

impl FuseDevice {
    /// Wraps a descriptor of `/dev/fuse`.
    pub(crate) fn new(descriptor: OwnedFd) -> FuseDevice {
        FuseDevice(Arc::new(File::from(descriptor)))
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Creates another queue of the same connection.
    pub(crate) fn clone_queue(&self) -> io::Result<FuseDevice> {
        let clone = File::options().read(true).write(true).open("/dev/fuse")?;
        let mut source = self.0.as_raw_fd() as u32;
        // SAFETY: both descriptors are open, and the argument points to a u32, as this ioctl
        // requires.
        #[allow(unsafe_code)]
        let result = unsafe { libc::ioctl(clone.as_raw_fd(), IOC_CLONE as _, &raw mut source) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(FuseDevice(Arc::new(clone)))
    }

    /// Waits for a request and stores it at the start of `buffer`.
    ///
    /// # Errors
    /// All errors except interruption; the connection is unusable afterwards.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            return match (&*self.0).read(buffer) {
                Ok(length) => Ok(Received::Request(length)),
                Err(error) => match error.raw_os_error() {
                    // ENOENT: the request was interrupted before a worker took it.
                    Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                    // ECONNABORTED replaces ENODEV after an abort if both sides agreed on
                    // ABORT_ERROR.
                    Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::Unmounted),
                    _ => Err(error),
                },
            };
        }
    }

    /// Answers the request `unique`.
    pub(crate) fn answer(&self, unique: u64, result: Result<&[u8], Errno>) -> io::Result<()> {
        let (error, data) = match result {
            Ok(data) => (0, data),
            Err(errno) => (-errno.0, &[][..]),
        };
        match self.send(error, unique, &[data]) {
            // The caller or the mount does not exist any more.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Drops the kernel's cached attributes of an inode, and its pages from `offset` if `offset` is
    /// not negative. Waits until the kernel has written dirty pages to this daemon. A thread that
    /// has to serve those writes must never call it with pages. An inode that the kernel does not
    /// know is no error.
    pub(crate) fn invalidate_inode(&self, nodeid: u64, offset: i64) -> io::Result<()> {
        let body = NotifyInvalInode { nodeid, offset, length: 0 };
        match self.send(notify::INVAL_INODE, 0, &[body.as_bytes()]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Makes all directory entries in the kernel expire.
    pub(crate) fn expire_entries(&self) -> io::Result<()> {
        self.send(notify::INC_EPOCH, 0, &[])
    }

    fn send(&self, error: i32, unique: u64, parts: &[&[u8]]) -> io::Result<()> {
        let length = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: length as u32, error, unique };
        let mut slices = [IoSlice::new(header.as_bytes()), IoSlice::new(&[]), IoSlice::new(&[])];
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        loop {
            match (&*self.0).write_vectored(&slices[..=parts.len()]) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens `/dev/fuse`.
pub(crate) fn open() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/fuse")?.into())
}

/// Takes ownership of a descriptor that the kernel has just given to this process.
#[allow(unsafe_code)]
pub(crate) fn own(descriptor: i32) -> OwnedFd {
    // SAFETY: callers pass a descriptor that a system call returned and that has no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
