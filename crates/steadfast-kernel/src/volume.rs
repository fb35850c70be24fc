//! Opening and closing a volume, transaction points, space, state.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;
use core::slice;
use core::sync::atomic::Ordering;

use alloc::boxed::Box;
use alloc::vec::Vec;

use steadfast::{Error, OpenOptions, TransactionMask, Volume};

use crate::Core;
use crate::errno::{EINVAL, ENOMEM, code, errno};
use crate::medium::BlockDevice;
use crate::platform::Kernel;

/// How to open a volume.
#[repr(C)]
pub struct sfk_options {
    /// Size of the device in bytes.
    pub size: u64,
    /// Its atomic unit in bytes.
    pub unit: u32,
    /// It takes discards.
    pub discards: bool,
    /// What is freed is discarded in the background.
    pub discards_freed: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Gives up a newer state that is damaged.
    pub recover: bool,
    /// Memory for nodes, names and bitmaps, in bytes.
    pub cache_size: usize,
    /// The name of a snapshot, which is opened instead of the volume; NULL: the volume.
    pub snapshot: *const c_char,
}

/// Space of a volume.
#[repr(C)]
pub struct sfk_statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Blocks that files and metadata can use.
    pub blocks: u64,
    /// Blocks that are not in use.
    pub blocks_free: u64,
    /// Blocks that a new file can take.
    pub blocks_available: u64,
    /// Inodes in use.
    pub inodes: u64,
}

// Programs know these fields as `struct sf_ioc_info`; the test `header` compares the two. The
// mount's `InfoArgument` has them once more, because it needs traits that the kernel does not.
/// Properties and state of a volume, as the ioctl SF_IOC_INFO returns them.
#[repr(C)]
#[allow(missing_docs)]
pub struct sfk_info {
    pub version: u32,
    pub block_size: u32,
    pub node_size: u32,
    pub metadata_copies: u32,
    pub uuid: [u8; 16],
    pub label: [u8; 32],
    pub size: u64,
    pub log_size: u64,
    pub features_compatible: u64,
    pub features_read_only: u64,
    pub features_incompatible: u64,
    pub generation: u64,
    pub replayed_records: u64,
    pub log_used: u64,
    pub transaction_points: u64,
    pub repaired_reads: u64,
    pub incarnation: u64,
    pub uncommitted: u64,
    pub mask: u32,
    pub timer_ms: u32,
    pub flags: u32,
    pub reserved: u32,
    pub poisoned: [u8; 128],
}

/// A text in a buffer of C, cut where the buffer ends.
struct Text<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays zero.
        let end = self.room.len().saturating_sub(1);
        let length = text.len().min(end.saturating_sub(self.length));
        self.room[self.length..self.length + length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

/// Opens the volume on a device. After an error `text` of `room` bytes says what and where.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_open(
    device: *mut c_void,
    options: &sfk_options,
    out: *mut *mut Core,
    text: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller passes a buffer of this length.
    let room = unsafe { slice::from_raw_parts_mut(text.cast::<u8>(), room) };
    room.fill(0);
    let snapshot = match options.snapshot.is_null() {
        true => None,
        // SAFETY: the kernel's side passes texts that end with a zero.
        false => Some(unsafe { core::ffi::CStr::from_ptr(options.snapshot) }),
    };
    // No snapshot has a name that is no text.
    let name = snapshot.map(|name| name.to_str().unwrap_or_default());
    match open(device, options, name) {
        Ok(volume) => {
            // SAFETY: `out` is valid.
            unsafe { out.write(volume) };
            0
        }
        Err(error) => {
            let mut text = Text { room, length: 0 };
            // A text that is too long is cut.
            let _ = match (&error, name) {
                (Error::NotFound, Some(name)) => write!(text, "there is no snapshot '{name}'"),
                _ => write!(text, "{error}"),
            };
            -errno(&error)
        }
    }
}

/// Opens the volume in memory of its own. Not inlined, so that the texts of errors are not on the
/// stack below it.
#[inline(never)]
fn open(
    device: *mut c_void,
    options: &sfk_options,
    snapshot: Option<&str>,
) -> Result<*mut Core, Error> {
    let discards = (options.discards, options.discards_freed);
    let medium = BlockDevice::new(device, options.size, options.unit, discards)
        .ok_or(Error::InvalidArgument("size or sector size of the device"))?;
    let wanted = OpenOptions {
        read_only: options.read_only,
        cache_size: options.cache_size,
        // The kernel decides when an access renews the time, and stores it.
        access_times: false,
        recover: options.recover,
        shared: false,
    };
    placed(|| match snapshot {
        Some(name) => Volume::open_snapshot(medium, Kernel::default(), wanted, name),
        None => Volume::open(medium, wanted, Kernel::default()),
    })
}

/// Opens a volume in memory that `sfk_free` frees. That is there before the volume is.
#[inline(never)]
pub(crate) fn placed(open: impl FnOnce() -> Result<Core, Error>) -> Result<*mut Core, Error> {
    let mut place = Vec::new();
    place.try_reserve_exact(1).map_err(|_| Error::OutOfMemory)?;
    place.push(open()?);
    let place: Box<[Core]> = place.into_boxed_slice();
    Ok(Box::into_raw(place).cast())
}

/// Closes the volume: a checkpoint if the mask has `unmount`. `sfk_free` follows.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_close(volume: &Core) -> c_int {
    code(volume.close())
}

/// Frees the memory of a volume, which no caller uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_free(volume: *mut Core) {
    // SAFETY: `sfk_open` made it, as a slice of one.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(volume, 1)) });
}

/// One bounded step of background work. 1: there is more to do at once.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_background(volume: &Core) -> c_int {
    match volume.background() {
        Ok(more) => c_int::from(more),
        Err(error) => -errno(&error),
    }
}

/// Sets a transaction point.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_transact(volume: &Core) -> c_int {
    code(volume.transact())
}

/// Sets a transaction point and empties the log.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_checkpoint(volume: &Core) -> c_int {
    code(volume.checkpoint())
}

/// fsync(2): a transaction point if the mask has the event.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_fsync(volume: &Core) -> c_int {
    code(volume.fsync())
}

/// A write with O_SYNC or O_DSYNC has arrived: a transaction point if the mask has the event.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_synchronous_write(volume: &Core) -> c_int {
    code(volume.synchronous_write())
}

/// sync(2): a transaction point if the mask has the event.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_sync(volume: &Core) -> c_int {
    code(volume.sync())
}

/// A file that was open for writing was closed: a transaction point if the mask has the event.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_closed(volume: &Core) -> c_int {
    code(volume.closed())
}

/// Bytes of data for which there is surely room.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_available(volume: &Core) -> i64 {
    match volume.available_bytes() {
        Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        Err(error) => -i64::from(errno(&error)),
    }
}

/// Frees what removed files still hold, until so many bytes are available or nothing is left.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_make_room(volume: &Core, bytes: u64) -> c_int {
    code(volume.make_room(bytes))
}

/// Bytes of memory that `sfk_give_back` could free now. Waits for no lock.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_can_give_back(volume: &Core) -> isize {
    isize::try_from(volume.can_give_back()).unwrap_or(isize::MAX)
}

/// Frees about so many bytes of the caches. Returns how many. Waits for no lock.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_give_back(volume: &Core, bytes: usize) -> isize {
    isize::try_from(volume.give_back(bytes)).unwrap_or(isize::MAX)
}

/// Before a trim: frees what may be freed. `sfk_trim_step` follows until it returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_trim_begin(volume: &Core) -> c_int {
    if volume.is_held() {
        return -errno(&Error::Held);
    }
    // A command of the system's timer must not publish half of a change.
    if !volume.mask().contains(TransactionMask::TIMER) {
        return 0;
    }
    // The first one frees blocks, the second makes that the checkpointed state.
    code(volume.checkpoint().and_then(|()| volume.checkpoint()))
}

/// Discards free runs of at least `least` bytes from byte `at` on, in a bounded step that stays
/// below `to`. Moves `at`, and adds to `discarded`. 1: there is more.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_trim_step(
    volume: &Core,
    at: &mut u64,
    to: u64,
    least: u64,
    discarded: &mut u64,
) -> c_int {
    if volume.is_held() {
        return -errno(&Error::Held);
    }
    match volume.trim_step(*at, to, least) {
        Ok((bytes, next)) => {
            *discarded += bytes;
            *at = next.unwrap_or(to);
            c_int::from(next.is_some())
        }
        Err(error) => -errno(&error),
    }
}

/// Space and counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_statistics_get(volume: &Core, out: *mut sfk_statistics) -> c_int {
    let found = match volume.statistics() {
        Ok(found) => found,
        Err(error) => return -errno(&error),
    };
    // SAFETY: `out` is valid.
    unsafe {
        out.write(sfk_statistics {
            block_size: found.block_size,
            name_max: found.name_max,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.inodes,
        });
    }
    0
}

pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let end = text.floor_char_boundary(N);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// Properties and state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_info_get(volume: &Core, out: *mut sfk_info) {
    let info = volume.info();
    let flags = [info.superblock_damaged, info.read_only, info.poisoned.is_some()];
    let flags = flags.into_iter().enumerate().map(|(bit, set)| u32::from(set) << bit).sum();
    // SAFETY: `out` is valid.
    unsafe {
        out.write(sfk_info {
            version: info.version,
            block_size: info.block_size,
            node_size: info.node_size,
            metadata_copies: u32::from(info.metadata_copies),
            uuid: info.uuid,
            label: padded(&info.label),
            size: info.size,
            log_size: info.log_size,
            features_compatible: info.features_compatible,
            features_read_only: info.features_read_only,
            features_incompatible: info.features_incompatible,
            generation: info.generation,
            replayed_records: info.replayed_records,
            log_used: info.log_used,
            transaction_points: info.transaction_points,
            repaired_reads: info.repaired_reads,
            incarnation: info.incarnation,
            uncommitted: info.uncommitted,
            mask: info.mask.0,
            timer_ms: info.timer_ms,
            flags,
            reserved: 0,
            poisoned: padded(info.poisoned.unwrap_or_default()),
        });
    }
}

/// Sets the transaction mask and the timer, and keeps them where that publishes no change.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_set_mask(volume: &Core, mask: u32, timer_ms: u32) -> c_int {
    code(volume.change_parameters(TransactionMask(mask), timer_ms).map(drop))
}

/// Changes the label, which is durable when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_set_label(volume: &Core, label: *const c_char) -> c_int {
    // SAFETY: the kernel's side passes texts that end with a zero.
    match unsafe { core::ffi::CStr::from_ptr(label) }.to_str() {
        Ok(label) => code(volume.set_label(label)),
        Err(_) => -EINVAL,
    }
}

/// The bits of a mask as text: `default`, `manual`, `all`, or names with colons between them. A
/// name with `+` or `-` in front changes `mask`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sfk_parse_mask(text: *const c_char, mask: &mut u32) -> c_int {
    // SAFETY: the kernel's side passes texts that end with a zero.
    let Ok(text) = unsafe { core::ffi::CStr::from_ptr(text) }.to_str() else { return -EINVAL };
    let mut found = if text.starts_with(['+', '-']) { *mask } else { 0 };
    for word in text.split(':') {
        let (remove, name) = match word.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, word.strip_prefix('+').unwrap_or(word)),
        };
        let bits = match name {
            "default" => TransactionMask::DEFAULT,
            "manual" => TransactionMask::MANUAL,
            "all" => TransactionMask::ALL,
            _ => match TransactionMask::from_name(name) {
                Some(bits) => bits,
                None => return -EINVAL,
            },
        };
        found = if remove { found & !bits.0 } else { found | bits.0 };
    }
    *mask = found;
    0
}

/// The next change panics under the core's locks. For the test of what a panic does.
#[unsafe(no_mangle)]
pub extern "C" fn sfk_test_panic(volume: &Core) {
    volume.platform().panics.store(true, Ordering::Relaxed);
}

const _: () = assert!(size_of::<sfk_info>() == 304 && ENOMEM == 12);
