//! The NBD client: one connection with many requests in flight, and the servers of an array.

mod buffered;
mod error;
mod handshake;
mod link;
mod stream;
mod tcp;

pub use error::LinkError;
pub use handshake::Endpoint;
pub use link::{Ask, Link, Question};
pub use stream::{ClientTls, Transport, client_config};
pub use tcp::{FleetOptions, TcpFleet};
