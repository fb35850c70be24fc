//! File handles for programs that use a volume without a kernel.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::inode::FileKind;
use crate::fs::flags::FileFlags;
use crate::fs::stat::{Attributes, Caller, NewNode, SetAttributes};
use crate::memory;
use crate::platform::Platform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Options for opening a file. Initially nothing is set; opening needs `read` or `write`.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    sync: bool,
    permissions: u32,
    caller: Caller,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions::new()
    }
}

impl FileOptions {
    /// Nothing set; permissions of a new file: 0644.
    pub const fn new() -> FileOptions {
        FileOptions {
            read: false,
            write: false,
            create: false,
            create_new: false,
            truncate: false,
            sync: false,
            permissions: 0o644,
            caller: Caller { uid: 0, gid: 0, umask: 0 },
        }
    }

    /// Allows reading.
    pub const fn read(mut self, on: bool) -> FileOptions {
        self.read = on;
        self
    }

    /// Allows writing.
    pub const fn write(mut self, on: bool) -> FileOptions {
        self.write = on;
        self
    }

    /// Creates the file if it does not exist.
    pub const fn create(mut self, on: bool) -> FileOptions {
        self.create = on;
        self
    }

    /// Creates the file, and fails with `AlreadyExists` if it exists.
    pub const fn create_new(mut self, on: bool) -> FileOptions {
        self.create_new = on;
        self
    }

    /// Empties the file; needs `write`.
    pub const fn truncate(mut self, on: bool) -> FileOptions {
        self.truncate = on;
        self
    }

    /// Each write is durable when it returns, if the mask has `sync-write` (O_SYNC).
    pub const fn sync(mut self, on: bool) -> FileOptions {
        self.sync = on;
        self
    }

    /// Permission bits of a new file, before umask or default ACL.
    pub const fn permissions(mut self, bits: u32) -> FileOptions {
        self.permissions = bits;
        self
    }

    /// Owner of a new file.
    pub const fn caller(mut self, caller: Caller) -> FileOptions {
        self.caller = caller;
        self
    }
}

/// An open regular file. It stays usable after its name is removed; its space is freed after the
/// last handle is closed.
pub struct File<'v, M: Medium, P: Platform> {
    volume: &'v Volume<M, P>,
    inode: InodeNumber,
    read: bool,
    write: bool,
    /// Flags refuse changes of what the file has.
    append_only: bool,
    sync: bool,
    closed: bool,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Opens a regular file by path; symbolic links are followed.
    ///
    /// ```
    /// # use steadfast::{FormatOptions, OpenOptions, Volume, testing::TestPlatform};
    /// # use steadfast::fs::FileOptions;
    /// # let medium = steadfast_media::MemoryMedium::new(8 << 20, 512).unwrap();
    /// # Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new())?;
    /// # let volume = Volume::open(medium, OpenOptions::default(), TestPlatform::new())?;
    /// let options = FileOptions::new().read(true).write(true).create(true);
    /// let file = volume.open_file("journal", &options)?;
    /// file.append(b"first ")?;
    /// assert_eq!(file.append(b"second")?, 6);
    /// file.write_at(0, b"First")?;
    /// let mut bytes = [0; 5];
    /// assert_eq!(file.read_at(0, &mut bytes)?, 5);
    /// assert_eq!(&bytes, b"First");
    /// file.fsync()?;
    /// file.close()?;
    /// # Ok::<(), steadfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `IsADirectory`, `NotARegularFile`, `InvalidArgument` (neither
    /// `read` nor `write`, or `truncate` without `write`), `NotPermitted` (the file's flags), those
    /// of [`resolve`](Self::resolve) and [`create`](Self::create).
    pub fn open_file(
        &self,
        path: impl AsRef<[u8]>,
        options: &FileOptions,
    ) -> Result<File<'_, M, P>> {
        if !options.read && !options.write {
            return Err(Error::InvalidArgument("open for reading or writing"));
        }
        if options.truncate && !options.write {
            return Err(Error::InvalidArgument("truncate needs write"));
        }
        let (inode, flags) = self.find_or_create(path.as_ref(), options)?;
        // A handle can append, so it needs no option for that.
        flags.check_open(options.write, true, options.truncate)?;
        self.acquire(inode)?;
        let file = File {
            volume: self,
            inode,
            read: options.read,
            write: options.write,
            append_only: flags.intersects(FileFlags::APPEND_ONLY),
            sync: options.sync,
            closed: false,
        };
        if options.truncate && file.attributes()?.size > 0 {
            file.set_size(0)?;
        }
        Ok(file)
    }

    fn find_or_create(
        &self,
        path: &[u8],
        options: &FileOptions,
    ) -> Result<(InodeNumber, FileFlags)> {
        loop {
            let walked = self.walk(path, !options.create_new)?;
            match walked.found {
                Some(_) if options.create_new => return Err(Error::AlreadyExists),
                Some(found) => {
                    return match found.kind {
                        FileKind::Regular => Ok((found.inode, found.flags)),
                        FileKind::Directory => Err(Error::IsADirectory),
                        _ => Err(Error::NotARegularFile),
                    };
                }
                None if !options.create && !options.create_new => return Err(Error::NotFound),
                None => {
                    let node = NewNode::Regular;
                    let made = self.create(
                        walked.directory,
                        &walked.name,
                        node,
                        options.permissions,
                        &options.caller,
                    );
                    match made {
                        // Another caller created the file first: open that file.
                        Err(Error::AlreadyExists) if !options.create_new => {}
                        made => return Ok((made?.inode, FileFlags::NONE)),
                    }
                }
            }
        }
    }
}

impl<M: Medium, P: Platform> File<'_, M, P> {
    /// The inode.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    /// The attributes that `stat` shows.
    ///
    /// # Errors
    /// `Stale` after a rollback to a state before the file was made.
    pub fn attributes(&self) -> Result<Attributes> {
        self.volume.attributes(self.inode)
    }

    fn check_read(&self) -> Result<()> {
        if self.read { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn check_append(&self) -> Result<()> {
        if self.write { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn check_write(&self) -> Result<()> {
        if self.append_only { Err(Error::NotPermitted) } else { self.check_append() }
    }

    /// Fills the start of `buffer` from byte `offset`; see [`Volume::read`].
    ///
    /// # Errors
    /// `NotPermitted` if it is not open for reading, and those of [`Volume::read`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.check_read()?;
        self.volume.read(self.inode, offset, buffer)
    }

    /// Reads all bytes.
    ///
    /// # Errors
    /// `OutOfMemory` if they do not fit memory, and those of [`read_at`](Self::read_at).
    pub fn read_all(&self) -> Result<Vec<u8>> {
        self.check_read()?;
        let size = usize::try_from(self.attributes()?.size).map_err(|_| Error::OutOfMemory)?;
        let mut bytes = memory::zeroed(size)?;
        let count = self.read_at(0, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes all of `data` at byte `offset`; see [`Volume::write`].
    ///
    /// # Errors
    /// `NotPermitted` if it is not open for writing, or was append-only when it was opened, and
    /// those of [`Volume::write`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_write()?;
        self.volume.write(self.inode, offset, data, self.sync)
    }

    /// Writes all of `data` at the end. Returns the offset used.
    ///
    /// # Errors
    /// `NotPermitted` if it is not open for writing, and those of [`Volume::append`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.check_append()?;
        self.volume.append(self.inode, data, self.sync)
    }

    /// Sets the size, bytes: a smaller size truncates, a larger one leaves a hole.
    ///
    /// # Errors
    /// `NotPermitted` if it is not open for writing, or by the file's flags; `FileTooLarge`.
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.check_write()?;
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.volume.set_attributes(self.inode, &set).map(drop)
    }

    /// Makes everything accepted so far durable, if the mask has `fsync`.
    ///
    /// # Errors
    /// Those of the transaction point.
    pub fn fsync(&self) -> Result<()> {
        self.volume.fsync()
    }

    /// Closes the file. Dropping it does the same and hides errors.
    ///
    /// # Errors
    /// Those of the transaction point, if the mask has `close` and the file was open for writing.
    pub fn close(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.volume.release(self.inode);
        if self.write { self.volume.closed() } else { Ok(()) }
    }
}

impl<M: Medium, P: Platform> Drop for File<'_, M, P> {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
