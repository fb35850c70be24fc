//! littlefs, its C sources through the crate `littlefs2`.

use std::fs;
use std::path::Path;

use littlefs2::consts::{U64, U512};
use littlefs2::fs::{Allocation, Filesystem};
use littlefs2::io::{Error, SeekFrom};
use littlefs2::path::PathBuf;
use steadfast_count::Result;
use steadfast_count::region::Counts;

use crate::files::{self, Files};
use crate::memory::{Memory, Requests};

pub const SYSTEM: &str = "littlefs";
const BLOCKS: usize = 16_384;

/// A disk: sectors of 512 bytes, blocks of 4 KiB.
struct Disk(Memory);

impl littlefs2::driver::Storage for Disk {
    const READ_SIZE: usize = 512;
    const WRITE_SIZE: usize = 512;
    const BLOCK_SIZE: usize = 4096;
    const BLOCK_COUNT: usize = BLOCKS;
    /// No wear levelling: a disk does its own.
    const BLOCK_CYCLES: isize = -1;
    type CACHE_SIZE = U512;
    type LOOKAHEAD_SIZE = U64;

    fn read(&mut self, offset: usize, buffer: &mut [u8]) -> littlefs2::io::Result<usize> {
        self.0.read_at(offset, buffer);
        Ok(buffer.len())
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> littlefs2::io::Result<usize> {
        self.0.write_at(offset, data);
        Ok(data.len())
    }

    /// A disk needs no erasing before a write.
    fn erase(&mut self, _offset: usize, length: usize) -> littlefs2::io::Result<usize> {
        Ok(length)
    }
}

struct Little<'a, 'b>(&'a Filesystem<'b, Disk>);

fn told(error: Error) -> String {
    format!("littlefs: {error:?}")
}

fn path(path: &str) -> Result<PathBuf> {
    PathBuf::try_from(path).map_err(|error| format!("littlefs: {path}: {error:?}"))
}

impl Files for Little<'_, '_> {
    fn create(&self, name: &str, data: &[u8]) -> Result<()> {
        self.0.write(&path(name)?, data).map_err(told)
    }

    fn make_directory(&self, name: &str) -> Result<()> {
        self.0.create_dir(&path(name)?).map_err(told)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(&path(from)?, &path(to)?).map_err(told)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(&path(name)?).map_err(told)
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.0.metadata(&path(name)?).map(|found| found.len() as u64).map_err(told)
    }

    fn entries(&self, name: &str) -> Result<usize> {
        self.0
            .read_dir_and_then(&path(name)?, |entries| {
                let mut count = 0;
                for entry in entries {
                    entry?;
                    count += 1;
                }
                Ok(count)
            })
            .map_err(told)
    }

    fn read(&self, name: &str, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len();
        let read =
            self.0.open_file_and_then(&path(name)?, |file| file.read(buffer)).map_err(told)?;
        if read == length { Ok(()) } else { Err(format!("littlefs: {name}: short read")) }
    }

    fn write(&self, name: &str, data: &[u8], append: bool) -> Result<()> {
        self.0
            .open_file_with_options_and_then(
                |options| options.write(true),
                &path(name)?,
                |file| {
                    if append {
                        file.seek(SeekFrom::End(0))?;
                    }
                    file.write(data)?;
                    file.sync()
                },
            )
            .map_err(told)
    }
}

fn with<T>(disk: &mut Disk, run: impl FnOnce(&Little<'_, '_>) -> Result<T>) -> Result<T> {
    let mut allocation = Allocation::new();
    let filesystem = Filesystem::mount(&mut allocation, disk).map_err(told)?;
    run(&Little(&filesystem))
}

pub fn prepare(count: u64, image: &Path) -> Result<()> {
    let bytes = vec![0; BLOCKS * 4096];
    let mut disk = Disk(Memory::new(bytes, Requests::default()));
    Filesystem::format(&mut disk).map_err(told)?;
    with(&mut disk, |little| files::fill(little, count))?;
    fs::write(image, disk.0.content()).map_err(|error| format!("{}: {error}", image.display()))
}

pub fn work(operation: &str, count: u64, image: &Path) -> Result<Counts> {
    let requests = Requests::default();
    let bytes = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
    let mut disk = Disk(Memory::new(bytes, requests.clone()));
    with(&mut disk, |little| files::work(little, operation, count, &requests))
}
