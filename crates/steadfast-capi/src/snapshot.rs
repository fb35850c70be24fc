//! Snapshots: create, list, compare, open, delete, roll back.

use core::ffi::{c_char, c_int};

use engine::{InodeNumber, Snapshot};

use crate::device::{Callbacks, sf_device};
use crate::error::Failure;
use crate::guard::{
    Outcome, call_int, check_flags, check_length_of, check_place, reference, store, text,
};
use crate::medium::AnyMedium;
use crate::options::{self, sf_open_options};
use crate::volume::{self, sf_volume, with};
use crate::{Core, Surroundings};

/// Longest name of a snapshot, bytes.
pub const SF_SNAPSHOT_NAME_MAX: usize = 63;

/// `sf_snapshot_rollback`: destroy newer snapshots. Without this flag the call fails with
/// -SF_ENOTEMPTY if newer snapshots exist.
pub const SF_DESTROY_NEWER: u32 = 1;

/// `sf_change.flags`: created between the two states.
pub const SF_CHANGE_CREATED: u32 = 1;
/// `sf_change.flags`: removed between the two states.
pub const SF_CHANGE_REMOVED: u32 = 2;
/// `sf_change.flags`: data, size or link target changed.
pub const SF_CHANGE_CONTENT: u32 = 4;
/// `sf_change.flags`: permissions, owner, links or extended attributes changed.
pub const SF_CHANGE_ATTRIBUTES: u32 = 8;
/// `sf_change.flags`: names in this directory changed.
pub const SF_CHANGE_ENTRIES: u32 = 16;
/// `sf_change.flags`: modification time or change time changed.
pub const SF_CHANGE_TIMES: u32 = 32;

/// A snapshot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_snapshot {
    /// Orders snapshots by age.
    pub generation: u64,
    /// Creation time: seconds since 1970.
    pub created_s: i64,
    /// Creation time: nanoseconds within the second.
    pub created_ns: u32,
    /// Zero.
    pub reserved: u32,
    /// Inodes in the snapshot.
    pub inodes: u64,
    /// Blocks that the snapshot refers to. Most of them are usually shared with neighbouring
    /// snapshots.
    pub used_blocks: u64,
    /// Name, zero-terminated.
    pub name: [c_char; 64],
}

/// An inode that differs between two states.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct sf_change {
    /// Number of the inode.
    pub inode: u64,
    /// One of SF_KIND_….
    pub kind: u32,
    /// SF_CHANGE_….
    pub flags: u32,
}

impl From<&Snapshot> for sf_snapshot {
    fn from(snapshot: &Snapshot) -> sf_snapshot {
        let mut name = [0; 64];
        for (to, from) in name.iter_mut().zip(snapshot.name.bytes().take(SF_SNAPSHOT_NAME_MAX)) {
            *to = from as c_char;
        }
        sf_snapshot {
            generation: snapshot.generation.0,
            created_s: snapshot.created.seconds,
            created_ns: snapshot.created.nanoseconds,
            reserved: 0,
            inodes: snapshot.inodes,
            used_blocks: snapshot.used_blocks,
            name,
        }
    }
}

/// The name of a snapshot.
///
/// # Safety
/// As for [`text`].
pub unsafe fn name<'a>(name: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller keeps the contract of `text`.
    let bytes = unsafe { text(name, what) }?;
    core::str::from_utf8(bytes).map_err(|_| Failure::invalid(format_args!("{what} is not UTF-8")))
}

/// Takes a snapshot of the present state of the volume, which becomes a transaction point. The name
/// has 1 to 63 bytes of UTF-8 without a slash. Fails with -SF_EEXIST if a snapshot of this name
/// exists. Fails with -SF_ENOSPC if later removals of files might then lack space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_create(volume: *mut sf_volume, name: *const c_char) -> c_int {
    call_int("sf_snapshot_create", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let name = self::name(name, "name")?;
            with(volume, |volume| Ok(volume.core.snapshot_create(name).map(drop)?))
        }
    })
}

/// Copies up to `count` snapshots younger than generation `after` (0: all), oldest first. Returns
/// their number. Fewer than `count` means that no more exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_list(
    volume: *mut sf_volume,
    after: u64,
    snapshots: *mut sf_snapshot,
    count: usize,
) -> c_int {
    call_int("sf_snapshot_list", || {
        check_length_of(snapshots, count, "snapshots")?;
        // SAFETY: the header requires an open volume.
        let found = unsafe { with(volume, |volume| Ok(volume.core.snapshots()?)) }?;
        let wanted = found.iter().filter(|snapshot| snapshot.generation.0 > after).take(count);
        let mut copied = 0;
        for snapshot in wanted {
            // SAFETY: the header requires room for `count` snapshots, and the length was checked.
            unsafe { store(snapshots.add(copied), snapshot.into(), "snapshots") }?;
            copied += 1;
        }
        Ok(copied)
    })
}

/// Deletes a snapshot, which must not be open. Steps of `sf_background` free its space. -SF_ENOENT:
/// no snapshot has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_delete(volume: *mut sf_volume, name: *const c_char) -> c_int {
    call_int("sf_snapshot_delete", || {
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let name = self::name(name, "name")?;
            with(volume, |volume| Ok(volume.core.snapshot_delete(name)?))
        }
    })
}

/// Rolls the volume back to a snapshot, which remains. `flags`: SF_DESTROY_NEWER. Open files stay
/// open. A file that did not exist at the time of the snapshot returns -SF_ESTALE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_rollback(
    volume: *mut sf_volume,
    name: *const c_char,
    flags: u32,
) -> c_int {
    call_int("sf_snapshot_rollback", || {
        check_flags(flags, SF_DESTROY_NEWER)?;
        // SAFETY: the header requires an open volume and a C string.
        unsafe {
            let name = self::name(name, "name")?;
            with(volume, |volume| {
                Ok(volume.core.snapshot_rollback(name, flags & SF_DESTROY_NEWER != 0)?)
            })
        }
    })
}

/// Copies up to `count` inodes that differ between the snapshot `before` and the snapshot `after`
/// (NULL: the live volume). Begins at inode number `*next`, which is 0 for the first call. Sets
/// `*next` to the inode number to continue from, or 0 at the end. Returns the number of copied
/// entries, which can be 0 before the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_diff(
    volume: *mut sf_volume,
    before: *const c_char,
    after: *const c_char,
    next: *mut u64,
    changes: *mut sf_change,
    count: usize,
) -> c_int {
    call_int("sf_snapshot_diff", || {
        check_length_of(changes, count, "changes")?;
        // SAFETY: the header requires an open volume, C strings, and room for the number and for
        // so many changes.
        unsafe {
            let before = name(before, "before")?;
            let after = if after.is_null() { None } else { Some(name(after, "after")?) };
            let from = InodeNumber(*reference(next, "next")?);
            let found = with(volume, |volume| {
                Ok(volume.core.snapshot_diff(before, after, from, count)?)
            })?;
            for (index, change) in found.changes.iter().take(count).enumerate() {
                let bits = [
                    (change.created, SF_CHANGE_CREATED),
                    (change.removed, SF_CHANGE_REMOVED),
                    (change.content, SF_CHANGE_CONTENT),
                    (change.attributes, SF_CHANGE_ATTRIBUTES),
                    (change.entries, SF_CHANGE_ENTRIES),
                    (change.times, SF_CHANGE_TIMES),
                ];
                let flags = bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
                let answer = sf_change { inode: change.inode.0, kind: change.kind as u32, flags };
                store(changes.add(index), answer, "changes")?;
            }
            store(next, found.next.map_or(0, |next| next.0), "next")?;
            Ok(found.changes.len().min(count))
        }
    })
}

/// Opens a snapshot of the volume on a device as a separate read-only volume. The volume itself may
/// be open at the same time. Close the snapshot with `sf_close`. The snapshot must not be deleted
/// while it is open. `options` may be NULL. On failure `*volume` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_open(
    device: *const sf_device,
    name: *const c_char,
    options: *const sf_open_options,
    volume: *mut *mut sf_volume,
) -> c_int {
    call_int("sf_snapshot_open", || {
        check_place(volume, "volume")?;
        // SAFETY: the header requires valid structures, a C string and room for a pointer.
        unsafe {
            let device = Callbacks::new(reference(device, "device")?)?;
            let name = self::name(name, "name")?;
            let (options, background) = options::open(options)?;
            let medium = AnyMedium::Device(device);
            let core = Core::open_snapshot(medium, Surroundings::default(), options, name)?;
            volume::open(core, background, volume)
        }
    })
}
