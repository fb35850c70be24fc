//! [`FileMedium`].

use std::fmt;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags};
use steadfast_media::{
    ErrorClass, Geometry, Medium, MediumCounters, MediumError, MediumOperation, Temperature,
    WaitHook,
};

use super::apart::Entered;
use super::behind::Behind;
use super::device;
use super::error::{OpenError, medium_error};
use super::large::Large;
use super::open::{FileOptions, OpenFile, create, open};
use super::tally::Tally;
use super::transfer::{self, Direct};

/// An image file or a block device.
///
/// All requests are positional and may run in parallel. A flush is fdatasync, a FUA write is a
/// write with `RWF_DSYNC`, and a discard punches a hole or trims the device. The size is that at
/// opening, or that of the last [`set_size`](Medium::set_size).
///
/// # Atomic unit
///
/// - Regular file: 512 bytes, because no disk writes less than a sector at once.
/// - Regular file with direct I/O: the alignment of direct I/O, at least 512 bytes, because the
///   kernel requires it.
/// - Block device: its physical block, at most 64 KiB. The device writes a part of a physical block
///   by reading and rewriting the whole block. So a power cut may damage the other data in it.
///
/// [`FileOptions::atomic_unit`] declares a smaller unit: down to 1 on files, to the alignment with
/// direct I/O, and to the logical block on devices. On files a smaller unit is always sound,
/// because tears between smaller units include all tears between sectors. Volumes with blocks of
/// 128 or 256 bytes use this in image files. On devices it gives up the protection of data that
/// shares a physical block.
///
/// # One owner
///
/// A file is locked (exclusively, or shared if read-only), and a block device is claimed. A second
/// owner gets [`OpenError::InUse`] or [`OpenError::DeviceInUse`]. Two hard links, or a bind mount,
/// are the same file. A loop device and its file are also the same, even below partitions and
/// mapped devices ([`OpenError::InUseBelow`]).
///
/// # Errors
///
/// After one failed flush all further flushes fail. The kernel forgets which pages it could not
/// write, so a second flush would report success for lost data. The same holds for FUA writes,
/// which share this state.
pub struct FileMedium {
    path: PathBuf,
    file: File,
    block_device: bool,
    /// All of the geometry except the size.
    units: Geometry,
    size: AtomicU64,
    direct: Option<Direct>,
    large: Option<Arc<Large>>,
    behind: Option<Behind>,
    read_only: bool,
    /// Errno of the failed flush; 0 if none has failed.
    flush_failed: AtomicI32,
    /// The file or device does not support the request.
    fua_unsupported: AtomicBool,
    discard_unsupported: AtomicBool,
    tally: Tally,
    /// Called before a read waits for the device.
    before_waits: OnceLock<WaitHook>,
    /// Locks the files below the device. Released before the claim, which other openers wait for.
    _below: Vec<File>,
    /// Claims the block device while it exists.
    claim: RwLock<Option<File>>,
}

impl FileMedium {
    /// Opens a regular file or a block device.
    ///
    /// # Errors
    /// [`OpenError`], each a one-line message.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        Ok(Self::new(path, open(path, options)?, options))
    }

    /// Creates a sparse file of `size` bytes that reads as zeros, durably, and opens it.
    ///
    /// # Errors
    /// [`OpenError::AlreadyExists`] and others; then no file is left behind.
    pub fn create(
        path: impl AsRef<Path>,
        size: u64,
        options: &FileOptions,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        Ok(Self::new(path, create(path, size, options)?, options))
    }

    fn new(path: &Path, opened: OpenFile, options: &FileOptions) -> Self {
        let OpenFile { file, block_device, geometry, direct, large, behind, claim, below } = opened;
        FileMedium {
            path: path.to_owned(),
            file,
            block_device,
            units: geometry,
            size: AtomicU64::new(geometry.size),
            direct,
            large,
            behind,
            read_only: options.read_only,
            flush_failed: AtomicI32::new(0),
            fua_unsupported: AtomicBool::new(false),
            discard_unsupported: AtomicBool::new(false),
            tally: Tally::default(),
            before_waits: OnceLock::new(),
            claim: RwLock::new(claim),
            _below: below,
        }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device, not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Releases the claim on a block device, so that the kernel can mount that device (`fuseblk`)
    /// and exclude others itself. Afterwards discards are ignored, because the kernel accepts them
    /// only from the owner. Does nothing for files.
    pub fn release_claim(&self) {
        drop(self.claim.write().take());
    }

    fn check(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        if !self.geometry().admits(offset, length) {
            return Err(medium_error(operation, offset, length, Errno::INVAL));
        }
        if self.read_only && operation != MediumOperation::Read {
            return Err(medium_error(operation, offset, length, Errno::ROFS));
        }
        Ok(())
    }

    fn write_buffers(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let length = total(buffers.iter().map(|buffer| buffer.len()));
        self.check(MediumOperation::Write, offset, length)?;
        // Hot data stays in the page cache of the device: it is rewritten soon, and nodes are read
        // again.
        if let (Some(behind), Temperature::Cold) = (&self.behind, temperature)
            && behind.take(offset, buffers, length as usize)
        {
            return self.tally.write(length, Ok(()));
        }
        self.wait_for_writes(offset, length);
        let entered = self.enter_cache(offset, length);
        let written = transfer::write(
            &self.file,
            self.direct.as_ref(),
            offset,
            buffers,
            ReadWriteFlags::empty(),
        )
        .map_err(|errno| medium_error(MediumOperation::Write, offset, length, errno));
        drop(entered);
        if written.is_ok() && self.direct.is_none() && length >= BEGIN_AT {
            self.begin_writing(offset, length);
        }
        self.tally.write(length, written)
    }

    /// Starts the write-back of the range now and not at the next flush, so that the device writes
    /// while the next request arrives. This is only advice. Linux expresses it as "pages not
    /// needed"; pages under write-back stay cached.
    fn begin_writing(&self, offset: u64, length: u64) {
        let _ = fadvise(&self.file, offset, NonZeroU64::new(length), Advice::DontNeed);
    }

    /// Keeps a write through the page cache away from direct ones, as long as the result exists.
    fn enter_cache(&self, offset: u64, length: u64) -> Option<Entered<'_>> {
        self.behind.as_ref().map(|behind| behind.enter_cache(offset, length as usize))
    }

    /// Waits until held writes to this range have left, before another request for the range.
    fn wait_for_writes(&self, offset: u64, length: u64) {
        if let Some(behind) = &self.behind {
            behind.wait_for(offset..offset + length);
        }
    }

    /// Reads through the page cache if it is in use. Calls the hook before it waits for the device.
    fn read_buffers(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), Errno> {
        if let Some(about_to_wait) = self.before_waits.get() {
            let cached = match &mut *buffers {
                [buffer] if self.direct.is_none() => {
                    transfer::read_cached(&self.file, offset, buffer)
                }
                _ => false,
            };
            if cached {
                return Ok(());
            }
            about_to_wait();
        }
        transfer::read(&self.file, self.direct.as_ref(), offset, buffers)
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.check_durability(MediumOperation::Flush, 0, 0)?;
        if let Some(Err(errno)) = self.behind.as_ref().map(Behind::wait_for_all) {
            return Err(self.durability_lost(MediumOperation::Flush, 0, 0, errno));
        }
        loop {
            // A change of the size is made durable by the change itself. So only data and its
            // mapping are left.
            match fdatasync(&self.file) {
                // A flush of another thread may have received the kernel's only report of lost
                // data.
                Ok(()) => return self.check_durability(MediumOperation::Flush, 0, 0),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(self.durability_lost(MediumOperation::Flush, 0, 0, errno));
                }
            }
        }
    }

    /// Records that data may be lost, and returns an error that marks retries as useless.
    fn durability_lost(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
        errno: Errno,
    ) -> MediumError {
        // Flushes report the first cause.
        let _ = self.flush_failed.compare_exchange(
            0,
            errno.raw_os_error(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let error = medium_error(operation, offset, length, errno);
        match error.class {
            ErrorClass::Gone | ErrorClass::Full => error,
            _ => MediumError { class: ErrorClass::Permanent, ..error },
        }
    }

    fn check_durability(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        match self.flush_failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            os_error => Err(MediumError {
                operation,
                offset,
                length,
                class: ErrorClass::Permanent,
                os_error,
            }),
        }
    }
}

/// Writes of at least this many bytes [begin](FileMedium::begin_writing) immediately. Smaller ones
/// wait for adjacent writes.
const BEGIN_AT: u64 = 64 << 10;

fn total(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.map(|length| length as u64).sum()
}

/// The errors of kernels and file systems that do not know a request.
fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
}

impl Medium for FileMedium {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size.load(Ordering::Acquire), ..self.units }
    }

    /// Changes the length of a file durably; on a block device it only detects a larger device.
    fn set_size(&self, size: u64) -> Result<(), MediumError> {
        let fail = |errno| medium_error(MediumOperation::Write, size, 0, errno);
        if self.read_only {
            return Err(fail(Errno::ROFS));
        }
        if self.block_device {
            let found = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)).map_err(fail)?;
            self.size.store(found, Ordering::Release);
            return if size <= found { Ok(()) } else { Err(fail(Errno::NXIO)) };
        }
        rustix::fs::ftruncate(&self.file, size).map_err(fail)?;
        rustix::fs::fsync(&self.file).map_err(fail)?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.read_vectored(offset, &mut [buffer])
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.write_buffers(offset, &[data], Temperature::Cold)
    }

    fn flush(&self) -> Result<(), MediumError> {
        if self.read_only {
            return Ok(());
        }
        self.tally.flush(self.sync())
    }

    fn may_be_shared(&self) -> bool {
        !self.read_only
    }

    /// On one machine all users of a file share its page cache. A block device may have another
    /// cache below it, or another machine may write to it. So this read bypasses the device's page
    /// cache.
    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let length = buffer.len() as u64;
        self.check(MediumOperation::Read, offset, length)?;
        if self.block_device && self.direct.is_none() {
            self.wait_for_writes(offset, length);
            if self.large.as_ref().is_some_and(|large| large.read_afresh(offset, buffer)) {
                return self.tally.read(length, Ok(()));
            }
            // The kernel drops whole pages.
            let page = rustix::param::page_size() as u64;
            let start = offset - offset % page;
            let end = (offset + length).next_multiple_of(page);
            let _ = fadvise(&self.file, start, NonZeroU64::new(end - start), Advice::DontNeed);
        }
        self.read(offset, buffer)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.check(MediumOperation::Discard, offset, length)?;
        if length == 0 || self.discard_unsupported.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.wait_for_writes(offset, length);
        let result = if self.block_device {
            // Use the descriptor of the claim: the kernel refuses discards of a claimed device on
            // other descriptors.
            let claim = self.claim.read();
            device::discard(claim.as_ref().unwrap_or(&self.file), offset, length)
        } else {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, punch, offset, length)
        };
        match result {
            // Advice may be ignored, after a signal or because another process has claimed the
            // device.
            Ok(()) | Err(Errno::INTR | Errno::BUSY) => self.tally.discard(Ok(())),
            Err(errno) if unsupported(errno) => {
                self.discard_unsupported.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => self.tally.discard(Err(medium_error(
                MediumOperation::Discard,
                offset,
                length,
                errno,
            ))),
        }
    }

    fn will_read(&self, offset: u64, length: u64) {
        if self.direct.is_none() {
            let _ = fadvise(&self.file, offset, NonZeroU64::new(length), Advice::WillNeed);
        }
    }

    fn before_waits(&self, hook: WaitHook) {
        let _ = self.before_waits.set(hook);
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let length = total(buffers.iter().map(|buffer| buffer.len()));
        self.check(MediumOperation::Read, offset, length)?;
        self.wait_for_writes(offset, length);
        let straight = match (&self.large, &mut *buffers) {
            (Some(large), [buffer]) => large.read(&self.file, offset, buffer),
            _ => None,
        };
        let read = straight.unwrap_or_else(|| self.read_buffers(offset, buffers));
        let read = read.map_err(|errno| medium_error(MediumOperation::Read, offset, length, errno));
        self.tally.read(length, read)
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        self.write_buffers(offset, buffers, Temperature::Cold)
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        self.write_buffers(offset, buffers, temperature)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let length = data.len() as u64;
        self.check(MediumOperation::Write, offset, length)?;
        self.check_durability(MediumOperation::Write, offset, length)?;
        self.wait_for_writes(offset, length);
        if !self.fua_unsupported.load(Ordering::Relaxed) {
            let entered = self.enter_cache(offset, length);
            let written = transfer::write(
                &self.file,
                self.direct.as_ref(),
                offset,
                &[data],
                ReadWriteFlags::DSYNC,
            );
            drop(entered);
            match written {
                Ok(()) => {
                    let result = self.check_durability(MediumOperation::Write, offset, length);
                    return self
                        .tally
                        .write(length, result)
                        .and_then(|()| self.tally.flush(Ok(())));
                }
                Err(errno) if unsupported(errno) => {
                    self.fua_unsupported.store(true, Ordering::Relaxed)
                }
                // It is unknown whether this write failed or the kernel reported an earlier
                // failure.
                Err(errno) => {
                    let lost = self.durability_lost(MediumOperation::Write, offset, length, errno);
                    return self.tally.write(length, Err(lost));
                }
            }
        }
        self.write(offset, data)?;
        self.flush()
    }

    fn counters(&self) -> Option<MediumCounters> {
        Some(self.tally.counters())
    }
}

impl fmt::Debug for FileMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMedium")
            .field("path", &self.path)
            .field("geometry", &self.geometry())
            .field("direct", &self.direct.is_some())
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_fails_once_fails_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let mut medium = FileMedium::create(&path, 1 << 20, &FileOptions::default()).unwrap();
        medium.write_fua(0, &[1; 512]).unwrap();
        // With a read-only descriptor the durable write fails, but a flush succeeds.
        let writable = std::mem::replace(&mut medium.file, File::open(&path).unwrap());
        let error = medium.write_fua(0, &[2; 512]).unwrap_err();
        assert_eq!((error.operation, error.class), (MediumOperation::Write, ErrorClass::Permanent));
        medium.file = writable;
        medium.write(0, &[3; 512]).unwrap();
        let later = medium.flush().unwrap_err();
        assert_eq!((later.operation, later.class), (MediumOperation::Flush, ErrorClass::Permanent));
        assert_eq!(later.os_error, error.os_error);
        assert!(medium.write_fua(0, &[4; 512]).is_err());
        medium.read(0, &mut [0; 512]).unwrap();
    }

    #[test]
    fn requests_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let medium =
            FileMedium::create(directory.path().join("a.img"), 1 << 20, &FileOptions::default())
                .unwrap();
        medium.write_vectored(0, &[&[1; 512], &[2; 1024]]).unwrap();
        medium.read(0, &mut [0; 512]).unwrap();
        medium.flush().unwrap();
        medium.write_fua(0, &[3; 512]).unwrap();
        // The range check refuses it before it counts as a request.
        assert!(medium.read(1 << 20, &mut [0; 512]).is_err());
        let counters = medium.counters().unwrap();
        let expected = MediumCounters {
            reads: 1,
            read_bytes: 512,
            writes: 2,
            written_bytes: 2048,
            flushes: 2,
            discards: 0,
            failures: 0,
        };
        assert_eq!(counters, expected);
    }

    #[test]
    fn lost_durability_is_never_transient() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let medium = FileMedium::create(&path, 1 << 20, &FileOptions::default()).unwrap();
        let class = |errno| medium.durability_lost(MediumOperation::Flush, 0, 0, errno).class;
        assert_eq!(class(Errno::NOSPC), ErrorClass::Full);
        assert_eq!(class(Errno::AGAIN), ErrorClass::Permanent);
        assert_eq!(class(Errno::NODEV), ErrorClass::Gone);
    }
}
