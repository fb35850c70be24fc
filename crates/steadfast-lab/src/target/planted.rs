//! Targets with a known fault, for the tests of the lab: one is slow, one returns a wrong byte. A
//! lab that does not detect them measures nothing.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::directory::DirectoryTarget;
use super::files::{Files, Open, OpenFile, Stat};
use super::{Site, Target};
use crate::Outcome;
use crate::result;

/// Extra time of each read and write of the slow target.
const DELAY: Duration = Duration::from_micros(200);

/// A directory in which each read and write takes 200 µs longer.
pub struct SlowTarget(Planted);

/// A directory in which one byte of every 64 KiB read is wrong.
pub struct CorruptingTarget(Planted);

/// A directory below the run's own, and the wrapper with the fault.
struct Planted {
    id: &'static str,
    fault: Fault,
    directory: DirectoryTarget,
    files: Option<FaultyFiles>,
}

#[derive(Clone, Copy)]
enum Fault {
    Slow,
    Corrupting,
}

impl SlowTarget {
    /// Makes the target in the run's directory.
    ///
    /// # Errors
    /// None yet; [`Target::make`] can fail.
    pub fn new(site: &Site) -> Outcome<SlowTarget> {
        Ok(SlowTarget(Planted::new("planted-slow", Fault::Slow, &site.scratch)))
    }
}

impl CorruptingTarget {
    /// Makes the target in the run's directory.
    ///
    /// # Errors
    /// None yet; [`Target::make`] can fail.
    pub fn new(site: &Site) -> Outcome<CorruptingTarget> {
        Ok(CorruptingTarget(Planted::new("planted-corrupting", Fault::Corrupting, &site.scratch)))
    }
}

impl Planted {
    fn new(id: &'static str, fault: Fault, parent: &Path) -> Planted {
        Planted { id, fault, directory: DirectoryTarget::new(parent), files: None }
    }

    fn describe(&self) -> result::TargetDescription {
        let found = self.directory.describe();
        result::TargetDescription { id: self.id.into(), name: self.id.into(), ..found }
    }

    fn make(&mut self) -> Outcome {
        self.directory.make()?;
        let root = self.directory.files()?.directory().map(super::system::SystemFiles::new);
        self.files = root.map(|inner| FaultyFiles { inner, fault: self.fault });
        Ok(())
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.files
            .as_ref()
            .map(|files| files as &dyn Files)
            .ok_or_else(|| super::kernel::not_made(self.id))
    }
}

macro_rules! planted_target {
    ($name:ty) => {
        impl Target for $name {
            fn id(&self) -> &str {
                self.0.id
            }
            fn describe(&self) -> result::TargetDescription {
                self.0.describe()
            }
            fn make(&mut self) -> Outcome {
                self.0.make()
            }
            fn unmount(&mut self) -> Outcome {
                self.0.directory.unmount()
            }
            fn mount(&mut self) -> Outcome<Duration> {
                self.0.directory.mount()
            }
            fn files(&self) -> Outcome<&dyn Files> {
                self.0.files()
            }
        }
    };
}

planted_target!(SlowTarget);
planted_target!(CorruptingTarget);

struct FaultyFiles {
    inner: super::system::SystemFiles,
    fault: Fault,
}

impl Files for FaultyFiles {
    fn open(&self, path: &str, how: Open) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(FaultyFile {
            inner: self.inner.open(path, how)?,
            fault: self.fault,
            position: 0,
        }))
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.inner.mkdir(path)
    }
    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.inner.rmdir(path)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.inner.unlink(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.link(from, to)
    }
    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        self.inner.symlink(target, path)
    }
    fn readlink(&self, path: &str) -> io::Result<Vec<u8>> {
        self.inner.readlink(path)
    }
    fn stat(&self, path: &str) -> io::Result<Stat> {
        self.inner.stat(path)
    }
    fn access(&self, path: &str) -> io::Result<()> {
        self.inner.access(path)
    }
    fn chmod(&self, path: &str, permissions: u32) -> io::Result<()> {
        self.inner.chmod(path, permissions)
    }
    fn readdir(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.readdir(path)
    }
    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.inner.sync_directory(path)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
    fn free(&self) -> io::Result<u64> {
        self.inner.free()
    }
    fn directory(&self) -> Option<&Path> {
        None
    }
}

struct FaultyFile {
    inner: Box<dyn OpenFile>,
    fault: Fault,
    position: u64,
}

impl FaultyFile {
    fn delay(&self) {
        if matches!(self.fault, Fault::Slow) {
            let start = Instant::now();
            while start.elapsed() < DELAY {
                std::hint::spin_loop();
            }
        }
    }
}

impl OpenFile for FaultyFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_at(data, self.position)?;
        self.position += data.len() as u64;
        Ok(())
    }
    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.position = offset;
        Ok(())
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.delay();
        let count = self.inner.read_at(buffer, offset)?;
        if matches!(self.fault, Fault::Corrupting) {
            // The byte in the middle of each 64 KiB of the file.
            let place = (offset / 65536 * 65536 + 32768)
                .checked_sub(offset)
                .and_then(|at| usize::try_from(at).ok());
            if let Some(byte) = place.and_then(|place| buffer[..count].get_mut(place)) {
                *byte ^= 0x10;
            }
        }
        Ok(count)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.delay();
        self.inner.write_at(data, offset)
    }
    fn set_len(&self, size: u64) -> io::Result<()> {
        self.inner.set_len(size)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.inner.sync(data_only)
    }
    fn close(self: Box<Self>) -> io::Result<()> {
        self.inner.close()
    }
    fn descriptor(&self) -> Option<&File> {
        None
    }
}
