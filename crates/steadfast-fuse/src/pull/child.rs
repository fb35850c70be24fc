//! The helper process itself.
//!
//! It is forked from a process with many threads. So between fork and exit it may only call
//! async-signal-safe functions: no allocation, no locks, no panic. A [`Plan`] holds all that it
//! needs, prepared before the fork.
#![allow(unsafe_code)]

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::look::Look;
use crate::filesystem::recall::RecalledNode;

/// Node id that makes the helper end.
const QUIT: u64 = 0;
/// Numbers of the descriptors in the helper.
const SOCKET: RawFd = 3;
const ABORT: RawFd = 4;

/// What the helper is asked about a node. Node id [`QUIT`] makes it end.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Question {
    pub(super) node: RecalledNode,
    pub(super) what: u64,
}

/// Have the kernel take the attributes, see [`Look`].
pub(super) const LOOK: u64 = 1;
/// The same, unless the size is larger than the one that the kernel has.
pub(super) const LOOK_UNLESS_LARGER: u64 = 2;
/// Write back the dirty pages.
pub(super) const WRITE_BACK: u64 = 3;

/// All data that the helper needs.
pub(super) struct Plan {
    /// Path of the mount point, the secret, 16 bytes for the node id and a NUL byte.
    path: Vec<u8>,
    digits_at: usize,
    socket: RawFd,
    abort_file: Option<RawFd>,
    look: Look,
    parent: libc::pid_t,
}

impl Plan {
    pub(super) fn new(
        path_prefix: Vec<u8>,
        socket: RawFd,
        abort_file: Option<RawFd>,
        look: Look,
    ) -> Plan {
        let mut path = path_prefix;
        let digits_at = path.len();
        path.extend_from_slice(&[b'0'; super::DIGITS]);
        path.push(0);
        // SAFETY: getpid has no preconditions.
        let parent = unsafe { libc::getpid() };
        Plan { path, digits_at, socket, abort_file, look, parent }
    }

    /// Forks. Returns the helper's process id in the daemon, and never returns in the helper.
    pub(super) fn fork(mut self) -> io::Result<libc::pid_t> {
        // SAFETY: the child runs `run`, which only makes async-signal-safe calls and ends in _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => self.run(),
            pid => Ok(pid),
        }
    }

    fn run(&mut self) -> ! {
        // SAFETY: system calls that only use descriptors and memory of this process; see the
        // module's documentation.
        unsafe {
            let signals = self.prepare();
            let mut set = [
                libc::pollfd { fd: SOCKET, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: -1, events: libc::POLLPRI, revents: 0 },
            ];
            loop {
                set[2].fd = self.look.table;
                if libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) < 0 {
                    continue;
                }
                // The daemon is dying. Its other threads may wait for the kernel, and the kernel
                // for them.
                if set[1].revents != 0 {
                    abort_and_exit();
                }
                if set[2].revents != 0 {
                    self.look.mounts_changed();
                }
                if set[0].revents == 0 {
                    continue;
                }
                let mut question = Question { node: RecalledNode::stale(QUIT), what: 0 };
                let size = size_of::<Question>();
                if libc::read(SOCKET, (&raw mut question).cast(), size) != size as isize {
                    abort_and_exit();
                }
                if question.node.nodeid == QUIT {
                    libc::_exit(0);
                }
                let answer = match question.what {
                    LOOK => self.look.look_at(question.node, true),
                    LOOK_UNLESS_LARGER => self.look.look_at(question.node, false),
                    _ => self.write_back(question.node.nodeid),
                };
                libc::write(SOCKET, (&raw const answer).cast(), 4);
            }
        }
    }

    /// Closes all other inherited descriptors and blocks all signals. Returns the descriptor that
    /// becomes readable when the daemon dies.
    ///
    /// # Safety
    /// Only in the forked child.
    unsafe fn prepare(&self) -> RawFd {
        // SAFETY: plain system calls with valid arguments; failures leave the helper useless but
        // harmless.
        unsafe {
            // First move the descriptors away from the fixed numbers: fcntl returns no descriptor
            // below its argument.
            let socket = libc::fcntl(self.socket, libc::F_DUPFD, 16);
            let abort_file =
                self.abort_file.map_or(-1, |file| libc::fcntl(file, libc::F_DUPFD, 16));
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            for descriptor in 0..3 {
                libc::dup2(null, descriptor);
            }
            libc::dup2(socket, SOCKET);
            if abort_file < 0 || libc::dup2(abort_file, ABORT) < 0 {
                libc::close(ABORT);
            }
            close_from(ABORT + 1);
            libc::chdir(c"/".as_ptr());
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
            let mut death: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut death);
            libc::sigaddset(&raw mut death, libc::SIGUSR1);
            let signals = libc::signalfd(-1, &raw const death, libc::SFD_CLOEXEC);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1);
            // The daemon may have died before the watch began.
            if libc::getppid() != self.parent {
                abort_and_exit();
            }
            signals
        }
    }

    /// Writes back the dirty pages of a file. Returns 0 or an errno.
    ///
    /// # Safety
    /// Only in the forked child.
    unsafe fn write_back(&mut self, nodeid: u64) -> i32 {
        let mut rest = nodeid;
        for byte in self.path.iter_mut().skip(self.digits_at).take(super::DIGITS).rev() {
            let digit = (rest & 0xf) as u8;
            *byte = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            rest >>= 4;
        }
        // SAFETY: the path ends with a NUL byte; the descriptor is closed again.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
            let file = libc::open(self.path.as_ptr().cast(), flags);
            if file < 0 {
                // Replace error numbers that `pull` would take for a failed write.
                return match *libc::__errno_location() {
                    libc::EIO | libc::ENOSPC | libc::EFBIG | libc::EROFS => libc::EAGAIN,
                    errno => errno,
                };
            }
            let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            let result = libc::sync_file_range(file, 0, 0, all);
            let errno = if result == 0 { 0 } else { *libc::__errno_location() };
            libc::close(file);
            errno
        }
    }
}

/// # Safety
/// Only in the forked child.
unsafe fn close_from(first: RawFd) {
    // SAFETY: closing descriptors of this process, none of which is used again.
    unsafe {
        if libc::syscall(
            libc::SYS_close_range,
            first as libc::c_uint,
            libc::c_uint::MAX,
            0 as libc::c_uint,
        ) != 0
        {
            for descriptor in first..4096 {
                libc::close(descriptor);
            }
        }
    }
}

/// # Safety
/// Only in the forked child.
unsafe fn abort_and_exit() -> ! {
    // SAFETY: writes to a descriptor and exits; if the descriptor is closed, the write fails
    // without harm.
    unsafe {
        libc::write(ABORT, c"1".as_ptr().cast(), 1);
        libc::_exit(0)
    }
}

/// Makes the helper end, and waits for it.
pub(super) fn quit(mut socket: UnixStream, pid: libc::pid_t) {
    let _ = socket.write_all(Question { node: RecalledNode::stale(QUIT), what: 0 }.as_bytes());
    loop {
        let mut status = 0;
        // SAFETY: waits for a child of this process; the status is a live integer.
        let result = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if result != -1 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}
