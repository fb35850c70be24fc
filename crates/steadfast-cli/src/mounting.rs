//! Which kind of mount it is: of one machine, or of a node of a cluster.

use std::path::Path;

use crate::daemon::Ready;
use crate::failure::Outcome;
use crate::mount_options::MountSettings;
use crate::owning::{self, Owned};
use crate::{cluster, serve, sharing};

/// Mounts the volume and serves it until it is unmounted.
///
/// # Errors
/// What prevents the mount, and the failure of the last transaction point.
pub fn run(image: &Path, directory: &Path, settings: &MountSettings, ready: Ready) -> Outcome {
    if !cluster::is_cluster(image) {
        return serve::run(None, image, directory, settings, ready);
    }
    let claim = serve::check_host(directory).and_then(|()| owning::claim(image, settings));
    let claim = claim.inspect_err(|failure| ready.failed(failure))?;
    if claim.volume.shared {
        return sharing::run(claim, directory, settings, ready);
    }
    // While this process stands by there is nothing to unmount, so a signal ends it.
    let owned = owning::own(claim, &ready).inspect_err(|failure| ready.failed(failure))?;
    let Some(owned) = owned else { return Ok(()) };
    own(owned, directory, settings, ready)
}

fn own(owned: Owned, directory: &Path, settings: &MountSettings, ready: Ready) -> Outcome {
    let ended = serve::run(Some(&owned), owned.medium(), directory, settings, ready);
    let released = owned.release(ended.is_ok(), Some(true));
    ended.and(released)
}
