//! Commands to a mounted volume: ioctls on any directory or file of the mount, usually the mount
//! point.
//!
//! Every number encodes the size of its argument, as the kernel requires for FUSE file systems
//! without special rights. So programs in any language can use them: `_IO`, `_IOR` or `_IOW` with
//! type [`TYPE`] and the numbers below.
//!
//! ```no_run
//! let mount_point = std::fs::File::open("/mnt")?;
//! steadfast_fuse::ioctl::transact(&mount_point)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use steadfast::TransactionMask;
use steadfast::fs::{DefragmentCursor, Fragmentation};
use steadfast::volume::VolumeInfo;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::input::IoctlIn;
use crate::request::Request;
use crate::watch;
use call::{NONE, READ, WRITE, call, number};

pub(crate) mod call;
pub(crate) mod snapshot;

pub use call::TYPE;
pub use snapshot::{
    SNAPSHOT_CREATE, SNAPSHOT_DELETE, SNAPSHOT_DIFF, SNAPSHOT_DIFF_MAX, SNAPSHOT_LIST,
    SNAPSHOT_LIST_MAX, SNAPSHOT_ROLLBACK, SnapshotArgument, SnapshotDiffArgument,
    SnapshotDiffChange, SnapshotListArgument, snapshot_create, snapshot_delete, snapshot_diff,
    snapshot_flag, snapshot_rollback, snapshots,
};

/// `_IO(TYPE, 1)`: sets a transaction point that includes the dirty pages of the kernel's cache.
pub const TRANSACT: u32 = number(NONE, 1, 0);
/// `_IOW(TYPE, 2, RollbackArgument)`: rolls back to the last durable transaction point.
pub const ROLLBACK: u32 = number(WRITE, 2, size_of::<RollbackArgument>());
/// `_IOR(TYPE, 3, MaskArgument)`: returns the transaction mask and the timer.
pub const MASK_GET: u32 = number(READ, 3, size_of::<MaskArgument>());
/// `_IOW(TYPE, 4, MaskArgument)`: sets the transaction mask and the timer.
pub const MASK_SET: u32 = number(WRITE, 4, size_of::<MaskArgument>());
/// `_IOR(TYPE, 5, InfoArgument)`: returns properties and state of the volume.
pub const INFO: u32 = number(READ, 5, size_of::<InfoArgument>());
/// `_IO(TYPE, 6)`: like [`TRANSACT`], and empties the intent log.
pub const CHECKPOINT: u32 = number(NONE, 6, 0);

/// Whether a request is a read-only command, which a client may send every second.
pub(crate) fn only_looks(request: &Request<'_>) -> bool {
    let looks = [
        INFO,
        SNAPSHOT_LIST,
        MASK_GET,
        watch::STATUS,
        watch::OPERATIONS,
        watch::MAP_GEOMETRY,
        watch::MAP_SPACE,
        watch::MAP_NODES,
        watch::MAP_DEAD,
    ];
    request.arguments().take::<IoctlIn>().is_ok_and(|wanted| looks.contains(&wanted.cmd))
}

/// `FS_IOC_GETFLAGS` of the kernel, on a file or directory: returns its flags, as lsattr(1) asks
/// for them.
pub const FLAGS_GET: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS` of the kernel, on a file or directory: sets its flags, as chattr(1) asks for
/// it. The kernel checks who may do that.
pub const FLAGS_SET: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` of the kernel: like [`FLAGS_GET`], with other numbers.
pub const XFLAGS_GET: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR` of the kernel: like [`FLAGS_SET`], with other numbers.
pub const XFLAGS_SET: u32 = 0x401c_5820;

/// `_IO(TYPE, 32)`, on an open [`CONTROL_FILE`]: sets a transaction point and holds the volume.
/// Until [`ATOMIC_COMMIT`] or [`ATOMIC_ABORT`] no change becomes durable, and no other process can
/// make one durable. When the last descriptor of this open of the control file is closed, for any
/// reason, the volume is rolled back as by [`ATOMIC_ABORT`]. Only the mounting user and root may
/// use it. EALREADY: another descriptor holds the volume.
pub const ATOMIC_BEGIN: u32 = number(NONE, 32, 0);
/// `_IO(TYPE, 33)`, on the same descriptor or a duplicate: makes all changes since the beginning
/// durable, atomically.
pub const ATOMIC_COMMIT: u32 = number(NONE, 33, 0);
/// `_IO(TYPE, 34)`, on the same descriptor or a duplicate: rolls the volume back to its state at
/// the beginning. Open files become stale (ESTALE).
pub const ATOMIC_ABORT: u32 = number(NONE, 34, 0);
/// `_IOR(TYPE, 35, AtomicArgument)`, on any file or directory: returns whether the volume is held.
pub const ATOMIC_STATUS: u32 = number(READ, 35, size_of::<AtomicArgument>());

/// `_IOW(TYPE, 36, u64)`: grows the volume, and the image file below it, to this many bytes. Only
/// the mounting user and root may use it.
pub const GROW: u32 = number(WRITE, 36, size_of::<u64>());
/// `_IOR(TYPE, 39, LostWritesArgument)`: returns the cached writes since the mount that could not
/// be stored.
pub const LOST_WRITES: u32 = number(READ, 39, size_of::<LostWritesArgument>());
/// `_IOR(TYPE, 41, LostWritesArgument)`: the same, of those whose error no call has returned, this
/// command included. Only the mounting user and root may use it.
pub const LOST_WRITES_NEW: u32 = number(READ, 41, size_of::<LostWritesArgument>());
/// `_IOW(TYPE, 40, u32)`: whether access times are updated (not zero) or not (0), until the
/// unmount. Only the mounting user and root may use it.
pub const ACCESS_TIMES: u32 = number(WRITE, 40, size_of::<u32>());
/// `_IOWR(TYPE, 37, DefragmentArgument)`, on a regular file: one bounded step of defragmentation.
/// Start with zeros, and pass the returned argument again until `done` is set. Only the mounting
/// user and root may use it.
pub const DEFRAGMENT: u32 = number(READ | WRITE, 37, size_of::<DefragmentArgument>());
/// `_IOR(TYPE, 38, FragmentationArgument)`, on a regular file: returns how the file's data is laid
/// out.
pub const FRAGMENTATION: u32 = number(READ, 38, size_of::<FragmentationArgument>());

/// `FITRIM` of the kernel (`_IOWR('X', 121, struct fstrim_range)`), on any file or directory:
/// discards free space, as fstrim(8) asks for it. Only the mounting user and root may use it.
pub const TRIM: u32 = 0xc018_5879;

/// Argument of [`TRIM`]: `struct fstrim_range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TrimArgument {
    /// First byte of the range of the volume.
    pub start: u64,
    /// Length of the range in bytes; [`u64::MAX`]: to the end. The answer: bytes discarded.
    pub length: u64,
    /// Shorter free runs are left out.
    pub least: u64,
}

/// Argument of [`DEFRAGMENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DefragmentArgument {
    /// The block of the file to continue from.
    pub block: u64,
    /// The target address on the volume.
    pub goal: u64,
    /// Not zero: the file is done.
    pub done: u32,
    /// Zero.
    pub reserved: u32,
}

/// Argument of [`FRAGMENTATION`]; see [`Fragmentation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct FragmentationArgument {
    pub blocks: u64,
    pub extents: u64,
    pub runs: u64,
}

/// Argument of [`LOST_WRITES`] and [`LOST_WRITES_NEW`]: writes from the kernel's cache that failed after write(2) had
/// reported success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LostWritesArgument {
    /// Total bytes of these writes.
    pub bytes: u64,
    /// Number of these writes.
    pub writes: u64,
    /// Error of the last one; 0: none.
    pub errno: u64,
}

/// Name of the control file in the root directory of every mount. It is not listed and not part of
/// the volume. A file of the volume with this name hides it.
pub const CONTROL_FILE: &str = ".steadfast-control";

/// Argument of [`ATOMIC_STATUS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AtomicArgument {
    /// Bits of [`atomic_flag`].
    pub flags: u32,
    /// Id of the process that began, as the daemon sees it; 0: none, or unknown.
    pub process: u32,
}

/// Bits of [`AtomicArgument::flags`].
pub mod atomic_flag {
    /// The volume is held.
    pub const ACTIVE: u32 = 1;
    /// A program has received ENOSPC since the last beginning. Space freed in between becomes
    /// available only at the end.
    pub const NO_SPACE: u32 = 2;
}

/// Argument of [`ROLLBACK`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RollbackArgument {
    /// Not zero: roll back even while files are open for writing.
    pub force: u32,
    /// Zero.
    pub reserved: u32,
}

/// Argument of [`MASK_GET`] and [`MASK_SET`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MaskArgument {
    /// Bits of [`TransactionMask`].
    pub mask: u32,
    /// Interval of the transaction timer in milliseconds.
    pub timer_ms: u32,
}

/// Argument of [`INFO`]; [`VolumeInfo`] has the meaning of the fields. Texts are padded with zeros.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct InfoArgument {
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
    /// Bits of [`info_flag`].
    pub flags: u32,
    pub reserved: u32,
    /// Why the volume became read-only by itself.
    pub poisoned: [u8; 128],
}

/// Bits of [`InfoArgument::flags`].
pub mod info_flag {
    /// One copy of the superblock was damaged at open.
    pub const SUPERBLOCK_DAMAGED: u32 = 1;
    /// The volume was opened read-only.
    pub const READ_ONLY: u32 = 2;
    /// The volume became read-only by itself.
    pub const POISONED: u32 = 4;
}

/// Makes all writes of programs so far durable, including those that are only in the kernel's
/// cache.
///
/// # Errors
/// ENOTTY if `file` is not on a Steadfast mount. EIO, ENOSPC and others if data could not be
/// written; then no transaction point was set.
pub fn transact(file: &File) -> io::Result<()> {
    call::<[u8; 0]>(file, TRANSACT, &mut [])
}

/// Like [`transact`], followed by a checkpoint that empties the intent log. Only the mounting user
/// and root may use it.
///
/// # Errors
/// As for [`transact`]; EPERM.
pub fn checkpoint(file: &File) -> io::Result<()> {
    call::<[u8; 0]>(file, CHECKPOINT, &mut [])
}

/// Rolls the volume back to the last durable transaction point. Open files become stale (ESTALE).
/// Only the mounting user and root may use it.
///
/// # Errors
/// EBUSY while files are open for writing, unless `force`; EPERM; ENOTTY.
pub fn rollback(file: &File, force: bool) -> io::Result<()> {
    call(file, ROLLBACK, &mut RollbackArgument { force: u32::from(force), reserved: 0 })
}

/// [`ATOMIC_BEGIN`] on an open control file.
///
/// # Errors
/// EALREADY; EPERM; EROFS; EIO, ENOSPC and others if earlier writes could not be made durable;
/// ENOTTY.
pub fn atomic_begin(control: &File) -> io::Result<()> {
    call::<[u8; 0]>(control, ATOMIC_BEGIN, &mut [])
}

/// [`ATOMIC_COMMIT`] on the same descriptor.
///
/// # Errors
/// EINVAL if this descriptor does not hold the volume. EIO, ENOSPC and others if dirty pages could
/// not be written, now or since the beginning; the volume is still held, so abort. EROFS if the
/// volume became read-only, in the state of the beginning.
pub fn atomic_commit(control: &File) -> io::Result<()> {
    call::<[u8; 0]>(control, ATOMIC_COMMIT, &mut [])
}

/// [`ATOMIC_ABORT`] on the same descriptor.
///
/// # Errors
/// EINVAL if this descriptor does not hold the volume. EIO if the state cannot be read; the volume
/// is read-only then.
pub fn atomic_abort(control: &File) -> io::Result<()> {
    call::<[u8; 0]>(control, ATOMIC_ABORT, &mut [])
}

/// Returns whether the volume is held.
///
/// # Errors
/// ENOTTY.
pub fn atomic_status(file: &File) -> io::Result<AtomicArgument> {
    let mut argument = AtomicArgument { flags: 0, process: 0 };
    call(file, ATOMIC_STATUS, &mut argument)?;
    Ok(argument)
}

/// Returns the cached writes since the mount that could not be stored.
///
/// # Errors
/// ENOTTY.
pub fn lost_writes(file: &File) -> io::Result<LostWritesArgument> {
    let mut argument = LostWritesArgument { bytes: 0, writes: 0, errno: 0 };
    call(file, LOST_WRITES, &mut argument)?;
    Ok(argument)
}

/// Returns the cached writes that could not be stored, of those whose error no call on their file
/// has returned, nor this function. After a rollback earlier ones do not count.
///
/// # Errors
/// ENOTTY; EPERM for other users than the one who mounted, and root.
pub fn lost_writes_new(file: &File) -> io::Result<LostWritesArgument> {
    let mut argument = LostWritesArgument { bytes: 0, writes: 0, errno: 0 };
    call(file, LOST_WRITES_NEW, &mut argument)?;
    Ok(argument)
}

/// Updates access times, or no longer, until the unmount.
///
/// # Errors
/// EPERM; ENOTTY.
pub fn access_times(file: &File, updated: bool) -> io::Result<()> {
    call(file, ACCESS_TIMES, &mut u32::from(updated).to_ne_bytes())
}

/// Grows the volume, and the image file below it, to `size` bytes. A block device must already have
/// that size.
///
/// # Errors
/// EINVAL (not larger, or not a valid size); ENXIO (the device is shorter); EFBIG, ENOSPC and
/// others from the file below; EALREADY; EPERM; EROFS; ENOTTY.
pub fn grow(file: &File, size: u64) -> io::Result<()> {
    call(file, GROW, &mut size.to_ne_bytes())
}

/// Discards the free space of the volume in runs of at least `least` bytes. Returns the number of
/// discarded bytes. Sets transaction points first if the mask has the timer; otherwise what the
/// last point needs stays.
///
/// # Errors
/// EPERM; EALREADY while a transaction holds the volume; EROFS; EIO; ENOTTY.
pub fn trim(file: &File, least: u64) -> io::Result<u64> {
    let mut argument = TrimArgument { start: 0, length: u64::MAX, least };
    call(file, TRIM, &mut argument)?;
    Ok(argument.length)
}

/// Does one bounded step of defragmentation on a regular file. Returns `None` when the file is
/// done.
///
/// # Errors
/// EINVAL, EISDIR; EALREADY; EPERM; EROFS; EIO; ENOTTY.
pub fn defragment_step(
    file: &File,
    cursor: DefragmentCursor,
) -> io::Result<Option<DefragmentCursor>> {
    let mut argument =
        DefragmentArgument { block: cursor.block, goal: cursor.goal, done: 0, reserved: 0 };
    call(file, DEFRAGMENT, &mut argument)?;
    let next = DefragmentCursor { block: argument.block, goal: argument.goal };
    Ok((argument.done == 0).then_some(next))
}

/// Returns how the data of a regular file is laid out.
///
/// # Errors
/// EINVAL, EISDIR; ENOTTY.
pub fn fragmentation(file: &File) -> io::Result<Fragmentation> {
    let mut argument = FragmentationArgument { blocks: 0, extents: 0, runs: 0 };
    call(file, FRAGMENTATION, &mut argument)?;
    Ok(Fragmentation { blocks: argument.blocks, extents: argument.extents, runs: argument.runs })
}

/// Returns the transaction mask and the interval of the timer in milliseconds.
///
/// # Errors
/// ENOTTY.
pub fn mask_get(file: &File) -> io::Result<(TransactionMask, u32)> {
    let mut argument = MaskArgument { mask: 0, timer_ms: 0 };
    call(file, MASK_GET, &mut argument)?;
    Ok((TransactionMask(argument.mask), argument.timer_ms))
}

/// Sets the transaction mask and the interval of the timer in milliseconds. Only the mounting user
/// and root may use it.
///
/// # Errors
/// EINVAL for unknown bits. EOPNOTSUPP for `write` on a mount with the write-back cache. EBUSY for
/// `close` if files were closed while the mask did not have it: the kernel does not report closes
/// to this mount any more. EPERM; ENOTTY.
pub fn mask_set(file: &File, mask: TransactionMask, timer_ms: u32) -> io::Result<()> {
    call(file, MASK_SET, &mut MaskArgument { mask: mask.0, timer_ms })
}

/// Returns properties and state of the volume.
///
/// # Errors
/// ENOTTY.
pub fn info(file: &File) -> io::Result<VolumeInfo> {
    let mut argument = InfoArgument::new_zeroed();
    call(file, INFO, &mut argument)?;
    Ok(VolumeInfo::from(&argument))
}

impl From<&VolumeInfo> for InfoArgument {
    fn from(info: &VolumeInfo) -> InfoArgument {
        let mut flags = 0;
        for (set, bit) in [
            (info.superblock_damaged, info_flag::SUPERBLOCK_DAMAGED),
            (info.read_only, info_flag::READ_ONLY),
            (info.poisoned.is_some(), info_flag::POISONED),
        ] {
            flags |= if set { bit } else { 0 };
        }
        InfoArgument {
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
        }
    }
}

impl From<&InfoArgument> for VolumeInfo {
    fn from(argument: &InfoArgument) -> VolumeInfo {
        let has = |bit: u32| argument.flags & bit != 0;
        VolumeInfo {
            version: argument.version,
            uuid: argument.uuid,
            label: text(&argument.label),
            size: argument.size,
            block_size: argument.block_size,
            node_size: argument.node_size,
            metadata_copies: argument.metadata_copies as u8,
            log_size: argument.log_size,
            features_compatible: argument.features_compatible,
            features_read_only: argument.features_read_only,
            features_incompatible: argument.features_incompatible,
            generation: argument.generation,
            replayed_records: argument.replayed_records,
            log_used: argument.log_used,
            transaction_points: argument.transaction_points,
            repaired_reads: argument.repaired_reads,
            superblock_damaged: has(info_flag::SUPERBLOCK_DAMAGED),
            mask: TransactionMask(argument.mask),
            timer_ms: argument.timer_ms,
            read_only: has(info_flag::READ_ONLY),
            poisoned: has(info_flag::POISONED).then(|| permanent(text(&argument.poisoned))),
            incarnation: argument.incarnation,
            uncommitted: argument.uncommitted,
        }
    }
}

/// Truncates at a character boundary, so that the text stays valid UTF-8.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let end = text.floor_char_boundary(N);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Only a few fixed texts occur as reasons for becoming read-only; each is stored once.
fn permanent(text: String) -> &'static str {
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.iter().find(|same| **same == text) {
        return same;
    }
    let kept: &'static str = text.leak();
    known.push(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable() {
        assert_eq!(TRANSACT, 0x0000_d501);
        assert_eq!(ROLLBACK, 0x4008_d502);
        assert_eq!(MASK_GET, 0x8008_d503);
        assert_eq!(MASK_SET, 0x4008_d504);
        assert_eq!(INFO, 0x8130_d505);
        assert_eq!(CHECKPOINT, 0x0000_d506);
        assert_eq!([ATOMIC_BEGIN, ATOMIC_COMMIT, ATOMIC_ABORT], [0xd520, 0xd521, 0xd522]);
        assert_eq!(ATOMIC_STATUS, 0x8008_d523);
        assert_eq!([LOST_WRITES, LOST_WRITES_NEW], [0x8018_d527, 0x8018_d529]);
        assert_eq!(TRIM, (READ | WRITE) << 30 | 24 << 16 | u32::from(b'X') << 8 | 121);
        assert_eq!([GROW, DEFRAGMENT, FRAGMENTATION], [0x4008_d524, 0xc018_d525, 0x8018_d526]);
    }

    #[test]
    fn info_survives_the_way() {
        let mut argument = InfoArgument::new_zeroed();
        argument.label = padded("größer");
        argument.size = 7;
        argument.flags = info_flag::POISONED;
        argument.poisoned = padded("a write failed");
        let info = VolumeInfo::from(&argument);
        assert_eq!(
            (info.label.as_str(), info.size, info.poisoned),
            ("größer", 7, Some("a write failed"))
        );
        assert_eq!(InfoArgument::from(&info).as_bytes(), argument.as_bytes());
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(text(&padded::<4>("abcö")), "abc");
    }
}
