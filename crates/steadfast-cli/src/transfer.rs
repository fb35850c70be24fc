//! Moving the bytes of one file between a volume and the host.
//!
//! Holes stay holes in both directions. Holes of the volume are not written on the host. Whole
//! chunks of zeros from the host are not stored on the volume.

use std::io::{self, Read};
use std::path::Path;

use steadfast::fs::{Attributes, FileKind, SeekTo, SetAttributes};
use steadfast::{Error, InodeNumber};

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::volume_path::{self, LastLink};

/// Bytes moved at a time. One write of this size to a volume is atomic.
const CHUNK: usize = 1 << 20;

/// Granularity at which zeros become holes, bytes.
const HOLE: usize = 64 << 10;

/// What commands say of a device, FIFO or socket.
pub const NOT_COPIED: &str = "a special file is not copied";

/// Reads the regular file at `path` and passes its bytes with their offsets to `sink`, holes as
/// zeros.
///
/// # Errors
/// What is wrong with the path or the file, and what `sink` returns.
pub fn read_file(
    image: &Image,
    path: &[u8],
    sink: &mut dyn FnMut(&[u8], u64) -> Outcome,
) -> Outcome {
    let attributes = volume_path::resolve(&image.volume, path, LastLink::Follow)
        .and_then(|found| regular(&found).map(|()| found))
        .map_err(|error| image.failure(error, path))?;
    read_range(image, path, attributes.inode, 0..attributes.size, &mut vec![0; CHUNK], sink)
}

/// Reads the data of a regular file and passes it with its offsets to `sink`; holes are skipped.
///
/// # Errors
/// Those of reading, and what `sink` returns.
pub fn read_data(
    image: &Image,
    path: &[u8],
    file: &Attributes,
    sink: &mut dyn FnMut(&[u8], u64) -> Outcome,
) -> Outcome {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < file.size {
        let start = match image.volume.seek(file.inode, at, SeekTo::Data) {
            Ok(start) => start,
            Err(Error::NoSuchOffset) => break,
            Err(error) => return Err(image.failure(error, path)),
        };
        let end = image
            .volume
            .seek(file.inode, start, SeekTo::Hole)
            .map_err(|error| image.failure(error, path))?
            .min(file.size);
        if end <= start {
            break;
        }
        read_range(image, path, file.inode, start..end, &mut buffer, sink)?;
        at = end;
    }
    Ok(())
}

/// Reads all of a regular file and passes it to `sink` in order, holes as zeros.
///
/// # Errors
/// Those of reading, and what `sink` returns.
pub fn read_all(
    image: &Image,
    path: &[u8],
    file: &Attributes,
    sink: &mut dyn FnMut(&[u8]) -> Outcome,
) -> Outcome {
    let mut buffer = vec![0; CHUNK];
    read_range(image, path, file.inode, 0..file.size, &mut buffer, &mut |bytes, _| sink(bytes))
}

fn read_range(
    image: &Image,
    path: &[u8],
    inode: InodeNumber,
    range: std::ops::Range<u64>,
    buffer: &mut [u8],
    sink: &mut dyn FnMut(&[u8], u64) -> Outcome,
) -> Outcome {
    let mut offset = range.start;
    while offset < range.end {
        let want = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let got = image
            .volume
            .read(inode, offset, &mut buffer[..want])
            .map_err(|error| image.failure(error, path))?;
        if got == 0 {
            break;
        }
        sink(&buffer[..got], offset)?;
        offset += got as u64;
    }
    Ok(())
}

/// Replaces the contents of a regular file on the volume by those of `source`. `place` is the host
/// path, for messages.
///
/// # Errors
/// Those of reading the source and of writing to the volume.
pub fn write_file(
    image: &Image,
    path: &[u8],
    file: &Attributes,
    source: &mut dyn Read,
    place: &Path,
) -> Outcome<u64> {
    let on_volume = |error| image.failure(error, path);
    let inode = file.inode;
    let set_size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    if file.size != 0 {
        image.volume.set_attributes(inode, &set_size(0)).map_err(on_volume)?;
    }
    let mut buffer = vec![0; CHUNK];
    let mut size = 0u64;
    let mut ends_in_hole = false;
    loop {
        let got =
            fill(source, &mut buffer).map_err(|error| Failure::host(&error, "read", place))?;
        if got == 0 {
            break;
        }
        for (start, run) in data_runs(&buffer[..got]) {
            image.volume.write(inode, size + start as u64, run, false).map_err(on_volume)?;
        }
        ends_in_hole = buffer[..got].chunks(HOLE).next_back().is_some_and(is_zero);
        size += got as u64;
    }
    if ends_in_hole {
        image.volume.set_attributes(inode, &set_size(size)).map_err(on_volume)?;
    }
    Ok(size)
}

/// Fails unless the attributes are those of a regular file.
fn regular(attributes: &Attributes) -> Result<(), Error> {
    match attributes.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsADirectory),
        _ => Err(Error::NotARegularFile),
    }
}

/// Reads until the buffer is full or the source ends.
///
/// # Errors
/// Those of the source.
pub fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The runs of a buffer that are not holes, with their offsets.
pub fn data_runs(buffer: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let next_chunk = |at: usize| &buffer[at..buffer.len().min(at + HOLE)];
        while at < buffer.len() && is_zero(next_chunk(at)) {
            at += next_chunk(at).len();
        }
        let start = at;
        while at < buffer.len() && !is_zero(next_chunk(at)) {
            at += next_chunk(at).len();
        }
        (start < at).then(|| (start, &buffer[start..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out() {
        let mut buffer = vec![0; 4 * HOLE + 10];
        assert_eq!(data_runs(&buffer).count(), 0);
        buffer[HOLE + 1] = 1;
        buffer[2 * HOLE] = 1;
        buffer[4 * HOLE + 9] = 1;
        let runs: Vec<_> = data_runs(&buffer).map(|(start, run)| (start, run.len())).collect();
        assert_eq!(runs, [(HOLE, 2 * HOLE), (4 * HOLE, 10)]);
    }
}
