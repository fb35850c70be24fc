//! Snapshots beside the live volume: finding them, and opening one as a read-only volume.
//!
//! A view is an `sfk_volume` of its own on the same device, and `sfk_free` ends it. The kernel's
//! side uses none after its snapshot was deleted: the live volume writes to the blocks then.

use core::ffi::c_int;

use alloc::string::String;

use steadfast::{Error, Generation, OpenOptions};

use crate::Core;
use crate::attributes::{give, sfk_attributes};
use crate::errno::{code, errno};
use crate::names::sfk_name;
use crate::points::sfk_snapshot;
use crate::volume::{open_on, sfk_free};

/// Cache of tree nodes of a view, in bytes.
const CACHE: usize = 1 << 20;

/// The snapshot with this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_find(
    volume: &Core,
    name: &sfk_name,
    out: *mut sfk_snapshot,
) -> c_int {
    let found = volume.snapshots().and_then(|snapshots| {
        let mut all = snapshots.iter();
        all.find(|snapshot| snapshot.name.as_bytes() == name.bytes())
            .map(sfk_snapshot::from)
            .ok_or(Error::NotFound)
    });
    match found {
        Ok(found) => {
            // SAFETY: `out` is valid.
            unsafe { out.write(found) };
            0
        }
        Err(error) => -errno(&error),
    }
}

/// Whether the volume has the snapshot of this generation: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_snapshot_exists(volume: &Core, generation: u64) -> c_int {
    match volume.snapshots() {
        Ok(all) => c_int::from(all.iter().any(|known| known.generation.0 == generation)),
        Err(error) => -errno(&error),
    }
}

/// Attributes of the directory that lists the snapshots. The caller knows its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshots_directory(volume: &Core, out: *mut sfk_attributes) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { give(volume.snapshots_directory(), out) }
}

/// Opens the snapshot of a generation beside the volume. ENOENT if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_view_open(
    volume: &Core,
    generation: u64,
    out: *mut *mut Core,
) -> c_int {
    code(open(volume, Generation(generation)).map(|view| {
        // SAFETY: `out` is valid.
        unsafe { out.write(view) }
    }))
}

/// Opens the snapshot. Its parts are not inlined, so that what one of them has on the stack is not
/// below the others.
fn open(volume: &Core, generation: Generation) -> Result<*mut Core, Error> {
    let name = name_of(volume, generation)?;
    let options = OpenOptions { read_only: true, cache_size: CACHE, ..OpenOptions::default() };
    let view = open_on(volume.medium().lent(), options, Some(&name))?;
    // SAFETY: the view was just made, and has no other user.
    let found = generation_of(unsafe { &*view });
    // A mount of a snapshot lists those of its time; the name may be another one's by now.
    if found != generation {
        // SAFETY: as above.
        unsafe { sfk_free(view) };
        return Err(Error::NotFound);
    }
    Ok(view)
}

#[inline(never)]
fn name_of(volume: &Core, generation: Generation) -> Result<String, Error> {
    let snapshots = volume.snapshots()?;
    let mut all = snapshots.into_iter();
    let wanted = all.find(|snapshot| snapshot.generation == generation);
    Ok(wanted.ok_or(Error::NotFound)?.name)
}

#[inline(never)]
fn generation_of(view: &Core) -> Generation {
    Generation(view.info().generation)
}
