//! Large reads and writes that bypass the host's page cache, beside other requests that use it.
//!
//! The kernel already caches a mount's file data. The page cache of the device would copy and keep
//! the data a second time. So a large read of uncached data goes directly from the device to the
//! caller's memory, over a second descriptor with O_DIRECT. Writes use the page cache, so that the
//! device works on them while the next request arrives, except for the long runs of
//! [`behind`](super::behind).
//!
//! Correctness does not depend on the choice: Linux writes back the dirty pages of a range before
//! it reads the range directly. So both ways return the same data. Small, unaligned or cached
//! requests, and requests that the host refuses, use the page cache. No read fails because it is
//! large.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::transfer;

/// Reads of at least this many bytes are large. Smaller reads benefit from the read-ahead of the
/// page cache.
pub(super) const LARGE: usize = 256 << 10;

/// Number of cachestat(2), the same on all architectures with system call numbers from 0.
const CACHESTAT: libc::c_long = 451;

/// Direct access to a file or device.
pub(super) struct Large {
    file: File,
    /// Alignment of memory addresses.
    memory_alignment: usize,
    /// Alignment of offsets and lengths.
    length_alignment: usize,
    /// Cleared permanently if the host refuses direct access or cannot report cached pages (before
    /// Linux 6.5).
    usable: AtomicBool,
}

impl Large {
    /// Opens a second descriptor of `file`; `None` if the host has no direct I/O for it.
    pub(super) fn open(
        file: &File,
        writable: bool,
        memory_alignment: usize,
        length_alignment: usize,
    ) -> Option<Self> {
        // Opens by descriptor, because the name may belong to another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .ok()?;
        Some(Large { file, memory_alignment, length_alignment, usable: AtomicBool::new(true) })
    }

    fn is_aligned<'a>(&self, offset: u64, mut buffers: impl Iterator<Item = &'a [u8]>) -> bool {
        offset.is_multiple_of(self.length_alignment as u64)
            && buffers.all(|buffer| {
                buffer.len().is_multiple_of(self.length_alignment)
                    && buffer.as_ptr().addr().is_multiple_of(self.memory_alignment)
            })
    }

    /// Fills a buffer from `cached`, the file of which this is another descriptor. `None`: the
    /// caller has to use the page cache.
    pub(super) fn read(
        &self,
        cached: &File,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<Result<(), Errno>> {
        if buffer.len() < LARGE
            || !self.usable.load(Ordering::Relaxed)
            || !self.is_aligned(offset, std::iter::once(&*buffer))
        {
            return None;
        }
        let result = match CacheUse::of(cached, offset, buffer.len() as u64) {
            Ok(cached) if cached.serves(buffer.len() as u64) => return None,
            Ok(_) => transfer::read(&self.file, None, offset, &mut [buffer]),
            Err(errno) => Err(errno),
        };
        match result {
            Err(errno) => {
                self.failed(errno);
                None
            }
            Ok(()) => Some(Ok(())),
        }
    }

    /// Reads the present contents of the device; `false` if the host refuses.
    pub(super) fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let alignment = (self.length_alignment as u64).max(1);
        let start = offset - offset % alignment;
        let skip = (offset - start) as usize;
        let length = (skip + buffer.len()).next_multiple_of(alignment as usize);
        let mut memory = vec![0_u8; length + self.memory_alignment];
        let from = memory.as_ptr().addr().wrapping_neg() % self.memory_alignment.max(1);
        let aligned = &mut memory[from..from + length];
        let read = transfer::read(&self.file, None, start, &mut [aligned]);
        if read.is_ok() {
            buffer.copy_from_slice(&memory[from + skip..][..buffer.len()]);
        }
        read.is_ok()
    }

    /// Whether [`write`](Self::write) may succeed.
    pub(super) fn takes(&self, offset: u64, buffers: &[&[u8]]) -> bool {
        self.usable.load(Ordering::Relaxed) && self.is_aligned(offset, buffers.iter().copied())
    }

    /// Writes adjacent buffers and leaves none of their data in the page cache. `false`: the caller
    /// has to use the page cache.
    pub(super) fn write(&self, offset: u64, buffers: &[&[u8]]) -> bool {
        if !self.takes(offset, buffers) {
            return false;
        }
        let result = transfer::write(&self.file, None, offset, buffers, ReadWriteFlags::empty());
        result.map_err(|errno| self.failed(errno)).is_ok()
    }

    /// A host may accept O_DIRECT at open and refuse only the request. After any other error the
    /// page cache may still work.
    fn failed(&self, errno: Errno) {
        if matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) {
            self.usable.store(false, Ordering::Relaxed);
        }
    }
}

/// Pages of a range in the page cache: the answer of cachestat(2).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct CacheUse {
    cached: u64,
    dirty: u64,
    under_way: u64,
    evicted: u64,
    recently_evicted: u64,
}

impl CacheUse {
    /// # Errors
    /// NOSYS before Linux 6.5, PERM, OPNOTSUPP.
    fn of(file: &File, offset: u64, length: u64) -> Result<CacheUse, Errno> {
        let range = [offset, length];
        let mut found = CacheUse::default();
        // SAFETY: cachestat(2) reads two u64 (offset and length) at its second argument. It writes
        // five u64 at the third, which `CacheUse` has in this order.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut found, 0)
        };
        if result == 0 {
            return Ok(found);
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
    }

    /// Whether to use the page cache: it holds half of the range, or data that the device does not
    /// have yet.
    fn serves(self, length: u64) -> bool {
        let page = rustix::param::page_size() as u64;
        self.dirty > 0 || self.under_way > 0 || self.cached * 2 * page >= length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(4 * LARGE as u64).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn start_of(data: &[u8]) -> usize {
        data.as_ptr().addr().wrapping_neg() % 4096
    }

    #[test]
    fn what_is_small_or_not_aligned_goes_the_other_way() {
        let file = file();
        let Some(large) = Large::open(&file, false, 4096, 4096) else { return };
        let mut data = vec![1; 2 * LARGE];
        let start = start_of(&data);
        for (offset, from, length) in
            [(0, 0, LARGE - 4096), (512, 0, LARGE), (0, 1, LARGE), (0, 0, LARGE + 512)]
        {
            let buffer = &mut data[start + from..][..length];
            assert!(large.read(&file, offset, buffer).is_none(), "{offset} {from} {length}");
        }
        assert!(data.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_host_that_refuses_is_not_asked_again() {
        let file = file();
        // The file claims that any address is allowed, which is wrong: EINVAL.
        let Some(large) = Large::open(&file, false, 1, 512) else { return };
        let mut data = vec![1; 2 * LARGE];
        let start = start_of(&data);
        let refused = large.read(&file, 0, &mut data[start + 1..][..LARGE]).is_none();
        if refused {
            assert!(large.read(&file, 0, &mut data[start..][..LARGE]).is_none());
        }
    }

    #[test]
    fn what_is_cached_or_not_on_the_device_yet_is_read_from_the_page_cache() {
        let length = 8 * 4096;
        let holding =
            |cached, dirty, under_way| CacheUse { cached, dirty, under_way, ..CacheUse::default() };
        let page = rustix::param::page_size() as u64;
        assert!(!holding(0, 0, 0).serves(length));
        assert!(!holding(length / page / 2 - 1, 0, 0).serves(length));
        assert!(holding(length / page / 2, 0, 0).serves(length));
        assert!(holding(1, 1, 0).serves(length) && holding(1, 0, 1).serves(length));
    }
}
