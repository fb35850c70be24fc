//! The operations of workloads on files, independent of the file system.
//!
//! Paths are relative, with `/` between names. Errors are those of the operating system. An
//! operation that a file system does not have returns [`io::ErrorKind::Unsupported`], which skips
//! the test.

use std::io;
use std::path::Path;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Open {
    /// For writing as well as reading.
    pub write: bool,
    /// Make it if it does not exist.
    pub create: bool,
    /// Empty it.
    pub truncate: bool,
    /// O_SYNC: each write is durable when it returns.
    pub sync: bool,
    /// O_DIRECT: bypasses the page cache. Buffers, offsets and lengths must be multiples of 4096
    /// then.
    pub direct: bool,
}

impl Open {
    /// For reading.
    pub const READ: Open =
        Open { write: false, create: false, truncate: false, sync: false, direct: false };
    /// For reading and writing an existing file.
    pub const WRITE: Open = Open { write: true, ..Open::READ };
    /// A new file, or an emptied old one, for reading and writing.
    pub const CREATE: Open = Open { write: true, create: true, truncate: true, ..Open::READ };
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// The attributes from `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The kind.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub permissions: u32,
}

/// A mounted file system.
pub trait Files {
    /// Opens a regular file.
    ///
    /// # Errors
    /// Those of open(2).
    fn open(&self, path: &str, how: Open) -> io::Result<Box<dyn OpenFile>>;
    /// Makes a directory.
    ///
    /// # Errors
    /// Those of mkdir(2).
    fn mkdir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    fn rmdir(&self, path: &str) -> io::Result<()>;
    /// Removes a name of an object that is not a directory.
    ///
    /// # Errors
    /// Those of unlink(2).
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Renames; an existing file of that name is replaced.
    ///
    /// # Errors
    /// Those of rename(2).
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file a second name.
    ///
    /// # Errors
    /// Those of link(2).
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of symlink(2).
    fn symlink(&self, target: &str, path: &str) -> io::Result<()>;
    /// Reads a symbolic link.
    ///
    /// # Errors
    /// Those of readlink(2).
    fn readlink(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Attributes, symbolic links followed.
    ///
    /// # Errors
    /// Those of stat(2).
    fn stat(&self, path: &str) -> io::Result<Stat>;
    /// Checks read permission.
    ///
    /// # Errors
    /// Those of access(2).
    fn access(&self, path: &str) -> io::Result<()>;
    /// Changes the permission bits.
    ///
    /// # Errors
    /// Those of chmod(2).
    fn chmod(&self, path: &str, permissions: u32) -> io::Result<()>;
    /// The names in a directory, without `.` and `..`, in any order.
    ///
    /// # Errors
    /// Those of getdents(2).
    fn readdir(&self, path: &str) -> io::Result<Vec<String>>;
    /// Makes a directory's names durable: fsync on the directory.
    ///
    /// # Errors
    /// Those of fsync(2).
    fn sync_directory(&self, path: &str) -> io::Result<()>;
    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of syncfs(2).
    fn sync(&self) -> io::Result<()>;
    /// Bytes that are free for files.
    ///
    /// # Errors
    /// Those of statfs(2).
    fn free(&self) -> io::Result<u64>;
    /// The directory, if there is one: for programs (fio, SQLite) and memory maps.
    fn directory(&self) -> Option<&Path>;
    /// The same object for any number of threads, if it supports that.
    fn shared(&self) -> Option<&(dyn Files + Sync)> {
        None
    }
    /// Does `work` so that all its changes are durable when this returns. After a power cut
    /// meanwhile, all of them exist or none. `None`: the file system has no such operation, and
    /// nothing was done.
    fn atomically(&self, _work: &mut dyn FnMut() -> io::Result<()>) -> Option<io::Result<()>> {
        None
    }
}

/// An open regular file. Dropping it also closes it, but hides errors.
pub trait OpenFile {
    /// Reads at the position and moves it: `read`.
    ///
    /// # Errors
    /// Those of read(2).
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all at the position and moves it: `write`.
    ///
    /// # Errors
    /// Those of write(2).
    fn write(&mut self, data: &[u8]) -> io::Result<()>;
    /// Moves the position: `lseek`.
    ///
    /// # Errors
    /// Those of lseek(2).
    fn seek(&mut self, offset: u64) -> io::Result<()>;
    /// Reads at an offset: `pread`.
    ///
    /// # Errors
    /// Those of pread(2).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all at an offset: `pwrite`.
    ///
    /// # Errors
    /// Those of pwrite(2).
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Sets the size: `ftruncate`.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    fn set_len(&self, size: u64) -> io::Result<()>;
    /// fsync, or fdatasync with `data_only`.
    ///
    /// # Errors
    /// Those of fsync(2).
    fn sync(&self, data_only: bool) -> io::Result<()>;
    /// Closes the file and reports errors.
    ///
    /// # Errors
    /// Those of close(2).
    fn close(self: Box<Self>) -> io::Result<()>;
    /// The descriptor of the operating system, if there is one, for memory maps.
    fn descriptor(&self) -> Option<&std::fs::File>;
}
