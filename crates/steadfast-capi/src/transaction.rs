//! Transaction points: the events that set them, setting one, rolling back to the last one.

use core::ffi::c_int;

use engine::TransactionMask;

use crate::guard::{call_int, check_place, store, with};
use crate::volume::sf_volume;

/// Only `sf_transact` and `sf_checkpoint` set transaction points.
pub const SF_MASK_MANUAL: u32 = 0;
/// The timer elapsed and there are changes to commit.
pub const SF_ON_TIMER: u32 = 0x1;
/// A file was created.
pub const SF_ON_CREATE: u32 = 0x2;
/// A name was removed.
pub const SF_ON_UNLINK: u32 = 0x4;
/// A directory was created.
pub const SF_ON_MKDIR: u32 = 0x8;
/// A directory was removed.
pub const SF_ON_RMDIR: u32 = 0x10;
/// A name was changed.
pub const SF_ON_RENAME: u32 = 0x20;
/// A hard link was created.
pub const SF_ON_LINK: u32 = 0x40;
/// A symbolic link was created.
pub const SF_ON_SYMLINK: u32 = 0x80;
/// Permissions, owner, times or extended attributes were changed.
pub const SF_ON_ATTRIBUTE: u32 = 0x100;
/// The size of a file was set, or its allocation.
pub const SF_ON_TRUNCATE: u32 = 0x200;
/// Data was written.
pub const SF_ON_WRITE: u32 = 0x400;
/// Data was written to a file that was opened with SF_SYNC.
pub const SF_ON_SYNC_WRITE: u32 = 0x800;
/// A file that was open for writing was closed.
pub const SF_ON_CLOSE: u32 = 0x1000;
/// `sf_fsync`.
pub const SF_ON_FSYNC: u32 = 0x2000;
/// `sf_sync`.
pub const SF_ON_SYNC: u32 = 0x4000;
/// The volume is closed.
pub const SF_ON_UNMOUNT: u32 = 0x8000;
/// Space ran out, and a transaction point would free some.
pub const SF_ON_VOLUME_FULL: u32 = 0x10000;
/// The mask of a new volume: timer, synchronous write, fsync, sync, unmount and volume full.
pub const SF_MASK_DEFAULT: u32 = 0x1e801;

/// The literals above, which cbindgen must be able to read, equal those of the core.
const _: () = {
    let mine = [
        SF_ON_TIMER,
        SF_ON_CREATE,
        SF_ON_UNLINK,
        SF_ON_MKDIR,
        SF_ON_RMDIR,
        SF_ON_RENAME,
        SF_ON_LINK,
        SF_ON_SYMLINK,
        SF_ON_ATTRIBUTE,
        SF_ON_TRUNCATE,
        SF_ON_WRITE,
        SF_ON_SYNC_WRITE,
        SF_ON_CLOSE,
        SF_ON_FSYNC,
        SF_ON_SYNC,
        SF_ON_UNMOUNT,
        SF_ON_VOLUME_FULL,
    ];
    assert!(mine.len() == TransactionMask::NAMES.len());
    let mut index = 0;
    while index < mine.len() {
        assert!(mine[index] == TransactionMask::NAMES[index].1.0);
        index += 1;
    }
    assert!(SF_MASK_MANUAL == TransactionMask::MANUAL.0);
    assert!(SF_MASK_DEFAULT == TransactionMask::DEFAULT.0);
};

/// Sets a transaction point: makes everything accepted so far durable, atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_transact(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header requires an open volume.
    call_int("sf_transact", || unsafe { with(volume, |volume| Ok(volume.core.transact()?)) })
}

/// Rolls the volume back to the last transaction point. Everything accepted since then is dropped,
/// for all writers. Open files stay open. A file that did not exist at that point returns
/// -SF_ESTALE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_rollback(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header requires an open volume.
    call_int("sf_rollback", || unsafe { with(volume, |volume| Ok(volume.core.rollback()?)) })
}

/// Like `sf_transact`, and empties the intent log. Freed space is usable again immediately, and the
/// next opening replays nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_checkpoint(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header requires an open volume.
    call_int("sf_checkpoint", || unsafe { with(volume, |volume| Ok(volume.core.checkpoint()?)) })
}

/// Sets a transaction point if the mask has SF_ON_SYNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_sync(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header requires an open volume.
    call_int("sf_sync", || unsafe { with(volume, |volume| Ok(volume.core.sync()?)) })
}

/// Does one bounded step of the background work: the transaction timer, checkpoints, and freeing
/// the space of deleted files. Returns 1 while more work is due immediately, otherwise 0. Call it
/// at least every 100 ms, from a task of its own or between operations. With SF_OPEN_BACKGROUND the
/// library calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_background(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header requires an open volume.
    call_int("sf_background", || unsafe { with(volume, |volume| Ok(volume.core.background()?)) })
}

/// Returns the transaction mask and the interval of the timer in milliseconds. Either pointer may
/// be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mask_get(
    volume: *mut sf_volume,
    mask: *mut u32,
    timer_ms: *mut u32,
) -> c_int {
    call_int("sf_mask_get", || {
        // SAFETY: the header requires an open volume, and for room for the numbers.
        unsafe {
            let (bits, interval) =
                with(volume, |volume| Ok((volume.core.mask(), volume.core.timer_ms())))?;
            if check_place(mask, "mask").is_ok() {
                store(mask, bits.0, "mask")?;
            }
            if check_place(timer_ms, "timer_ms").is_ok() {
                store(timer_ms, interval, "timer_ms")?;
            }
        }
        Ok(())
    })
}

/// Sets the transaction mask (SF_ON_… or SF_MASK_…) and the interval of the timer in milliseconds
/// (0: keep it). Both take effect immediately and are stored with the next transaction point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mask_set(volume: *mut sf_volume, mask: u32, timer_ms: u32) -> c_int {
    call_int("sf_mask_set", || {
        let work = |volume: &sf_volume| {
            volume.core.set_mask(TransactionMask(mask))?;
            if timer_ms != 0 {
                volume.core.set_timer_ms(timer_ms)?;
            }
            Ok(())
        };
        // SAFETY: the header requires an open volume.
        unsafe { with(volume, work) }
    })
}
