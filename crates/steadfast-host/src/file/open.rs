//! Opens and creates files and devices, and finds out what they can promise.

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
use super::lock;
use super::transfer::Direct;
use crate::whole::MODE_PRIVATE;

/// How a file or device is kept from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// One owner when writing, any number when read-only (a block device: one owner in both cases).
    Exclusive,
    /// No lock: for looking at what another has open. What is read may be half written.
    None,
}

/// How to open a file or device as a medium.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Nothing is written; writes fail.
    pub read_only: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// For data that is cached above: large reads go past the page cache (O_DIRECT) where that is
    /// possible and it does not hold the data, and writes of data to a block device are answered
    /// before it has them, the large ones past the page cache as well. All else goes through it.
    pub cached_above: bool,
    /// The atomic unit to declare, in bytes; `None` chooses as [`FileMedium`](crate::FileMedium)
    /// describes.
    pub atomic_unit: Option<u32>,
    /// How others are kept out.
    pub lock: LockMode,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            read_only: false,
            direct: false,
            cached_above: false,
            atomic_unit: None,
            lock: LockMode::Exclusive,
        }
    }
}

/// Everything that [`FileMedium`](crate::FileMedium) is made of.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) block_device: bool,
    pub(super) geometry: Geometry,
    pub(super) direct: Option<Direct>,
    pub(super) large: Option<Arc<Large>>,
    pub(super) behind: Option<Behind>,
    /// Keeps a block device from others while it is open.
    pub(super) claim: Option<File>,
    /// Keeps others from what is below a block device.
    pub(super) below: Vec<File>,
}

/// A sector: no disk writes less at once.
const SECTOR: u32 = 512;
/// Alignment of direct I/O on kernels that do not say (before 6.1).
const DIRECT_ALIGNMENT: u32 = 4096;

pub(super) fn open(path: &Path, options: &FileOptions) -> Result<Opened, OpenError> {
    let at = At { path, options };
    // Looked at first: opening a FIFO would wait for its other end.
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

pub(super) fn create(path: &Path, size: u64, options: &FileOptions) -> Result<Opened, OpenError> {
    let at = At { path, options };
    let file = at
        .open_options()
        .write(true)
        .create_new(true)
        // It holds the files of every user of the volume.
        .mode(MODE_PRIVATE)
        .open(path)
        .map_err(|error| at.error("create", error))?;
    let made = at.fill(&file, size).and_then(|()| at.finish(file, None));
    if made.is_err() {
        // Nothing half made stays; that it can not be removed adds nothing to the error.
        let _ = fs::remove_file(path);
    }
    made
}

/// A path with the wish to open it, for the errors.
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

    /// Gives a new file its size, durably: after this a flush of data is all that a write needs.
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

    /// Claims a block device for us alone. The descriptor is writable like the other: discards go
    /// through it.
    fn claim(&self) -> Result<File, OpenError> {
        let mut open = OpenOptions::new();
        open.read(true).write(!self.options.read_only).custom_flags(OFlags::EXCL.bits() as i32);
        open.open(self.path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => OpenError::DeviceInUse(self.path()),
            _ => self.error("open", error),
        })
    }

    fn finish(&self, file: File, claim: Option<File>) -> Result<Opened, OpenError> {
        // Once more, of what was really opened: the name may have changed hands.
        let metadata = file.metadata().map_err(|error| self.error("open", error))?;
        self.check_kind(&metadata)?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && self.options.lock == LockMode::Exclusive {
            match lock::lock_file(&file, !self.options.read_only) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(OpenError::InUse { path: self.path(), owner: lock::owner(&file) });
                }
                Err(errno) => return Err(self.error("lock", errno.into())),
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
        let direct =
            if self.options.direct { Some(self.direct(&file, block_device)?) } else { None };
        let large = if self.options.cached_above && direct.is_none() {
            self.large(&file, block_device).map(Arc::new)
        } else {
            None
        };
        let behind = match &large {
            // A file may have no room for what was taken already, which is to be said when it is
            // written. (A device that lends more than it has says so at a flush in any case.)
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
        Ok(Opened { file, block_device, geometry, direct, large, behind, claim, below })
    }

    /// What direct I/O needs here.
    fn direct(&self, file: &File, block_device: bool) -> Result<Direct, OpenError> {
        let fallback =
            if block_device { self.ask(device::logical_block(file))? } else { DIRECT_ALIGNMENT };
        let (mut memory, mut length) = (fallback, fallback);
        // An old kernel does not know the question; the fallback is then on the safe side.
        if let Ok(answer) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            && answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        {
            if answer.stx_dio_offset_align == 0 {
                return Err(OpenError::DirectUnsupported(self.path()));
            }
            (memory, length) = (answer.stx_dio_mem_align.max(1), answer.stx_dio_offset_align);
        }
        // A bounce buffer starts at a page, which suits every device best.
        let pool = Pool::new(memory.max(DIRECT_ALIGNMENT) as usize);
        Ok(Direct { memory_alignment: memory as usize, length_alignment: length as usize, pool })
    }

    /// The straight way for large reads, where there is one.
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

    /// The error of the system in our words.
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
