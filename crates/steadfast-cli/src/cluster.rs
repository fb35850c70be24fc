//! Addresses of volumes of a cluster (`cluster://ETCD/NAME`), and what is wrong with them.

use std::path::Path;

use steadfast_cluster::{ClusterAddress, ClusterError};

use crate::failure::{Exit, Failure, Outcome};
use crate::{rados, remote};

/// Whether the path is the address of a volume in a cluster.
pub fn is_cluster(path: &Path) -> bool {
    path.to_str().is_some_and(steadfast_cluster::is_address)
}

/// Reads an address.
///
/// # Errors
/// What is wrong with it.
pub fn address(path: &Path) -> Outcome<ClusterAddress> {
    let address = path.to_str().unwrap_or_default().parse();
    address.map_err(|error| failure(&error, path))
}

/// Whether the medium itself refuses its earlier owners.
pub fn fences_itself(medium: &Path) -> bool {
    let array = || remote::address(medium).is_ok_and(|address| address.etcd.is_some());
    rados::is_rados(medium) || remote::is_remote(medium) && array()
}

/// The failure of a command that works on a medium and got a volume of a cluster.
pub fn only_mount(path: &Path) -> Failure {
    Failure::new(
        Exit::Usage,
        "a volume of a cluster can only be mounted",
        path.display(),
        "give the address of its medium, which 'steadfast cluster status' shows",
    )
}

/// The failure of a request to a cluster.
pub fn failure(error: &ClusterError, path: &Path) -> Failure {
    let (exit, advice) = match error {
        ClusterError::Address(_) => {
            (Exit::Usage, "write cluster://ETCD[,ETCD]/NAME, with ?node=NAME if needed")
        }
        ClusterError::Store(_) => {
            (Exit::Failed, "check that etcd runs, its address, and the network")
        }
        ClusterError::Tls(_) => (Exit::Usage, "give PEM files that belong together"),
        ClusterError::NoVolume(_) => {
            (Exit::NotAVolume, "check the name, or make it with 'steadfast cluster create'")
        }
        ClusterError::Exists(_) => (Exit::Busy, "use another name"),
        ClusterError::Owned(_) => {
            (Exit::Busy, "unmount it there; or 'steadfast cluster evict', and 'evict --fenced'")
        }
        ClusterError::NotOwned => (Exit::Failed, "mount it"),
        ClusterError::NoNode(_) => {
            (Exit::Usage, "see 'steadfast cluster status' for the nodes that stand by")
        }
        ClusterError::NameTaken(..) => (Exit::Busy, "give another name with ?node=NAME"),
        ClusterError::Deposed(..) => (Exit::Failed, "mount it again to stand by"),
        ClusterError::Garbled(_) => (Exit::Damaged, "use a newer version of this program"),
        ClusterError::Busy => (Exit::Failed, "try again"),
    };
    Failure::new(exit, error.to_string(), path.display(), advice)
}
