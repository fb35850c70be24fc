//! Why a part cannot be used. One line for people each.

use std::io;
use std::path::PathBuf;

use steadfast_flash::nand::NandGeometryError;

use crate::OpenError;

/// Why an MTD device or an image of a part was not opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NandOpenError {
    /// As with every file: it is not there, not permitted, in use.
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
        /// What it is.
        what: &'static str,
    },
    /// The part is under UBI or mounted.
    #[error("{}: in use by {user}; detach or unmount it first", path.display())]
    UsedBy {
        /// The device.
        path: PathBuf,
        /// By whom.
        user: String,
    },
    /// The part has sizes that cannot be used.
    #[error("{}: {why}", path.display())]
    Geometry {
        /// The device.
        path: PathBuf,
        /// What is wrong.
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
    /// The file is not as long as an image of the part.
    #[error("{}: has {has} bytes, an image of {part} has {needed}; name the part that it is of", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The part.
        part: &'static str,
        /// Its length.
        has: u64,
        /// The length of an image.
        needed: u64,
    },
    /// Anything else that the system says.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
