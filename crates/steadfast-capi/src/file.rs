//! Open files.

use alloc::boxed::Box;
use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;

use engine::Platform;
use engine::fs::{AllocateMode, Caller, File, FileOptions, SeekTo};

use crate::Surroundings;
use crate::codes;
use crate::error::Failure;
use crate::guard::{
    Outcome, bytes, bytes_mut, call, call_int, check_flags, check_length_of, check_place,
    reference, store, text,
};
use crate::medium::AnyMedium;
use crate::types::sf_attributes;
use crate::volume::{boxed, on, sf_volume, with};

/// Open for reading.
pub const SF_READ: u32 = 1;
/// Open for writing.
pub const SF_WRITE: u32 = 2;
/// Create the file if it does not exist.
pub const SF_CREATE: u32 = 4;
/// With SF_CREATE: fail with -SF_EEXIST if the file exists.
pub const SF_EXCLUSIVE: u32 = 8;
/// Truncate the file to 0 bytes; needs SF_WRITE.
pub const SF_TRUNCATE: u32 = 16;
/// `sf_write` appends to the end of the file.
pub const SF_APPEND: u32 = 32;
/// Each write is a transaction point, if the mask has SF_ON_SYNC_WRITE.
pub const SF_SYNC: u32 = 64;

/// `sf_seek`: from the start.
pub const SF_SEEK_SET: c_int = 0;
/// `sf_seek`: from the current position.
pub const SF_SEEK_CUR: c_int = 1;
/// `sf_seek`: from the end.
pub const SF_SEEK_END: c_int = 2;
/// `sf_seek`: the first data at or after this offset.
pub const SF_SEEK_DATA: c_int = 3;
/// `sf_seek`: the first hole at or after this offset; the end of the file counts as a hole.
pub const SF_SEEK_HOLE: c_int = 4;

/// `sf_allocate`: keep the size of the file.
pub const SF_KEEP_SIZE: u32 = 1;
/// `sf_allocate`: make the range a hole, which frees its space. The size of the file stays the
/// same.
pub const SF_PUNCH_HOLE: u32 = 2;

/// An open file. Several threads may use it at the same time, except for closing it. `sf_read`,
/// `sf_write` and `sf_seek` share one position and run one at a time.
pub struct sf_file {
    file: ManuallyDrop<File<'static, AnyMedium, Surroundings>>,
    volume: &'static sf_volume,
    position: lock_api::Mutex<<Surroundings as Platform>::Mutex, u64>,
    flags: u32,
}

impl Drop for sf_file {
    fn drop(&mut self) {
        // SAFETY: the field is dropped only here. `sf_file_close` takes the field out and never
        // runs this drop.
        unsafe { ManuallyDrop::drop(&mut self.file) };
        self.volume.let_go();
    }
}

impl sf_file {
    pub(crate) fn check_open_for(&self, flag: u32) -> Outcome {
        if self.flags & flag != 0 {
            return Ok(());
        }
        let what = if flag == SF_READ { "reading" } else { "writing" };
        Err(Failure::new(codes::SF_EBADF, format_args!("the file is not open for {what}")))
    }

    /// The part of the caller's buffer that the file can fill from `offset`.
    ///
    /// # Safety
    /// As [`bytes_mut`].
    unsafe fn room<'a>(
        &self,
        buffer: *mut c_void,
        length: usize,
        offset: u64,
    ) -> Outcome<&'a mut [u8]> {
        check_length_of(buffer.cast::<u8>(), length, "buffer")?;
        let left = self.file.attributes()?.size.saturating_sub(offset);
        let fills = usize::try_from(left).map_or(length, |left| left.min(length));
        // SAFETY: the caller guarantees `length` bytes, and `fills` is at most `length`.
        unsafe { bytes_mut(buffer, fills, "buffer") }
    }

    pub(crate) fn volume(&self) -> &'static sf_volume {
        self.volume
    }

    pub(crate) fn inode(&self) -> engine::InodeNumber {
        self.file.inode()
    }
}

/// Runs work on a file.
///
/// # Safety
/// `file` is NULL, or came from `sf_file_open` and is not closed.
pub(crate) unsafe fn on_file<T>(
    file: *const sf_file,
    work: impl FnOnce(&sf_file) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: the caller keeps the contract in `# Safety`, so a pointer that is not NULL is valid.
    let file = unsafe { reference(file, "file") }?;
    on(file.volume, |_| work(file))
}

/// Converts an offset, which must not be negative.
pub(crate) fn offset_of(offset: i64, name: &str) -> Outcome<u64> {
    u64::try_from(offset).map_err(|_| Failure::invalid(format_args!("{name} is negative")))
}

/// Opens a regular file and follows symbolic links. `flags`: SF_READ, SF_WRITE or both, with
/// SF_CREATE, SF_EXCLUSIVE, SF_TRUNCATE, SF_APPEND, SF_SYNC. `mode`: permissions of a new file,
/// such as 0644. On failure `*file` is unchanged. An open file stays usable after its name is
/// removed. After a rollback to before its creation it returns -SF_ESTALE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_file_open(
    volume: *mut sf_volume,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut sf_file,
) -> c_int {
    call_int("sf_file_open", || {
        check_place(file, "file")?;
        let known =
            SF_READ | SF_WRITE | SF_CREATE | SF_EXCLUSIVE | SF_TRUNCATE | SF_APPEND | SF_SYNC;
        check_flags(flags, known)?;
        if flags & SF_EXCLUSIVE != 0 && flags & SF_CREATE == 0 {
            return Err(Failure::invalid("SF_EXCLUSIVE needs SF_CREATE"));
        }
        // SAFETY: the header requires an open volume and a C string.
        let path = unsafe { text(path, "path") }?;
        let has = |flag| flags & flag != 0;
        let options = FileOptions::new()
            .read(has(SF_READ))
            .write(has(SF_WRITE))
            .create(has(SF_CREATE))
            .create_new(has(SF_EXCLUSIVE))
            .truncate(has(SF_TRUNCATE))
            .sync(has(SF_SYNC))
            .permissions(mode & 0o7777)
            .caller(Caller::default());
        // SAFETY: as above, the volume is open.
        let opened = unsafe {
            with(volume, |volume| {
                let volume = volume.hold();
                let opened =
                    volume.core.open_file(path, &options).inspect_err(|_| volume.let_go())?;
                boxed(sf_file {
                    file: ManuallyDrop::new(opened),
                    volume,
                    position: lock_api::Mutex::new(0),
                    flags,
                })
            })
        }?;
        // SAFETY: the header requires room for a pointer.
        unsafe { store(file, Box::into_raw(opened), "file") }
    })
}

/// Closes a file. The pointer becomes invalid, whatever this function returns. NULL is allowed and
/// does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_file_close(file: *mut sf_file) -> c_int {
    call_int("sf_file_close", || {
        if file.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires an open file that no other thread uses any more.
        unsafe { reference(file, "file") }?;
        // SAFETY: as above; `sf_file_open` created the box.
        let mut closing = ManuallyDrop::new(unsafe { Box::from_raw(file) });
        let volume = closing.volume;
        // SAFETY: taken out once. The drop of `closing`, which would drop it again, never runs.
        let file = unsafe { ManuallyDrop::take(&mut closing.file) };
        // SAFETY: frees the memory of the box, with its own layout, without dropping the contents.
        unsafe {
            alloc::alloc::dealloc(
                (&raw mut **closing).cast(),
                core::alloc::Layout::new::<sf_file>(),
            )
        };
        let closed = on(volume, |_| Ok(file.close()?));
        volume.let_go();
        closed
    })
}

/// Reads up to `length` bytes at `offset`. Returns the number of bytes: less than `length` only at
/// the end of the file, 0 at or after the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_pread(
    file: *mut sf_file,
    buffer: *mut c_void,
    length: usize,
    offset: i64,
) -> i64 {
    call("sf_pread", || {
        // SAFETY: the header requires an open file and a buffer of this length.
        unsafe {
            on_file(file, |file| {
                file.check_open_for(SF_READ)?;
                let offset = offset_of(offset, "offset")?;
                let buffer = file.room(buffer, length, offset)?;
                Ok(file.file.read_at(offset, buffer)?)
            })
        }
    })
}

/// Writes all of `data` at `offset`. Returns `length` or an error. After an error a first part of
/// `data` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_pwrite(
    file: *mut sf_file,
    data: *const c_void,
    length: usize,
    offset: i64,
) -> i64 {
    call("sf_pwrite", || {
        // SAFETY: the header requires an open file and data of this length.
        unsafe {
            on_file(file, |file| {
                file.check_open_for(SF_WRITE)?;
                let data = bytes(data, length, "data")?;
                file.file.write_at(offset_of(offset, "offset")?, data)?;
                Ok(length)
            })
        }
    })
}

/// Reads up to `length` bytes at the position of the file and advances it. Returns the number of
/// bytes; 0 at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_read(file: *mut sf_file, buffer: *mut c_void, length: usize) -> i64 {
    call("sf_read", || {
        // SAFETY: the header requires an open file and a buffer of this length.
        unsafe {
            on_file(file, |file| {
                file.check_open_for(SF_READ)?;
                let mut position = file.position.lock();
                let buffer = file.room(buffer, length, *position)?;
                let count = file.file.read_at(*position, buffer)?;
                *position = position.saturating_add(count as u64);
                Ok(count)
            })
        }
    })
}

/// Writes all of `data` at the position of the file (with SF_APPEND: at its end) and advances it.
/// Returns `length` or an error. After an error the position is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_write(file: *mut sf_file, data: *const c_void, length: usize) -> i64 {
    call("sf_write", || {
        // SAFETY: the header requires an open file and data of this length.
        unsafe {
            on_file(file, |file| {
                file.check_open_for(SF_WRITE)?;
                let data = bytes(data, length, "data")?;
                let mut position = file.position.lock();
                if file.flags & SF_APPEND != 0 {
                    *position = file.file.append(data)?;
                } else {
                    file.file.write_at(*position, data)?;
                }
                *position = position.saturating_add(length as u64);
                Ok(length)
            })
        }
    })
}

/// Moves the position of the file; `whence` is one of SF_SEEK_…. Returns the new position.
/// -SF_ENXIO: no data follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_seek(file: *mut sf_file, offset: i64, whence: c_int) -> i64 {
    call("sf_seek", || {
        let work = |file: &sf_file| {
            let mut position = file.position.lock();
            let base = match whence {
                SF_SEEK_SET => 0,
                SF_SEEK_CUR => *position,
                SF_SEEK_END => file.file.attributes()?.size,
                SF_SEEK_DATA | SF_SEEK_HOLE => {
                    let to = if whence == SF_SEEK_DATA { SeekTo::Data } else { SeekTo::Hole };
                    let offset = offset_of(offset, "offset")?;
                    *position = file.volume.core.seek(file.inode(), offset, to)?;
                    return Ok(*position);
                }
                _ => return Err(Failure::invalid("whence is none of SF_SEEK_...")),
            };
            let target =
                base.checked_add_signed(offset).filter(|target| i64::try_from(*target).is_ok());
            *position =
                target.ok_or_else(|| Failure::invalid("the position would leave the file"))?;
            Ok(*position)
        };
        // SAFETY: the header requires an open file.
        unsafe { on_file(file, work) }
    })
}

/// Sets the size of a file. A smaller size cuts the file; a larger size adds a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_file_truncate(file: *mut sf_file, size: i64) -> c_int {
    call_int("sf_file_truncate", || {
        let work = |file: &sf_file| {
            file.check_open_for(SF_WRITE)?;
            Ok(file.file.set_size(offset_of(size, "size")?)?)
        };
        // SAFETY: the header requires an open file.
        unsafe { on_file(file, work) }
    })
}

/// Allocates space for a range, so that writes to it do not run out of space. `flags`: 0,
/// SF_KEEP_SIZE, or SF_PUNCH_HOLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_allocate(
    file: *mut sf_file,
    offset: i64,
    length: i64,
    flags: u32,
) -> c_int {
    call_int("sf_allocate", || {
        let mode = match flags {
            0 => AllocateMode::Allocate { keep_size: false },
            SF_KEEP_SIZE => AllocateMode::Allocate { keep_size: true },
            SF_PUNCH_HOLE => AllocateMode::PunchHole,
            _ => return Err(Failure::invalid("flags are not 0, SF_KEEP_SIZE or SF_PUNCH_HOLE")),
        };
        let work = |file: &sf_file| {
            file.check_open_for(SF_WRITE)?;
            let (offset, length) = (offset_of(offset, "offset")?, offset_of(length, "length")?);
            Ok(file.volume.core.allocate(file.inode(), offset, length, mode)?)
        };
        // SAFETY: the header requires an open file.
        unsafe { on_file(file, work) }
    })
}

/// Makes everything accepted so far durable if the mask has SF_ON_FSYNC. Otherwise returns
/// immediately.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_fsync(file: *mut sf_file) -> c_int {
    // SAFETY: the header requires an open file.
    call_int("sf_fsync", || unsafe { on_file(file, |file| Ok(file.file.fsync()?)) })
}

/// Returns the attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_file_stat(file: *mut sf_file, attributes: *mut sf_attributes) -> c_int {
    call_int("sf_file_stat", || {
        check_place(attributes, "attributes")?;
        // SAFETY: the header requires an open file.
        let found = unsafe { on_file(file, |file| Ok(file.file.attributes()?)) }?;
        // SAFETY: the header requires room for the structure.
        unsafe { store(attributes, sf_attributes::from(&found), "attributes") }
    })
}

/// Reads a whole file of at most `size` bytes. Returns its length. -SF_ERANGE: the file is longer,
/// and nothing was read. With `size` 0 the function only returns the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_read_file(
    volume: *mut sf_volume,
    path: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    call("sf_read_file", || {
        // SAFETY: the header requires an open volume, a C string and a buffer of this size.
        unsafe {
            let path = text(path, "path")?;
            check_length_of(buffer.cast::<u8>(), size, "buffer")?;
            with(volume, |volume| {
                let file = volume.core.open_file(path, &FileOptions::new().read(true))?;
                let length = file.attributes()?.size;
                if size == 0 {
                    return Ok(length);
                }
                let Some(fills) = usize::try_from(length).ok().filter(|length| *length <= size)
                else {
                    return Err(Failure::new(
                        codes::SF_ERANGE,
                        format_args!("the file has {length} bytes, the buffer {size}"),
                    ));
                };
                Ok(file.read_at(0, bytes_mut(buffer, fills, "buffer")?)? as u64)
            })
        }
    })
}

/// Makes a file hold exactly `data`. Creates the file with permissions 0644 if it does not exist.
/// To change several files atomically, call `sf_transact` after the last one, with no other event
/// in the mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_write_file(
    volume: *mut sf_volume,
    path: *const c_char,
    data: *const c_void,
    length: usize,
) -> c_int {
    call_int("sf_write_file", || {
        // SAFETY: the header requires an open volume, a C string and data of this length.
        unsafe {
            let path = text(path, "path")?;
            let data = bytes(data, length, "data")?;
            with(volume, |volume| Ok(volume.core.file_write_all(path, data)?))
        }
    })
}
