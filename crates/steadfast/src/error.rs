//! All errors, one variant for each cause. They are mapped to errno and to messages only at the
//! edges.

use steadfast_media::{ErrorClass, MediumError};

use crate::newer::NewerState;
use crate::types::{BlockAddress, InodeNumber};

/// Cause of [`Error::Poisoned`]: another writer was found. The changes of one of the two are lost.
pub const SECOND_WRITER: &str = "another program or machine writes to it at the same time";
/// Cause of [`Error::Poisoned`]: the file system or device below the medium has no more room.
pub const STORAGE_FULL: &str = "the storage below it is full";

/// Result of every operation of the core.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why an operation failed. Nothing was changed unless the variant says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Error {
    // Errors of names and files.
    /// No such file, directory or directory entry.
    NotFound,
    /// The name exists already.
    AlreadyExists,
    /// A directory was needed.
    NotADirectory,
    /// The operation does not work on directories.
    IsADirectory,
    /// The directory still has entries.
    DirectoryNotEmpty,
    /// The operation works on regular files only (or not on this type of file).
    NotARegularFile,
    /// The name has more bytes than the volume's node size or 255 allows.
    NameTooLong,
    /// A name is empty, `.` or `..`, or has a slash or a NUL byte where that is not allowed.
    InvalidName,
    /// A symbolic link target, attribute value or path is longer than the format holds.
    ValueTooLong,
    /// An argument is out of range; the text says which.
    InvalidArgument(&'static str),
    /// The file would grow beyond 2^63 − 1 bytes.
    FileTooLarge,
    /// The inode already has the largest link count.
    TooManyLinks,
    /// A directory cannot be moved below itself.
    MoveIntoSelf,
    /// A path has more symbolic links than are followed.
    SymlinkLoop,
    /// No such extended attribute.
    NoAttribute,
    /// The given buffer is smaller than the value.
    BufferTooSmall,
    /// The offset lies beyond the last data (SEEK_DATA) or the end of the file.
    NoSuchOffset,
    /// More than sixteen names of one directory share a hash. Does not happen by chance.
    DirectoryFull,
    /// The inode number is no longer in use (deleted or rolled back).
    Stale(InodeNumber),
    /// The operation is not allowed on this object.
    NotPermitted,
    /// The operation is not supported.
    Unsupported(&'static str),

    // Errors of the volume.
    /// No space left. Delete something. If `volume full` is masked out, commit or roll back.
    NoSpace,
    /// The volume was opened read-only.
    ReadOnly,
    /// The volume is read-only because of the named earlier failure; acknowledged changes are safe.
    Poisoned(&'static str),
    /// Files are open for writing (rollback without force) or the volume is otherwise in use.
    Busy,
    /// Snapshots newer than the target of the rollback would be destroyed.
    NewerSnapshots,
    /// One caller holds the volume and alone sets transaction points (an atomic command is
    /// running).
    Held,
    /// Memory could not be allocated.
    OutOfMemory,

    // Errors of the medium and of its content.
    /// The medium reported an error.
    Medium(MediumError),
    /// Metadata is damaged: no copy of the needed node or value passes its checks.
    CorruptMetadata {
        /// Address of the bad node (first copy).
        address: BlockAddress,
        /// What was wrong.
        reason: &'static str,
    },
    /// A record of the intent log has a good checksum and breaks the format. Its state cannot be
    /// shown, so the volume does not open, or can only be read.
    CorruptLog {
        /// Address of the record, or of the log.
        address: BlockAddress,
        /// What was wrong.
        reason: &'static str,
    },
    /// File data does not match its checksum.
    CorruptData {
        /// The file.
        inode: InodeNumber,
        /// The bad block.
        address: BlockAddress,
    },

    // Errors of opening and formatting.
    /// Neither superblock copy is a Steadfast superblock.
    NotSteadfast,
    /// A superblock copy has the magic but both copies are damaged.
    SuperblockDamaged,
    /// The format version is newer than this code.
    UnsupportedVersion(u32),
    /// Incompatible features that this code does not know are in use (the bits).
    UnsupportedFeatures(u64),
    /// The volume uses features that this code can only read safely (the bits); open it read-only.
    ReadOnlyFeatures(u64),
    /// The checksum algorithm or another parameter of the superblock is out of range.
    UnsupportedParameter(&'static str),
    /// The medium is shorter than the volume on it.
    Truncated {
        /// Size that the superblock states, bytes.
        expected: u64,
        /// Size of the medium, bytes.
        found: u64,
    },
    /// A newer state than the one that would open is damaged. The volume opens read-only, or with
    /// `recover`.
    NewerStateLost(NewerState),
    /// No metaroot slot is valid.
    NoMetaroot,
    /// The medium is too small for a volume with these parameters.
    VolumeTooSmall {
        /// Available bytes.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// Block size not a power of two from 128 to 65,536, or below the medium's atomic unit.
    BadBlockSize(u32),
}

impl Error {
    /// Whether the medium reports this as permanently unreadable: an uncorrectable sector or page.
    /// A power cut can leave one where data was being written; the next write repairs it.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Error::Medium(error) if error.class == ErrorClass::Permanent)
    }
}

impl From<MediumError> for Error {
    fn from(error: MediumError) -> Self {
        Error::Medium(error)
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use Error::*;
        match self {
            NotFound => f.write_str("no such file or directory"),
            AlreadyExists => f.write_str("name exists already"),
            NotADirectory => f.write_str("not a directory"),
            IsADirectory => f.write_str("is a directory"),
            DirectoryNotEmpty => f.write_str("directory not empty"),
            NotARegularFile => f.write_str("not a regular file"),
            NameTooLong => f.write_str("name too long"),
            InvalidName => f.write_str("not a valid name"),
            ValueTooLong => f.write_str("value too long"),
            InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            FileTooLarge => f.write_str("file too large"),
            TooManyLinks => f.write_str("too many links"),
            MoveIntoSelf => f.write_str("cannot move a directory below itself"),
            SymlinkLoop => f.write_str("too many levels of symbolic links"),
            NoAttribute => f.write_str("no such extended attribute"),
            BufferTooSmall => f.write_str("buffer too small"),
            NoSuchOffset => f.write_str("no data beyond this offset"),
            DirectoryFull => f.write_str("too many names share a hash in this directory"),
            Stale(inode) => write!(f, "inode {} is gone", inode.0),
            NotPermitted => f.write_str("operation not permitted"),
            Unsupported(what) => write!(f, "not supported: {what}"),
            NoSpace => f.write_str("no space left on the volume"),
            ReadOnly => f.write_str("volume is read-only"),
            Poisoned(why) => write!(f, "volume went read-only: {why}"),
            Busy => f.write_str("in use"),
            NewerSnapshots => f.write_str("newer snapshots exist"),
            Held => f.write_str("an atomic command is running on the volume"),
            OutOfMemory => f.write_str("out of memory"),
            Medium(error) => write!(f, "{error}"),
            CorruptMetadata { address, reason } => {
                write!(f, "damaged metadata at block {}: {reason}", address.0)
            }
            CorruptLog { address, reason } => {
                write!(f, "damaged intent log at block {}: {reason}", address.0)
            }
            CorruptData { inode, address } => {
                write!(f, "damaged data of inode {} at block {}", inode.0, address.0)
            }
            NotSteadfast => f.write_str("not a Steadfast volume"),
            SuperblockDamaged => f.write_str("both superblock copies are damaged"),
            UnsupportedVersion(version) => {
                write!(f, "format version {version} is newer than this program")
            }
            UnsupportedFeatures(bits) => write!(f, "unknown incompatible features {bits:#x}"),
            ReadOnlyFeatures(bits) => {
                write!(f, "unknown features {bits:#x} allow reading only; open it read-only")
            }
            UnsupportedParameter(what) => write!(f, "superblock parameter out of range: {what}"),
            Truncated { expected, found } => {
                write!(
                    f,
                    "medium is truncated: the volume has {expected} bytes, the medium {found}"
                )
            }
            NewerStateLost(what) => write!(f, "{what}"),
            NoMetaroot => f.write_str("no valid metaroot"),
            VolumeTooSmall { size, needed } => {
                write!(f, "volume too small: {size} bytes, at least {needed} are needed")
            }
            BadBlockSize(size) => write!(
                f,
                "block size {size} is not a power of two from 128 to 65536 at or above the medium's atomic unit"
            ),
        }
    }
}

impl core::error::Error for Error {}
