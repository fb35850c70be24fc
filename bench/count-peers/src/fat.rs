//! FAT32 by the crate `fatfs`.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions, ReadWriteSeek};
use steadfast_count::Result;
use steadfast_count::region::Counts;

use crate::files::{self, Files};
use crate::memory::{Memory, Requests};

pub const SYSTEM: &str = "FAT";
/// The least that FAT32 with clusters of 4 KiB may have, and some more.
const SIZE: usize = 320 << 20;
const CLUSTER: u32 = 4096;

struct Fat<T: ReadWriteSeek>(FileSystem<T>);

fn told(error: std::io::Error) -> String {
    format!("FAT: {error}")
}

impl<T: ReadWriteSeek> Files for Fat<T> {
    fn create(&self, path: &str, data: &[u8]) -> Result<()> {
        let mut file = self.0.root_dir().create_file(path).map_err(told)?;
        file.write_all(data).map_err(told)
    }

    fn make_directory(&self, path: &str) -> Result<()> {
        self.0.root_dir().create_dir(path).map(|_| ()).map_err(told)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let root = self.0.root_dir();
        root.rename(from, &root, to).map_err(told)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.0.root_dir().remove(path).map_err(told)
    }

    /// The crate has no call for attributes of a path: opening a file finds its entry.
    fn size(&self, path: &str) -> Result<u64> {
        let mut file = self.0.root_dir().open_file(path).map_err(told)?;
        file.seek(SeekFrom::End(0)).map_err(told)
    }

    fn entries(&self, path: &str) -> Result<usize> {
        let entries = self.0.root_dir().open_dir(path).map_err(told)?.iter();
        entries.map(|entry| entry.map_err(told).map(|_| 1)).sum()
    }

    fn read(&self, path: &str, buffer: &mut [u8]) -> Result<()> {
        self.0.root_dir().open_file(path).map_err(told)?.read_exact(buffer).map_err(told)
    }

    fn write(&self, path: &str, data: &[u8], append: bool) -> Result<()> {
        let mut file = self.0.root_dir().open_file(path).map_err(told)?;
        if append {
            file.seek(SeekFrom::End(0)).map_err(told)?;
        }
        file.write_all(data).and_then(|()| file.flush()).map_err(told)
    }
}

fn open<T: ReadWriteSeek>(storage: T) -> Result<Fat<T>> {
    FileSystem::new(storage, FsOptions::new()).map(Fat).map_err(told)
}

pub fn prepare(count: u64, image: &Path) -> Result<()> {
    let mut memory = Memory::new(vec![0; SIZE], Requests::default());
    let options = FormatVolumeOptions::new().fat_type(FatType::Fat32).bytes_per_cluster(CLUSTER);
    fatfs::format_volume(&mut memory, options).map_err(told)?;
    {
        let fat = open(&mut memory)?;
        files::fill(&fat, count)?;
        fat.0.unmount().map_err(told)?;
    }
    fs::write(image, memory.content()).map_err(|error| format!("{}: {error}", image.display()))
}

pub fn work(operation: &str, count: u64, image: &Path) -> Result<Counts> {
    let requests = Requests::default();
    let bytes = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
    let fat = open(Memory::new(bytes, requests.clone()))?;
    files::work(&fat, operation, count, &requests)
}
