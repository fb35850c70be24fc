//! [`ClusterError`].

use steadfast_remote::etcd::StoreError;
use steadfast_remote::server::TlsError;

/// Why a request to a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The address is malformed.
    #[error("{0}")]
    Address(String),
    /// An error of etcd.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A certificate or key for etcd is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No volume has this name.
    #[error("etcd knows no volume '{0}'")]
    NoVolume(String),
    /// A volume has this name already.
    #[error("there is a volume '{0}' in the cluster already")]
    Exists(String),
    /// A node owns the volume.
    #[error("{0} owns the volume")]
    Owned(String),
    /// No node owns the volume.
    #[error("no node owns the volume")]
    NotOwned,
    /// No node of this name stands by.
    #[error("no node '{0}' stands by")]
    NoNode(String),
    /// Another node of this name takes part.
    #[error("a node '{0}' takes part already, {1}")]
    NameTaken(String, String),
    /// Another node has taken over.
    #[error("{0} has taken over in epoch {1}")]
    Deposed(String, u64),
    /// An unreadable record, written by another program or a newer version.
    #[error("the record {0} in etcd cannot be read")]
    Garbled(String),
    /// Others changed the record at every attempt.
    #[error("others change the record of the volume all the time")]
    Busy,
}
