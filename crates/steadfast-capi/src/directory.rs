//! Reading directories.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};

use engine::fs::{DirectoryEntry, FileKind};
use engine::{Error, InodeNumber, Platform};

use crate::error::Failure;
use crate::guard::{call_int, check_place, reference, store, text};
use crate::volume::{boxed, on, sf_volume, with};
use crate::{Surroundings, codes};

/// Longest name, bytes.
pub const SF_NAME_MAX: usize = 255;

/// `sf_entry.kind`: FIFO.
pub const SF_KIND_FIFO: u32 = 1;
/// `sf_entry.kind`: character device.
pub const SF_KIND_CHAR_DEVICE: u32 = 2;
/// `sf_entry.kind`: directory.
pub const SF_KIND_DIRECTORY: u32 = 4;
/// `sf_entry.kind`: block device.
pub const SF_KIND_BLOCK_DEVICE: u32 = 6;
/// `sf_entry.kind`: regular file.
pub const SF_KIND_FILE: u32 = 8;
/// `sf_entry.kind`: symbolic link.
pub const SF_KIND_SYMLINK: u32 = 10;
/// `sf_entry.kind`: socket.
pub const SF_KIND_SOCKET: u32 = 12;

/// The numbers are those of the core.
const _: () = {
    assert!(SF_KIND_FIFO == FileKind::Fifo as u32);
    assert!(SF_KIND_CHAR_DEVICE == FileKind::CharDevice as u32);
    assert!(SF_KIND_DIRECTORY == FileKind::Directory as u32);
    assert!(SF_KIND_BLOCK_DEVICE == FileKind::BlockDevice as u32);
    assert!(SF_KIND_FILE == FileKind::Regular as u32);
    assert!(SF_KIND_SYMLINK == FileKind::Symlink as u32);
    assert!(SF_KIND_SOCKET == FileKind::Socket as u32);
};

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_entry {
    /// Number of the inode.
    pub inode: u64,
    /// One of SF_KIND_…, the numbers of `d_type`.
    pub kind: u32,
    /// Bytes of the name.
    pub length: u32,
    /// The name, zero-terminated.
    pub name: [c_char; 256],
}

/// An open directory. Threads that share it share one position: each entry is returned once in
/// total.
pub struct sf_dir {
    volume: &'static sf_volume,
    inode: InodeNumber,
    place: lock_api::Mutex<<Surroundings as Platform>::Mutex, Place>,
}

/// The position to continue from, and entries read ahead, in reverse order.
struct Place {
    cookie: u64,
    ready: Vec<DirectoryEntry>,
}

impl Place {
    /// After `.` and `..`, which callers do not get.
    const START: Place = Place { cookie: 2, ready: Vec::new() };
}

/// Entries read in one batch.
const CHUNK: usize = 32;

/// Opens a directory for reading its entries. On failure `*directory` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_dir_open(
    volume: *mut sf_volume,
    path: *const c_char,
    directory: *mut *mut sf_dir,
) -> c_int {
    call_int("sf_dir_open", || {
        check_place(directory, "directory")?;
        // SAFETY: the header requires an open volume, a C string and room for a pointer.
        unsafe {
            let path = text(path, "path")?;
            let opened = with(volume, |volume| {
                let found = volume.core.resolve(path, true)?;
                if found.kind != FileKind::Directory {
                    return Err(Error::NotADirectory.into());
                }
                let place = lock_api::Mutex::new(Place::START);
                let volume = volume.hold();
                boxed(sf_dir { volume, inode: found.inode, place }).inspect_err(|_| volume.let_go())
            })?;
            store(directory, Box::into_raw(opened), "directory")
        }
    })
}

/// Copies the next entry, in no particular order and without `.` and `..`. Returns 1, or 0 at the
/// end. An entry that exists during the whole listing is returned exactly once, whatever else
/// changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_dir_read(directory: *mut sf_dir, entry: *mut sf_entry) -> c_int {
    call_int("sf_dir_read", || {
        check_place(entry, "entry")?;
        // SAFETY: the header requires an open directory.
        let directory = unsafe { reference(directory, "directory") }?;
        let next = on(directory.volume, |volume| {
            let mut place = directory.place.lock();
            if place.ready.is_empty() {
                let mut entries =
                    volume.core.read_directory(directory.inode, place.cookie, CHUNK)?;
                entries.reverse();
                place.ready = entries;
            }
            let next = place.ready.pop();
            if let Some(next) = &next {
                place.cookie = next.cookie;
            }
            Ok(next)
        })?;
        let Some(next) = next else { return Ok(false) };
        let mut found = sf_entry {
            inode: next.inode.0,
            kind: next.kind as u32,
            length: next.name.len() as u32,
            name: [0; 256],
        };
        if next.name.len() > SF_NAME_MAX {
            return Err(Failure::new(codes::SF_EUCLEAN, "a name is longer than names can be"));
        }
        for (to, from) in found.name.iter_mut().zip(&next.name) {
            *to = *from as c_char;
        }
        // SAFETY: the header requires room for an entry.
        unsafe { store(entry, found, "entry") }?;
        Ok(true)
    })
}

/// Continues with the first entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_dir_rewind(directory: *mut sf_dir) -> c_int {
    call_int("sf_dir_rewind", || {
        // SAFETY: the header requires an open directory.
        let directory = unsafe { reference(directory, "directory") }?;
        *directory.place.lock() = Place::START;
        Ok(())
    })
}

/// Closes a directory. NULL is allowed and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_dir_close(directory: *mut sf_dir) -> c_int {
    call_int("sf_dir_close", || {
        if directory.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires an open directory, and that no other thread uses it any
        // more.
        unsafe { reference(directory, "directory") }?;
        // SAFETY: as above; `sf_dir_open` created the box.
        let closing = unsafe { Box::from_raw(directory) };
        closing.volume.let_go();
        Ok(())
    })
}
