//! Transaction points: the events that set them, setting one, rolling back to the last one.

use alloc::boxed::Box;
use core::ffi::c_int;

use engine::{Transaction, TransactionMask};

use crate::Surroundings;
use crate::guard::{Outcome, call_int, check_place, reference, store};
use crate::medium::AnyMedium;
use crate::volume::{boxed, on, sf_volume, with};

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

/// An open transaction. Use it from one thread at a time.
pub struct sf_transaction {
    volume: &'static sf_volume,
    /// There from the beginning to the end.
    open: Option<Transaction<'static, AnyMedium, Surroundings>>,
}

impl Drop for sf_transaction {
    fn drop(&mut self) {
        drop(self.open.take());
        self.volume.let_go();
    }
}

/// Begins a transaction of the whole volume. Changes that were accepted before are durable when it
/// returns. From then on only `sf_commit` makes changes durable. `sf_transact`, `sf_rollback`,
/// `sf_mask_set` and a second `sf_begin` return -SF_EBUSY, and the events of the mask do nothing.
/// Changes of other threads belong to the transaction. After a power cut the volume is in the state
/// of the beginning or of the commit. On failure `*transaction` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_begin(
    volume: *mut sf_volume,
    transaction: *mut *mut sf_transaction,
) -> c_int {
    call_int("sf_begin", || {
        check_place(transaction, "transaction")?;
        // SAFETY: the header requires an open volume and room for a pointer.
        unsafe {
            let begun = with(volume, |volume| {
                // The memory first: a transaction that has begun needs no more.
                let mut begun = boxed(sf_transaction { volume: volume.hold(), open: None })?;
                begun.open = Some(begun.volume.core.begin()?);
                Ok(begun)
            })?;
            store(transaction, Box::into_raw(begun), "transaction")
        }
    })
}

/// Makes all changes since `sf_begin` durable, all of them or none. The transaction has ended in
/// every case, and the pointer becomes invalid. After an error it is rolled back, as by
/// `sf_rollback`. One error is different: if the device fails, the volume becomes read-only and
/// shows the changes. Opened again, it has all of them or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_commit(transaction: *mut sf_transaction) -> c_int {
    // SAFETY: the header requires an open transaction.
    call_int("sf_commit", || unsafe { end(transaction, Transaction::commit) })
}

/// Drops all changes since `sf_begin`, as `sf_rollback` does, and ends the transaction. The pointer
/// becomes invalid. After an error the changes may still be seen, but never become durable. The
/// volume accepts nothing more then, unless a second try has dropped them. NULL is allowed and does
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_abort(transaction: *mut sf_transaction) -> c_int {
    call_int("sf_abort", || {
        if transaction.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires an open transaction.
        unsafe { end(transaction, |mut open| open.roll_back()) }
    })
}

/// Ends a transaction by `work`, and its reference to the volume.
///
/// # Safety
/// `transaction` is NULL, or came from `sf_begin` and has not ended.
unsafe fn end(
    transaction: *mut sf_transaction,
    work: impl FnOnce(Transaction<'static, AnyMedium, Surroundings>) -> engine::Result<()>,
) -> Outcome {
    // SAFETY: the caller guarantees that a pointer that is not NULL is an open transaction.
    let volume = unsafe { reference(transaction, "transaction") }?.volume;
    // SAFETY: `sf_begin` made the pointer from a box, and the header forbids a second use.
    let mut ending = unsafe { Box::from_raw(transaction) };
    let mut open = ending.open.take();
    let result = on(volume, |_| open.take().map_or(Ok(()), |open| Ok(work(open)?)));
    if let Some(open) = open {
        // The volume is broken: a rollback would go by a state that may be wrong.
        open.detach();
    }
    result
}

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
