//! [`Window`]: a part of a file or device as a medium, such as a partition of a disk's image.
//!
//! What is outside is neither read nor written, whatever is asked for: every request is checked
//! against the window before it is moved. Of an image file only the window is
//! [locked](super::lock), so that volumes in two windows are not in each other's way. A block
//! device has one owner as a whole.

use std::path::Path;

use rustix::io::Errno;
use steadfast_media::{
    Geometry, Medium, MediumCounters, MediumError, MediumOperation, Temperature, WaitHook,
};

use super::error::{OpenError, medium_error};
use super::lock::Part;
use super::medium::FileMedium;
use super::open::FileOptions;

/// A part of an image file or a block device.
pub struct Window {
    file: FileMedium,
    start: u64,
    geometry: Geometry,
}

impl Window {
    /// Opens `length` bytes from `start` on; `None`: up to the end.
    ///
    /// # Errors
    /// As [`FileMedium::open`], and [`OpenError::Window`] where the file is shorter or the bounds
    /// divide a unit that is written whole.
    pub fn open(
        path: impl AsRef<Path>,
        start: u64,
        length: Option<u64>,
        options: &FileOptions,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let part = Part { start, length: length.unwrap_or(0) };
        let file = FileMedium::open(path, &FileOptions { part: Some(part), ..options.clone() })?;
        let whole = file.geometry();
        let wrong = |what: String| OpenError::Window { path: path.to_owned(), what };
        let unit = u64::from(whole.atomic_unit);
        if !start.is_multiple_of(unit) || length.is_some_and(|length| !length.is_multiple_of(unit))
        {
            return Err(wrong(format!("offset and size must be multiples of {unit} bytes")));
        }
        let room = whole.size.checked_sub(start).filter(|room| *room > 0);
        let length = match (room, length) {
            (None, _) => {
                return Err(wrong(format!("the offset is not before its end at {}", whole.size)));
            }
            (Some(room), None) => room,
            (Some(room), Some(length)) if length <= room => length,
            (Some(room), Some(_)) => {
                return Err(wrong(format!("there are {room} bytes after the offset, not as many")));
            }
        };
        Ok(Window { file, start, geometry: Geometry { size: length, ..whole } })
    }

    /// Where the request is in the file; whatever would leave the window is refused.
    fn at(&self, operation: MediumOperation, offset: u64, length: u64) -> Result<u64, MediumError> {
        match self.geometry.admits(offset, length) {
            true => Ok(self.start + offset),
            false => Err(medium_error(operation, offset, length, Errno::INVAL)),
        }
    }

    /// The error of the file, with the offset that the caller knows.
    fn told(&self) -> impl Fn(MediumError) -> MediumError + '_ {
        |error| MediumError { offset: error.offset.saturating_sub(self.start), ..error }
    }
}

fn total(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.fold(0, |sum, length| sum.saturating_add(length as u64))
}

impl Medium for Window {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Read, offset, buffer.len() as u64)?;
        self.file.read(at, buffer).map_err(self.told())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Write, offset, data.len() as u64)?;
        self.file.write(at, data).map_err(self.told())
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.file.flush()
    }

    fn may_be_shared(&self) -> bool {
        self.file.may_be_shared()
    }

    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Read, offset, buffer.len() as u64)?;
        self.file.read_afresh(at, buffer).map_err(self.told())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Discard, offset, length)?;
        self.file.discard(at, length).map_err(self.told())
    }

    fn wants_discards(&self) -> bool {
        self.file.wants_discards()
    }

    fn wants_discards_early(&self) -> bool {
        self.file.wants_discards_early()
    }

    fn flushes_cheaply(&self) -> bool {
        self.file.flushes_cheaply()
    }

    fn upkeep(&self) -> Option<u64> {
        self.file.upkeep()
    }

    fn will_read(&self, offset: u64, length: u64) {
        if let Ok(at) = self.at(MediumOperation::Read, offset, length) {
            self.file.will_read(at, length);
        }
    }

    fn before_waits(&self, hook: WaitHook) {
        self.file.before_waits(hook);
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let length = total(buffers.iter().map(|buffer| buffer.len()));
        let at = self.at(MediumOperation::Read, offset, length)?;
        self.file.read_vectored(at, buffers).map_err(self.told())
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let length = total(buffers.iter().map(|buffer| buffer.len()));
        let at = self.at(MediumOperation::Write, offset, length)?;
        self.file.write_vectored(at, buffers).map_err(self.told())
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let length = total(buffers.iter().map(|buffer| buffer.len()));
        let at = self.at(MediumOperation::Write, offset, length)?;
        self.file.write_hinted(at, buffers, temperature).map_err(self.told())
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Write, offset, data.len() as u64)?;
        self.file.write_fua(at, data).map_err(self.told())
    }

    /// The file stays as it is: what is past the window belongs to others.
    fn set_size(&self, size: u64) -> Result<(), MediumError> {
        match size <= self.geometry.size {
            true => Ok(()),
            false => Err(medium_error(MediumOperation::Write, size, 0, Errno::NOSPC)),
        }
    }

    fn copies(&self) -> u32 {
        self.file.copies()
    }

    fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let at = self.at(MediumOperation::Read, offset, buffer.len() as u64)?;
        self.file.read_copy(copy, at, buffer).map_err(self.told())
    }

    fn report_bad(&self, copy: u32, offset: u64, length: u64) {
        if let Ok(at) = self.at(MediumOperation::Read, offset, length) {
            self.file.report_bad(copy, at, length);
        }
    }

    fn counters(&self) -> Option<MediumCounters> {
        self.file.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        file
    }

    #[test]
    fn requests_stay_inside_and_land_where_they_belong() {
        let file = image(16 << 10);
        let window = Window::open(file.path(), 4096, Some(8192), &FileOptions::default()).unwrap();
        assert_eq!(window.geometry().size, 8192);
        window.write(0, &[1; 512]).unwrap();
        window.write_vectored(7680, &[&[2; 512]]).unwrap();
        window.write_fua(512, &[3; 512]).unwrap();
        window.flush().unwrap();
        for (offset, length) in [(8192, 512), (7680, 1024), (u64::MAX - 511, 512)] {
            let data = vec![9; length];
            assert!(window.write(offset, &data).is_err(), "{offset}");
            assert!(window.write_fua(offset, &data).is_err(), "{offset}");
            assert!(window.write_vectored(offset, &[&data]).is_err(), "{offset}");
            assert!(window.discard(offset, length as u64).is_err(), "{offset}");
            let error = window.read(offset, &mut vec![0; length]).unwrap_err();
            assert_eq!(error.offset, offset);
        }
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!((bytes[4096], bytes[4608], bytes[4096 + 7680]), (1, 3, 2));
        assert!(bytes[..4096].iter().chain(&bytes[12_288..]).all(|byte| *byte == 0));
        window.discard(0, 8192).unwrap();
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn windows_that_overlap_exclude_each_other_and_others_do_not() {
        let file = image(1 << 20);
        let open = |start, length, read_only| {
            let options = FileOptions { read_only, ..FileOptions::default() };
            Window::open(file.path(), start, length, &options)
        };
        let first = open(0, Some(65_536), false).unwrap();
        let second = open(65_536, Some(65_536), false).unwrap();
        let in_use =
            |opened: Result<Window, OpenError>| matches!(opened, Err(OpenError::InUse { .. }));
        assert!(in_use(open(32_768, None, false)) && in_use(open(512, Some(512), true)));
        assert!(matches!(
            FileMedium::open(file.path(), &FileOptions::default()),
            Err(OpenError::InUse { .. })
        ));
        let rest = open(131_072, None, false).unwrap();
        drop((first, second, rest));
        // Readers share the file. A writer of the whole file excludes all others.
        let readers = (open(0, None, true).unwrap(), open(512, Some(512), true).unwrap());
        drop(readers);
        let whole = FileMedium::open(file.path(), &FileOptions::default()).unwrap();
        assert!(in_use(open(4096, Some(512), true)));
        drop(whole);
    }

    #[test]
    fn bounds_that_do_not_fit_are_refused() {
        let file = image(8192);
        for (start, length) in [
            (8192, None),
            (1 << 40, None),
            (0, Some(8704)),
            (4096, Some(8192)),
            (100, None),
            (0, Some(100)),
        ] {
            let opened = Window::open(file.path(), start, length, &FileOptions::default());
            assert!(matches!(opened, Err(OpenError::Window { .. })), "{start} {length:?}");
        }
        assert_eq!(
            Window::open(file.path(), 7680, None, &FileOptions::default()).unwrap().geometry().size,
            512
        );
    }
}
