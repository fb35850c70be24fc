//! [`FileExport`]: a regular file of a volume as an array of bytes for NBD clients.
//!
//! A flush is a transaction point of the volume. It covers everything that was accepted before it,
//! on any connection. The size is that of the file when it was opened. No other process can change
//! it, because this process holds the volume.

use std::sync::Arc;

use steadfast::fs::{AllocateMode, FileOptions, SeekTo, SetAttributes};
use steadfast::{Error, InodeNumber, Result};
use steadfast_remote::export::{Export, ExportError, Stretch};

use crate::medium::HostVolume;

/// A file as an export.
pub struct FileExport {
    volume: Arc<HostVolume>,
    inode: InodeNumber,
    size: u64,
    read_only: bool,
}

impl FileExport {
    /// Opens the file at `path`, or makes it with `create` bytes.
    ///
    /// # Errors
    /// Those of opening or making a file.
    pub fn open(
        volume: Arc<HostVolume>,
        path: &[u8],
        create: Option<u64>,
        read_only: bool,
    ) -> Result<FileExport> {
        let options = FileOptions::new().read(true).write(!read_only);
        let (attributes, made) = match (volume.open_file(path, &options), create) {
            (Err(Error::NotFound), Some(size)) if !read_only => {
                let file = volume.open_file(path, &options.create_new(true).permissions(0o600))?;
                let inode = file.attributes()?.inode;
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                (volume.set_attributes(inode, &set)?, true)
            }
            (opened, _) => (opened?.attributes()?, false),
        };
        if made {
            volume.transact()?;
        }
        volume.acquire(attributes.inode)?;
        Ok(FileExport { inode: attributes.inode, size: attributes.size, read_only, volume })
    }
}

impl Drop for FileExport {
    fn drop(&mut self) {
        self.volume.release(self.inode);
    }
}

fn failed(error: Error) -> ExportError {
    match error {
        Error::NoSpace => ExportError::NoSpace,
        Error::ReadOnly => ExportError::ReadOnly,
        _ => ExportError::Failed,
    }
}

impl Export for FileExport {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), ExportError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match self.volume.read(self.inode, offset + filled as u64, rest).map_err(failed)? {
                0 => {
                    rest.fill(0);
                    break;
                }
                count => filled += count,
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::result::Result<(), ExportError> {
        self.volume.write(self.inode, offset, data, false).map_err(failed)
    }

    fn flush(&self) -> std::result::Result<(), ExportError> {
        match self.read_only {
            true => Ok(()),
            false => self.volume.transact().map_err(failed),
        }
    }

    fn trim(&self, offset: u64, length: u64) -> std::result::Result<(), ExportError> {
        self.volume.allocate(self.inode, offset, length, AllocateMode::PunchHole).map_err(failed)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        keep: bool,
    ) -> std::result::Result<(), ExportError> {
        let mode = if keep {
            AllocateMode::ZeroRange { keep_size: true }
        } else {
            AllocateMode::PunchHole
        };
        self.volume.allocate(self.inode, offset, length, mode).map_err(failed)
    }

    fn stretch(&self, offset: u64, length: u64) -> Stretch {
        let to = |to| self.volume.seek(self.inode, offset, to);
        let (data, hole) = (to(SeekTo::Data), to(SeekTo::Hole));
        match (data, hole) {
            (Ok(data), _) if data > offset => {
                Stretch { length: (data - offset).min(length), hole: true }
            }
            (Ok(_), Ok(hole)) if hole > offset => {
                Stretch { length: (hole - offset).min(length), hole: false }
            }
            (Err(Error::NoSuchOffset), _) => Stretch { length, hole: true },
            _ => Stretch { length, hole: false },
        }
    }
}
