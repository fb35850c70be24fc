//! Going back: rollback, changes of several files as one, and snapshots. The structures are those
//! of the ioctls in `steadfast-ioctl.h`.

use core::ffi::{CStr, c_char, c_int};
use core::slice;

use steadfast::fs::FileKind;
use steadfast::{Error, InodeChange, InodeNumber, Snapshot, Transaction};

use crate::Core;
use crate::errno::{code, errno};
use crate::medium::BlockDevice;
use crate::platform::Kernel;

/// A snapshot.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct sfk_snapshot {
    pub name: [u8; 64],
    pub generation: u64,
    pub created_seconds: i64,
    pub inodes: u64,
    pub used_blocks: u64,
    pub created_nanoseconds: u32,
    pub flags: u32,
}

/// An inode that differs between two states.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sfk_difference {
    /// Its number.
    pub inode: u64,
    /// As `d_type`.
    pub kind: u32,
    /// From bit 0: created, removed, content, attributes, entries, times.
    pub flags: u32,
}

impl From<&Snapshot> for sfk_snapshot {
    fn from(found: &Snapshot) -> sfk_snapshot {
        sfk_snapshot {
            name: crate::volume::padded(&found.name),
            generation: found.generation.0,
            created_seconds: found.created.seconds,
            inodes: found.inodes,
            used_blocks: found.used_blocks,
            created_nanoseconds: found.created.nanoseconds,
            flags: 0,
        }
    }
}

impl From<&InodeChange> for sfk_difference {
    fn from(change: &InodeChange) -> sfk_difference {
        sfk_difference { inode: change.inode.0, kind: change.kind as u32, flags: change.bits() }
    }
}

// `kind` is that of `d_type`.
const _: () = assert!(FileKind::Regular as u32 == 8 && size_of::<sfk_snapshot>() == 104);

/// A name of C.
///
/// # Safety
/// The text ends with a zero.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: the caller passes such a text.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Error::InvalidName)
}

/// Returns the volume to the last transaction point.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_rollback(volume: &Core) -> c_int {
    code(volume.rollback())
}

/// Sets a transaction point, and from here on `sfk_atomic_commit` alone sets the next one.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_atomic_begin(volume: &Core) -> c_int {
    code(volume.begin().map(Transaction::detach))
}

/// Whether an atomic change is under way.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_atomic_runs(volume: &Core) -> bool {
    volume.is_held()
}

/// Ends the atomic change, if that has a way to end; otherwise it stays open without an owner.
fn end(
    volume: &Core,
    how: impl Fn(&mut Transaction<'_, BlockDevice, Kernel>) -> Result<(), Error>,
) -> c_int {
    code(volume.resume().and_then(|mut open| {
        let result = how(&mut open);
        open.detach();
        result
    }))
}

/// Makes everything since `sfk_atomic_begin` durable. After an error it may still run.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_atomic_commit(volume: &Core) -> c_int {
    end(volume, |open| open.try_commit())
}

/// Returns the volume to `sfk_atomic_begin`. After an error it may still run.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_atomic_roll_back(volume: &Core) -> c_int {
    end(volume, |open| open.roll_back())
}

/// Takes a snapshot of everything accepted so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_create(
    volume: &Core,
    name: *const c_char,
    out: *mut sfk_snapshot,
) -> c_int {
    // SAFETY: the kernel's side passes texts that end with a zero.
    match unsafe { text(name) }.and_then(|name| volume.snapshot_create(name)) {
        Ok(made) => {
            // SAFETY: `out` is valid.
            unsafe { out.write((&made).into()) };
            0
        }
        Err(error) => -errno(&error),
    }
}

/// Deletes a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_delete(volume: &Core, name: *const c_char) -> c_int {
    // SAFETY: the kernel's side passes texts that end with a zero.
    code(unsafe { text(name) }.and_then(|name| volume.snapshot_delete(name)))
}

/// Returns the volume to a snapshot. `newer`: newer snapshots may be deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_rollback(
    volume: &Core,
    name: *const c_char,
    newer: bool,
) -> c_int {
    // SAFETY: the kernel's side passes texts that end with a zero.
    code(unsafe { text(name) }.and_then(|name| volume.snapshot_rollback(name, newer)))
}

/// Writes up to `room` snapshots of later generations than `after` to `out`. Returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_list(
    volume: &Core,
    after: u64,
    out: *mut sfk_snapshot,
    room: usize,
) -> isize {
    // SAFETY: the caller passes memory for so many, which zeros fill.
    let out = unsafe { slice::from_raw_parts_mut(out, room) };
    let found = match volume.snapshots() {
        Ok(found) => found,
        Err(error) => return -(errno(&error) as isize),
    };
    let later = found.iter().filter(|snapshot| snapshot.generation.0 > after);
    out.iter_mut().zip(later).map(|(place, snapshot)| *place = snapshot.into()).count() as isize
}

/// Writes up to `room` inodes from `next` on that differ between the snapshots `before` and
/// `after`. If `after` is empty, the live volume stands for it. Returns their number. `next` is
/// then where the list goes on; 0: it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_diff(
    volume: &Core,
    before: *const c_char,
    after: *const c_char,
    next: &mut u64,
    out: *mut sfk_difference,
    room: usize,
) -> isize {
    // SAFETY: the caller passes memory for so many, which zeros fill.
    let out = unsafe { slice::from_raw_parts_mut(out, room) };
    // SAFETY: the kernel's side passes texts that end with a zero.
    let (before, after) = unsafe { (text(before), text(after)) };
    let found = before.and_then(|before| {
        let after = Some(after?).filter(|name| !name.is_empty());
        volume.snapshot_diff(before, after, InodeNumber(*next), room)
    });
    match found {
        Ok(found) => {
            *next = found.next.map_or(0, |next| next.0);
            let places = out.iter_mut().zip(&found.changes);
            places.map(|(place, change)| *place = change.into()).count() as isize
        }
        Err(error) => -(errno(&error) as isize),
    }
}
