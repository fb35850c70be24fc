//! Transaction points: who sets them, setting one, going back to the last.

use core::ffi::c_int;

use engine::TransactionMask;

use crate::guard::{call_int, check_place, store, with};
use crate::volume::sf_volume;

/// No transaction points but those of `sf_transact` and `sf_checkpoint`.
pub const SF_MASK_MANUAL: u32 = 0;
/// At a regular interval, while there is something to commit.
pub const SF_ON_TIMER: u32 = 0x1;
/// A file was made.
pub const SF_ON_CREATE: u32 = 0x2;
/// A name was removed.
pub const SF_ON_UNLINK: u32 = 0x4;
/// A directory was made.
pub const SF_ON_MKDIR: u32 = 0x8;
/// A directory was removed.
pub const SF_ON_RMDIR: u32 = 0x10;
/// A name was changed.
pub const SF_ON_RENAME: u32 = 0x20;
/// A hard link was made.
pub const SF_ON_LINK: u32 = 0x40;
/// A symbolic link was made.
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
/// What a new volume has: timer, write to a synchronous file, fsync, sync, unmount and volume full.
pub const SF_MASK_DEFAULT: u32 = 0x1e801;

/// That the numbers above, which cbindgen has to be able to read, are those of the core.
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

/// Sets a transaction point: makes everything durable that was accepted so far, all of it together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_transact(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    call_int("sf_transact", || unsafe { with(volume, |volume| Ok(volume.core.transact()?)) })
}

/// Returns the volume to the last transaction point: everything accepted since is dropped, of all
/// writers. Files that are open stay open; one that did not exist then answers -SF_ESTALE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_rollback(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    call_int("sf_rollback", || unsafe { with(volume, |volume| Ok(volume.core.rollback()?)) })
}

/// As `sf_transact`, and empties the intent log: space that was freed can be used again at once,
/// and the next opening has nothing to replay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_checkpoint(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    call_int("sf_checkpoint", || unsafe { with(volume, |volume| Ok(volume.core.checkpoint()?)) })
}

/// A transaction point, if the mask has SF_ON_SYNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_sync(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    call_int("sf_sync", || unsafe { with(volume, |volume| Ok(volume.core.sync()?)) })
}

/// One bounded step of what nobody waits for: the transaction timer, checkpoints, the space of
/// deleted files. Returns 1 while there is more to do at once, otherwise 0. Call it at least every
/// 100 ms, from a task of its own or between operations; with SF_OPEN_BACKGROUND the library does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_background(volume: *mut sf_volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    call_int("sf_background", || unsafe { with(volume, |volume| Ok(volume.core.background()?)) })
}

/// The transaction mask, and the interval of the timer in milliseconds. Either pointer may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_mask_get(
    volume: *mut sf_volume,
    mask: *mut u32,
    timer_ms: *mut u32,
) -> c_int {
    call_int("sf_mask_get", || {
        // SAFETY: the header asks for a volume that is open, and for room for the numbers.
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
/// (0: leave it). Both hold at once, and are stored with the next transaction point.
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
        // SAFETY: the header asks for a volume that is open.
        unsafe { with(volume, work) }
    })
}
