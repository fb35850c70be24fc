//! The NBD server: accepts, negotiates, and answers.
//!
//! One thread a connection, and requests of a connection are answered in their order: what is
//! served is memory or a file, where a request costs microseconds, and a client that wants more at
//! once opens more connections. No executor, no hand-over between threads.
//!
//! # What bounds it
//! - connections: [`Limits::connections_max`], and [`Limits::connections_per_peer`]; one more gets
//!   the place of one that is idle, and is closed at once where none is;
//! - negotiation, that of TLS included: [`Limits::negotiation_time`] in all, and a number of
//!   options;
//! - memory: [`PIECE`] for input and output of a connection each, however long a request is;
//! - slow clients: a message that has begun has to go on, in both directions, within
//!   [`Limits::stall_time`].

mod connection;
mod listen;
mod negotiate;
mod seats;
mod stream;
mod tls;
mod transmit;

use std::time::Duration;

pub use connection::serve_stream;
pub use listen::{Server, ServerOptions, is_loopback};
pub use stream::{Accepted, PIECE};
pub use tls::{TlsError, TlsFiles, server_config};
pub(crate) use tls::{
    authorities as tls_authorities, certificates as tls_certificates, identity as tls_identity,
    provider as tls_provider,
};

/// What a client may take of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections at a time from one address; `None`: as many as there are.
    pub connections_per_peer: Option<usize>,
    /// How long a connection has had no request that gives its place to another one.
    pub idle_time: Duration,
    /// For the whole negotiation.
    pub negotiation_time: Duration,
    /// For the next bytes of a message that has begun.
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
