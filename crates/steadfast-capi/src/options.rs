//! Parameters of formatting and opening.
//!
//! An options structure begins with its size, so that later versions can extend it. `…_init` fills
//! the fields that the caller's version has. A function accepts a larger structure only if all
//! fields that it does not know are zero.

use alloc::string::String;
use core::ffi::{c_char, c_int};

use engine::{Error, FormatOptions, OpenOptions, TransactionMask};

use crate::codes;
use crate::error::Failure;
use crate::guard::{Outcome, bytes, call_int, check_flags, check_place};

/// In `sf_format_options.log_size`: choose the size of the log by the size of the volume.
pub const SF_LOG_AUTOMATIC: u64 = 0xffff_ffff_ffff_ffff;

/// Format even if the image exists already.
pub const SF_FORMAT_OVERWRITE: u32 = 1;

/// Open the volume read-only: nothing is written to the medium.
pub const SF_OPEN_READ_ONLY: u32 = 1;
/// Do not update access times.
pub const SF_OPEN_NO_ATIME: u32 = 2;
/// Run the background work in a thread of the library, not in `sf_background`. This thread also
/// calls the functions of the device. Not available without an operating system.
pub const SF_OPEN_BACKGROUND: u32 = 4;
/// If the newest state is damaged, open an older state for writing and discard the newer one.
/// Without this flag such a volume opens read-only.
pub const SF_OPEN_RECOVER: u32 = 8;
/// Other machines can write to the device: check for another writer around every log record and
/// metaroot, not only once a second.
pub const SF_OPEN_SHARED: u32 = 16;

/// Parameters of a new volume. Call `sf_format_options_init` first, then change the fields that
/// differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_format_options {
    /// Set by `sf_format_options_init`.
    pub struct_size: u32,
    /// SF_FORMAT_OVERWRITE (images).
    pub flags: u32,
    /// Size of the volume in bytes; 0: the whole device.
    pub size: u64,
    /// Block size in bytes: a power of two from 128 to 65536, not smaller than the device's atomic
    /// unit. Default 4096.
    pub block_size: u32,
    /// Size of a tree node in bytes; 0: the block size, but at least 512, and at least 8192 for
    /// volumes from 16 MiB.
    pub node_size: u32,
    /// Copies of each metadata block, 1 or 2; 0: 2, or 1 on media below 128 KiB.
    pub metadata_copies: u32,
    /// Transaction mask to store in the volume. Default SF_MASK_DEFAULT.
    pub mask: u32,
    /// Size of the intent log in bytes; 0: no log, so every transaction point is a checkpoint.
    /// Default SF_LOG_AUTOMATIC.
    pub log_size: u64,
    /// Interval of the transaction timer, milliseconds. Default 5000.
    pub timer_ms: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory. Default 0755.
    pub root_mode: u32,
    /// Identity of the volume, which is also the key of the hash of names. All zeros: random bytes.
    /// Without an operating system they come from `sf_port.entropy`.
    pub uuid: [u8; 16],
    /// Label of the volume: UTF-8, at most 32 bytes and a zero.
    pub label: [c_char; 40],
}

/// Parameters for opening a volume. Call `sf_open_options_init` first, then change the fields that
/// differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_open_options {
    /// Set by `sf_open_options_init`.
    pub struct_size: u32,
    /// SF_OPEN_READ_ONLY, SF_OPEN_NO_ATIME, SF_OPEN_BACKGROUND, SF_OPEN_RECOVER,
    /// SF_OPEN_SHARED.
    pub flags: u32,
    /// Cache memory in bytes. Default 32 MiB, without an operating system 64 KiB.
    pub cache_size: u64,
}

/// A structure of plain numbers that begins with its own size.
///
/// # Safety
/// The type is `repr(C)` without padding, its first field is a `u32`, and every bit pattern is
/// valid.
unsafe trait Plain: Copy {
    fn defaults() -> Self;
}

// SAFETY: only numbers and arrays of numbers; 4+4+8, 4×4, 8, 4×4, 16, 40 bytes leave no gap.
unsafe impl Plain for sf_format_options {
    fn defaults() -> Self {
        let defaults = FormatOptions::default();
        sf_format_options {
            struct_size: size_of::<Self>() as u32,
            flags: 0,
            size: 0,
            block_size: defaults.block_size,
            node_size: 0,
            metadata_copies: 0,
            mask: defaults.mask.0,
            log_size: SF_LOG_AUTOMATIC,
            timer_ms: defaults.timer_ms,
            root_uid: defaults.root_uid,
            root_gid: defaults.root_gid,
            root_mode: defaults.root_mode,
            uuid: defaults.uuid,
            label: [0; 40],
        }
    }
}

// SAFETY: three numbers without a gap.
unsafe impl Plain for sf_open_options {
    fn defaults() -> Self {
        let cache_size =
            if cfg!(feature = "std") { OpenOptions::default().cache_size as u64 } else { 64 << 10 };
        sf_open_options { struct_size: size_of::<Self>() as u32, flags: 0, cache_size }
    }
}

/// Fills the caller's structure of `size` bytes with the defaults.
///
/// # Safety
/// `options` is NULL or has `size` bytes to which no other access happens during the call.
unsafe fn init<T: Plain>(options: *mut T, size: usize) -> Outcome {
    check_place(options, "options")?;
    if size < size_of::<T>() {
        return Err(Failure::invalid("size is smaller than any version of this structure"));
    }
    let Ok(struct_size) = u32::try_from(size) else {
        return Err(Failure::invalid("size is not that of this structure"));
    };
    // SAFETY: the caller guarantees `size` bytes, which are at least the size of `T`. The first
    // field of `T` is its size.
    unsafe {
        options.cast::<u8>().write_bytes(0, size);
        options.write_unaligned(T::defaults());
        options.cast::<u32>().write_unaligned(struct_size);
    }
    Ok(())
}

/// Reads the caller's structure. NULL means the defaults.
///
/// # Safety
/// `options` is NULL or points to a structure of the size that it states.
unsafe fn read<T: Plain>(options: *const T) -> Outcome<T> {
    if options.is_null() {
        return Ok(T::defaults());
    }
    // SAFETY: every version of the structure begins with its size.
    let size = unsafe { options.cast::<u32>().read_unaligned() } as usize;
    if size < size_of::<T>() {
        return Err(Failure::invalid("options are not initialised: struct_size is too small"));
    }
    // No `init` ever set a size above that of any version. Reading such a structure could run past
    // its end.
    if size > 4096 {
        return Err(Failure::invalid("options are not initialised: struct_size is too large"));
    }
    // SAFETY: the caller states that its structure has this size.
    let all = unsafe { bytes(options.cast(), size, "options") }?;
    if all.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
        return Err(Failure::new(
            codes::SF_E2BIG,
            "options use what this version of the library does not know",
        ));
    }
    // SAFETY: the structure has at least this many bytes, and every bit pattern is valid.
    Ok(unsafe { options.read_unaligned() })
}

/// Fills `options` with the defaults. `size` is `sizeof *options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_format_options_init(
    options: *mut sf_format_options,
    size: usize,
) -> c_int {
    // SAFETY: the header requires a structure of this size.
    call_int("sf_format_options_init", || unsafe { init(options, size) })
}

/// Fills `options` with the defaults. `size` is `sizeof *options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_open_options_init(options: *mut sf_open_options, size: usize) -> c_int {
    // SAFETY: the header requires a structure of this size.
    call_int("sf_open_options_init", || unsafe { init(options, size) })
}

/// Converts the caller's parameters for a new volume; also returns their flags.
///
/// # Safety
/// `options` is NULL or points to a structure of the size that it states.
pub unsafe fn format(options: *const sf_format_options) -> Outcome<(FormatOptions, u32)> {
    // SAFETY: the caller keeps the contract in `# Safety`.
    let options = unsafe { read(options) }?;
    check_flags(options.flags, SF_FORMAT_OVERWRITE)?;
    let label = options.label.map(|byte| byte.to_ne_bytes()[0]);
    let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
    if label.len() > 32 {
        return Err(Failure::invalid("label has more than 32 bytes"));
    }
    let text = str::from_utf8(label).map_err(|_| Failure::invalid("label is not UTF-8"))?;
    let mut label = String::new();
    label.try_reserve_exact(text.len()).map_err(|_| Error::OutOfMemory)?;
    label.push_str(text);
    let metadata_copies = match options.metadata_copies {
        0 => None,
        copies => Some(
            u8::try_from(copies).map_err(|_| Failure::invalid("metadata_copies is not 1 or 2"))?,
        ),
    };
    let mask = TransactionMask(options.mask);
    if !TransactionMask::ALL.contains(mask) {
        return Err(Failure::invalid("mask has unknown bits"));
    }
    let wishes = FormatOptions {
        size: (options.size != 0).then_some(options.size),
        block_size: options.block_size,
        node_size: (options.node_size != 0).then_some(options.node_size),
        metadata_copies,
        log_size: (options.log_size != SF_LOG_AUTOMATIC).then_some(options.log_size),
        uuid: identity(options.uuid)?,
        label,
        mask,
        timer_ms: options.timer_ms,
        root_uid: options.root_uid,
        root_gid: options.root_gid,
        root_mode: options.root_mode,
    };
    Ok((wishes, options.flags))
}

#[cfg(feature = "std")]
fn identity(given: [u8; 16]) -> Outcome<[u8; 16]> {
    if given != [0; 16] {
        return Ok(given);
    }
    steadfast_host::random_uuid().map_err(|error| Failure::new(codes::SF_EIO, error))
}

#[cfg(not(feature = "std"))]
fn identity(mut given: [u8; 16]) -> Outcome<[u8; 16]> {
    if given == [0; 16] {
        crate::bare::port::entropy(&mut given)?;
    }
    Ok(given)
}

/// Converts the caller's parameters for opening; also returns whether a thread does the background
/// work.
///
/// # Safety
/// `options` is NULL or points to a structure of the size that it states.
pub unsafe fn open(options: *const sf_open_options) -> Outcome<(OpenOptions, bool)> {
    // SAFETY: the caller keeps the contract in `# Safety`.
    let options = unsafe { read(options) }?;
    let known = SF_OPEN_READ_ONLY
        | SF_OPEN_NO_ATIME
        | SF_OPEN_BACKGROUND
        | SF_OPEN_RECOVER
        | SF_OPEN_SHARED;
    check_flags(options.flags, known)?;
    let background = options.flags & SF_OPEN_BACKGROUND != 0;
    if background && cfg!(not(feature = "std")) {
        return Err(Failure::new(
            codes::SF_EOPNOTSUPP,
            "there are no threads here; call sf_background instead",
        ));
    }
    let wishes = OpenOptions {
        read_only: options.flags & SF_OPEN_READ_ONLY != 0,
        cache_size: usize::try_from(options.cache_size).unwrap_or(usize::MAX),
        access_times: options.flags & SF_OPEN_NO_ATIME == 0,
        recover: options.flags & SF_OPEN_RECOVER != 0,
        shared: options.flags & SF_OPEN_SHARED != 0,
    };
    Ok((wishes, background))
}
