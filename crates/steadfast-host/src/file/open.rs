//! Opens and creates files and devices, and determines their guarantees.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use steadfast_media::{FailureModel, Geometry};

use super::behind::Behind;
use super::below;
use super::bounce::Pool;
use super::device;
use super::error::OpenError;
use super::large::Large;
use super::lock::{self, Part};
use super::transfer::Direct;
use crate::whole::MODE_PRIVATE;

/// How other openers are excluded from a file or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// One owner when writing, any number when read-only. A block device always has one owner.
    Exclusive,
    /// No lock: for reading a medium that another process has open. The data may be half written.
    None,
}

/// Options for opening a file or device as a medium.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Refuses all writes.
    pub read_only: bool,
    /// Bypasses the page cache (O_DIRECT).
    pub direct: bool,
    /// For data that is cached above this medium. Large reads bypass the page cache (O_DIRECT) if
    /// that is possible and the cache does not hold the data. Data writes to a block device are
    /// answered before the device has them, and long runs of them also bypass the page cache. All
    /// other requests use it.
    pub cached_above: bool,
    /// The atomic unit to declare, in bytes; `None` selects the unit that
    /// [`FileMedium`](crate::FileMedium) describes.
    pub atomic_unit: Option<u32>,
    /// How other openers are excluded.
    pub lock: LockMode,
    /// The bytes of a regular file that are used, and kept from others; `None`: all.
    pub part: Option<Part>,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            read_only: false,
            direct: false,
            cached_above: false,
            atomic_unit: None,
            lock: LockMode::Exclusive,
            part: None,
        }
    }
}

/// The parts of a [`FileMedium`](crate::FileMedium).
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) block_device: bool,
    pub(super) geometry: Geometry,
    pub(super) direct: Option<Direct>,
    pub(super) large: Option<Arc<Large>>,
    pub(super) behind: Option<Behind>,
    /// Claims a block device while it is open.
    pub(super) claim: Option<File>,
    /// Locks the files below a block device.
    pub(super) below: Vec<File>,
}

/// A sector: no disk writes less at once.
const SECTOR: u32 = 512;
/// Alignment of direct I/O on kernels that do not report it (before 6.1).
const DIRECT_ALIGNMENT: u32 = 4096;

pub(super) fn open(path: &Path, options: &FileOptions) -> Result<OpenFile, OpenError> {
    let at = At { path, options };
    // Check before opening: the open of a FIFO would wait for its other end.
    let metadata = fs::metadata(path).map_err(|error| at.error("open", error))?;
    at.check_kind(&metadata)?;
    let block_device = metadata.file_type().is_block_device();
    let claim = match options.lock {
        LockMode::Exclusive if block_device => Some(at.claim()?),
        _ => None,
    };
    let file = at.open_options().open(path).map_err(|error| at.error("open", error))?;
    at.finish(file, claim)
}

pub(super) fn create(path: &Path, size: u64, options: &FileOptions) -> Result<OpenFile, OpenError> {
    let at = At { path, options };
    let file = at
        .open_options()
        .write(true)
        .create_new(true)
        // The file will contain the files of all users of the volume.
        .mode(MODE_PRIVATE)
        .open(path)
        .map_err(|error| at.error("create", error))?;
    let made = at.fill(&file, size).and_then(|()| at.finish(file, None));
    if made.is_err() {
        // Remove the unfinished file. If that fails, the original error matters more.
        let _ = fs::remove_file(path);
    }
    made
}

/// A path and its options, for error messages.
struct At<'a> {
    path: &'a Path,
    options: &'a FileOptions,
}

impl At<'_> {
    fn path(&self) -> PathBuf {
        self.path.to_owned()
    }

    fn open_options(&self) -> OpenOptions {
        let mut open = OpenOptions::new();
        open.read(true).write(!self.options.read_only);
        if self.options.direct {
            open.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        open
    }

    /// Sets the size of a new file durably, so that later writes only need a flush of data.
    fn fill(&self, file: &File, size: u64) -> Result<(), OpenError> {
        file.set_len(size).map_err(|source| OpenError::Size { path: self.path(), size, source })?;
        file.sync_all().map_err(|error| self.error("flush", error))?;
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(|error| self.error("flush", error))
    }

    fn check_kind(&self, metadata: &Metadata) -> Result<(), OpenError> {
        let kind = metadata.file_type();
        if kind.is_file() || kind.is_block_device() {
            return Ok(());
        }
        let what = if kind.is_dir() {
            "directory"
        } else if kind.is_char_device() {
            "character device"
        } else if kind.is_fifo() {
            "pipe"
        } else if kind.is_socket() {
            "socket"
        } else {
            "special file"
        };
        Err(OpenError::NotAMedium { path: self.path(), what })
    }

    /// Claims a block device exclusively. The descriptor is as writable as the main one, because
    /// discards use it.
    fn claim(&self) -> Result<File, OpenError> {
        let mut open = OpenOptions::new();
        open.read(true).write(!self.options.read_only).custom_flags(OFlags::EXCL.bits() as i32);
        open.open(self.path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => OpenError::DeviceInUse(self.path()),
            _ => self.error("open", error),
        })
    }

    fn finish(&self, file: File, claim: Option<File>) -> Result<OpenFile, OpenError> {
        // Check again on the open descriptor: the name may belong to another file by now.
        let metadata = file.metadata().map_err(|error| self.error("open", error))?;
        self.check_kind(&metadata)?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && self.options.lock == LockMode::Exclusive {
            let exclusive = !self.options.read_only;
            let (locked, owner) = match self.options.part {
                // The table of locks does not tell which process has which part of the file.
                Some(part) => (lock::lock_part(&file, part, exclusive), None),
                None => (lock::lock_file(&file, exclusive), Some(())),
            };
            match locked {
                Ok(true) => {}
                Ok(false) => {
                    let owner = owner.and_then(|()| lock::owner(&file));
                    return Err(OpenError::InUse { path: self.path(), owner });
                }
                Err(errno) => return Err(self.error("lock", errno.into())),
            }
            // A command may have put another file in its place until the lock was there.
            let now = fs::metadata(self.path).map_err(|error| self.error("open", error))?;
            if (now.st_dev(), now.st_ino()) != (metadata.st_dev(), metadata.st_ino()) {
                return Err(OpenError::InUse { path: self.path(), owner: None });
            }
        }
        let below = match self.options.lock {
            LockMode::Exclusive if block_device => {
                below::lock(metadata.st_rdev(), !self.options.read_only).map_err(|taken| {
                    let below::Taken { path: below, owner } = taken;
                    OpenError::InUseBelow { path: self.path(), below, owner }
                })?
            }
            _ => Vec::new(),
        };
        // The owner before may have been another machine with the same disk.
        if claim.is_some() {
            device::forget_cached(&file);
        }
        let direct =
            if self.options.direct { Some(self.direct(&file, block_device)?) } else { None };
        let large = if self.options.cached_above && direct.is_none() {
            self.large(&file, block_device).map(Arc::new)
        } else {
            None
        };
        let behind = match &large {
            // Not for files: a file may have no space for accepted data, and the write itself must
            // report that. A thin-provisioned device reports it only at a flush anyway.
            Some(large) if block_device && !self.options.read_only => {
                let cached = file.try_clone().map_err(|error| self.error("open", error))?;
                Some(
                    Behind::new(cached, large.clone())
                        .map_err(|error| self.error("start a thread for", error))?,
                )
            }
            _ => None,
        };
        let size = if block_device { device::size(&file) } else { Ok(metadata.len()) };
        let size = size.map_err(|error| self.error("find the size of", error))?;
        let unit = self.atomic_unit(&file, block_device, direct.as_ref())?;
        let geometry = Geometry::new(size, unit, FailureModel::PowerSafe)
            .map_err(|error| self.error("use", io::Error::other(error)))?;
        Ok(OpenFile { file, block_device, geometry, direct, large, behind, claim, below })
    }

    /// The requirements of direct I/O for this file.
    fn direct(&self, file: &File, block_device: bool) -> Result<Direct, OpenError> {
        let fallback =
            if block_device { self.ask(device::logical_block(file))? } else { DIRECT_ALIGNMENT };
        let (mut memory, mut length) = (fallback, fallback);
        // An old kernel does not report the alignment; the fallback is then safe.
        if let Ok(answer) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            && answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        {
            if answer.stx_dio_offset_align == 0 {
                return Err(OpenError::DirectUnsupported(self.path()));
            }
            (memory, length) = (answer.stx_dio_mem_align.max(1), answer.stx_dio_offset_align);
        }
        // A bounce buffer starts at a page boundary, which suits every device.
        let pool = Pool::new(memory.max(DIRECT_ALIGNMENT) as usize);
        Ok(Direct { memory_alignment: memory as usize, length_alignment: length as usize, pool })
    }

    /// Direct access for large reads, if available.
    fn large(&self, file: &File, block_device: bool) -> Option<Large> {
        let Direct { memory_alignment, length_alignment, .. } =
            self.direct(file, block_device).ok()?;
        Large::open(file, !self.options.read_only, memory_alignment, length_alignment)
    }

    fn atomic_unit(
        &self,
        file: &File,
        block_device: bool,
        direct: Option<&Direct>,
    ) -> Result<u32, OpenError> {
        let (min, default) = if block_device {
            let logical = self.ask(device::logical_block(file))?;
            (logical, self.ask(device::physical_block(file))?.max(logical))
        } else {
            match direct {
                Some(direct) => {
                    let length = direct.length_alignment as u32;
                    (length, length.max(SECTOR))
                }
                None => (1, SECTOR),
            }
        };
        let default = default.min(Geometry::ATOMIC_UNIT_MAX);
        match self.options.atomic_unit {
            None => Ok(default),
            Some(unit) if unit.is_power_of_two() && (min..=default).contains(&unit) => Ok(unit),
            Some(unit) => Err(OpenError::AtomicUnit { path: self.path(), unit, min, max: default }),
        }
    }

    fn ask(&self, answer: Result<u32, Errno>) -> Result<u32, OpenError> {
        answer.map_err(|errno| self.error("find the block size of", errno.into()))
    }

    /// Converts an error of the system to an [`OpenError`].
    fn error(&self, action: &'static str, source: io::Error) -> OpenError {
        let path = self.path();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => OpenError::NotFound(path),
            Some(Errno::EXIST) => OpenError::AlreadyExists(path),
            Some(Errno::ACCESS | Errno::PERM) => {
                OpenError::PermissionDenied { path, writing: !self.options.read_only }
            }
            Some(Errno::ROFS) => OpenError::WriteProtected(path),
            Some(Errno::INVAL) if self.options.direct && matches!(action, "open" | "create") => {
                OpenError::DirectUnsupported(path)
            }
            _ => OpenError::Io { path, action, source },
        }
    }
}
