//! What volumes lie on, and what this program opens there.

use std::sync::Arc;

use steadfast::Volume;
use steadfast_host::HostPlatform;
use steadfast_media::Medium;

/// The volumes that this program works on.
pub type HostVolume = Volume<HostMedium, HostPlatform>;

/// An image file, a block device, or flash through the translation layer. All commands use this one
/// type, and give clones away, so that the program has the core once.
pub type HostMedium = Arc<dyn Medium>;

/// What to do with an image that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Fail, and leave it as it is.
    Keep,
    /// Format over it.
    Overwrite,
}

/// An image to format.
pub struct Created {
    /// Open for writing, and locked.
    pub medium: HostMedium,
    /// This program has made it, so a failure may remove it.
    pub new: bool,
}
