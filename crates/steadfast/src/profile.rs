//! What this build leaves out to be small: one constant for each feature of the crate.
//!
//! The format is the same in every build. A volume that uses what a build does not have is refused,
//! or the operation that would need it fails; both say [`Error::Unsupported`].

use crate::error::Error;

/// Taking, deleting and returning to snapshots, and files that share blocks.
pub const SNAPSHOTS: bool = cfg!(feature = "snapshots");
/// Changing extended attributes and ACLs.
pub const XATTRS: bool = cfg!(feature = "xattrs");
/// Names and attributes kept in front of the tree.
pub const NAME_CACHE: bool = cfg!(feature = "name-cache");
/// Reading beside the log after opening, instead of replaying it first.
pub const LOG_OVERLAY: bool = cfg!(feature = "log-overlay");

/// What a build without snapshots answers.
pub const NO_SNAPSHOTS: Error =
    Error::Unsupported("snapshots and shared blocks: this build is without them");
/// What a build without extended attributes answers.
pub const NO_XATTRS: Error =
    Error::Unsupported("extended attributes and ACLs: this build is without them");
