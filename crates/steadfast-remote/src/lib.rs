//! Remote memory for Steadfast: the NBD protocol on both sides, and media made of the memory of
//! other machines.
//!
//! - [`protocol`]: what both sides say, as bytes, without I/O;
//! - [`export`]: what a server gives out: [lent memory](export::MemoryPool), or [any
//!   medium](export::MediumExport);
//! - [`RemoteMedium`]: an array at an [`Address`], looked after;
//! - [`mod@array`]: a medium on several servers, which survives losses of them;
//! - [`behind`]: a second state of an array on a local disk, for when all servers are lost;
//! - [`client`]: the client: one connection, many requests in flight;
//! - [`hostile`]: both sides against any bytes, for tests and fuzzers;
//! - [`etcd`]: which servers there are, whose memory is whose, and who may write, where etcd says
//!   so;
//! - [`server`]: the server: one thread a connection, everything bounded.
//!
//! Decision 0012 has the reasons.

mod address;
pub mod array;
pub mod behind;
pub mod client;
pub mod etcd;
pub mod export;
pub mod hostile;
mod latency;
mod live;
mod log_place;
mod medium;
mod place;
pub mod protocol;
mod restore;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
pub mod server;
mod tender;
mod witness;

pub use address::{Address, EtcdAddress, SCHEME, SCHEME_ETCD, is_address};
pub use latency::Latency;
pub use live::{Live, LiveLog, LiveMember, LiveRebuild};
pub use log_place::LogReport;
pub use medium::{RemoteError, RemoteMedium, Watch};
pub use place::ServerReport;
pub use restore::Restored;
pub use witness::DirectoryWitness;
