//! Reasons why a part cannot be used, each as a one-line message.

use std::io;
use std::path::PathBuf;

use steadfast_flash::nand::NandGeometryError;

use crate::OpenError;

/// Reason why an MTD device or an image of a part was not opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NandOpenError {
    /// As for every file: it does not exist, permission is denied, or it is in use.
    #[error(transparent)]
    File(#[from] OpenError),
    /// Not an MTD character device.
    #[error("{}: is no MTD character device; give one such as /dev/mtd0", .0.display())]
    NotMtd(PathBuf),
    /// An MTD device that is not NAND.
    #[error("{}: is {what}, not NAND; Steadfast's flash layer needs NAND", path.display())]
    NotNand {
        /// The device.
        path: PathBuf,
        /// Its actual type.
        what: &'static str,
    },
    /// UBI or a mount uses the part.
    #[error("{}: in use by {user}; detach or unmount it first", path.display())]
    UsedBy {
        /// The device.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// The geometry of the part is unusable.
    #[error("{}: {why}", path.display())]
    Geometry {
        /// The device.
        path: PathBuf,
        /// The problem.
        why: NandGeometryError,
    },
    /// Too few free out-of-band bytes.
    #[error("{}: has {has} free out-of-band bytes of a page, {needed} are needed", path.display())]
    OutOfBand {
        /// The device.
        path: PathBuf,
        /// Free bytes.
        has: u32,
        /// Bytes that are needed.
        needed: u32,
    },
    /// The length of the file is not that of an image of the part.
    #[error("{}: has {has} bytes, an image of {part} has {needed}; name the part that it is of", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The part.
        part: &'static str,
        /// The length of the file.
        has: u64,
        /// The length of an image.
        needed: u64,
    },
    /// Any other error of the system.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
