//! What volumes lie on, and what this program opens there.

use steadfast::Volume;
use steadfast_host::HostPlatform;
use steadfast_media::Medium;

/// The volumes that this program works on.
pub type HostVolume = Volume<HostMedium, HostPlatform>;

/// An image file, a block device, or flash through the translation layer.
pub type HostMedium = Box<dyn Medium>;
