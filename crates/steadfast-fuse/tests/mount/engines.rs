//! Asynchronous I/O of Linux: libaio's system calls and io_uring. Each request transfers a part of
//! a buffer, and all requests run at the same time.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

/// Number of concurrent requests.
const DEPTH: usize = 16;

/// Memory at a page boundary, as direct I/O of most file systems requires.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: usize) -> Buffer {
        let memory = vec![0; length + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Buffer { memory, start, length }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Direction {
    Read,
    Write,
}

/// The parts of a transfer: address, length, offset in the file. Parts end at multiples of `size`
/// in the file.
fn parts(
    memory: *mut u8,
    length: usize,
    offset: usize,
    size: usize,
) -> Vec<(*mut u8, usize, usize)> {
    let mut done = 0;
    let mut parts = Vec::new();
    while done < length {
        let part = (size - (offset + done) % size).min(length - done);
        parts.push((memory.wrapping_add(done), part, offset + done));
        done += part;
    }
    parts
}

fn whole(result: i64, length: usize) -> io::Result<()> {
    match result {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error as i32)),
        done if done as usize == length => Ok(()),
        done => Err(io::Error::other(format!("{done} of {length} bytes"))),
    }
}

/// `struct iocb` of linux/aio_abi.h on little-endian machines.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    result2: i64,
}

/// An interface that has several transfers under way at once.
pub trait Transfers {
    /// Makes all transfers and waits for them: of each, memory, length, and offset in the file.
    fn transfer(
        &mut self,
        file: &File,
        direction: Direction,
        parts: &[(*mut u8, usize, usize)],
    ) -> io::Result<()>;

    fn write(&mut self, file: &File, data: &[u8], offset: usize, part: usize) -> io::Result<()> {
        self.transfer(
            file,
            Direction::Write,
            &parts(data.as_ptr().cast_mut(), data.len(), offset, part),
        )
    }

    fn read(&mut self, file: &File, data: &mut [u8], offset: usize, part: usize) -> io::Result<()> {
        self.transfer(file, Direction::Read, &parts(data.as_mut_ptr(), data.len(), offset, part))
    }
}

/// A context of libaio.
pub struct Aio(libc::c_ulong);

impl Aio {
    pub fn new() -> io::Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: a live integer that is zero, as io_setup requires.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Aio(context)) }
    }
}

impl Transfers for Aio {
    fn transfer(
        &mut self,
        file: &File,
        direction: Direction,
        parts: &[(*mut u8, usize, usize)],
    ) -> io::Result<()> {
        assert!(parts.len() <= DEPTH);
        let mut controls: Vec<Control> = parts
            .iter()
            .map(|(memory, length, offset)| Control {
                data: *length as u64,
                opcode: u16::from(direction == Direction::Write),
                descriptor: file.as_raw_fd() as u32,
                buffer: *memory as u64,
                length: *length as u64,
                offset: *offset as i64,
                ..Control::default()
            })
            .collect();
        let mut pointers: Vec<*mut Control> =
            controls.iter_mut().map(|control| &raw mut *control).collect();
        let mut events = vec![Event::default(); parts.len()];
        // SAFETY: the context belongs to this object. The controls and the memory that they name
        // live until the last event, which is awaited.
        let submitted = unsafe {
            libc::syscall(libc::SYS_io_submit, self.0, pointers.len(), pointers.as_mut_ptr())
        };
        if submitted <= 0 {
            return Err(io::Error::last_os_error());
        }
        let mut ended = 0;
        while ended < submitted as usize {
            let left = &mut events[ended..submitted as usize];
            // SAFETY: the context belongs to this object, and there is room for this many events.
            let more = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    left.len(),
                    left.len(),
                    left.as_mut_ptr(),
                    std::ptr::null_mut::<libc::timespec>(),
                )
            };
            let error = io::Error::last_os_error();
            // Work of io_uring for this thread ends the wait, and so does a suspended machine.
            let interrupted = more < 0 && error.kind() == io::ErrorKind::Interrupted;
            assert!(more > 0 || interrupted, "io_getevents: {more}, {error}");
            ended += more.max(0) as usize;
        }
        assert_eq!(submitted as usize, parts.len(), "io_submit took a part of it");
        events.iter().try_for_each(|event| whole(event.result, event.data as usize))
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context belongs to this object and is not used again.
        unsafe {
            libc::syscall(libc::SYS_io_destroy, self.0);
        }
    }
}

/// Whether this process may use io_uring; prints the reason if not.
pub fn can_ring() -> bool {
    Ring::new().inspect_err(|error| eprintln!("SKIPPED: no io_uring here: {error}")).is_ok()
}

/// A ring of io_uring.
pub struct Ring(IoUring);

impl Ring {
    pub fn new() -> io::Result<Ring> {
        IoUring::new(DEPTH as u32).map(Ring)
    }
}

impl Transfers for Ring {
    fn transfer(
        &mut self,
        file: &File,
        direction: Direction,
        parts: &[(*mut u8, usize, usize)],
    ) -> io::Result<()> {
        assert!(parts.len() <= DEPTH);
        let descriptor = types::Fd(file.as_raw_fd());
        for (memory, length, offset) in parts {
            let entry = match direction {
                Direction::Read => opcode::Read::new(descriptor, *memory, *length as u32)
                    .offset(*offset as u64)
                    .build(),
                Direction::Write => opcode::Write::new(descriptor, *memory, *length as u32)
                    .offset(*offset as u64)
                    .build(),
            };
            // SAFETY: the memory and the file live until the last completion, which is awaited
            // below.
            unsafe { self.0.submission().push(&entry.user_data(*length as u64)) }
                .map_err(io::Error::other)?;
        }
        let mut left = parts.len();
        let mut result = Ok(());
        while left > 0 {
            match self.0.submit_and_wait(left) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other.expect("io_uring_enter")),
            }
            for completion in self.0.completion() {
                left -= 1;
                result =
                    result.and(whole(completion.result().into(), completion.user_data() as usize));
            }
        }
        result
    }
}
