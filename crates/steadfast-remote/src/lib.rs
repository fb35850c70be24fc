//! Remote memory for Steadfast: the NBD protocol on both sides, and media made of the memory of other machines.
//!
//! - [`protocol`]: what both sides say, as bytes, without I/O;
//! - [`export`]: what a server gives out: [lent memory](export::MemoryPool), or [any medium](export::MediumExport);
//! - [`client`]: the client: one connection, many requests in flight;
//! - [`server`]: the server: one thread a connection, everything bounded.
//!
//! Decision 0012 has the reasons.

pub mod client;
pub mod export;
pub mod protocol;
pub mod server;
