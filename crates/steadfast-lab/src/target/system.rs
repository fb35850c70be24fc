//! [`Files`] by system calls on a directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};
use steadfast_fuse::ioctl;

use super::files::{Files, Kind, Open, OpenFile, Stat};

/// A directory of the running system.
#[derive(Debug)]
pub struct SystemFiles {
    root: PathBuf,
    /// The directory is the root of a Steadfast mount.
    transactional: bool,
}

impl SystemFiles {
    /// The files below `root`.
    pub fn new(root: &Path) -> SystemFiles {
        SystemFiles { root: root.to_owned(), transactional: false }
    }

    /// The files of the Steadfast volume that is mounted on `root`.
    pub fn of_steadfast(root: &Path) -> SystemFiles {
        SystemFiles { root: root.to_owned(), transactional: true }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Files for SystemFiles {
    fn open(&self, path: &str, how: Open) -> io::Result<Box<dyn OpenFile>> {
        let mut flags = OFlags::empty();
        flags.set(OFlags::SYNC, how.sync);
        flags.set(OFlags::DIRECT, how.direct);
        let mut options = OpenOptions::new();
        options.read(true).write(how.write).create(how.create).truncate(how.truncate);
        let file = options.custom_flags(flags.bits() as i32).open(self.at(path));
        // EINVAL with O_DIRECT: this file system does not support it.
        let file = file.map_err(|error| {
            match how.direct && error.kind() == io::ErrorKind::InvalidInput {
                true => io::ErrorKind::Unsupported.into(),
                false => error,
            }
        })?;
        Ok(Box::new(SystemFile(file)))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.at(from), self.at(to))
    }

    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(target, self.at(path))
    }

    fn readlink(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read_link(self.at(path)).map(|target| target.into_os_string().into_encoded_bytes())
    }

    fn stat(&self, path: &str) -> io::Result<Stat> {
        let metadata = fs::metadata(self.at(path))?;
        let kind = match metadata.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            _ => Kind::Other,
        };
        Ok(Stat { kind, size: metadata.len(), permissions: metadata.permissions().mode() & 0o7777 })
    }

    fn access(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::access(self.at(path), Access::READ_OK)?)
    }

    fn chmod(&self, path: &str, permissions: u32) -> io::Result<()> {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(permissions))
    }

    fn readdir(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        File::open(self.at(path))?.sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        let root = File::open(&self.root)?;
        rustix::fs::syncfs(&root)?;
        // The kernel does not pass syncfs on to a FUSE daemon, but it does pass on an fsync of the
        // directory.
        root.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn shared(&self) -> Option<&(dyn Files + Sync)> {
        Some(self)
    }

    fn atomically(&self, work: &mut dyn FnMut() -> io::Result<()>) -> Option<io::Result<()>> {
        self.transactional.then(|| {
            let control = File::open(self.root.join(ioctl::CONTROL_FILE))?;
            ioctl::atomic_begin(&control)?;
            // If the work fails, closing the control file rolls back.
            work()?;
            ioctl::atomic_commit(&control)
        })
    }
}

struct SystemFile(File);

impl OpenFile for SystemFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.write_all(data)
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(offset)).map(|_| ())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only { self.0.sync_data() } else { self.0.sync_all() }
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        // Dropping a descriptor hides the result of close(2); the fsync before it reports the same
        // errors and more.
        drop(self.0);
        Ok(())
    }

    fn descriptor(&self) -> Option<&File> {
        Some(&self.0)
    }
}
