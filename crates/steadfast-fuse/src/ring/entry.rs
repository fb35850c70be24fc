//! An entry of a queue: an io_uring of one thread, and the buffers for its requests and answers.
//!
//! Memory of an entry: one page, then the payload. The page starts with the headers and ends with a
//! copy of the request's header and first argument. So a request is contiguous, as it is from the
//! device, and the data of a WRITE starts on a page boundary. A request without a payload (such as
//! READ) leaves the payload to the answer.
//!
//! Invariant: from a command until its completion (`lent`) the memory belongs to the kernel,
//! otherwise to this process.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::input::InHeader;
use crate::abi::output::OutHeader;
use crate::abi::ring::{COMMIT_AND_FETCH, Headers, REGISTER, RingCommand};
use crate::buffer::{DATA_MAX, PAGE, Pages};
use crate::device::FuseDevice;
use crate::errno::Errno;

/// Pages of an entry: headers and payload.
const PAGES: usize = 1 + DATA_MAX / PAGE;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Result of [`RingEntry::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The entry contains a request.
    Request,
    /// The file system was unmounted or the connection aborted.
    Unmounted,
}

/// See the module.
pub(super) struct RingEntry {
    ring: Ring,
    /// The allocation, and the first page in it.
    allocation: NonNull<[u8]>,
    memory: NonNull<u8>,
    /// Addresses of the two buffers, which REGISTER reads.
    buffers: Box<[libc::iovec; 2]>,
    queue: u16,
    lent: bool,
    commit_id: u64,
}

// SAFETY: only the entry refers to the memory and to its contents, and nothing in it is bound to a
// thread.
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// Creates an entry for a queue of the connection, which the kernel does not know yet. The
    /// thread that calls [`register`](Self::register) must use the entry from then on.
    ///
    /// # Errors
    /// io_uring is not available (ENOSYS, EPERM by seccomp or `kernel.io_uring_disabled`, EINVAL if
    /// too old), or memory is exhausted.
    pub(super) fn new(device: &FuseDevice, queue: u16) -> io::Result<RingEntry> {
        let ring: Ring =
            IoUring::builder().dontfork().setup_r_disabled().setup_single_issuer().build(1)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let (allocation, start) = Pages::new(PAGES)?.into_raw();
        // SAFETY: a box is not null, and both addresses are inside it.
        let (allocation, memory, payload) = unsafe {
            let allocation = NonNull::new_unchecked(allocation);
            let memory = allocation.cast::<u8>().add(start);
            (allocation, memory, memory.add(PAGE))
        };
        let buffer =
            |start: NonNull<u8>, iov_len| libc::iovec { iov_base: start.as_ptr().cast(), iov_len };
        let buffers = Box::new([buffer(memory, size_of::<Headers>()), buffer(payload, DATA_MAX)]);
        Ok(RingEntry { ring, allocation, memory, buffers, queue, lent: false, commit_id: 0 })
    }

    /// Registers the entry with the kernel; `false`: the file system has already been unmounted.
    ///
    /// # Errors
    /// The kernel refuses the entry. It then falls back to the device, unless the queues are
    /// complete without this entry.
    pub(super) fn register(&mut self) -> io::Result<bool> {
        self.ring.submitter().register_enable_rings()?;
        self.push(REGISTER)?;
        self.ring.submit()?;
        // The kernel refuses an entry immediately.
        match self.completed() {
            Some(result) if is_end(-result) => Ok(false),
            Some(result) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            // A request may already have arrived; the first `next` finds it.
            Some(_) | None => Ok(true),
        }
    }

    /// Submits pending commands and waits for a request.
    ///
    /// # Errors
    /// The entry is unusable afterwards.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        while self.lent {
            let Some(result) = self.completed() else {
                match self.ring.submit_and_wait(1) {
                    Ok(_) => continue,
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => continue,
                        _ => return Err(error),
                    },
                }
            };
            match -result {
                ..=0 => break,
                errno if is_end(errno) => return Ok(Next::Unmounted),
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(Next::Request)
    }

    /// The request, and the payload if the request leaves it to the answer; `None` if the bytes
    /// cannot come from a kernel. Only valid after [`next`](Self::next) has found a request.
    pub(super) fn request(&mut self) -> Option<(&[u8], Option<&mut [u8]>)> {
        let (first, _) = self.bytes().split_at_mut(PAGE);
        let (headers, _) = Headers::read_from_prefix(first).ok()?;
        let (header, _) = InHeader::read_from_prefix(&headers.in_out).ok()?;
        let data = headers.payload_len as usize;
        let argument = (header.len as usize).checked_sub(size_of::<InHeader>() + data)?;
        let argument = headers.argument.get(..argument)?;
        let start = PAGE - argument.len() - size_of::<InHeader>();
        first[start..][..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        first[PAGE - argument.len()..].copy_from_slice(argument);
        self.commit_id = headers.commit_id;
        let bytes = self.bytes();
        if data == 0 {
            let (first, payload) = bytes.split_at_mut(PAGE);
            return Some((&first[start..], Some(payload)));
        }
        Some((bytes.get(start..PAGE + data)?, None))
    }

    /// The buffer for the data of an answer.
    pub(super) fn payload(&mut self) -> &mut [u8] {
        &mut self.bytes()[PAGE..]
    }

    /// Answers with this many bytes of the payload. The following [`next`](Self::next) sends the
    /// answer to the kernel.
    ///
    /// # Errors
    /// The entry is unusable afterwards.
    pub(super) fn answer(&mut self, result: Result<usize, Errno>) -> io::Result<()> {
        let (length, error) = match result {
            Ok(length) => (length.min(DATA_MAX) as u32, 0),
            Err(errno) => (0, -errno.0),
        };
        let commit_id = self.commit_id;
        let header =
            OutHeader { len: size_of::<OutHeader>() as u32 + length, error, unique: commit_id };
        let mut headers = Headers {
            in_out: [0; 128],
            argument: [0; 128],
            flags: 0,
            commit_id,
            payload_len: length,
            padding: 0,
            reserved: 0,
        };
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        self.bytes()[..size_of::<Headers>()].copy_from_slice(headers.as_bytes());
        self.push(COMMIT_AND_FETCH)
    }

    fn bytes(&mut self) -> &mut [u8] {
        debug_assert!(!self.lent, "the memory is the kernel's");
        // SAFETY: the allocation has this many initialised bytes and belongs to this process, as no
        // command is outstanding.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), PAGES * PAGE) }
    }

    fn completed(&mut self) -> Option<i32> {
        let result = self.ring.completion().next()?.result();
        self.lent = false;
        Some(result)
    }

    fn push(&mut self, operation: u32) -> io::Result<()> {
        let (flags, padding) = (0, [0; 6]);
        let command = RingCommand { flags, commit_id: self.commit_id, queue: self.queue, padding };
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let address =
            if operation == REGISTER { Some(self.buffers.as_ptr().addr() as u64) } else { None };
        let mut entry =
            opcode::UringCmd80::new(types::Fixed(0), operation).cmd(bytes).addr(address).build();
        if operation == REGISTER {
            set_length(&mut entry, self.buffers.len() as u32);
        }
        // SAFETY: everything that the command points to lives as long as the entry, and the entry
        // keeps it until the completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // Only one command is outstanding at a time.
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.lent = true;
        Ok(())
    }
}

/// Results of a command after the end of the connection.
fn is_end(errno: i32) -> bool {
    matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED)
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        // Leak memory that the kernel may still write to.
        if !self.lent {
            // SAFETY: the memory came from a box, and nothing else refers to it.
            drop(unsafe { Box::from_raw(self.allocation.as_ptr()) });
        }
    }
}

/// Sets `len` of a submission queue entry, for which the crate has no method in this operation.
fn set_length(entry: &mut squeue::Entry128, length: u32) {
    const OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: the type is the kernel's structure of 128 bytes, in which the field is at this offset
    // and aligned.
    unsafe { std::ptr::from_mut(entry).byte_add(OFFSET).cast::<u32>().write(length) }
}
