//! A file mapped into memory.

use std::fs::File;
use std::io;

use memmap2::{MmapMut, MmapOptions};

/// A shared map of a file from its beginning.
#[derive(Debug)]
pub(super) struct Map(MmapMut);

impl Map {
    /// Maps `length` bytes: shared for writing, private for reading. A private map shows the same
    /// pages.
    ///
    /// # Errors
    /// Those of mmap(2); `Unsupported` if the file system has no such maps.
    pub fn new(file: &File, length: usize, write: bool) -> io::Result<Map> {
        if file.metadata()?.len() < length as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut options = MmapOptions::new();
        options.len(length);
        // SAFETY: the file is the lab's own, in a directory made for this run, and no other process
        // changes or shortens it. It is as long as the map, so no access is beyond its end. Its
        // contents are only copied as bytes.
        #[allow(unsafe_code)]
        let map = unsafe { if write { options.map_mut(file) } else { options.map_copy(file) } };
        map.map(Map).map_err(|error| match error.raw_os_error() {
            Some(19) => io::ErrorKind::Unsupported.into(), // ENODEV
            _ => error,
        })
    }

    /// Copies out of the map; `false` if the range is beyond its end.
    pub fn read(&self, start: usize, buffer: &mut [u8]) -> bool {
        let part = start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end));
        part.map(|part| buffer.copy_from_slice(part)).is_some()
    }

    /// Copies into the map; `false` if the range is beyond its end.
    pub fn write(&mut self, start: usize, data: &[u8]) -> bool {
        let part = start.checked_add(data.len()).and_then(|end| self.0.get_mut(start..end));
        part.map(|part| part.copy_from_slice(data)).is_some()
    }

    /// Makes the written data durable: msync(MS_SYNC).
    ///
    /// # Errors
    /// Those of msync(2).
    pub fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
