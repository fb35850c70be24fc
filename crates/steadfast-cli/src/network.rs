//! Media that are reached over the network and named by an address: arrays of remote memory, and
//! images in RADOS; also volumes of a cluster. Their addresses are no paths of files.

use std::path::Path;

use crate::{cluster, rados, remote};

/// Whether the path is such an address.
pub fn is_address(path: &Path) -> bool {
    remote::is_remote(path) || rados::is_rados(path) || cluster::is_cluster(path)
}
