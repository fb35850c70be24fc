//! The errors of a connection to a server.

use std::io;

use crate::protocol::ProtocolError;

/// Why a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection broke, or the server took too long.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server sent something that the protocol does not allow.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// TLS is required and the server has none.
    #[error("the server has no TLS")]
    NoTls,
    /// The server does not offer this export.
    #[error("the server does not give out this export")]
    NoExport,
}
