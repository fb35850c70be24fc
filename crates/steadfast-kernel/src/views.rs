//! Snapshots beside the live volume: finding them, and opening one as a read-only volume.
//!
//! A view is an `sfk_volume` of its own on the same device, and `sfk_free` ends it. The kernel's
//! side uses none after its snapshot was deleted: the live volume writes to the blocks then.

use core::ffi::c_int;

use steadfast::{Error, Generation};

use crate::Core;
use crate::attributes::{give, sfk_attributes};
use crate::errno::{code, errno};
use crate::names::sfk_name;
use crate::platform::Kernel;
use crate::points::sfk_snapshot;
use crate::volume::placed;

/// Memory of a view for nodes, names and bitmaps, in bytes.
const CACHE: usize = 1 << 20;

/// The snapshot with this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_snapshot_find(
    volume: &Core,
    name: &sfk_name,
    out: *mut sfk_snapshot,
) -> c_int {
    // No snapshot has a name that is no text.
    let name = core::str::from_utf8(name.bytes()).map_err(|_| Error::NotFound);
    match name.and_then(|name| volume.snapshot(name)) {
        Ok(found) => {
            // SAFETY: `out` is valid.
            unsafe { out.write((&found).into()) };
            0
        }
        Err(error) => -errno(&error),
    }
}

/// Whether the volume has the snapshot of this generation: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_snapshot_exists(volume: &Core, generation: u64) -> c_int {
    match volume.has_snapshot(Generation(generation)) {
        Ok(found) => c_int::from(found),
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
    let medium = volume.medium().lent();
    let open = || volume.open_view(medium, Kernel::default(), Generation(generation), CACHE);
    code(placed(open).map(|view| {
        // SAFETY: `out` is valid.
        unsafe { out.write(view) }
    }))
}
