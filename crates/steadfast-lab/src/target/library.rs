//! Steadfast without FUSE: the library in this process, on the same loop device.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast::fs::{Attributes, Caller, FileKind, NewNode, RenameMode, SetAttributes};
use steadfast::{FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_host::{
    BackgroundThread, FileMedium, FileOptions, HostPlatform, OpenError, random_uuid,
};

use super::files::{Files, Kind, Open, OpenFile, Stat};
use super::image::Image;
use super::kernel::not_made;
use super::{Site, Target};
use crate::result::{self, Access, Status};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// Whether I/O on the device uses the page cache of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached {
    /// Through the page cache: what a program gets that opens a volume with the defaults.
    Yes,
    /// Bypassing the page cache (O_DIRECT): data is read from the medium each time, because the
    /// library caches none.
    No,
}

/// How long the device may still seem to be in use. While another thread starts a program, the new
/// process has a copy of every open file, including files that are closed meanwhile.
const CLOSING: Duration = Duration::from_secs(2);

/// Names fetched from a directory at once.
const DIRECTORY_BATCH: usize = 256;

/// A volume on a file or device.
pub(super) type HostVolume = Volume<FileMedium, HostPlatform>;

/// A Steadfast volume, opened in this process.
pub struct LibraryTarget {
    site: Site,
    cached: Cached,
    // The fields are dropped in this order.
    opened: Option<OpenVolume>,
    image: Option<Image>,
}

struct OpenVolume {
    _background: BackgroundThread,
    files: LibraryFiles,
}

impl LibraryTarget {
    /// A target without a volume yet.
    pub fn new(cached: Cached, site: &Site) -> LibraryTarget {
        LibraryTarget { site: site.clone(), cached, opened: None, image: None }
    }

    /// Makes a volume on the image, and opens it.
    fn format(&mut self) -> Outcome {
        let uuid = random_uuid().doing(|| "get randomness".into())?;
        let options = FormatOptions { uuid, ..FormatOptions::default() };
        let medium = self.medium()?;
        Volume::format(&medium, &options, &HostPlatform::new())
            .map_err(|error| failed("format", &error))?;
        drop(medium);
        self.mount().map(|_| ())
    }

    fn medium(&self) -> Outcome<FileMedium> {
        open_device(self.image.as_ref().ok_or_else(|| not_made(self.id()))?, self.cached)
    }
}

/// Opens the device of an image.
pub(super) fn open_device(image: &Image, cached: Cached) -> Outcome<FileMedium> {
    let options = FileOptions { direct: cached == Cached::No, ..FileOptions::default() };
    let start = Instant::now();
    loop {
        match FileMedium::open(image.device(), &options) {
            Err(OpenError::DeviceInUse(_) | OpenError::InUseBelow { .. })
                if start.elapsed() < CLOSING =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.map_err(|error| failed("open the device", &error)),
        }
    }
}

impl Target for LibraryTarget {
    fn id(&self) -> &str {
        match self.cached {
            Cached::Yes => "steadfast-lib",
            Cached::No => "steadfast-lib-direct",
        }
    }

    fn describe(&self) -> result::TargetDescription {
        let (name, options, remark) = match self.cached {
            Cached::Yes => {
                ("Steadfast (library)", "", "the page cache of the device is below the library")
            }
            Cached::No => (
                "Steadfast (library, O_DIRECT)",
                "direct",
                "no page cache: data is read from the medium each time",
            ),
        };
        result::TargetDescription {
            id: self.id().into(),
            name: name.into(),
            access: Access::Library,
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: "defaults of steadfast mkfs".into(),
            mount_options: options.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            remarks: vec!["in process: no system calls per operation".into(), remark.into()],
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        if self.image.as_ref().is_none_or(Image::is_sparse) {
            // The new image has the same name as the previous one.
            self.image = None;
            self.image = Some(Image::new(&self.site, self.id())?);
        }
        self.format()
    }

    fn make_sparse(&mut self, size: u64) -> Outcome {
        self.unmount()?;
        self.image = None;
        self.image = Some(Image::sparse(&self.site, self.id(), size)?);
        self.format()
    }

    fn mount_inside(&mut self) -> Outcome {
        self.mount().map(|_| ())
    }

    fn unmount(&mut self) -> Outcome {
        match self.opened.take() {
            Some(OpenVolume { _background: background, files }) => {
                drop(background);
                files.volume.close().map_err(|error| failed("close the volume", &error))
            }
            None => Ok(()),
        }
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let start = Instant::now();
        let medium = self.medium()?;
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new());
        let volume = Arc::new(volume.map_err(|error| failed("open the volume", &error))?);
        // A failure makes the volume read-only, so the next write of a workload reports it.
        let background = BackgroundThread::spawn(volume.clone(), |_| {});
        let background = background.doing(|| "start a thread".into())?;
        let time = start.elapsed();
        self.opened = Some(OpenVolume { _background: background, files: LibraryFiles { volume } });
        Ok(time)
    }

    fn cut_power(&mut self) -> Outcome {
        // The volume is dropped without a close, so data that is not written yet is lost.
        let opened = self.opened.take();
        opened.map(drop).ok_or_else(|| not_made(self.id()))
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.opened
            .as_ref()
            .map(|opened| &opened.files as &dyn Files)
            .ok_or_else(|| not_made(self.id()))
    }

    fn device(&self) -> Option<String> {
        self.image.as_ref().and_then(Image::device_name)
    }

    fn in_process(&self) -> bool {
        true
    }
}

/// An error of the library as one of the lab.
pub(super) fn failed(doing: &str, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Io { doing: doing.into(), error: io::Error::other(error.to_string()) }
}

/// The error number that a mount would return, so that both kinds of access are judged by the same
/// rules.
pub(super) fn number(error: steadfast::Error) -> io::Error {
    io::Error::from_raw_os_error(steadfast_fuse::errno(&error))
}

struct LibraryFiles {
    volume: Arc<HostVolume>,
}

impl LibraryFiles {
    fn find(&self, path: &str) -> io::Result<Attributes> {
        self.volume.resolve(path, true).map_err(number)
    }

    /// The directory of a path, and its last name.
    fn parent<'p>(&self, path: &'p str) -> io::Result<(InodeNumber, &'p [u8])> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory =
            if directory.is_empty() { InodeNumber::ROOT } else { self.find(directory)?.inode };
        Ok((directory, name.as_bytes()))
    }

    fn make(&self, path: &str, node: NewNode<'_>, permissions: u32) -> io::Result<Attributes> {
        let (directory, name) = self.parent(path)?;
        self.volume.create(directory, name, node, permissions, &CALLER).map_err(number)
    }
}

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

impl Files for LibraryFiles {
    fn open(&self, path: &str, how: Open) -> io::Result<Box<dyn OpenFile>> {
        if how.direct {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (found, made) = match self.find(path) {
            Ok(found) if found.kind == FileKind::Directory => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(found) => (found, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound && how.create => {
                (self.make(path, NewNode::Regular, 0o644)?, true)
            }
            Err(error) => return Err(error),
        };
        self.volume.acquire(found.inode).map_err(number)?;
        let file = LibraryFile {
            volume: self.volume.clone(),
            inode: found.inode,
            position: 0,
            sync: how.sync,
            open: true,
        };
        if how.truncate && !made && found.size > 0 {
            file.set_len(0)?;
        }
        Ok(Box::new(file))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.make(path, NewNode::Directory, 0o755).map(|_| ())
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        self.volume.remove_directory(directory, name).map_err(number)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        self.volume.unlink(directory, name).map_err(number)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.volume.rename_path(from, to, RenameMode::Replace).map_err(number)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let inode = self.find(from)?.inode;
        let (directory, name) = self.parent(to)?;
        self.volume.link(inode, directory, name).map(|_| ()).map_err(number)
    }

    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        self.volume.create_symlink(target, path).map(|_| ()).map_err(number)
    }

    fn readlink(&self, path: &str) -> io::Result<Vec<u8>> {
        let inode = self.volume.resolve(path, false).map_err(number)?.inode;
        self.volume.read_link(inode).map_err(number)
    }

    fn stat(&self, path: &str) -> io::Result<Stat> {
        let found = self.find(path)?;
        let kind = match found.kind {
            FileKind::Regular => Kind::File,
            FileKind::Directory => Kind::Directory,
            _ => Kind::Other,
        };
        Ok(Stat { kind, size: found.size, permissions: found.permissions })
    }

    fn access(&self, path: &str) -> io::Result<()> {
        self.find(path).map(|_| ())
    }

    fn chmod(&self, path: &str, permissions: u32) -> io::Result<()> {
        let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        let inode = self.find(path)?.inode;
        self.volume.set_attributes(inode, &set).map(|_| ()).map_err(number)
    }

    fn readdir(&self, path: &str) -> io::Result<Vec<String>> {
        let directory = if path.is_empty() { InodeNumber::ROOT } else { self.find(path)?.inode };
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let entries =
                self.volume.read_directory(directory, cookie, DIRECTORY_BATCH).map_err(number)?;
            let Some(last) = entries.last() else { return Ok(names) };
            cookie = last.cookie;
            let named = entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..");
            names.extend(named.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
        }
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        if !path.is_empty() {
            self.find(path)?;
        }
        self.volume.fsync().map_err(number)
    }

    fn sync(&self) -> io::Result<()> {
        self.volume.sync().map_err(number)
    }

    fn free(&self) -> io::Result<u64> {
        let found = self.volume.statistics().map_err(number)?;
        Ok(found.blocks_available.saturating_mul(u64::from(found.block_size)))
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn shared(&self) -> Option<&(dyn Files + Sync)> {
        Some(self)
    }

    fn atomically(&self, work: &mut dyn FnMut() -> io::Result<()>) -> Option<io::Result<()>> {
        let mut transaction = match self.volume.begin() {
            Ok(transaction) => transaction,
            Err(error) => return Some(Err(number(error))),
        };
        Some(match work() {
            Ok(()) => transaction.commit().map_err(number),
            Err(error) => transaction.roll_back().map_err(number).and(Err(error)),
        })
    }
}

struct LibraryFile {
    volume: Arc<HostVolume>,
    inode: InodeNumber,
    position: u64,
    sync: bool,
    open: bool,
}

impl OpenFile for LibraryFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_at(data, self.position)?;
        self.position = self.position.saturating_add(data.len() as u64);
        Ok(())
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.position = offset;
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.volume.read(self.inode, offset, buffer).map_err(number)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.volume.write(self.inode, offset, data, self.sync).map_err(number)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.volume.set_attributes(self.inode, &set).map(|_| ()).map_err(number)
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.volume.fsync().map_err(number)
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.open = false;
        let closed = self.volume.closed().map_err(number);
        self.volume.release(self.inode);
        closed
    }

    fn descriptor(&self) -> Option<&File> {
        None
    }
}

impl Drop for LibraryFile {
    fn drop(&mut self) {
        if self.open {
            // Errors have no recipient here; a caller that needs them calls `close`.
            let _ = self.volume.closed();
            self.volume.release(self.inode);
        }
    }
}
