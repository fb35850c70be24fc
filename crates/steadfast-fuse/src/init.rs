//! The first request: both sides agree on the version and the features.

use std::io;

use zerocopy::IntoBytes;

use crate::abi::flags::init as flag;
use crate::abi::input::{InHeader, InitExtension, InitIn};
use crate::abi::output::InitOut;
use crate::abi::{MAJOR, MINOR, MINOR_EPOCH, MINOR_MIN, opcode};
use crate::buffer::{DATA_MAX, RequestBuffer};
use crate::device::{FuseDevice, Received};
use crate::errno::Errno;
use crate::log::log_warning;
use crate::request::Request;
use crate::ring::Rings;
use crate::{IoUring, MountOptions};

/// The module parameter with which root allows FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Largest number of the kernel's background requests (read-ahead, write-back, direct I/O) under
/// way.
const BACKGROUND_MAX: u16 = 64;

/// The agreed version and features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreement {
    pub(crate) minor: u32,
    flags: u64,
    /// As asked for: see [`MountOptions::root`].
    pub(crate) root: bool,
}

impl Agreement {
    /// What a peer's kernel has agreed on, as the peer reports it.
    pub(crate) fn of_peer(minor: u32, flags: u64) -> Agreement {
        Agreement { minor, flags: flags & !flag::WRITEBACK_CACHE, root: false }
    }

    /// The agreed features, for [`of_peer`](Self::of_peer).
    pub(crate) fn flags(&self) -> u64 {
        self.flags
    }

    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whether buffered writes stay in the kernel's cache until write-back.
    pub(crate) fn write_back(&self) -> bool {
        self.has(flag::WRITEBACK_CACHE)
    }

    /// Whether requests arrive over io_uring, unless the kernel has refused it since.
    pub(crate) fn over_io_uring(&self) -> bool {
        self.has(flag::OVER_IO_URING)
    }

    /// Whether a read from the kernel's pages begins with a look at the attributes, unless it may
    /// keep them.
    pub(crate) fn looks_before_reads(&self) -> bool {
        self.has(flag::AUTO_INVAL_DATA)
    }

    /// Whether SETXATTR has flags of its own.
    pub(crate) fn setxattr_extended(&self) -> bool {
        self.has(flag::SETXATTR_EXT)
    }

    /// Whether all directory entries can be expired at once.
    pub(crate) fn epochs(&self) -> bool {
        self.minor >= MINOR_EPOCH
    }
}

/// The features that the daemon requests.
///
/// ASYNC_DIO is not among them. With it the kernel does not drop its cached pages after an
/// asynchronous direct write. Pages that a reader has loaded in the meantime then stay and are
/// read. The next store into such a page writes its stale data back to the volume. Without
/// ASYNC_DIO the kernel waits for each direct write and drops the pages after it (decision 0034).
fn wanted(options: &MountOptions) -> u64 {
    let mut flags = flag::ASYNC_READ
        | flag::ATOMIC_O_TRUNC
        | flag::EXPORT_SUPPORT
        | flag::BIG_WRITES
        | flag::DONT_MASK
        | flag::HAS_IOCTL_DIR
        | flag::DO_READDIRPLUS
        | flag::READDIRPLUS_AUTO
        | flag::PARALLEL_DIROPS
        | flag::ABORT_ERROR
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::EXPLICIT_INVAL_DATA
        | flag::HANDLE_KILLPRIV_V2
        | flag::SETXATTR_EXT
        | flag::INIT_EXT;
    if options.several_kernels {
        // Nothing is cached, so attributes of many names at once serve nothing.
        flags &= !(flag::CACHE_SYMLINKS | flag::DO_READDIRPLUS | flag::READDIRPLUS_AUTO);
        flags |= flag::POSIX_LOCKS | flag::FLOCK_LOCKS | flag::DIRECT_IO_ALLOW_MMAP;
        if options.delegations {
            flags = flags & !flag::EXPLICIT_INVAL_DATA | flag::AUTO_INVAL_DATA;
        }
    } else if options.write_back {
        flags |= flag::WRITEBACK_CACHE;
    }
    // With ACLs the kernel checks permissions itself, regardless of the mount options.
    if options.default_permissions {
        flags |= flag::POSIX_ACL;
    }
    flags
}

/// Answers INIT. Before that, creates the rings if requests shall arrive over io_uring.
///
/// # Errors
/// The kernel's protocol is too old, the mount was removed immediately, or io_uring is required and
/// unavailable.
pub(crate) fn handshake(
    device: &FuseDevice,
    options: &MountOptions,
) -> io::Result<(Agreement, Option<Rings>)> {
    let mut buffer = RequestBuffer::new()?;
    loop {
        let bytes = buffer.bytes();
        let length = match device.receive(bytes)? {
            Received::Request(length) => length,
            Received::Unmounted => {
                return Err(io::Error::other("the file system was unmounted at once"));
            }
        };
        let request = Request::parse(&bytes[..length])
            .filter(|request| request.header.opcode == opcode::INIT)
            .ok_or_else(|| io::Error::other("the kernel's first request is not INIT"))?;
        let refuse = |_| io::Error::other("the kernel's INIT request is too short");
        let mut arguments = request.arguments();
        let init = arguments.take::<InitIn>().map_err(refuse)?;
        if init.major > MAJOR {
            // The kernel repeats INIT with this major version.
            let out = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
            answer(device, &request.header, &out)?;
            continue;
        }
        if init.major < MAJOR || init.minor < MINOR_MIN {
            device.answer(request.header.unique, Err(Errno(libc::EPROTO)))?;
            return Err(io::Error::other(format!(
                "the kernel speaks version {}.{} of the FUSE protocol, at least {MAJOR}.{MINOR_MIN} (Linux 5.4) is needed",
                init.major, init.minor
            )));
        }
        let mut offered = u64::from(init.flags);
        if offered & flag::INIT_EXT != 0 {
            let extension = arguments.take::<InitExtension>().map_err(refuse)?;
            offered |= u64::from(extension.flags2) << 32;
        }
        let minor = init.minor.min(MINOR).min(options.protocol_minor_max.max(MINOR_MIN));
        let io_uring = if options.several_kernels { IoUring::Off } else { options.io_uring };
        let rings = rings(device, io_uring, offered & flag::OVER_IO_URING != 0);
        let rings = match rings {
            Ok(rings) => rings,
            Err(error) => {
                device.answer(request.header.unique, Err(Errno(libc::EPROTO)))?;
                return Err(error);
            }
        };
        let mut flags = wanted(options);
        if rings.is_some() {
            flags |= flag::OVER_IO_URING;
        }
        let agreement = Agreement { minor, flags: offered & flags, root: options.root };
        let out = InitOut {
            major: MAJOR,
            minor,
            max_readahead: init.max_readahead.min(DATA_MAX as u32),
            flags: agreement.flags as u32,
            flags2: (agreement.flags >> 32) as u32,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
            max_write: DATA_MAX as u32,
            time_gran: 1,
            max_pages: (DATA_MAX / 4096) as u16,
            ..InitOut::default()
        };
        answer(device, &request.header, &out)?;
        return Ok((agreement, rings));
    }
}

/// The rings for requests over io_uring, if they are wanted and available.
fn rings(device: &FuseDevice, wanted: IoUring, offered: bool) -> io::Result<Option<Rings>> {
    match (wanted, offered) {
        (IoUring::Off, _) | (IoUring::Auto, false) => return Ok(None),
        (IoUring::On, false) => {
            return Err(io::Error::other(format!(
                "the kernel does not offer FUSE over io_uring: it takes Linux 6.14, and Y in {PARAMETER}"
            )));
        }
        (IoUring::On | IoUring::Auto, true) => {}
    }
    match Rings::new(device, wanted == IoUring::On) {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if wanted == IoUring::Auto => {
            log_warning!("no io_uring here ({error}); requests come over /dev/fuse");
            Ok(None)
        }
        Err(error) => Err(io::Error::other(format!("no io_uring here: {error}"))),
    }
}

fn answer(device: &FuseDevice, header: &InHeader, out: &InitOut) -> io::Result<()> {
    device.answer(header.unique, Ok(out.as_bytes()))
}
