//! [`Files`] by calls of the `fatfs` crate.
//!
//! FAT has no links, no permissions and no rename over a file. The first two are not supported. The
//! third takes two steps, as usual on FAT.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::rc::Rc;

use fatfs::{Dir, FileSystem};
use self_cell::self_cell;

use super::super::files::{Files, Kind, Open, OpenFile, Stat};
use super::pages::{Below, Pages};

/// The storage below a FAT.
pub(super) type Store = Box<dyn Below>;

/// The pages, shared by the file system and by the code that makes them durable.
pub(super) struct Shared(Rc<RefCell<Pages<Store>>>);

impl Shared {
    pub fn new(pages: Pages<Store>) -> Shared {
        Shared(Rc::new(RefCell::new(pages)))
    }

    pub fn pages(&self) -> std::cell::RefMut<'_, Pages<Store>> {
        self.0.borrow_mut()
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pages().read(buffer)
    }
}

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.pages().write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pages().flush()
    }
}

impl Seek for Shared {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.pages().seek(to)
    }
}

/// A mounted FAT.
pub(super) struct FatFiles {
    system: Rc<FileSystem<Shared>>,
    pages: Shared,
    /// Each flush of the storage below is a transaction point, and nothing else is.
    transactional: bool,
}

impl FatFiles {
    /// Mounts the FAT.
    ///
    /// # Errors
    /// There is no FAT.
    pub fn mount(below: Store, transactional: bool) -> io::Result<FatFiles> {
        let pages = Shared::new(Pages::new(below));
        let system = FileSystem::new(pages.clone(), fatfs::FsOptions::new()).map_err(translate)?;
        Ok(FatFiles { system: Rc::new(system), pages, transactional })
    }

    /// Writes the contents of memory, and marks the volume as properly closed.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn unmount(self) -> io::Result<()> {
        // Every open file has ended by now; a remaining one would keep the file system alive.
        if let Some(system) = Rc::into_inner(self.system) {
            system.unmount()?;
        }
        self.pages.pages().flush()
    }

    /// Drops everything that is not durable.
    pub fn cut_power(&self) {
        self.pages.pages().cut();
    }

    fn root(&self) -> Dir<'_, Shared> {
        self.system.root_dir()
    }
}

/// The error of an operating system for this error. The crate has texts for most errors, and
/// numbers for few.
fn translate(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::Other {
        let text = error.to_string();
        let kind = match text.as_str() {
            _ if text.contains("No space") => io::ErrorKind::StorageFull,
            "Is a directory" => io::ErrorKind::IsADirectory,
            "Not a directory" => io::ErrorKind::NotADirectory,
            "Directory not empty" => io::ErrorKind::DirectoryNotEmpty,
            _ => return error,
        };
        return kind.into();
    }
    // A cluster is needed and none is free: the crate writes nothing and reports that.
    if error.kind() == io::ErrorKind::WriteZero { io::ErrorKind::StorageFull.into() } else { error }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Files for FatFiles {
    fn open(&self, path: &str, how: Open) -> io::Result<Box<dyn OpenFile>> {
        if how.direct {
            return unsupported();
        }
        let cell = OpenFatFile::try_new(self.system.clone(), |system| {
            let root = system.root_dir();
            let file = if how.create { root.create_file(path) } else { root.open_file(path) };
            let mut file = file.map_err(translate)?;
            if how.truncate {
                file.truncate().map_err(translate)?;
            }
            Ok::<_, io::Error>(RefCell::new(Positioned { file, position: 0 }))
        })?;
        Ok(Box::new(FatFile { cell, position: 0, sync: how.sync }))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        if self.stat(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.root().create_dir(path).map(|_| ()).map_err(translate)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.root().remove(path).map_err(translate)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.root().remove(path).map_err(translate)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let root = self.root();
        match root.rename(from, &root, to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                root.remove(to).map_err(translate)?;
                root.rename(from, &root, to).map_err(translate)
            }
            renamed => renamed.map_err(translate),
        }
    }

    fn link(&self, _: &str, _: &str) -> io::Result<()> {
        unsupported()
    }

    fn symlink(&self, _: &str, _: &str) -> io::Result<()> {
        unsupported()
    }

    fn readlink(&self, _: &str) -> io::Result<Vec<u8>> {
        unsupported()
    }

    fn stat(&self, path: &str) -> io::Result<Stat> {
        let root = self.root();
        match root.open_file(path) {
            Ok(mut file) => {
                let size = file.seek(SeekFrom::End(0)).map_err(translate)?;
                Ok(Stat { kind: Kind::File, size, permissions: 0o644 })
            }
            Err(_) => {
                root.open_dir(path).map_err(translate)?;
                Ok(Stat { kind: Kind::Directory, size: 0, permissions: 0o755 })
            }
        }
    }

    fn access(&self, path: &str) -> io::Result<()> {
        self.stat(path).map(|_| ())
    }

    fn chmod(&self, _: &str, _: u32) -> io::Result<()> {
        unsupported()
    }

    fn readdir(&self, path: &str) -> io::Result<Vec<String>> {
        let root = self.root();
        let directory =
            if path.is_empty() { root } else { root.open_dir(path).map_err(translate)? };
        let mut names = Vec::new();
        for entry in directory.iter() {
            let name = entry.map_err(translate)?.file_name();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        self.pages.pages().flush()
    }

    fn free(&self) -> io::Result<u64> {
        let found = self.system.stats().map_err(translate)?;
        Ok(u64::from(found.free_clusters()) * u64::from(found.cluster_size()))
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn atomically(&self, work: &mut dyn FnMut() -> io::Result<()>) -> Option<io::Result<()>> {
        // Earlier changes get their own transaction point, so that this one contains nothing else.
        self.transactional.then(|| {
            self.sync()?;
            work()?;
            self.sync()
        })
    }
}

/// A file and its position. A seek walks the chain of clusters, so it is skipped if the position is
/// right already.
struct Positioned<'s> {
    file: fatfs::File<'s, Shared>,
    position: u64,
}

impl Positioned<'_> {
    fn go_to(&mut self, offset: u64) -> io::Result<u64> {
        if self.position != offset {
            self.position = self.file.seek(SeekFrom::Start(offset)).map_err(translate)?;
        }
        Ok(self.position)
    }

    fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.go_to(offset)? != offset {
            // The offset is beyond the end.
            return Ok(0);
        }
        let mut done = 0;
        // The crate reads at most one cluster at a time.
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read(rest).map_err(translate)? {
                0 => break,
                count => done += count,
            }
        }
        self.position += done as u64;
        Ok(done)
    }

    fn write(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        // FAT has no holes, so the gap is written.
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.go_to(offset)? < offset {
            let count =
                usize::try_from(offset - self.position).unwrap_or(usize::MAX).min(ZEROS.len());
            self.put(&ZEROS[..count])?;
        }
        self.put(data)
    }

    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(data).map_err(translate);
        match written {
            Ok(()) => self.position += data.len() as u64,
            // The position is unknown now.
            Err(_) => self.position = u64::MAX,
        }
        written
    }
}

type Owner = Rc<FileSystem<Shared>>;
type Inner<'s> = RefCell<Positioned<'s>>;

self_cell!(
    struct OpenFatFile {
        owner: Owner,
        #[not_covariant]
        dependent: Inner,
    }
);

struct FatFile {
    cell: OpenFatFile,
    position: u64,
    sync: bool,
}

impl FatFile {
    fn with<T>(&self, work: impl FnOnce(&mut Positioned<'_>) -> io::Result<T>) -> io::Result<T> {
        self.cell.with_dependent(|_, inner| work(&mut inner.borrow_mut()))
    }
}

impl OpenFile for FatFile {
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
        self.with(|inner| inner.read(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.with(|inner| inner.write(data, offset))?;
        if self.sync { self.sync(true) } else { Ok(()) }
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.with(|inner| {
            if inner.go_to(size)? == size {
                return inner.file.truncate().map_err(translate);
            }
            inner.write(&[], size)
        })
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.with(|inner| inner.file.flush().map_err(translate))
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        // Dropping the file writes its directory entry; that never fails before the pages are
        // written.
        Ok(())
    }

    fn descriptor(&self) -> Option<&std::fs::File> {
        None
    }
}
