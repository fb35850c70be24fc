//! The errors of an array at an address.

use crate::array::ArrayError;
use crate::behind::LogError;
use crate::etcd::EtcdError;
use crate::server::TlsError;

/// Why an array at an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// An error of the array.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// A certificate or key is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Another process of this machine has the array open.
    #[error("the array is in use by another process of this machine")]
    InUse,
    /// An error of etcd, or of its records.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// An error of the write-behind log, with its path.
    #[error("the write-behind log {0}: it {1}")]
    Log(String, LogError),
    /// The array cannot be opened, but the log has a state of it. With the path of the log.
    #[error(
        "{0}; the write-behind log {1} has a state of it: 'steadfast remote restore' makes an array of that"
    )]
    Restorable(ArrayError, String),
    /// A server still has the array that is to be restored.
    #[error("server {0} still holds the array, and may be newer than the log")]
    Alive(String),
    /// A server has another array.
    #[error("server {0} holds another array")]
    Occupied(String),
    /// An error of the witness directory, or no thread.
    #[error("{0}")]
    Host(String),
}
