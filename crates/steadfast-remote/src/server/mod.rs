//! The NBD server: accepts, negotiates, and answers.
//!
//! There is one thread for each connection, and requests of a connection are answered in order.
//! Exports are memory or files, where a request takes microseconds, and a client that needs more
//! parallelism opens more connections. There is no executor and no hand-over between threads.
//!
//! # Limits
//! - Connections: [`Limits::connections_max`], and [`Limits::connections_per_peer`]. One more gets
//!   the seat of an idle connection; if none is idle, it is closed at once.
//! - Negotiation, including TLS: [`Limits::negotiation_time`] in all, and a number of options.
//! - Memory: [`PIECE`] for input and for output of each connection, whatever the length of a
//!   request.
//! - Slow clients: a message that has begun must continue, in both directions, within
//!   [`Limits::stall_time`].

mod connection;
mod listen;
mod negotiate;
mod seats;
mod stream;
mod tls;
mod transmit;

use std::io;
use std::time::Duration;

pub use connection::serve_stream;
pub use listen::{Server, ServerOptions, is_loopback};
pub use stream::{Accepted, PIECE};
pub use tls::{TlsError, TlsFiles, server_config};
pub(crate) use tls::{
    authorities as tls_authorities, certificates as tls_certificates, identity as tls_identity,
    provider as tls_provider,
};

/// Limits for clients of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most connections at a time.
    pub connections_max: usize,
    /// Most connections at a time from one address; `None` sets no limit of its own.
    pub connections_per_peer: Option<usize>,
    /// Time without a request after which a connection is idle and may lose its seat.
    pub idle_time: Duration,
    /// Time limit of the whole negotiation.
    pub negotiation_time: Duration,
    /// Time limit for the next bytes of a message that has begun.
    pub stall_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 128,
            connections_per_peer: None,
            idle_time: Duration::from_secs(5),
            negotiation_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(30),
        }
    }
}

/// What the peer sent is no message of the protocol.
fn invalid(error: crate::protocol::ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
