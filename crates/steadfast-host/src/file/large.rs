//! Large reads past the page cache of the host, beside everything else that goes through it.
//!
//! A mount reads file data that the kernel caches above it: in the page cache of the device it
//! would be copied and kept once more. So a large read of what is not there yet goes straight from
//! the device to the caller's memory, over a second descriptor with O_DIRECT. Writes stay with the
//! page cache, which lets the device work on them while the next one is on its way.
//!
//! Nothing depends on it: Linux writes dirty pages of a range back before it reads that straight,
//! so both ways see the same. What is small or not aligned, what is cached, and what the host
//! refuses goes through the page cache: no read fails for being large.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::transfer;

/// Reads of this many bytes and more are large. Smaller ones gain from the read-ahead of the page
/// cache.
pub(super) const LARGE: usize = 256 << 10;

/// Number of cachestat(2), the same on every architecture that numbers from 0.
const CACHESTAT: libc::c_long = 451;

/// The straight way from a file or device.
pub(super) struct Large {
    file: File,
    /// Memory starts at a multiple of this.
    memory_alignment: usize,
    /// Offsets and lengths are multiples of this.
    length_alignment: usize,
    /// Cleared for good by a host that refuses, or cannot tell what is cached (before Linux 6.5).
    usable: AtomicBool,
}

impl Large {
    /// A second descriptor of what `file` is; `None` where the host has no direct I/O for it.
    pub(super) fn open(
        file: &File,
        writable: bool,
        memory_alignment: usize,
        length_alignment: usize,
    ) -> Option<Self> {
        // By its descriptor: the name may have changed hands.
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

    /// Fills a buffer of `cached`, the file that this is another descriptor of; `None` where that
    /// has to be asked.
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

    /// Reads what the device has at this moment; `false` where the host refuses.
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

    /// Writes buffers, one behind the other, with nothing of them in the page cache afterwards;
    /// `false` where that has to take them.
    pub(super) fn write(&self, offset: u64, buffers: &[&[u8]]) -> bool {
        if !self.usable.load(Ordering::Relaxed) || !self.is_aligned(offset, buffers.iter().copied())
        {
            return false;
        }
        let result = transfer::write(&self.file, None, offset, buffers, ReadWriteFlags::empty());
        result.map_err(|errno| self.failed(errno)).is_ok()
    }

    /// A host may open with O_DIRECT and say only now that it cannot. What else fails may yet be
    /// had the other way.
    fn failed(&self, errno: Errno) {
        if matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) {
            self.usable.store(false, Ordering::Relaxed);
        }
    }
}

/// What the page cache holds of a range: the answer of cachestat(2), in pages.
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
        // SAFETY: cachestat(2) reads two u64 (offset and length) at its second argument and writes
        // five at the third, which `CacheUse` has in this order.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut found, 0)
        };
        if result == 0 {
            return Ok(found);
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
    }

    /// Whether the page cache is asked: it holds half of the range, or something that the device
    /// does not have yet.
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
        // It says that any address will do, which is not true: EINVAL.
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
